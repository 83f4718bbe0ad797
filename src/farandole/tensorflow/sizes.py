"""Who am I, as tensors; numbers of a job do not change while it runs."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from farandole.engine import context
from farandole.tensorflow.process_sets import check_process_set


def size_op(process_set_id: int = 0, name: str | None = None) -> Any:
    """Return the number of workers as an int32 tensor."""
    check_process_set(process_set_id)
    return tf.constant(context.size(), tf.int32, name=name or "size")


def process_set_included_op(process_set_id: int = 0, name: str | None = None) -> Any:
    """Return 1 as an int32 tensor: this worker is one of all workers."""
    check_process_set(process_set_id)
    context.current()
    return tf.constant(1, tf.int32, name=name or "process_set_included")


def rank_op(name: str | None = None) -> Any:
    """Return this worker's rank as an int32 tensor."""
    return tf.constant(context.rank(), tf.int32, name=name or "rank")


def local_rank_op(name: str | None = None) -> Any:
    """Return this worker's rank on its host as an int32 tensor."""
    return tf.constant(context.local_rank(), tf.int32, name=name or "local_rank")


def local_size_op(name: str | None = None) -> Any:
    """Return the number of workers on this host as an int32 tensor."""
    return tf.constant(context.local_size(), tf.int32, name=name or "local_size")
