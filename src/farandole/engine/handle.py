"""What a submitter holds on to: whether an operation is done, how it failed, what it gave."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class Handle:
    """The future of one operation."""

    __slots__ = ("_polled", "_probe", "done", "error", "result")

    def __init__(self) -> None:
        """Begin unfinished."""
        self.done = False
        self.error: Exception | None = None
        self.result: Any = None
        self._probe: Callable[[], bool] | None = None
        self._polled = False

    def complete_by(self, probe: Callable[[], bool]) -> None:
        """Name what completes this if nobody else does: it tries, and says whether it could."""
        self._probe = probe

    def finish(self, result: Any = None) -> None:
        """Mark as done."""
        self.result = result
        self.done = True
        # It holds the operation, which holds this handle: do not wait for the garbage collector.
        self._probe = None

    def fail(self, error: Exception) -> None:
        """Mark as failed: whoever waits gets `error`."""
        self.error = error
        self.done = True
        self._probe = None

    def check(self) -> bool:
        """Return whether it is done, completing it if that is all it takes."""
        if self.done:
            return True
        # Read once: the progress thread may take it away in between.
        probe = self._probe
        return probe is not None and probe()

    def poll(self) -> bool:
        """Like check, but False the first time: programs written for Horovod count on it."""
        if not self._polled:
            self._polled = True
            return False
        return self.check()

    def delegate(self) -> None:
        """Leave completion to the progress loop from now on."""
        self._probe = None
