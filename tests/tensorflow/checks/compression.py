"""Half precision on the way, and compression of a user's own."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

import farandole.tensorflow as hvd
from farandole.errors import UsageError
from tests.tensorflow.checks.both import both, everyone, raises, same
from tests.tensorflow.checks.collectives import values


def check_compression() -> None:
    mine = tf.constant(values(hvd.rank()) / 3)
    expected = np.mean(everyone(lambda rank: values(rank) / 3), 0)
    for compression, rtol in ((hvd.Compression.fp16, 1e-3), (hvd.Compression.bf16, 1e-2)):
        for found in both(lambda x, c=compression: hvd.allreduce(x, compression=c), mine):
            assert found.dtype == tf.float32
            same(found, expected, rtol)
            assert not np.array_equal(found, expected), "it was not compressed"
    counts = hvd.allreduce(tf.constant(hvd.rank()), op=hvd.Sum, compression=hvd.Compression.fp16)
    assert counts.dtype == tf.int32
    with raises(UsageError, "no compression"):
        hvd.allreduce(mine, compression="fp16")


def check_a_compression_of_ones_own() -> None:
    class Halves:
        @staticmethod
        def compress(tensor: Any) -> tuple[Any, Any]:
            return tensor / 2, 2.0

        @staticmethod
        def decompress(tensor: Any, ctx: Any) -> Any:
            return tensor * ctx

    mine = tf.constant(values(hvd.rank()))
    for found in both(lambda x: hvd.allreduce(x, compression=Halves), mine):
        same(found, np.mean(everyone(values), 0))
