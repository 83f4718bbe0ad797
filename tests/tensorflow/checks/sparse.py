"""tf.IndexedSlices."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

import farandole.tensorflow as hvd
from farandole.errors import UsageError
from tests.tensorflow.checks.both import both, raises, same


def check_slices() -> None:
    def slices(rank: int) -> Any:
        rows = rank + 1
        return np.full((rows, 2), rank + 1.0, np.float32), np.arange(rows, dtype=np.int64)

    dense = np.zeros((2, hvd.size() + 1, 2), np.float32)
    for rank in range(hvd.size()):
        rows, places = slices(rank)
        dense[:, places] += rows
    dense[0] /= hvd.size()

    def work(rows: Any, places: Any) -> Any:
        given = tf.IndexedSlices(rows, places, tf.constant([hvd.size() + 1, 2], tf.int64))
        combined = [hvd.allreduce(given), hvd.allreduce(given, op=hvd.Sum, name="slices")]
        assert all(isinstance(each, tf.IndexedSlices) for each in combined)
        return [tf.convert_to_tensor(each) for each in combined]

    for found in both(work, *map(tf.constant, slices(hvd.rank()))):
        same(tf.stack(found), dense)


def check_averages_of_integers_are_no_integers() -> None:
    kinds = {tf.int8: tf.float32, tf.int16: tf.float32, tf.int32: tf.float64, tf.int64: tf.float64}
    for dtype, expected in kinds.items():

        def work(values: Any) -> Any:
            given = tf.IndexedSlices(values, tf.constant([0]), tf.constant([1]))
            average = hvd.allreduce(given)
            (grouped,) = hvd.grouped_allreduce([given])
            total = hvd.allreduce(given, op=hvd.Sum)
            return average.values, grouped.values, total.values

        for average, grouped, total in both(work, tf.constant([3], dtype)):
            assert (average.dtype, grouped.dtype, total.dtype) == (expected, expected, dtype)
            same(average, np.full(hvd.size(), 3 / hvd.size()))
            same(grouped, np.full(hvd.size(), 3 / hvd.size()))
            same(total, np.full(hvd.size(), 3))


def check_what_slices_cannot_do() -> None:
    given = tf.IndexedSlices(tf.ones([1, 2]), tf.constant([0]), tf.constant([1, 2]))
    ops = [{"op": op} for op in (hvd.Adasum, hvd.Min, hvd.Max, hvd.Product)]
    for wrong in [*ops, {"prescale_factor": 2.0}, {"postscale_factor": 2.0}]:

        def alone(wrong: Any = wrong) -> Any:
            return hvd.allreduce(given, **wrong).values

        def grouped(wrong: Any = wrong) -> Any:
            return hvd.grouped_allreduce([tf.ones(2), given], **wrong)[1].values

        for work in (alone, grouped):
            for call in (work, tf.function(work)):
                # As Horovod's; UsageError is what Farandole raises everywhere else.
                with raises(NotImplementedError, "summed or averaged", "sparse_as_dense"):
                    call()
    with raises(UsageError, "summed or averaged"):
        hvd.allreduce(given, op=hvd.Max)
    bools = tf.IndexedSlices(tf.constant([True]), tf.constant([0]), tf.constant([1]))
    with raises(UsageError, "bool"):
        hvd.allreduce(bools)


def check_a_group_with_slices() -> None:
    slices = tf.IndexedSlices(tf.ones([1, 2]), tf.constant([hvd.rank()]), tf.constant([3, 2]))
    dense, combined = hvd.grouped_allreduce([tf.ones(2), slices], op=hvd.Sum)
    same(dense, np.full(2, hvd.size(), np.float32))
    expected = np.repeat([1.0] * hvd.size() + [0.0] * (3 - hvd.size()), 2).reshape(3, 2)
    same(tf.convert_to_tensor(combined), expected)
