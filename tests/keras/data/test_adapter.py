"""Keras's fit takes sharded batches in their own order, each once."""

from __future__ import annotations

import random

import pytest

from farandole.keras.data import EpochFollower
from tests.keras.data.cases import arrays, batches, expected, expected_batches
from tests.keras.data.recording import Batches, fitted


@pytest.mark.parametrize("rank", [0, 1])
def test_fit_takes_the_agreed_order_whatever_it_shuffles_itself(rank: int) -> None:
    random.seed(rank)
    assert fitted(arrays(rank), epochs=3).epochs == [expected(epoch, rank) for epoch in range(3)]


@pytest.mark.parametrize("workers", [1, 3])
def test_batches_of_a_dataset_come_in_the_agreed_order(workers: int) -> None:
    data = batches(workers=workers)
    seen = fitted(data, EpochFollower(data), epochs=3)
    assert seen.epochs == [expected_batches(epoch) for epoch in range(3)]


def test_fit_still_shuffles_data_that_is_not_sharded() -> None:
    arrays()
    random.seed(3)
    seen = fitted(Batches(40), epochs=1)
    assert sorted(seen.epochs[0]) == [list(range(4 * i, 4 * i + 4)) for i in range(40)]
    assert seen.epochs[0] != sorted(seen.epochs[0])
