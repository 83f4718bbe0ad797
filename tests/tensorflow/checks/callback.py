"""Order, shapes, tracing and errors of operations inside of tf.function."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

import farandole.tensorflow as hvd
from farandole.errors import CollectiveError, MismatchError, NotInitializedError, UsageError
from tests.tensorflow.checks.both import raises, same


def check_the_first_collective_may_come_in_any_trace() -> None:
    """First in this file: what keeps operations in order is made for the first of them."""
    traces = []

    @tf.function
    def work(x: Any, together: bool) -> Any:
        traces.append(together)
        return hvd.allreduce(x, op=hvd.Sum) if together else x

    for together in (False, True, True):
        same(work(tf.ones(2), together), np.full(2, hvd.size() if together else 1))
    assert traces == [False, True], "no more traces than without"


def check_static_shapes() -> None:
    shapes: list[Any] = []

    @tf.function(input_signature=[tf.TensorSpec([None, 3]), tf.TensorSpec([7, 3])])
    def work(x: Any, y: Any) -> Any:
        results = [
            hvd.allreduce(y),
            hvd.allreduce(x),
            hvd.allgather(y),
            hvd.broadcast(y, 0),
            hvd.reducescatter(y),
            *hvd.grouped_allreduce([x, y]),
        ]
        shapes.extend(result.shape.as_list() for result in results)
        return results

    work(tf.ones([2, 3]), tf.ones([7, 3]))
    mine = -(-(7 - hvd.rank()) // hvd.size())
    assert shapes == [[7, 3], [None, 3], [None, 3], [7, 3], [mine, 3], [None, 3], [7, 3]], shapes


def check_program_order() -> None:
    """Unnamed operations in nested functions, branches and loops that use different variables."""
    first, second = tf.Variable(1.0), tf.Variable(10.0)

    @tf.function
    def one() -> Any:
        return hvd.allreduce(first, op=hvd.Sum)

    @tf.function
    def other() -> Any:
        return hvd.allreduce(second, op=hvd.Sum)

    @tf.function
    def work() -> Any:
        results = [hvd.allreduce(tf.constant(100.0), op=hvd.Sum), one(), other()]
        results.append(tf.cond(second > 0, lambda: hvd.allreduce(2 * second, op=hvd.Sum), one))
        total = tf.constant(0.0)
        for _ in tf.range(5):
            total += hvd.allreduce(3 * first, op=hvd.Sum)
            second.assign_add(hvd.allreduce(tf.constant(1.0)))
        hvd.barrier()
        return [*results, total, hvd.allreduce(tf.constant(1000.0), op=hvd.Sum)]

    for turn in range(10):
        second.assign(10.0)
        found = [float(each) / hvd.size() for each in work()]
        assert found == [100.0, 1.0, 10.0, 20.0, 15.0, 1000.0], (turn, found)
        assert float(second) == 15.0


def check_one_rank_traces_anew() -> None:
    @tf.function
    def work(x: Any, rank_dependent: bool) -> Any:
        return hvd.allreduce(x, op=hvd.Sum), hvd.allreduce(2 * x, op=hvd.Sum)

    for turn in range(4):
        one, two = work(tf.ones(2), turn == 1 and hvd.rank() == 0)
        same(one, np.full(2, hvd.size(), np.float32))
        same(two, 2 * one)


def check_gradients_through_a_nested_function() -> None:
    variable = tf.Variable([1.0, 2.0])

    @tf.function
    def inner(x: Any) -> Any:
        return hvd.allreduce(x * variable, op=hvd.Sum)

    @tf.function
    def outer(x: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(inner(x) + inner(2 * x))
        return tape.gradient(loss, variable)

    same(outer(tf.ones(2)), np.full(2, 3.0 * hvd.size(), np.float32))


def check_a_mismatch_is_an_error_everywhere_and_no_end() -> None:
    other = tf.ones(2 + hvd.rank())
    with raises(MismatchError, "rank 0: allreduce of float32[2]", "rank 1"):
        hvd.allreduce(other)
    with raises(tf.errors.OpError, "MismatchError", "rank 0: allreduce of float32[2]"):
        tf.function(hvd.allreduce)(other)
    shapes = [[2, 3], [4]] if hvd.rank() else [[4], [2, 3]]
    with raises(CollectiveError, "([2, 3], [4])", "rank 0: grouped allreduce ([4], [2, 3])"):
        hvd.grouped_allreduce([tf.ones(shape) for shape in shapes])
    same(hvd.allreduce(tf.ones(1)), np.ones(1))


def check_what_cannot_be_sent() -> None:
    for work in (hvd.allreduce, tf.function(hvd.allreduce)):
        with raises((UsageError, tf.errors.OpError), "cannot be sent"):
            work(tf.constant(["text"]))
    with raises(UsageError, "at least one dimension"):
        hvd.allgather(tf.constant(1.0))


def check_xla_is_refused() -> None:
    @tf.function(jit_compile=True)
    def compiled(x: Any) -> Any:
        return hvd.allreduce(x)

    @tf.function(jit_compile=True)
    def outer(x: Any) -> Any:
        return tf.function(hvd.allreduce)(x)

    for work in (compiled, outer):
        # Whatever AutoGraph makes of the error's type.
        with raises(Exception, "cannot be compiled by XLA", "without jit_compile=True"):
            work(tf.ones(1))

    @tf.function
    def around(x: Any) -> Any:
        return hvd.allreduce(tf.function(lambda y: 2 * y, jit_compile=True)(x), op=hvd.Sum)

    same(around(tf.ones(1)), np.full(1, 2.0 * hvd.size()))


def check_init_again() -> None:
    @tf.function
    def work(x: Any) -> Any:
        return hvd.allreduce(x, op=hvd.Sum)

    same(work(tf.ones(1)), np.full(1, hvd.size()))
    hvd.shutdown()
    for call in (hvd.size_op, lambda: hvd.allreduce(tf.ones(1)), lambda: hvd.barrier()):
        with raises(NotInitializedError, "hvd.init()"):
            call()
    hvd.init()
    same(work(tf.ones(1)), np.full(1, hvd.size()))
