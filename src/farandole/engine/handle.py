"""What a submitter holds on to: whether an operation is done, how it failed, what it gave."""

from __future__ import annotations

from typing import Any


class Handle:
    """The future of one operation."""

    __slots__ = ("_polled", "done", "error", "result", "value")

    def __init__(self) -> None:
        """Begin unfinished."""
        self.done = False
        self.error: Exception | None = None
        self.result: Any = None
        self.value: Any = None
        """What a front door gives its user for it."""
        self._polled = False

    def finish(self, result: Any = None) -> None:
        """Mark as done."""
        self.result = result
        self.done = True

    def fail(self, error: Exception) -> None:
        """Mark as failed: whoever waits gets `error`."""
        self.error = error
        self.done = True

    def check(self) -> bool:
        """Return whether it is done, completing it if that is all it takes."""
        return self.done

    def poll(self) -> bool:
        """Like check, but False the first time: programs written for Horovod count on it."""
        if not self._polled:
            self._polled = True
            return False
        return self.check()
