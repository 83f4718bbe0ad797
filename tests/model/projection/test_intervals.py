"""Predictions, their text, and the record of their errors."""

from __future__ import annotations

import math

import pytest

from farandole.model.projection import intervals
from farandole.model.projection.intervals import (
    FARTHEST,
    Prediction,
    duration,
    number,
    track_record,
)
from farandole.model.statistics import Estimate
from tests.model.projection.known import figure


def test_half_widths_of_a_product_add_in_squares_of_logs() -> None:
    found = intervals.product(figure(2.0, width=1.3), figure(5.0, width=1.4))
    half = math.hypot(math.log(1.3), math.log(1.4))
    assert found.value == pytest.approx(10.0)
    assert found.low == pytest.approx(10.0 * math.exp(-half))
    assert found.high == pytest.approx(10.0 * math.exp(half))


def test_a_product_is_as_uncertain_as_its_worst_part() -> None:
    far = Prediction(value=1.0, low=0.5, high=2.0, ratio=32.0, indicative=True)
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
    skewed = Prediction(value=10.0, low=9.0, high=20.0, ratio=2.0)
    found = skewed.inverted(100.0)
    assert (found.value, found.low, found.high) == (10.0, 5.0, pytest.approx(100 / 9))
    assert skewed.shifted(5.0).high == 25.0
    assert skewed.scaled(2.0).low == 18.0
    assert skewed.width == pytest.approx(1.0)


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
        fast, slow = intervals.least_sides(ratio)
        assert fast < slow
        assert fast + slow == pytest.approx(2 * intervals.half_width(ratio))


def test_neither_a_figure_nor_its_interval_goes_below_a_bound() -> None:
    found = figure(2.0, width=2.0).at_least(3.0)
    assert (found.low, found.value, found.high) == (3.0, 3.0, 4.0)
    assert figure(2.0).at_least(0.0) == figure(2.0)


@pytest.mark.parametrize(
    ("seconds", "written"),
    [
        (50e-6, "50.0 us"),
        (0.0123, "12.3 ms"),
        (22.44, "22.4 s"),
        (119.0, "119 s"),
        (850.0, "14.2 min"),
        (7 * 3600.0, "7.00 h"),
        (12 * 86400.0, "12.0 days"),
    ],
)
def test_times(seconds: float, written: str) -> None:
    assert duration(seconds) == written


@pytest.mark.parametrize(
    ("value", "written"), [(0.0, "0.00"), (0.0451, "0.0451"), (1.0, "1.00"), (0.5, "0.500")]
)
def test_small_figures_keep_three_digits(value: float, written: str) -> None:
    assert number(value) == written


def test_a_figure_has_its_interval() -> None:
    assert figure(22.0, width=1.1).text(duration) == "22.0 s (20.0 s to 24.2 s)"


def test_what_is_indicative_has_bounds_alone() -> None:
    said = figure(22.0, width=2.0, indicative=True).text()
    assert said == "11.0 to 44.0 (indicative)"


def test_what_is_known_has_no_interval() -> None:
    assert figure(12345.0, width=1.0).text() == "12,345"


def test_distances_follow_each_other_up_to_the_farthest() -> None:
    reaches = track_record().reaches
    assert reaches[0].beyond == 1
    assert [reach.beyond for reach in reaches[1:]] == [reach.up_to for reach in reaches[:-1]]
    assert reaches[-1].up_to == FARTHEST


def test_a_distance_is_looked_up_by_its_upper_end() -> None:
    record = track_record()
    assert record.at(0.5) == record.at(2.0) == record.reaches[0]
    assert record.at(2.1) == record.at(4.0) == record.reaches[1]
    assert record.at(100.0) == record.reaches[-1]


def test_a_sentence_says_how_far_off_it_was() -> None:
    record = track_record()
    reach = record.at(8.0)
    said = record.sentence(8.0)
    assert said.startswith("At 4 to 8 times the measured size")
    assert f"{reach.mean_abs_pct:.0f} % off on average" in said
    assert f"less than {reach.p90_abs_pct:.0f} %" in said
    assert "aws-t4" in said


def test_beyond_the_farthest_nobody_has_checked() -> None:
    assert track_record().sentence(64.0).startswith("Nobody has checked projections to 64 times")
