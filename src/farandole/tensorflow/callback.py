"""Python inside of TensorFlow: where a collective operation leaves the graph and comes back.

In a tf.function it is a `numpy_function`, which blocks one of TensorFlow's threads until all ranks
are there. Ranks that block in different operations would wait for each other forever, so that all
of them have to come in the same order: program order. TensorFlow keeps that among callbacks of one
graph, but not between them and nested functions, branches or loops that use variables. So each
callback reads a variable before it runs and writes it afterwards; what touches one variable stays
in program order everywhere.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from threading import Thread
from typing import Any, TypeVar

import numpy as np
import tensorflow as tf
from tensorflow.python.ops.control_flow_util import GraphOrParentsInXlaContext

from farandole.engine import context
from farandole.engine.arrays import aligned
from farandole.errors import (
    CollectiveError,
    MismatchError,
    PeerDiedError,
    UnfitError,
    UsageError,
)
from farandole.transport.reduction import Array

Work = Callable[..., Sequence[Any]]
Function = TypeVar("Function", bound=Callable[..., Any])

_token: Any = None


def as_written(function: Function) -> Function:
    """Keep AutoGraph from translating a function of ours inside of a tf.function (a decorator)."""
    kept: Function = tf.autograph.experimental.do_not_convert(function)
    return kept


def call(
    work: Work, inputs: Sequence[Any], outputs: Sequence[Any], *, borrowed: bool = False
) -> list[Any]:
    """Run Python on the values of tensors: now or, in a tf.function, whenever that runs.

    Args:
        work: takes an array for each input, which it only reads, and returns one for each output.
        inputs: tensors.
        outputs: a tf.TensorSpec for each result.
        borrowed: whether the results are memory that `work` uses again in its next call.

    Returns:
        A tensor for each output.
    """
    context.current()  # Without init() the error is better here than out of a graph.
    if tf.executing_eagerly():
        try:
            results = work(*(np.asarray(tensor) for tensor in inputs))
        except (MismatchError, UsageError) as error:
            raise of_tensorflow(error) from error
        # It copies, always.
        return [
            tf.convert_to_tensor(result, output.dtype)
            for result, output in zip(results, outputs, strict=True)
        ]
    _check_graph()
    token = _order()

    def callback(_: Any, *values: Any) -> list[Array]:
        try:
            results = work(*map(np.asarray, values))
        except CollectiveError as error:
            _failed.append(error)
            if isinstance(error, PeerDiedError):
                _note(error)
            raise
        return [_kept(result) if borrowed else result for result in results]

    tensors: list[Any] = tf.numpy_function(
        callback,
        [token.read_value(), *inputs],
        [output.dtype for output in outputs],
        name="farandole",
    )
    with tf.control_dependencies(tensors):
        token.assign_add(1)
    for tensor, output in zip(tensors, outputs, strict=True):
        tensor.set_shape(output.shape)
    return tensors


_failed: list[CollectiveError] = []
"""What callbacks have raised since `unwrapping` was entered last."""


@contextmanager
def unwrapping() -> Iterator[None]:
    """Raise what a callback raised as it was, and not as TensorFlow puts it."""
    _failed.clear()
    try:
        yield
    except tf.errors.OpError as error:
        if not _failed:
            raise
        raise _failed.pop(0) from error


def like(tensor: Any) -> Any:
    """Return the tf.TensorSpec of a result that is like this tensor."""
    return tf.TensorSpec(tensor.shape, tensor.dtype)


def any_rows(tensor: Any) -> Any:
    """Return the tf.TensorSpec of a result that has any number of rows like this tensor's."""
    shape = None if tensor.shape.rank is None else [None, *tensor.shape[1:]]
    return tf.TensorSpec(shape, tensor.dtype)


def check_eager(what: str) -> None:
    """Raise UsageError inside of a tf.function, where this would run only while it is traced."""
    if not tf.executing_eagerly():
        _check_graph()
        raise UsageError(
            f"{what} cannot be used inside of a tf.function: call it outside, where it runs each "
            "time and not only while TensorFlow traces the function."
        )


def _kept(array: Array) -> Array:
    """Return a copy which TensorFlow takes over as it is.

    It takes memory that is aligned without a copy of its own, and would see it change.
    """
    copy = aligned(array.size, array.dtype).reshape(array.shape)
    np.copyto(copy, array)
    return copy


def _order() -> Any:
    """Return the variable that keeps callbacks in program order."""
    global _token
    if _token is None:
        # A tf.function takes variables that are made while it is traced for its own, even within
        # init_scope, and refuses them after its first trace. It does not see other threads.
        maker = Thread(target=_make_token, name="farandole-order")
        maker.start()
        maker.join()
    return _token


def _make_token() -> None:
    global _token
    with tf.device("CPU:0"):
        _token = tf.Variable(0, trainable=False, dtype=tf.int64, name="farandole_order")


def _check_graph() -> None:
    if not tf.compat.v1.executing_eagerly_outside_functions():
        raise UsageError(
            "Farandole works with TensorFlow 2: eagerly and in tf.function. Eager execution is "
            "switched off here; leave out tf.compat.v1.disable_eager_execution() and "
            "disable_v2_behavior(), and sessions."
        )
    if GraphOrParentsInXlaContext(tf.compat.v1.get_default_graph()):
        raise UsageError(
            "Collective operations cannot be compiled by XLA: they are callbacks, and XLA has "
            "none. Use tf.function without jit_compile=True around them; functions without "
            "collectives that are called inside may keep it."
        )


def _note(error: PeerDiedError) -> None:
    """Tell the launcher that a peer ended first: TensorFlow makes its own error of this one."""
    import os

    if os.environ.get("FARANDOLE_BOARD"):
        from farandole.launch.startup import note_failure

        note_failure(error, error.__traceback__)


class NoGlobalVariablesError(UsageError, RuntimeError):
    """TensorFlow 2 has no global variables; Horovod raises a RuntimeError."""


def of_tensorflow(error: MismatchError | UsageError) -> Exception:
    """Return an error of the same class and of TensorFlow's, with the same text."""
    together = isinstance(error, MismatchError | UnfitError)
    errors = tf.errors
    theirs = errors.FailedPreconditionError if together else errors.InvalidArgumentError
    kind: Any = type(error)
    both: Exception = _both(kind, theirs)(str(error))
    return both


@functools.cache
def _both(ours: type[Exception], theirs: Any) -> Any:
    def begin(self: Any, message: str) -> None:
        theirs.__init__(self, None, None, message)

    # Its own name: what users read is not to change.
    return type(ours.__name__, (ours, theirs), {"__init__": begin, "__module__": ours.__module__})


_MARK = "_farandole_trains"
_installed = False


class _Calls(threading.local):
    """The functions that a thread is in, the outermost first."""

    def __init__(self) -> None:
        self.under_way: list[Any] = []


_calls = _Calls()


def install_clean_stop() -> None:
    """Follow the calls of tf.function's functions; once."""
    global _installed
    if _installed:
        return
    _installed = True
    function: Any = type(tf.function(lambda: None))
    plain = function.__call__

    @functools.wraps(plain)
    def __call__(self: Any, *arguments: Any, **named: Any) -> Any:  # noqa: N807
        under_way = _calls.under_way
        under_way.append(self)
        try:
            result = plain(self, *arguments, **named)
        finally:
            under_way.pop()
        if not under_way and _MARK in self.__dict__ and context.is_initialized():
            context.current().stop_if_asked()
        return result

    function.__call__ = __call__


@as_written
def end_step() -> None:
    """Leave the script if all do so at this step; out of functions that are traced, later.

    Raises:
        StopTraining: All leave.
    """
    if not tf.executing_eagerly():
        for function in _calls.under_way:
            function.__dict__[_MARK] = True
    elif context.is_initialized():
        context.current().stop_if_asked()
