"""Sharded arrays and PyDatasets, as Keras's fit takes them."""

from __future__ import annotations

import random
from typing import Any

import keras
import numpy as np
import pytest

from farandole.keras.data.arrays import taker_of
from farandole.keras.data.batches import ShardedArrays, ShardedPyDataset
from farandole.keras.data.following import Following
from farandole.keras.data.split import indices, plan
from tests.keras.data.recording import Batches, Recording, Seen, Steps, fitted, numbered
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


def looped(data: Any) -> Steps:
    return [x[:, 0].astype(int).tolist() for x, _ in data]


@pytest.mark.parametrize("rank", [0, 1])
def test_fit_takes_the_agreed_order_whatever_it_shuffles_itself(rank: int) -> None:
    random.seed(rank)
    assert fitted(arrays(rank), epochs=3).epochs == [expected(epoch, rank) for epoch in range(3)]


def test_fit_resumes_where_it_says() -> None:
    data = arrays()
    assert fitted(data, Following(data), epochs=4, initial_epoch=2).epochs == [
        expected(2),
        expected(3),
    ]


def test_initial_epoch_is_enough_without_fit() -> None:
    assert fitted(arrays(initial_epoch=2), epochs=2).epochs == [expected(2), expected(3)]


def test_fit_in_a_loop_goes_on() -> None:
    data, seen = arrays(), Seen()
    model = Recording(seen.note)
    model.compile(optimizer="sgd", loss="mse")
    for _ in range(3):
        model.fit(data, callbacks=[seen, Following(data)], verbose=0)
    assert seen.epochs == [expected(epoch) for epoch in range(3)]


def test_validation_between_epochs_changes_nothing() -> None:
    data, test = arrays(), arrays(shuffle=False, remainder="keep")
    seen = fitted(data, Following(data), epochs=2, validation_data=test)
    assert seen.epochs == [expected(0), expected(1)]
    share = list(range(0, LENGTH, 2))
    assert seen.tests == 2 * [[share[first : first + BATCH] for first in range(0, 27, BATCH)]]


@pytest.mark.filterwarnings("ignore:Your input ran out of data")
def test_epochs_of_fewer_steps_go_on_in_the_same_order() -> None:
    # 26 samples are 7 batches: Keras ends the second epoch where the data does.
    seen = fitted(arrays(), epochs=3, steps_per_epoch=4)
    assert seen.epochs == [expected(0)[:4], expected(0)[4:], expected(1)[:4]]


def test_epochs_of_one_step_count_if_fit_says_so() -> None:
    split = plan(8, size=2, batch=4)
    data = ShardedArrays(taker_of(numbered(8)), split, terms(seed=7))
    seen = fitted(data, Following(data), epochs=2)
    assert seen.epochs == [[indices(split, 0, seed=7, epoch=e).tolist()] for e in range(2)]


def test_a_loop_of_its_own() -> None:
    data = arrays()
    assert [looped(data), looped(data)] == [expected(0), expected(1)]
    assert len(data) == data.num_batches == data.steps == 7
    assert (data.dropped, data.padded) == (1, 0)


def test_a_loop_left_early_begins_again() -> None:
    data = arrays()
    next(iter(data))
    assert looped(data) == expected(0)


def test_batches_beyond_the_end_are_not_there() -> None:
    with pytest.raises(IndexError):
        arrays()[7]


def test_class_weights_reach_the_model() -> None:
    x, _ = numbered(8)
    y = np.array([0, 1] * 4)
    data = ShardedArrays(taker_of((x, y)), plan(8, size=1, batch=8), terms(size=1))
    model = keras.Sequential([keras.layers.Dense(2, kernel_initializer="zeros")])
    model.compile(
        optimizer=keras.optimizers.SGD(0.0),
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    )
    losses = [
        model.fit(data, class_weight={0: weight, 1: weight}, verbose=0).history["loss"][0]
        for weight in (1.0, 3.0)
    ]
    assert losses == pytest.approx([np.log(2.0), 3.0 * np.log(2.0)], rel=1e-5)


@pytest.mark.parametrize("workers", [1, 3])
def test_batches_of_a_dataset_come_in_the_agreed_order(workers: int) -> None:
    data = batches(workers=workers)
    seen = fitted(data, Following(data), epochs=3)
    assert seen.epochs == [expected_batches(epoch) for epoch in range(3)]
    assert (data.dropped, data.steps, data.unit) == (1, 5, "batches")


def test_a_dataset_hears_of_epochs_as_from_keras() -> None:
    plain, data = Batches(11), batches()
    fitted(plain, epochs=3)
    fitted(data, epochs=3)
    assert (data.source.began, data.source.ended) == (plain.began, plain.ended)
    looped(data)
    assert data.source.began == plain.began + 1


def test_fit_still_shuffles_data_that_is_not_sharded() -> None:
    arrays()
    random.seed(3)
    seen = fitted(Batches(40), epochs=1)
    assert sorted(seen.epochs[0]) == [list(range(4 * i, 4 * i + 4)) for i in range(40)]
    assert seen.epochs[0] != sorted(seen.epochs[0])
