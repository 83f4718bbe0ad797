"""Numbers as tensors, and the one process set."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

import farandole.tensorflow as hvd
from farandole.errors import UsageError
from tests.tensorflow.checks.both import raises, same


def check_only_all_workers() -> None:
    class SomeSet:
        process_set_id = 1

    same(hvd.allreduce(tf.ones(1), process_set=hvd.global_process_set), np.ones(1))
    for call in (
        lambda: hvd.allreduce(tf.ones(1), process_set=SomeSet()),
        lambda: hvd.broadcast(tf.ones(1), 0, process_set=SomeSet()),
        lambda: hvd.DistributedGradientTape(tf.GradientTape(), process_set=SomeSet()),
        lambda: hvd.size_op(1),
    ):
        with raises(UsageError, "later version"):
            call()


def check_numbers_as_tensors() -> None:
    found = [hvd.size_op(), hvd.rank_op(), hvd.local_rank_op(), hvd.local_size_op()]
    assert [int(each) for each in found] == [hvd.size(), hvd.rank(), hvd.rank(), hvd.size()]
    assert all(each.dtype == tf.int32 for each in found)
    assert int(hvd.process_set_included_op()) == 1
