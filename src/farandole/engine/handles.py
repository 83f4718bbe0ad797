"""The front doors' way to the engine: operations that are waited for, and such that are not."""

from __future__ import annotations

from typing import Any

from farandole.engine import context
from farandole.engine.coordinator import size_of
from farandole.engine.engine import Engine
from farandole.engine.operations import Operation
from farandole.recorder.recorder import current


def poll(handle: int) -> bool:
    """Say whether an asynchronous operation is done, so that `synchronize` would not wait."""
    return context.current().handles.poll(handle)


def synchronize(handle: int) -> Any:
    """Wait for an asynchronous operation and return its result.

    Args:
        handle: what an `..._async` function returned.

    Returns:
        The operation's output; None for a handle that is not known any more.

    Raises:
        CollectiveError: the operation failed, on every rank alike.
    """
    return context.current().handles.synchronize(handle)


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
    now = context.current()
    engine = engine or now.engine
    full = now.handles.name(kind, name, engine.number)
    if (recorder := current()) is not None:
        recorder.sent(payload, nbytes := size_of(operation.signature))
        if recorder.calls is not None:
            recorder.calls.called(kind, f"{nbytes} bytes")
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
    now = context.current()
    engine, handles = engine or now.engine, now.handles
    full = handles.name(kind, name, engine.number)
    if (recorder := current()) is not None:
        recorder.sent(payload, nbytes := size_of(operation.signature))
        if recorder.calls is not None:
            recorder.calls.called(kind, f"{nbytes} bytes")
    return handles.add(engine.submit(full, operation, queues=name is None), result)
