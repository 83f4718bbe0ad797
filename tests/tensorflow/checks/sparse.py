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
    with raises(UsageError, "summed or averaged", "sparse_as_dense"):
        hvd.allreduce(tf.IndexedSlices(tf.ones([1, 2]), tf.constant([0])), op=hvd.Max)


def check_a_group_with_slices() -> None:
    slices = tf.IndexedSlices(tf.ones([1, 2]), tf.constant([hvd.rank()]), tf.constant([3, 2]))
    dense, combined = hvd.grouped_allreduce([tf.ones(2), slices], op=hvd.Sum)
    same(dense, np.full(2, hvd.size(), np.float32))
    expected = np.repeat([1.0] * hvd.size() + [0.0] * (3 - hvd.size()), 2).reshape(3, 2)
    same(tf.convert_to_tensor(combined), expected)
