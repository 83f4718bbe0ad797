"""Checks of a clean stop in loops of one's own: by a tape or an optimizer, traced or not."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import farandole.tensorflow as hvd
from tests.tensorflow.checks.both import alike
from tests.tensorflow.checks.tape import batch, model_of

LONG = 1_000_000


def until_left(step: Callable[[], Any], variables: list[Any]) -> None:
    """Expect that all ranks leave after as many calls of a step, with the same weights."""
    if hvd.rank() == 0:
        os.kill(os.getppid(), signal.SIGUSR1)
    calls = 0

    def train() -> None:
        nonlocal calls
        while calls < LONG:
            calls += 1
            step()

    with pytest.raises(SystemExit) as left:
        train()
    assert left.value.code == 0
    alike(np.array([calls]))
    for variable in variables:
        alike(variable)


def a_step(model: Any, optimizer: Any, wrap: Callable[[Any], Any]) -> Callable[[], None]:
    optimizer.build(model.trainable_variables)
    x, y = map(tf.constant, batch(0, hvd.rank()))

    def step() -> None:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(model(x, training=True) - y))
        gradients = wrap(tape).gradient(loss, model.trainable_variables)
        optimizer.apply(gradients, model.trainable_variables)

    return step


def check_a_tape() -> None:
    model = model_of(3)
    step = a_step(model, keras.optimizers.SGD(0.01), hvd.DistributedGradientTape)
    until_left(tf.function(step), model.trainable_variables)
    until_left(step, model.trainable_variables)


def check_an_optimizer() -> None:
    model = model_of(4)
    optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(0.01))
    step = a_step(model, optimizer, lambda tape: tape)
    until_left(tf.function(step), model.trainable_variables)
    until_left(step, model.trainable_variables)


def check_several_steps_in_one_function() -> None:
    """Nested functions, of which the inner one is then called by itself."""
    model = model_of(5)
    step = tf.function(a_step(model, keras.optimizers.SGD(0.01), hvd.DistributedGradientTape))

    @tf.function
    def steps() -> None:
        for _ in tf.range(4):
            step()

    until_left(steps, model.trainable_variables)
    until_left(step, model.trainable_variables)


def check_gradients_that_are_all_sparse() -> None:
    table = tf.Variable(tf.ones([6, 2]))

    @tf.function
    def step() -> None:
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(tf.gather(table, [hvd.rank(), 3]))
        (gradient,) = hvd.DistributedGradientTape(tape).gradient(loss, [table])
        table.scatter_sub(gradient)

    until_left(step, [table])


def check_what_does_not_train_is_not_left() -> None:
    """A script that saves its state on leaving calls functions, too."""
    check_a_tape()
    total = tf.function(lambda: hvd.allreduce(tf.ones([2]), op=hvd.Sum))
    assert total().numpy().tolist() == [hvd.size()] * 2
