"""A tape's gradients in their buckets."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

import farandole.tensorflow as hvd
from farandole.errors import MismatchError, UsageError
from tests.tensorflow.checks.both import alike, raises, same
from tests.tensorflow.checks.tape import gradients, mean, slope


def check_what_no_rank_has() -> None:
    used, unused = tf.Variable([1.0]), tf.Variable([1.0])
    for found in gradients([unused, used], lambda s: slope(hvd.rank()) * tf.reduce_sum(s[1])):
        assert found[0] is None
        same(found[1], [mean()])
    for found in gradients([unused], lambda s: tf.constant(1.0) * 2):
        assert found == [None]


def check_what_only_some_ranks_have_is_an_error() -> None:
    """A rank without a gradient would not update: its weights would part from the others'."""
    pair = [tf.Variable([1.0]), tf.Variable([2.0])]

    def work() -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(pair[0])
            if hvd.rank() > 0:
                loss += tf.reduce_sum(pair[1])
        return hvd.DistributedGradientTape(tape).gradient(loss, pair)

    for run in (work, tf.function(work, autograph=False)):
        if hvd.rank() > 0:
            same(run()[1], [(hvd.size() - 1) / hvd.size()])
        else:
            with raises((UsageError, tf.errors.OpError), "no gradient of variable 1", "ZERO"):
                run()


def check_gradients_outlive_the_next_step() -> None:
    """The buckets are used again, and TensorFlow takes aligned memory without a copy."""
    variable = tf.Variable(tf.ones([1024]))

    @tf.function
    def work(factor: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = factor * tf.reduce_sum(variable)
        return hvd.DistributedGradientTape(tape).gradient(loss, [variable])

    first = work(tf.constant(1.0))
    second = work(tf.constant(2.0))
    same(first[0], np.ones(1024))
    same(second[0], np.full(1024, 2.0))


def check_models_that_differ_are_an_error_on_every_rank() -> None:
    variable = tf.Variable(tf.ones([2 + hvd.rank(), 77]))

    def work() -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(variable)
        return hvd.DistributedGradientTape(tape).gradient(loss, [variable])

    for _ in range(2):
        with raises(MismatchError, "variable 0", "float32[2, 77]", "Build the same model"):
            work()
    for found in gradients([tf.Variable([1.0])]):
        same(found[0], [mean()])


def check_many_sets_of_variables() -> None:
    """More than are kept at a time."""
    for count in [*range(1, 20), 1, 2]:
        variable = tf.Variable(tf.ones([count]))
        with tf.GradientTape() as tape:
            loss = slope(hvd.rank()) * tf.reduce_sum(variable)
        found = hvd.DistributedGradientTape(tape).gradient(loss, variable)
        same(found, np.full(count, mean(), np.float32))


def check_one_rank_traces_anew() -> None:
    variable = tf.Variable([1.0, 1.0])

    @tf.function
    def step(x: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(variable) * tf.reduce_mean(x)
        return hvd.DistributedGradientTape(tape).gradient(loss, [variable])

    for turn in range(4):
        rows = 3 if turn == 2 and hvd.rank() == 1 else 2
        same(step(tf.fill([rows], slope(hvd.rank())))[0], np.full(2, mean(), np.float32))


def check_two_tapes_in_one_function() -> None:
    one, other = tf.Variable([1.0]), tf.Variable([1.0])

    @tf.function
    def step() -> Any:
        with tf.GradientTape() as first, tf.GradientTape() as second:
            a, b = slope(hvd.rank()) * tf.reduce_sum(one), 2.0 * tf.reduce_sum(other)
        results = [
            hvd.DistributedGradientTape(first).gradient(a, one),
            hvd.DistributedGradientTape(second).gradient(b, other),
        ]
        one.assign_sub(results[0])
        other.assign_sub(results[1])
        return results

    for _ in range(5):
        found = step()
        same(found[0], [mean()])
        same(found[1], [2.0])
    alike(one.numpy())
    same(other, [-9.0])
