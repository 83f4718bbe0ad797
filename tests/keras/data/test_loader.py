"""Sharded DataLoaders, as Keras's fit takes them."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    Dataset,
    DistributedSampler,
    IterableDataset,
    SequentialSampler,
    TensorDataset,
    WeightedRandomSampler,
)

from farandole.errors import UsageError
from farandole.keras.data import EpochFollower
from farandole.keras.split import indices, plan
from farandole.keras.torch_data import ShardedLoader, check
from tests.keras.data.recording import Steps, fitted, numbered
from tests.keras.data.test_terms import terms

LENGTH, BATCH = 53, 4
DATA = TensorDataset(*map(torch.from_numpy, numbered(LENGTH)))


def sharded(rank: int = 0, remainder: str = "drop", **how: Any) -> ShardedLoader:
    loader = DataLoader(DATA, **({"batch_size": BATCH} | how))
    chosen = terms(rank=rank, seed=7, remainder=remainder)
    check(loader, chosen)
    return ShardedLoader(loader, chosen)


def expected(epoch: int, rank: int = 0) -> Steps:
    share = indices(plan(LENGTH, size=2, batch=BATCH), rank, seed=7, epoch=epoch).tolist()
    return [share[first : first + BATCH] for first in range(0, len(share), BATCH)]


def looped(data: Any) -> Steps:
    return [x[:, 0].int().tolist() for x, _ in data]


@pytest.mark.parametrize("rank", [0, 1])
def test_fit_takes_the_agreed_order(rank: int) -> None:
    # Keras makes more iterators than it uses; none of them is an epoch.
    seen = fitted(sharded(rank, shuffle=True), epochs=3, shuffle=False)
    assert seen.epochs == [expected(epoch, rank) for epoch in range(3)]


def test_fit_resumes_where_it_says() -> None:
    data = sharded()
    seen = fitted(data, EpochFollower(data), epochs=4, initial_epoch=2, shuffle=False)
    assert seen.epochs == [expected(2), expected(3)]


def test_a_loop_of_its_own() -> None:
    data = sharded()
    assert [looped(data), looped(data)] == [expected(0), expected(1)]
    assert len(data) == data.steps == 7
    assert (data.dropped, data.padded, data.batch_size) == (1, 0, BATCH)


def test_an_incomplete_batch_is_dropped_where_the_loader_says_so() -> None:
    data = sharded(drop_last=True)
    assert [len(step) for step in looped(data)] == [BATCH] * 6
    assert (data.dropped, data.steps) == (LENGTH - 2 * 6 * BATCH, 6)


def test_a_loader_without_batches_gives_single_samples() -> None:
    data = sharded(batch_size=None)
    assert [int(x[0]) for x, _ in data] == [item for step in expected(0) for item in step]


def test_what_else_was_set_is_kept() -> None:
    generator = torch.Generator()
    data = sharded(
        collate_fn=list, timeout=0, generator=generator, worker_init_fn=print, pin_memory=False
    )
    assert (data.collate_fn, data.worker_init_fn, data.generator) == (list, print, generator)


class Stream(IterableDataset[int]):
    def __iter__(self) -> Any:
        return iter(range(9))


class Endless(Dataset[int]):
    def __getitem__(self, index: int) -> int:
        return index


@pytest.mark.parametrize(
    ("loader", "changes", "words"),
    [
        (DataLoader(Stream()), {}, ["IterableDataset", "hvd.rank()", "steps_per_epoch"]),
        (
            DataLoader(DATA, batch_sampler=BatchSampler(SequentialSampler(DATA), 4, False)),
            {},
            ["batch_sampler", "batch_size=..."],
        ),
        (
            DataLoader(DATA, sampler=DistributedSampler(DATA, num_replicas=2, rank=0)),
            {},
            ["DistributedSampler", "without"],
        ),
        (
            DataLoader(DATA, sampler=WeightedRandomSampler([1.0] * LENGTH, 9)),
            {},
            ["WeightedRandomSampler"],
        ),
        (DataLoader(Endless(), sampler=range(9)), {}, ["Endless", "__len__"]),
        (DataLoader(DATA, batch_size=8), {"batch_size": 4}, ["batch_size=4", "batch_size=8"]),
        (DataLoader(DATA, drop_last=True), {"remainder": "keep"}, ["keep", "drop_last"]),
    ],
)
def test_what_cannot_be_sharded(
    loader: DataLoader[Any], changes: dict[str, Any], words: list[str]
) -> None:
    with pytest.raises(UsageError) as error:
        check(loader, terms(**changes))
    assert all(word in str(error.value) for word in words), error.value
