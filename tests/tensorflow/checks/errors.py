"""Errors that programs for Horovod catch: TensorFlow's, which are ours as well."""

from __future__ import annotations

import tensorflow as tf

import farandole.tensorflow as hvd
from farandole.errors import MismatchError, UsageError
from farandole.tensorflow.callback import of_tensorflow
from tests.tensorflow.checks.both import raises


def check_what_does_not_fit_together() -> None:
    """On every rank, and everything works afterwards."""
    mine, size = hvd.rank() + 1, hvd.size()
    other = tf.int32 if hvd.rank() % 2 else tf.float32
    for call in (
        lambda: hvd.allreduce(tf.ones([mine, 2])),
        lambda: hvd.allreduce(tf.ones(3, other)),
        lambda: hvd.grouped_allreduce([tf.ones(2), tf.ones([mine, 2])]),
        lambda: hvd.allgather(tf.ones([2, mine])),
        lambda: hvd.broadcast(tf.ones(mine), 0),
        lambda: hvd.broadcast(tf.ones(2), hvd.rank()),
        lambda: hvd.alltoall(tf.ones(size, other)),
        lambda: hvd.reducescatter(tf.ones([2, mine])),
    ):
        for kind in (tf.errors.FailedPreconditionError, MismatchError):
            with raises(kind, "rank"):
                call()
    assert float(hvd.allreduce(1.0)) == 1.0


def check_they_read_as_ours() -> None:
    error = of_tensorflow(MismatchError("It differs."))
    assert isinstance(error, RuntimeError)
    assert (type(error).__name__, str(error)) == ("MismatchError", "It differs.")


def check_arguments_that_are_wrong() -> None:
    size = hvd.size()
    for call in (
        lambda: hvd.alltoall(tf.ones(size + 1)),
        lambda: hvd.alltoall(tf.ones(size - 1), tf.ones(size, tf.int32)),
    ):
        for kind in (tf.errors.InvalidArgumentError, UsageError):
            with raises(kind, "rows"):
                call()
        with raises(tf.errors.InvalidArgumentError, "rows"):
            tf.function(call)()
    with raises(tf.errors.FailedPreconditionError, "at least one dimension"):
        hvd.allgather(tf.constant(1.0))
    with raises(RuntimeError, "TensorFlow 1"):
        hvd.broadcast_global_variables(0)
