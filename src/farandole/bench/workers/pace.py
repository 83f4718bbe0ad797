"""The clock of a training whose loop is not ours: it is told when each step begins.

Standard library only.
"""

from __future__ import annotations

import time
from collections.abc import Callable


def nothing() -> None:
    """Do nothing: for frameworks whose steps have ended when they return, and ranks that meet."""


class Pace:
    """Time the steps of a loop in blocks, each of which ends when its last result is there.

    A step is timed from its beginning to the beginning of the next one, so that fetching data and
    whatever else the framework does between steps is part of it.
    """

    def __init__(
        self,
        *,
        warmup: int,
        steps: int,
        block: int = 1,
        finish: Callable[[], None] = nothing,
        meet: Callable[[], None] = nothing,
        meet_each_step: bool = False,
    ) -> None:
        """Prepare to time `steps` steps after `warmup` steps that do not count.

        Args:
            block: steps between two looks at the clock; of a block, the mean step is kept.
            finish: returns when the result of the step before is there.
            meet: returns when all ranks have called it; called where the first step begins, and
                where the first timed step does, because ranks compile for different times.
            meet_each_step: whether the ranks meet after every step.
        """
        if steps % block or not warmup:
            raise ValueError(f"{steps} steps in blocks of {block} after a warm-up of {warmup}")
        self.num_steps = warmup + steps + 1
        """Steps that the loop must run: one more begins, because it ends the last timed one."""
        self.times_s: list[float] = []
        """Seconds per step of each block, when the loop has ended."""
        self._warmup = warmup
        self._steps = steps
        self._block = block
        self._finish = finish
        self._meet = meet
        self._meet_each_step = meet_each_step
        self._last_s = 0.0
        self._begin_s = 0.0
        self._cpu_s = 0.0
        self._cores_used = 0.0

    @property
    def cores_used(self) -> float:
        """CPU time of this process over the time that passed while steps were timed."""
        return self._cores_used

    def begin(self, index: int) -> None:
        """Note that step `index` begins, counted from 0."""
        if index == 0:
            self._meet()
            return
        timed = index - self._warmup
        due = 0 <= timed <= self._steps and timed % self._block == 0
        if due or self._meet_each_step:
            self._finish()
        if timed == 0 or self._meet_each_step:
            self._meet()
        if due:
            self._look(first=timed == 0, last=timed == self._steps)

    def _look(self, *, first: bool, last: bool) -> None:
        now_s = time.perf_counter()
        if first:
            self._begin_s, self._cpu_s = now_s, time.process_time()
        else:
            self.times_s.append((now_s - self._last_s) / self._block)
        if last:
            self._cores_used = (time.process_time() - self._cpu_s) / (now_s - self._begin_s)
        self._last_s = now_s
