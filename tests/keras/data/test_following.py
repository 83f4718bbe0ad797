"""Sharded data that is told fit's epochs."""

from __future__ import annotations

from farandole.keras.data import EpochFollower, ShardedArrays, taker_of
from farandole.keras.split import indices, plan
from tests.keras.data.cases import BATCH, LENGTH, arrays, expected
from tests.keras.data.recording import Recording, Seen, fitted, numbered
from tests.keras.data.test_terms import terms


def test_fit_resumes_where_it_says() -> None:
    data = arrays()
    assert fitted(data, EpochFollower(data), epochs=4, initial_epoch=2).epochs == [
        expected(2),
        expected(3),
    ]


def test_fit_in_a_loop_goes_on() -> None:
    data, seen = arrays(), Seen()
    model = Recording(seen.note)
    model.compile(optimizer="sgd", loss="mse")
    for _ in range(3):
        model.fit(data, callbacks=[seen, EpochFollower(data)], verbose=0)
    assert seen.epochs == [expected(epoch) for epoch in range(3)]


def test_validation_between_epochs_changes_nothing() -> None:
    data, test = arrays(), arrays(shuffle=False, remainder="keep")
    seen = fitted(data, EpochFollower(data), epochs=2, validation_data=test)
    assert seen.epochs == [expected(0), expected(1)]
    share = list(range(0, LENGTH, 2))
    assert seen.tests == 2 * [[share[first : first + BATCH] for first in range(0, 27, BATCH)]]


def test_epochs_of_one_step_count_if_fit_says_so() -> None:
    split = plan(8, size=2, batch=4)
    data = ShardedArrays(taker_of(numbered(8)), split, terms(seed=7))
    seen = fitted(data, EpochFollower(data), epochs=2)
    assert seen.epochs == [[indices(split, 0, seed=7, epoch=e).tolist()] for e in range(2)]
