"""DistributedOptimizer with Horovod's order of arguments."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import tensorflow as tf

import farandole.tensorflow as hvd
from farandole.errors import UsageError
from tests.tensorflow.checks.both import alike, raises
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
