"""Broadcasting variables and objects."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import tensorflow as tf

from farandole.engine import arrays, context, names, objects
from farandole.engine.arguments import check_root
from farandole.engine.context import engine_of
from farandole.engine.gradients import gradients_of
from farandole.engine.process_sets import ProcessSet
from farandole.errors import UsageError
from farandole.tensorflow.callback import (
    NoGlobalVariablesError,
    as_written,
    call,
    check_eager,
    install_clean_stop,
    like,
)
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
    return objects.broadcast_object(obj, root_rank, name, process_set)


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
    return objects.allgather_object(obj, name, process_set)


def _check_no_session(session: Any) -> None:
    if session is not None:
        raise UsageError("session= is TensorFlow 1's; with TensorFlow 2 leave it out.")


def init(
    comm: Any = None, process_sets: str | Sequence[ProcessSet | Sequence[int]] | None = None
) -> None:
    """Meet the other workers. A second call without shutdown() changes nothing.

    Args:
        comm: Horovod's: all ranks, or a communicator of mpi4py that has all. Nothing else is taken.
        process_sets: sets to make at once, the same on every worker; "dynamic" lets
            `add_process_set` make some later.

    Raises:
        UsageError: a ValueError: sets that cannot be, or are there twice.
    """
    context.init(comm, process_sets)
    install_clean_stop()


def size_op(process_set_id: int = 0, name: str | None = None) -> Any:
    """Return the number of workers in a process set as an int32 tensor."""
    ranks = context.known().sets.ranks_of(process_set_id)
    return tf.constant(len(ranks), tf.int32, name=name or "size")


def process_set_included_op(process_set_id: int = 0, name: str | None = None) -> Any:
    """Return 1 as an int32 tensor if this worker is in a process set, else 0."""
    included = context.rank() in context.known().sets.ranks_of(process_set_id)
    return tf.constant(int(included), tf.int32, name=name or "process_set_included")


def rank_op(name: str | None = None) -> Any:
    """Return this worker's rank as an int32 tensor."""
    return tf.constant(context.rank(), tf.int32, name=name or "rank")


def local_rank_op(name: str | None = None) -> Any:
    """Return this worker's rank on its host as an int32 tensor."""
    return tf.constant(context.local_rank(), tf.int32, name=name or "local_rank")


def local_size_op(name: str | None = None) -> Any:
    """Return the number of workers on this host as an int32 tensor."""
    return tf.constant(context.local_size(), tf.int32, name=name or "local_size")


@as_written
def join(device: int = -1) -> int:
    """Wait until every rank has called this, taking part in the others' steps meanwhile.

    Their all-reduces, and the gradients of their steps, go on with zeros from this rank; averages
    are still divided by the number of all ranks. Their other operations raise an error. Call
    `broadcast_variables` afterwards from the rank that it returns: it has seen all steps.

    Args:
        device: Horovod's, the GPU that zeros would lie on; any number will do.

    Returns:
        The rank that joined last, the same on every rank.
    """
    del device
    check_eager("join")
    engine = context.current().engine
    return names.join(engine, gradients_of(engine))
