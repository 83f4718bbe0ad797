"""A scheduler's warning (SIGUSR1) to workers that no launcher of ours looks after, as under srun.

The signal reaches them themselves. Rank 0's word on the last step goes to the others as all its
decisions do: nobody ends the step after it without having heard it.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from types import FrameType

from farandole.transport.wire import Wire

SOURCES = ("slurm", "openmpi", "mpich")
"""Launchers that pass the signal on to all workers."""


class Warned:
    """The wish to stop and the last step (engine.clean_stop.Notes), without a launcher's board."""

    def __init__(self, wire: Wire | None) -> None:
        """Begin.

        Args:
            wire: leads to the other ranks; None where there are none.
        """
        self._wire = wire
        self.stop_asked = False

    def ask_stop(self) -> None:
        """Wish for a stop."""
        self.stop_asked = True

    @property
    def last_step(self) -> int:
        """The step at which all stop; 0 while there is none."""
        return 0 if self._wire is None else self._wire.last_step

    @last_step.setter
    def last_step(self, step: int) -> None:
        if self._wire is not None:
            self._wire.tell_last_step(step)


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
