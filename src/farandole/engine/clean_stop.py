"""A clean stop: all ranks leave training at one step, because the launcher was told to (SIGUSR1).

Schedulers warn a job before its time is over. The launcher notes the wish on its board; rank 0 says
which step is the last; every rank leaves there by an exception, so that a script can save.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable

from farandole.world.board import Board

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


class CleanStop:
    """Says when this rank is to stop; told of every step of training."""

    def __init__(
        self,
        board: Board,
        *,
        rank: int,
        size: int,
        one_host: bool,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._board, self._leads, self._alone = board, rank == 0, size == 1
        self._one_host, self._clock = one_host, clock
        self._steps = 0
        self._ends_s: deque[float] = deque(maxlen=_STRETCH + 1)
        self._quickest_s = math.inf

    def count(self) -> None:
        """Count a step; rank 0, once it is asked for a stop, says which is the last."""
        self._steps += 1
        if not self._leads:
            return
        if not self._one_host:
            self._time()
        board = self._board
        if board.stop_asked and not board.last_step and (ahead := self._ahead()):
            board.last_step = self._steps + ahead

    @property
    def reached(self) -> bool:
        """Whether all stop here. One rank alone need not have said so, nor have counted."""
        board = self._board
        return board.stop_asked if self._alone else 0 < board.last_step <= self._steps

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
        if self._one_host:
            return 2
        if len(self._ends_s) < _FEWEST:
            return 0
        return 2 + min(_MOST_AHEAD, math.ceil(_WAY_S / max(self._quickest_s, 1e-6)))
