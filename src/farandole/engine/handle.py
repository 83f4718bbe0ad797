"""What a submitter holds on to: whether an operation is done, how it failed, what it gave."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from farandole.engine.engine import Engine


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


_UNNAMED = 16
"""Names that operations without one take in turn; each is agreed on only once."""
_numbers = itertools.count(1)
"""Of all tables: a number that an earlier one gave out is unknown to a later one."""


class HandleTable:
    """The open operations of one engine and of its process sets'; it goes with the engine."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._open: dict[int, Handle] = {}
        self._submitted: dict[tuple[int, str], int] = {}

    def name(self, kind: str, given: str | None, process_set: int = 0) -> str:
        """Return the full name of an operation.

        Those that were given none are counted in the order of their submission, as Horovod does:
        all ranks of a process set count alike if they submit alike there.
        """
        if given is not None:
            return f"{kind}.{given}"
        counted = (process_set, kind)
        self._submitted[counted] = number = self._submitted.get(counted, -1) + 1
        return f"{kind}.noname.{number % _UNNAMED}"

    def count_anew(self, process_set: int = 0) -> None:
        """Forget how many operations had no name: ranks that sat some out come back."""
        for counted in [each for each in self._submitted if each[0] == process_set]:
            del self._submitted[counted]

    def add(self, handle: Handle, result: Any) -> int:
        """Keep an operation, with its result or a function that returns that; return its handle."""
        handle.value = result
        number = next(_numbers)
        self._open[number] = handle
        return number

    def poll(self, number: int) -> bool:
        """Say whether an operation is done; False at least once."""
        handle = self._open.get(number)
        return handle is None or self._engine.poll(handle)

    def synchronize(self, number: int) -> Any:
        """Wait for an operation; return its result or raise its error."""
        handle = self._open.get(number)
        if handle is None:
            return None
        try:
            if not (handle.done or handle.check()) or handle.error is not None:
                self._engine.wait(handle)
        finally:
            if handle.done:
                del self._open[number]
        value = handle.value
        return value() if callable(value) else value
