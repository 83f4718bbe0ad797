"""Runs gathered by batch: means, spreads, and how coarsely epochs were counted."""

from __future__ import annotations

import math

import numpy as np
import pytest

from farandole.model.projection.epochs.points import grain_of, points_of
from farandole.model.projection.records import EpochRow


@pytest.mark.parametrize(
    ("values", "grain"),
    [
        ((33.0, 34.0, 37.0), 1.0),
        ((4.0,), 1.0),
        ((4.0, 6.0), 1.0),
        ((0.65, 0.7, 0.75, 0.9), 0.05),
        ((4.2, 4.7), 0.0),
        ((1.03, 1.171, 1.4), 0.0),
        ((2_232_832.0, 2_552_704.5, 2_935_296.25), 0.0),
    ],
)
def test_the_grain_of_epochs(values: tuple[float, ...], grain: float) -> None:
    assert grain_of(values) == pytest.approx(grain)


def test_a_batch_is_the_mean_of_its_runs() -> None:
    rows = [EpochRow(global_batch=64, epochs=epochs) for epochs in (9.3, 10.1, 11.2)]
    (point,) = points_of(rows).reached
    assert math.exp(point.log_epochs) == pytest.approx((9.3 + 10.1 + 11.2) / 3)


def test_the_spread_is_pooled_over_batches() -> None:
    rng = np.random.default_rng(3)
    rows = [
        EpochRow(global_batch=batch, epochs=float(20 * math.exp(rng.normal(0, 0.1))))
        for batch in range(1, 31)
        for _ in range(10)
    ]
    found = points_of([*rows, EpochRow(global_batch=99, epochs=20.123)])
    assert found.repeated
    single = found.reached[-1]
    assert math.sqrt(single.variance) == pytest.approx(0.1, rel=0.1)
    assert found.reached[0].variance == pytest.approx(single.variance / 10)


def test_cut_runs_move_a_mean_as_much_as_they_tell() -> None:
    """Of 4,000 runs all that would take more than 24 epochs were ended there."""
    rng = np.random.default_rng(4)
    true = 20 * np.exp(rng.normal(0, 0.2, 4000))
    whole = [
        EpochRow(global_batch=8, epochs=float(x)) for x in 20 * np.exp(rng.normal(0, 0.2, 400))
    ]
    cut = [
        EpochRow(global_batch=64, epochs=float(min(x, 24.0)), reached=bool(x < 24.0)) for x in true
    ]
    found = points_of([*whole, *cut])
    assert math.exp(found.reached[-1].log_epochs) == pytest.approx(float(true.mean()), rel=0.01)
    assert found.cut_short == int((true >= 24.0).sum())


def test_a_batch_of_cut_runs_is_a_bound() -> None:
    rows = [
        EpochRow(global_batch=8, epochs=10.0),
        EpochRow(global_batch=64, epochs=20.0, reached=False),
        EpochRow(global_batch=64, epochs=30.0, reached=False),
    ]
    found = points_of(rows)
    assert [point.global_batch for point in found.reached] == [8]
    assert math.exp(found.bounds[0].log_epochs) == pytest.approx(30.0)
