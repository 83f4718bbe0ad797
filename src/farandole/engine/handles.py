"""The front doors' way to the engine: default names, integer handles, blocking and not."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from farandole.engine import context
from farandole.engine.engine import Engine
from farandole.engine.handle import Handle
from farandole.engine.operations import Operation
from farandole.recorder.recorder import current
from farandole.transport.reduction import STORAGE

Unnamed = tuple[tuple[int, str], int]
"""Process set and kind of an operation without a name, and its number among them."""


_Open = tuple[Handle, Callable[[], Any], Unnamed | None]
"""A submitted operation, what returns its result, and its number if it has no name."""


class HandleTable:
    """The operations that were submitted and not yet synchronised."""

    def __init__(self) -> None:
        self._open: dict[int, _Open] = {}
        self._next = 0
        self._taken: dict[tuple[int, str], set[int]] = {}
        self._engine: Engine | None = None

    def name(
        self, kind: str, given: str | None, process_set: int = 0
    ) -> tuple[str, Unnamed | None]:
        """Return the full name of an operation, and its number if it was given none.

        Numbers are used again once synchronised, so that a loop of unnamed operations has few
        names and each is agreed on only once. All ranks of a process set count alike if they
        submit alike there.
        """
        self._current_engine()
        if given is not None:
            return f"{kind}.{given}", None
        taken = self._taken.setdefault((process_set, kind), set())
        number = 0
        while number in taken:
            number += 1
        taken.add(number)
        return f"{kind}.noname.{number}", ((process_set, kind), number)

    def free(self, unnamed: Unnamed | None) -> None:
        """Let the number of an unnamed operation be used again."""
        if unnamed is not None:
            self._taken.get(unnamed[0], set()).discard(unnamed[1])

    def add(self, handle: Handle, result: Callable[[], Any], unnamed: Unnamed | None) -> int:
        """Keep an operation; return its handle."""
        self._next += 1
        self._open[self._next] = (handle, result, unnamed)
        return self._next

    def poll(self, number: int) -> bool:
        """Say whether an operation is done; False at least once."""
        entry = self._open.get(number)
        return entry is None or self._current_engine().poll(entry[0])

    def synchronize(self, number: int) -> Any:
        """Wait for an operation; return its result or raise its error."""
        engine = self._current_engine()
        entry = self._open.get(number)
        if entry is None:
            return None
        handle, result, unnamed = entry
        try:
            engine.wait(handle)
            return result()
        finally:
            if handle.done:
                del self._open[number]
                self.free(unnamed)

    def _current_engine(self) -> Engine:
        """Return what init() set up, forgetting what belongs to an engine before it.

        Nobody completes that any more, and ranks that left different operations open would count
        differently.
        """
        engine = context.current().engine
        if engine is not self._engine:
            self._engine = engine
            self._open.clear()
            self._taken.clear()
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
    full, unnamed = table.name(kind, name, engine.number)
    _record(operation, payload)
    try:
        engine.run(full, operation)
    finally:
        table.free(unnamed)


def begin(
    kind: str,
    name: str | None,
    operation: Operation,
    result: Callable[[], Any],
    payload: str = "other",
    engine: Engine | None = None,
) -> int:
    """Submit an operation (see run_now); return the handle that `synchronize` turns into a result.

    Args:
        result: returns it once the operation is done.
    """
    engine = engine or context.current().engine
    full, unnamed = table.name(kind, name, engine.number)
    _record(operation, payload)
    try:
        handle = engine.submit(full, operation)
    except Exception:
        table.free(unnamed)
        raise
    return table.add(handle, result, unnamed)


def _record(operation: Operation, payload: str) -> None:
    recorder = current()
    if recorder is not None:
        signature = operation.signature
        recorder.sent(payload, math.prod(signature.shape) * STORAGE[signature.dtype].itemsize)
