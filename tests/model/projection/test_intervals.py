"""Arithmetic of intervals."""

from __future__ import annotations

import math

import pytest

from farandole.model.projection import intervals
from farandole.model.projection.records import Projected
from farandole.model.statistics import Estimate
from tests.model.projection.known import figure


def test_half_widths_of_a_product_add_in_squares_of_logs() -> None:
    found = intervals.product(figure(2.0, width=1.3), figure(5.0, width=1.4))
    half = math.hypot(math.log(1.3), math.log(1.4))
    assert found.value == pytest.approx(10.0)
    assert found.low == pytest.approx(10.0 * math.exp(-half))
    assert found.high == pytest.approx(10.0 * math.exp(half))


def test_a_product_is_as_uncertain_as_its_worst_part() -> None:
    far = Projected(value=1.0, low=0.5, high=2.0, ratio=32.0, indicative=True)
    found = intervals.product(figure(2.0), far)
    assert found.indicative
    assert found.ratio == 32.0


def test_bounds_of_a_product_are_products_of_bounds() -> None:
    far = figure(5.0, width=1.4, indicative=True)
    found = intervals.product(figure(2.0, width=1.3), far)
    assert found.low == pytest.approx(10.0 / (1.3 * 1.4))
    assert found.high == pytest.approx(10.0 * 1.3 * 1.4)


def test_what_is_known_widens_nothing() -> None:
    found = intervals.product(figure(3.0, width=1.2), intervals.exactly(4.0))
    assert (found.low, found.high) == (pytest.approx(10.0), pytest.approx(14.4))


def test_sides_stay_apart() -> None:
    skewed = Projected(value=10.0, low=9.0, high=20.0, ratio=2.0)
    found = intervals.inverted(skewed, 100.0)
    assert (found.value, found.low, found.high) == (10.0, 5.0, pytest.approx(100 / 9))
    assert intervals.shifted(skewed, 5.0).high == 25.0
    assert intervals.scaled(skewed, 2.0).low == 18.0
    assert intervals.width(skewed) == pytest.approx(1.0)


def test_a_measured_figure_without_repeats_has_no_interval() -> None:
    found = intervals.measured(Estimate(value=3.0, low=None, high=None))
    assert (found.low, found.high) == (3.0, 3.0)


def test_floors_are_wider_farther_away_and_to_the_slow_side() -> None:
    assert [intervals.half_width(ratio) for ratio in (1, 4, 5, 8, 16, 100)] == [
        0.2,
        0.2,
        0.35,
        0.35,
        0.5,
        0.5,
    ]
    for ratio in (2, 8, intervals.FARTHEST):
        fast, slow = intervals.floor_sides(ratio)
        assert fast < slow
        assert fast + slow == pytest.approx(2 * intervals.half_width(ratio))


def test_neither_a_figure_nor_its_interval_goes_below_a_bound() -> None:
    found = intervals.at_least(figure(2.0, width=2.0), 3.0)
    assert (found.low, found.value, found.high) == (3.0, 3.0, 4.0)
    assert intervals.at_least(figure(2.0), 0.0) == figure(2.0)
