"""Broadcasting variables and objects."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import tensorflow as tf

from farandole.engine import arrays
from farandole.engine.arguments import check_root
from farandole.engine.context import engine_of
from farandole.engine.objects import exchange
from farandole.errors import UsageError
from farandole.tensorflow.callback import as_written, call, check_eager, like
from farandole.tensorflow.errors import NoGlobalVariablesError
from farandole.transport.reduction import Array


@as_written
def broadcast_variables(
    variables: Iterable[Any], root_rank: int, process_set: Any = None, inplace: bool = False
) -> None:
    """Give every rank the root's variables.

    Args:
        variables: TensorFlow's or Keras's, such as `model.variables` and `optimizer.variables`; in
            the same order on every rank.
        root_rank: whose values count, by its rank among all workers.
        process_set: the ranks that take part.
        inplace: without effect; variables are always assigned to.
    """
    check_root(root_rank, engine_of(process_set))
    found = list(variables)
    if not found:
        return
    kinds = ["parameters" if getattr(v, "trainable", False) else "buffers" for v in found]

    def work(*values: Array) -> list[Array]:
        engine = engine_of(process_set)
        # By number: Keras counts up names of layers, which may differ between ranks.
        return [
            arrays.broadcast(value, root_rank, f"variable.{number}", kind, engine)
            for number, (value, kind) in enumerate(zip(values, kinds, strict=True))
        ]

    tensors = [tf.convert_to_tensor(variable) for variable in found]
    received = call(work, tensors, [*map(like, tensors)])
    for variable, value in zip(found, received, strict=True):
        variable.assign(value)


@as_written
def broadcast_(
    variables: Any, root_rank: int, name: str | None = None, process_set: Any = None
) -> Any:
    """Overwrite variables, or one variable, with the root's, and return them."""
    one = hasattr(variables, "assign")
    broadcast_variables([variables] if one else variables, root_rank, process_set)
    return variables


@as_written
def broadcast_global_variables(root_rank: int) -> None:
    """Say what to use instead: TensorFlow 2 has no global variables.

    Raises:
        NoGlobalVariablesError: always; a RuntimeError.
    """
    raise NoGlobalVariablesError(
        "hvd.broadcast_global_variables() is for TensorFlow 1: TensorFlow 2 keeps no list of "
        f"variables. Use hvd.broadcast_variables(model.variables, root_rank={root_rank}), and the "
        "same with optimizer.variables."
    )


@as_written
def broadcast_object(
    obj: Any,
    root_rank: int = 0,
    session: Any = None,
    name: str | None = None,
    process_set: Any = None,
) -> Any:
    """Return the root's object on every rank.

    Args:
        obj: plain data travels without pickle; anything else is pickled between processes of one
            host, and across hosts only with FARANDOLE_ALLOW_PICKLE=1.
        root_rank: whose object counts.
        session: TensorFlow 1's; leave it out.
        name: what ties the ranks' calls together.
        process_set: the ranks that take part.
    """
    _check_no_session(session)
    check_eager("broadcast_object")
    return exchange.broadcast_object(obj, root_rank, name, process_set)


@as_written
def broadcast_object_fn(
    root_rank: int = 0, session: Any = None, name: str | None = None, process_set: Any = None
) -> Callable[[Any], Any]:
    """Return a function of an object that does what broadcast_object does."""
    _check_no_session(session)
    return lambda obj: broadcast_object(obj, root_rank, None, name, process_set)


@as_written
def allgather_object(
    obj: Any, session: Any = None, name: str | None = None, process_set: Any = None
) -> list[Any]:
    """Return every rank's object, in rank order; see broadcast_object for what may travel."""
    _check_no_session(session)
    check_eager("allgather_object")
    return exchange.allgather_object(obj, name, process_set)


def _check_no_session(session: Any) -> None:
    if session is not None:
        raise UsageError("session= is TensorFlow 1's; with TensorFlow 2 leave it out.")
