"""Operations, tapes and objects among some of the workers; 2 ranks have sets of one only."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import keras
import numpy as np
import tensorflow as tf

import farandole.tensorflow as hvd
from farandole.errors import UsageError
from tests.tensorflow.checks.both import both, raises, same


@contextmanager
def first_and_last() -> Iterator[Any]:
    """Have a set of the first and the last of several ranks; of two, of the last alone."""
    some = hvd.add_process_set([0, hvd.size() - 1] if hvd.size() > 2 else [1])
    yield some
    assert hvd.remove_process_set(some)


def check_who_is_in_it() -> None:
    with first_and_last() as some:
        number = some.process_set_id
        assert int(hvd.size_op(number)) == some.size() == len(some.ranks)
        assert int(hvd.process_set_included_op(number)) == (hvd.rank() in some.ranks)
        same(hvd.allreduce(tf.ones(1), process_set=hvd.global_process_set), np.ones(1))
        if not some.included():
            with raises(UsageError, f"Rank {hvd.rank()} is not in process set {number}"):
                hvd.allreduce(tf.ones(1), process_set=some)
    for call in (
        lambda: hvd.allreduce(tf.ones(1), process_set=some),
        lambda: hvd.broadcast(tf.ones(1), 0, process_set=some),
        lambda: hvd.DistributedGradientTape(tf.GradientTape(), process_set=some),
        lambda: hvd.DistributedOptimizer(keras.optimizers.SGD(), process_set=some),
    ):
        with raises(UsageError, "is not in use"):
            call()
    with raises(UsageError, "no process set 7"):
        hvd.size_op(7)


def check_operations_and_their_gradients() -> None:
    with first_and_last() as some:
        if not some.included():
            return
        ranks, root = some.ranks, some.ranks[-1]
        mine = tf.fill([some.size(), 1], float(hvd.rank()))
        together = np.concatenate([np.full((len(ranks), 1), rank) for rank in ranks])
        work = {
            "sum": lambda x: hvd.allreduce(x, op=hvd.Sum, process_set=some),
            "group": lambda x: hvd.grouped_allreduce([x], op=hvd.Sum, process_set=some)[0],
            "gather": lambda x: hvd.allgather(x, process_set=some),
            "root": lambda x: hvd.broadcast(x, root, process_set=some),
            "all": lambda x: hvd.alltoall(x, process_set=some),
            "scatter": lambda x: hvd.reducescatter(x, op=hvd.Sum, process_set=some),
        }
        expected = {
            "sum": np.full((len(ranks), 1), sum(ranks)),
            "group": np.full((len(ranks), 1), sum(ranks)),
            "gather": together,
            "root": np.full((len(ranks), 1), root),
            "all": np.array(ranks)[:, None],
            "scatter": [[sum(ranks)]],
        }
        # Of the sum of what comes out, which is the same on all ranks.
        slopes = {"sum": len(ranks), "group": len(ranks), "gather": 1, "all": 1}
        slopes |= {"root": int(hvd.rank() == root), "scatter": len(ranks)}

        def with_slope(name: str, x: Any) -> Any:
            with tf.GradientTape() as tape:
                tape.watch(x)
                found = work[name](x)
            return found, tape.gradient(found, x)

        for name, value in expected.items():
            for found, slope in both(lambda x, name=name: with_slope(name, x), mine):
                same(found, value)
                same(slope, np.full(mine.shape, slopes[name]))
        hvd.barrier(some)


def check_sparse_values_objects_and_variables() -> None:
    with first_and_last() as some:
        if not some.included():
            return
        given = tf.IndexedSlices(tf.ones([1, 2]), tf.constant([0]), tf.constant([2, 2]))
        for found in both(lambda: hvd.allreduce(given, process_set=some)):
            same(tf.convert_to_tensor(found), [[1.0, 1.0], [0.0, 0.0]])
        last = some.ranks[-1]
        assert hvd.broadcast_object(hvd.rank(), last, process_set=some) == last
        assert hvd.broadcast_object_fn(last, process_set=some)(hvd.rank()) == last
        assert hvd.allgather_object(hvd.rank(), process_set=some) == some.ranks
        variable = tf.Variable(float(hvd.rank()))
        hvd.broadcast_variables([variable], last, process_set=some)
        assert float(variable) == last


def check_a_tape_and_an_optimizer() -> None:
    """Those outside train alone, as in farandole.torch."""
    with first_and_last() as some:
        shared, own = tf.Variable([1.0]), tf.Variable([1.0])

        def work() -> Any:
            with tf.GradientTape() as tape:
                loss = (hvd.rank() + 1.0) * (tf.reduce_sum(shared) + tf.reduce_sum(own))
            tape = hvd.DistributedGradientTape(tape, process_set=some)
            tape.register_local_source(own)
            return tape.gradient(loss, [shared, own])

        ranks = some.ranks if some.included() else [hvd.rank()]
        mean = np.mean(ranks) + 1.0
        for found in both(work):
            same(found[0], [mean])
            same(found[1], [(hvd.rank() + 1.0) / len(ranks)])
        for passes in (1, 2):
            optimizer = hvd.DistributedOptimizer(
                keras.optimizers.SGD(1.0), process_set=some, backward_passes_per_step=passes
            )
            variable = keras.Variable([0.0])
            for _ in range(passes):
                optimizer.apply([tf.constant([hvd.rank() + 1.0])], [variable])
            same(variable.numpy(), [-mean * passes])
