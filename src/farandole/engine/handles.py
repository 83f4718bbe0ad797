"""The front doors' way to the engine: default names, integer handles, blocking and not."""

from __future__ import annotations

from typing import Any

from farandole.engine import context
from farandole.engine.coordinator import size_of
from farandole.engine.engine import Engine
from farandole.engine.handle import Handle
from farandole.engine.operations import Operation
from farandole.recorder.recorder import current

_UNNAMED = 16
"""Names that operations without one take in turn; each is agreed on only once."""


class HandleTable:
    """The operations that were submitted and not yet synchronised."""

    def __init__(self) -> None:
        self._open: dict[int, Handle] = {}
        self._next = 0
        self._submitted: dict[tuple[int, str], int] = {}
        self._engine: Engine | None = None

    def name(self, kind: str, given: str | None, process_set: int = 0) -> str:
        """Return the full name of an operation.

        Those that were given none are counted in the order of their submission, as Horovod does:
        all ranks of a process set count alike if they submit alike there.
        """
        self._current_engine()
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
        self._next = number = self._next + 1
        self._open[number] = handle
        return number

    def poll(self, number: int) -> bool:
        """Say whether an operation is done; False at least once."""
        handle = self._open.get(number)
        return handle is None or self._current_engine().poll(handle)

    def synchronize(self, number: int) -> Any:
        """Wait for an operation; return its result or raise its error."""
        engine = self._current_engine()
        handle = self._open.get(number)
        if handle is None:
            return None
        try:
            if not (handle.done or handle.check()) or handle.error is not None:
                engine.wait(handle)
        finally:
            if handle.done:
                del self._open[number]
        value = handle.value
        return value() if callable(value) else value

    def _current_engine(self) -> Engine:
        """Return what init() set up, forgetting what belongs to an engine before it.

        Nobody completes that any more, and ranks that left different operations open would count
        differently.
        """
        engine = context.current().engine
        if engine is not self._engine:
            self._engine = engine
            self._open.clear()
            self._submitted.clear()
        return engine


table = HandleTable()


def poll(handle: int) -> bool:
    """Say whether an asynchronous operation is done, so that `synchronize` would not wait."""
    return table.poll(handle)


def synchronize(handle: int) -> Any:
    """Wait for an asynchronous operation and return its result.

    Args:
        handle: what an `..._async` function returned.

    Returns:
        The operation's output; None for a handle that is not known any more.

    Raises:
        CollectiveError: the operation failed, on every rank alike.
    """
    return table.synchronize(handle)


def run_now(
    kind: str,
    name: str | None,
    operation: Operation,
    payload: str = "other",
    engine: Engine | None = None,
) -> None:
    """Submit an operation and wait for it.

    Args:
        kind: the beginning of its full name.
        name: what ties the ranks' calls together; None to count them.
        operation: what to do.
        payload: the kind of bytes that it is recorded as.
        engine: of the process set; by default that of all workers.
    """
    engine = engine or context.current().engine
    full = table.name(kind, name, engine.number)
    if (recorder := current()) is not None:
        recorder.sent(payload, size_of(operation.signature))
    engine.run(full, operation, queues=name is None)


def begin(
    kind: str,
    name: str | None,
    operation: Operation,
    result: Any,
    payload: str = "other",
    engine: Engine | None = None,
) -> int:
    """Submit an operation (see run_now); return the handle that `synchronize` turns into a result.

    Args:
        result: what the operation writes to, or a function that returns it once that is done.
    """
    engine = engine or context.current().engine
    full = table.name(kind, name, engine.number)
    if (recorder := current()) is not None:
        recorder.sent(payload, size_of(operation.signature))
    return table.add(engine.submit(full, operation, queues=name is None), result)
