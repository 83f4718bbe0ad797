"""Objects from rank to rank, for every front door."""

from __future__ import annotations

from typing import Any

from farandole import wire
from farandole.engine import context
from farandole.engine.arguments import check_root
from farandole.engine.engine import Engine
from farandole.engine.process_sets import ProcessSet, global_process_set
from farandole.errors import CollectiveError
from farandole.recorder.recorder import current

# Stands in the place of an object that could not be sent; no encoded object begins with it.
_REFUSED = b"\x00"


def broadcast_object(
    obj: Any,
    root_rank: int = 0,
    name: str | None = None,
    process_set: ProcessSet | None = global_process_set,
) -> Any:
    """Return the root's object on every rank.

    Plain data travels without pickle. Anything else is pickled between processes of one host, and
    across hosts only with FARANDOLE_ALLOW_PICKLE=1.
    """
    engine = context.engine_of(process_set)
    place = check_root(root_rank, engine)
    is_root = engine.rank == place
    answers = _exchange(obj, f"broadcast_object.{name or 'noname'}", engine, send=is_root)
    return obj if is_root else _decoded(root_rank, answers[place])


def allgather_object(
    obj: Any, name: str | None = None, process_set: ProcessSet | None = global_process_set
) -> list[Any]:
    """Return every rank's object, in rank order; see broadcast_object for what may travel."""
    engine = context.engine_of(process_set)
    answers = _exchange(obj, f"allgather_object.{name or 'noname'}", engine, send=True)
    return [_decoded(rank, answer) for rank, answer in zip(engine.ranks, answers, strict=True)]


def _exchange(obj: Any, name: str, engine: Engine, *, send: bool) -> list[bytes]:
    """Return what each rank has sent, encoded.

    An object that cannot travel is an error here and, so that nobody waits for it, on every rank
    that would have received it.
    """
    now = context.current()
    message, error = b"", None
    if send:
        try:
            message = wire.encode(obj, allow_pickle=now.world.allow_pickle)
        except Exception as reason:
            message, error = _REFUSED + str(reason).encode(), reason
    answers = engine.exchange(message, name=name)
    recorder = current()
    if recorder is not None:
        # Who only receives counts what the root has sent.
        recorder.sent("objects", len(message) if send else sum(map(len, answers)))
        if recorder.calls is not None:
            recorder.calls.called(name.partition(".")[0], "")
    if error is not None:
        raise error
    return answers


def _decoded(rank: int, answer: bytes) -> Any:
    if answer.startswith(_REFUSED):
        reason = answer.removeprefix(_REFUSED).decode()
        raise CollectiveError(f"Rank {rank} could not send its object: {reason}")
    return wire.decode(answer, allow_pickle=context.current().world.allow_pickle)
