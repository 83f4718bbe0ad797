"""Epochs to stability and to a target, by rule."""

from __future__ import annotations

import math

import pytest

from farandole.model.series import Series
from farandole.model.stability import (
    Reached,
    evaluation_spread,
    kaplan_meier_median,
    plateau,
    reach,
)


def series(*values: float) -> Series:
    epochs = tuple(float(epoch) for epoch in range(1, len(values) + 1))
    return Series(
        epochs=epochs, values=values, times_s=tuple(10 * epoch for epoch in epochs), by_step=False
    )


@pytest.mark.parametrize(
    ("values", "target", "higher", "epoch"),
    [
        ((0.1, 0.5, 0.9, 0.9, 0.9, 0.9), 0.9, True, 3),
        # Touched once and lost again: not reached until it holds.
        ((0.1, 0.9, 0.1, 0.1, 0.9, 0.9, 0.9, 0.9, 0.9, 0.9, 0.9, 0.9), 0.9, True, 5),
        ((0.1, 0.5, 0.8, 0.8, 0.8), 0.9, True, None),
        # Reached in the last two evaluations only: whether it holds is not known.
        ((0.1, 0.1, 0.1, 0.1, 0.9, 0.9), 0.9, True, None),
        ((3.0, 1.0, 0.5, 0.5, 0.5), 0.5, False, 3),
        ((3.0, math.nan, 0.5, 0.5, 0.5), 0.5, False, 3),
        ((math.nan,) * 5, 0.5, False, None),
    ],
)
def test_reaching(
    values: tuple[float, ...], target: float, higher: bool, epoch: float | None
) -> None:
    found = reach(series(*values), target, higher=higher)
    assert found.epoch == epoch
    assert found.time_s == (None if epoch is None else 10 * epoch)
    assert found.censored_at == len(values)


def test_a_value_within_the_noise_does_not_break_the_window() -> None:
    noisy = (0.5, 0.90, 0.89, 0.91, 0.90, 0.89, 0.91, 0.90, 0.91, 0.89)
    assert reach(series(*noisy), 0.90, higher=True).epoch == 2


def test_the_spread_of_evaluations_is_apart_from_the_trend() -> None:
    assert evaluation_spread([0.1 * step for step in range(20)]) == pytest.approx(0.0, abs=1e-12)
    # Differences of +-0.02 alternate: their standard deviation is about 0.02.
    zigzag = [0.9 + 0.01 * (-1) ** step for step in range(40)]
    assert evaluation_spread(zigzag) == pytest.approx(0.02 / math.sqrt(2), rel=0.1)
    assert evaluation_spread([0.1, 0.2]) == 0.0


def test_a_plateau_is_the_end_less_the_noise() -> None:
    assert plateau([0.1, 0.5, 0.9, 0.9, 0.9, 0.9], higher=True) == pytest.approx(0.9)
    assert plateau([3.0, 1.0, 0.5, 0.5, 0.5, 0.5], higher=False) == pytest.approx(0.5)


def _reached(*epochs: float | None, last: float = 30.0) -> list[Reached]:
    return [Reached(epoch=epoch, time_s=None, censored_at=last) for epoch in epochs]


@pytest.mark.parametrize(
    ("epochs", "expected"),
    [
        ((4.0, 6.0, 5.0), 5.0),
        ((4.0, 6.0), 4.0),
        # Two of three got there: the second of them is the median.
        ((4.0, None, 6.0), 6.0),
        ((4.0, None, None), None),
        ((None,), None),
        ((), None),
    ],
)
def test_the_median_with_runs_that_never_got_there(
    epochs: tuple[float | None, ...], expected: float | None
) -> None:
    assert kaplan_meier_median(_reached(*epochs)) == expected


def test_kaplan_meier_with_censoring_between_events() -> None:
    # At risk 5: event at 2 (4/5), two censored at 3, event at 5 with 2 at risk (2/5).
    events = [
        Reached(epoch=2.0, time_s=None, censored_at=9.0),
        Reached(epoch=None, time_s=None, censored_at=3.0),
        Reached(epoch=None, time_s=None, censored_at=3.0),
        Reached(epoch=5.0, time_s=None, censored_at=9.0),
        Reached(epoch=8.0, time_s=None, censored_at=9.0),
    ]
    assert kaplan_meier_median(events) == 5.0
