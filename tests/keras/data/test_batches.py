"""Sharded arrays and PyDatasets, without anybody who tells them fit's epochs."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import pytest

from farandole.keras.data import PreparedArrays, ShardedArrays, taker_of
from farandole.keras.split import plan
from tests.keras.data.cases import BATCH, LENGTH, arrays, batches, expected, expected_batches
from tests.keras.data.recording import Batches, Steps, fitted, numbered
from tests.keras.data.test_terms import terms


def looped(data: Any) -> Steps:
    return [x[:, 0].astype(int).tolist() for x, _ in data]


def test_initial_epoch_is_enough_without_fit() -> None:
    assert fitted(arrays(initial_epoch=2), epochs=2).epochs == [expected(2), expected(3)]


@pytest.mark.filterwarnings("ignore:Your input ran out of data")
def test_epochs_of_fewer_steps_go_on_in_the_same_order() -> None:
    # 26 samples are 7 batches: Keras ends the second epoch where the data does.
    seen = fitted(arrays(), epochs=3, steps_per_epoch=4)
    assert seen.epochs == [expected(0)[:4], expected(0)[4:], expected(1)[:4]]


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


def test_a_dataset_hears_of_epochs_as_from_keras() -> None:
    plain, data = Batches(11), batches()
    fitted(plain, epochs=3)
    fitted(data, epochs=3)
    assert (data.source.began, data.source.ended) == (plain.began, plain.ended)
    looped(data)
    assert data.source.began == plain.began + 1


def test_a_dataset_counts_its_own_epochs() -> None:
    data = batches()
    assert fitted(data, epochs=2).epochs == [expected_batches(0), expected_batches(1)]
    assert (data.dropped, data.steps, data.unit) == (1, 5, "batches")


def test_prepared_batches_come_in_the_same_order() -> None:
    def prepare(batch: Any, chosen: Any, epoch: int) -> Any:
        x, y = batch
        assert x[:, 0].tolist() == chosen.tolist()
        return x + 100 * epoch, y

    chosen = terms(rank=0, seed=7)
    split = plan(LENGTH, size=2, batch=BATCH)
    data = PreparedArrays(taker_of(numbered(LENGTH)), split, chosen, prepare)
    second = [[number + 100 for number in step] for step in expected(1)]
    assert fitted(data, epochs=2).epochs == [expected(0), second]
    assert data[3][1].tolist() == expected(2)[3]
    with pytest.raises(IndexError):
        data[7]
    data.close()
