"""A clean stop: all ranks leave training at one step, because somebody asked for it (SIGUSR1).

Schedulers warn a job before its time is over. The launcher notes the wish on its board, or rank 0
hears of it itself (engine.warned); rank 0 says which step is the last; every rank leaves there by
an exception, so that a script can save.
"""

from __future__ import annotations

import math
import signal
import threading
import time
from collections import deque
from collections.abc import Callable
from types import FrameType
from typing import Protocol

from farandole.transport.protocol import Link

# What rank 0's word takes to the boards of all hosts, with time to spare.
_WAY_S = 1.0
_MOST_AHEAD = 10_000
# Steps whose time is taken together; and how many are needed at least: some compile in the second.
_STRETCH, _FEWEST = 8, 4


class StopTraining(SystemExit):
    """Training stops here, on all ranks: leave the script, with success.

    Not an Exception, so that `except Exception` around a training step does not take it for one.
    """

    def __init__(self) -> None:
        super().__init__(0)


class Notes(Protocol):
    """Where the wish to stop and the last step are noted; a launcher's board, for one."""

    @property
    def stop_asked(self) -> bool:
        """Whether somebody wants all ranks to stop."""

    @property
    def last_step(self) -> int:
        """The step at which they do; 0 while there is none."""

    @last_step.setter
    def last_step(self, step: int) -> None: ...


class CleanStop:
    """Says when this rank is to stop; told of every step of training."""

    def __init__(
        self,
        notes: Notes,
        *,
        rank: int,
        size: int,
        at_once: bool,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Begin.

        Args:
            notes: those of this rank.
            rank: rank 0 says which step is the last.
            size: number of ranks.
            at_once: whether all ranks have rank 0's word before the next step ends; with a
                launcher's boards on several hosts they have it a moment later.
            clock: gives seconds.
        """
        self._notes, self._leads, self._alone = notes, rank == 0, size == 1
        self._at_once, self._clock = at_once, clock
        self._steps = 0
        self._ends_s: deque[float] = deque(maxlen=_STRETCH + 1)
        self._quickest_s = math.inf

    def count(self) -> None:
        """Count a step; rank 0, once it is asked for a stop, says which is the last."""
        self._steps += 1
        if not self._leads:
            return
        if not self._at_once:
            self._time()
        notes = self._notes
        if notes.stop_asked and not notes.last_step and (ahead := self._ahead()):
            notes.last_step = self._steps + ahead

    @property
    def reached(self) -> bool:
        """Whether all stop here. One rank alone need not have said so, nor have counted."""
        notes = self._notes
        return notes.stop_asked if self._alone else 0 < notes.last_step <= self._steps

    def _time(self) -> None:
        """Keep how long a step takes at least.

        Compiling, validation and the like make single steps long, and of two updates in a step one
        may come at once: so it is the quickest stretch that counts, once there is one.
        """
        ends_s = self._ends_s
        ends_s.append(self._clock())
        if 1 < len(ends_s) <= _STRETCH:
            self._quickest_s = min(self._quickest_s, ends_s[-1] - ends_s[-2])
        elif len(ends_s) > _STRETCH:
            each_s = (ends_s[-1] - ends_s[0]) / _STRETCH
            first = self._steps == _STRETCH + 1
            self._quickest_s = each_s if first else min(self._quickest_s, each_s)

    def _ahead(self) -> int:
        """Return how many steps from now nobody can have passed before the word arrives.

        Gradients are averaged in every step, so that no rank is more than one ahead of rank 0.

        Returns:
            0 where too few steps were made to tell.
        """
        if self._at_once:
            return 2
        if len(self._ends_s) < _FEWEST:
            return 0
        return 2 + min(_MOST_AHEAD, math.ceil(_WAY_S / max(self._quickest_s, 1e-6)))


SOURCES = ("slurm", "openmpi", "mpich")
"""Launchers that pass the signal on to all workers."""


class LinkNotes:
    """The wish to stop and the last step (engine.clean_stop.Notes), without a launcher's board."""

    def __init__(self, link: Link) -> None:
        """Begin; the link leads to the other ranks."""
        self._link = link
        self.stop_asked = False

    def ask_stop(self) -> None:
        """Wish for a stop."""
        self.stop_asked = True

    @property
    def last_step(self) -> int:
        """The step at which all stop; 0 while there is none."""
        return self._link.last_step or 0

    @last_step.setter
    def last_step(self, step: int) -> None:
        self._link.last_step = step


class _Hearing:
    """Our handler, which a later init() may replace."""

    def __init__(self, ask_stop: Callable[[], None]) -> None:
        self._ask_stop = ask_stop

    def __call__(self, signum: int, frame: FrameType | None) -> None:
        self._ask_stop()


def hear(ask_stop: Callable[[], None]) -> None:
    """Take SIGUSR1 for a wish to stop; a script that has its own use for it keeps that."""
    if threading.current_thread() is not threading.main_thread():
        return
    known = signal.getsignal(signal.SIGUSR1)
    if known is signal.SIG_DFL or isinstance(known, _Hearing):
        signal.signal(signal.SIGUSR1, _Hearing(ask_stop))
