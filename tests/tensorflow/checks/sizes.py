"""Numbers as tensors."""

from __future__ import annotations

import tensorflow as tf

import farandole.tensorflow as hvd


def check_numbers_as_tensors() -> None:
    found = [hvd.size_op(), hvd.rank_op(), hvd.local_rank_op(), hvd.local_size_op()]
    assert [int(each) for each in found] == [hvd.size(), hvd.rank(), hvd.rank(), hvd.size()]
    assert all(each.dtype == tf.int32 for each in found)
    assert int(hvd.process_set_included_op()) == 1
