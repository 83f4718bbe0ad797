"""A clean stop: all ranks leave training at one step, because the launcher was told to (SIGUSR1).

Schedulers warn a job before its time is over. The launcher notes the wish on its board; rank 0 says
which step is the last; every rank leaves there by an exception, so that a script can save.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable

from farandole.world.board import Board

# What rank 0's word takes to the boards of all hosts, with time to spare.
_WAY_S = 1.0
_MOST_AHEAD = 10_000


class StopTraining(SystemExit):
    """Training stops here, on all ranks: leave the script, with success.

    Not an Exception, so that `except Exception` around a training step does not take it for one.
    """

    def __init__(self) -> None:
        super().__init__(0)


class CleanStop:
    """Says when this rank is to stop; asked once per step of training."""

    def __init__(
        self,
        board: Board,
        *,
        rank: int,
        one_host: bool,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._board, self._leads, self._one_host = board, rank == 0, one_host
        self._clock = clock
        self._steps = 0
        self._begin_s = clock()

    def reached(self) -> bool:
        """Count a step; say whether it is the one at which all stop."""
        self._steps += 1
        board = self._board
        if self._leads and board.stop_asked and not board.last_step:
            board.last_step = self._steps + self._ahead()
        return 0 < board.last_step <= self._steps

    def _ahead(self) -> int:
        """Return how many steps from now nobody can have passed before the word arrives.

        Gradients are averaged in every step, so that no rank is more than one ahead of rank 0.
        """
        if self._one_host:
            return 2
        step_s = (self._clock() - self._begin_s) / self._steps
        return 2 + min(_MOST_AHEAD, math.ceil(_WAY_S / max(step_s, 1e-6)))
