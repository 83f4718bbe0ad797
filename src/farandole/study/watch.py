"""Looking after one launch while it runs: its time, its memory, its progress."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from farandole.study.limits import MemoryGuard
from farandole.study.progress import Now, Tail
from farandole.study.records import Outcome

_SHOW_EVERY_S = 0.5


class Watch:
    """Asked ten times a second whether a launch is to be ended; keeps why it was."""

    def __init__(
        self,
        *,
        timeout_s: float,
        left_s: float | None,
        guard: MemoryGuard,
        tail: Tail,
        show: Callable[[Now], None],
        waits: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Begin to watch.

        Args:
            timeout_s: What the launch may take.
            left_s: What the study still may take; None without a limit.
            guard: Knows the limit of memory.
            tail: Follows what rank 0 writes.
            show: Takes moments to show.
            waits: Whether the launch waits in a queue first; what it may take counts from when
                rank 0 begins to write.
            clock: A clock that only goes forward.
        """
        self._clock = clock
        self._asked_s = clock()
        self.begin_s: float | None = None if waits else self._asked_s
        """When the launch began; None while it waits in a queue."""
        self._timeout_s, self._left_s = timeout_s, left_s
        self._guard, self._tail, self._show = guard, tail, show
        self._show_at_s = self._asked_s + _SHOW_EVERY_S
        self.outcome: Outcome | None = None
        """How the launch ended, if this watch ended it."""
        self.reason = ""

    def __call__(self, pids: Sequence[int]) -> bool:
        """Look at the workers; return whether to end them."""
        now_s = self._clock()
        if self.begin_s is None and self._tail.exists():
            self.begin_s = now_s
        elapsed_s = 0.0 if self.begin_s is None else now_s - self.begin_s
        if now_s >= self._show_at_s:
            self._show_at_s = now_s + _SHOW_EVERY_S
            self._tail.look()
            self._show(
                Now(
                    elapsed_s=elapsed_s,
                    steps=self._tail.steps,
                    samples_per_s=self._tail.samples_per_s,
                )
            )
        used = self._guard.over(pids)
        if used is not None:
            limit = self._guard.limit_bytes
            return self._end(
                "out_of_memory",
                f"a worker had {used / 1e9:.2f} GB of memory; its limit is {limit / 1e9:.2f} GB "
                "(--memory)",
            )
        if elapsed_s > self._timeout_s:
            return self._end(
                "timeout", f"it did not end within {self._timeout_s:g} s (--launch-timeout)"
            )
        if self._left_s is not None and now_s - self._asked_s > self._left_s:
            return self._end("interrupted", "the study's time was over (--time-limit)")
        return False

    def _end(self, outcome: Outcome, reason: str) -> bool:
        self.outcome, self.reason = outcome, reason
        return True
