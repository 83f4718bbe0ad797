"""Sharded data that several tests take, and what a fit of it must see, from the formula."""

from __future__ import annotations

from typing import Any

from farandole.keras.data import ShardedArrays, ShardedPyDataset, taker_of
from farandole.keras.split import indices, plan
from tests.keras.data.recording import Batches, Steps, numbered
from tests.keras.data.test_terms import terms

LENGTH, BATCH = 53, 4


def arrays(rank: int = 0, **changes: Any) -> ShardedArrays:
    chosen = terms(rank=rank, seed=7, **changes)
    split = plan(LENGTH, size=2, batch=BATCH, remainder=chosen.remainder)
    return ShardedArrays(taker_of(numbered(LENGTH)), split, chosen)


def batches(length: int = 11, rank: int = 0, **loading: Any) -> ShardedPyDataset:
    split = plan(length, size=2, unit="batches")
    return ShardedPyDataset(Batches(length, **loading), split, terms(rank=rank, seed=7))


def expected(epoch: int, rank: int = 0) -> Steps:
    """The steps of arrays() in an epoch, from the formula."""
    share = indices(plan(LENGTH, size=2, batch=BATCH), rank, seed=7, epoch=epoch).tolist()
    return [share[first : first + BATCH] for first in range(0, len(share), BATCH)]


def expected_batches(epoch: int, length: int = 11) -> Steps:
    share = indices(plan(length, size=2), 0, seed=7, epoch=epoch).tolist()
    return [list(range(4 * batch, 4 * batch + 4)) for batch in share]
