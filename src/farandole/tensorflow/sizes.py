"""Who am I, as tensors; numbers of a job do not change while it runs."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from farandole.engine import context


def size_op(process_set_id: int = 0, name: str | None = None) -> Any:
    """Return the number of workers in a process set as an int32 tensor."""
    ranks = context.known().sets.ranks_of(process_set_id)
    return tf.constant(len(ranks), tf.int32, name=name or "size")


def process_set_included_op(process_set_id: int = 0, name: str | None = None) -> Any:
    """Return 1 as an int32 tensor if this worker is in a process set, else 0."""
    included = context.rank() in context.known().sets.ranks_of(process_set_id)
    return tf.constant(int(included), tf.int32, name=name or "process_set_included")


def rank_op(name: str | None = None) -> Any:
    """Return this worker's rank as an int32 tensor."""
    return tf.constant(context.rank(), tf.int32, name=name or "rank")


def local_rank_op(name: str | None = None) -> Any:
    """Return this worker's rank on its host as an int32 tensor."""
    return tf.constant(context.local_rank(), tf.int32, name=name or "local_rank")


def local_size_op(name: str | None = None) -> Any:
    """Return the number of workers on this host as an int32 tensor."""
    return tf.constant(context.local_size(), tf.int32, name=name or "local_size")
