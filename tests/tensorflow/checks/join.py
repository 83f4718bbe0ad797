"""join(): ranks with fewer batches than others."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import tensorflow as tf

import farandole.tensorflow as hvd
from farandole.errors import UsageError
from tests.tensorflow.checks.both import raises, same


def check_the_others_go_on_with_zeros() -> None:
    size, variable = hvd.size(), tf.Variable([1.0])

    def work() -> Any:
        with tf.GradientTape() as tape:
            loss = 6.0 * tf.reduce_sum(variable)
        (gradient,) = hvd.DistributedGradientTape(tape).gradient(loss, [variable])
        return gradient, hvd.allreduce(tf.ones(2), op=hvd.Sum, name="while.joined")

    for run in (work, tf.function(work)):
        # Each rank makes a step more than the one before it.
        for step in range(hvd.rank() + 1):
            gradient, ones = run()
            same(gradient, [6.0 * (size - step) / size])
            same(ones, np.full(2, size - step))
        assert hvd.join() == size - 1


def check_an_optimizer_goes_on() -> None:
    optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(1.0))
    variable, size = keras.Variable([0.0]), hvd.size()
    for _ in range(hvd.rank() + 1):
        optimizer.apply([tf.constant([1.0])], [variable])
    last = hvd.join()
    assert last == size - 1
    hvd.broadcast_variables([variable], last)
    same(variable.numpy(), [-sum((size - step) / size for step in range(size))])


def check_other_operations_need_all_ranks() -> None:
    if hvd.rank() == 0:
        hvd.join()
    else:
        with raises(tf.errors.FailedPreconditionError, "needs all ranks", "join()"):
            hvd.allgather(tf.ones(1), name="not.while.joined")
        hvd.join()
    with raises(UsageError, "inside of a tf.function"):
        tf.function(lambda: hvd.join(), autograph=False)()
