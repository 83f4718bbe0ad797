"""DistributedOptimizer with Horovod's order of arguments."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import tensorflow as tf

import farandole.tensorflow as hvd
from farandole.errors import UsageError
from tests.tensorflow.checks.both import alike, raises, same
from tests.tensorflow.checks.tape import batch, model_of, train, whole


def check_a_wrapped_optimizer_does_the_same() -> None:
    mine = lambda step: batch(step, hvd.rank())  # noqa: E731
    plain: Any = {"wrap": lambda tape: tape, "traced": True}
    expected = train(model_of(2), keras.optimizers.SGD(0.02), whole, **plain)
    optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(0.02))
    found = train(model_of(2), optimizer, mine, **plain)
    alike(found)
    assert np.linalg.norm(found - expected) < 1e-6 * np.linalg.norm(expected)
    with raises(UsageError, "optimizer of TensorFlow 1", "DistributedGradientTape"):
        hvd.DistributedOptimizer(tf.compat.v1.train.GradientDescentOptimizer(0.1))


def check_variables_of_tensorflow() -> None:
    """Programs without a Keras model: Keras's optimizers take tf.Variable, too."""
    for passes in (1, 2):
        shared, own = tf.Variable([1.0, 2.0], name="shared"), tf.Variable(3.0)
        optimizer = hvd.DistributedOptimizer(
            keras.optimizers.SGD(1.0), backward_passes_per_step=passes, scale_local_gradients=False
        )
        optimizer.register_local_var(own)
        optimizer.build([shared, own])

        @tf.function
        def step(slope: Any, optimizer: Any = optimizer, both: Any = (shared, own)) -> None:
            optimizer.apply_gradients([(slope * tf.ones_like(each), each) for each in both])

        for number in range(passes):
            step(tf.constant(hvd.rank() + number + 1.0))
        total = sum((hvd.size() + 1) / 2 + number for number in range(passes))
        same(shared, np.array([1.0, 2.0]) - total)
        same(own, 3.0 - sum(hvd.rank() + number + 1.0 for number in range(passes)))
