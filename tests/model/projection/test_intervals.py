"""Predictions, their text, and the record of their errors."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest

from farandole.format import seconds
from farandole.model.projection import intervals
from farandole.model.projection.intervals import FARTHEST, Prediction, calibrated, track_record
from farandole.model.statistics import Estimate
from tests.model.projection.known import figure


def test_half_widths_of_a_product_add_in_squares_of_logs() -> None:
    found = intervals.product(figure(2.0, width=1.3), figure(5.0, width=1.4))
    half = math.hypot(math.log(1.3), math.log(1.4))
    assert found.value == pytest.approx(10.0)
    assert found.low == pytest.approx(10.0 * math.exp(-half))
    assert found.high == pytest.approx(10.0 * math.exp(half))
    known = intervals.product(figure(3.0, width=1.2), intervals.exactly(4.0))
    assert (known.low, known.high) == (pytest.approx(10.0), pytest.approx(14.4))


def test_bounds_of_a_product_are_products_of_bounds() -> None:
    far = Prediction(value=5.0, low=5.0 / 1.4, high=5.0 * 1.4, ratio=32.0, indicative=True)
    found = intervals.product(figure(2.0, width=1.3), far)
    assert (found.indicative, found.ratio) == (True, 32.0)
    assert found.low == pytest.approx(10.0 / (1.3 * 1.4))
    assert found.high == pytest.approx(10.0 * 1.3 * 1.4)


def test_sides_stay_apart() -> None:
    skewed = Prediction(value=10.0, low=9.0, high=20.0, ratio=2.0)
    found = skewed.inverted(100.0)
    assert (found.value, found.low, found.high) == (10.0, 5.0, pytest.approx(100 / 9))
    assert skewed.shifted(5.0).high == 25.0
    assert skewed.scaled(2.0).low == 18.0
    assert skewed.width == pytest.approx(1.0)
    fed = skewed.at_least(12.0)
    assert (fed.value, fed.low, fed.high) == (12.0, 12.0, 20.0)


def test_a_measured_figure_without_repeats_has_no_interval() -> None:
    found = intervals.measured(Estimate(value=3.0, low=None, high=None))
    assert (found.low, found.high) == (3.0, 3.0)
    assert found.text(seconds) == "3.00 s"


def test_a_figure_has_its_interval_and_what_is_indicative_bounds_alone() -> None:
    found = Prediction(value=22.41, low=19.1, high=27.0, ratio=2.0)
    assert found.text(seconds) == "22.4 s (19.1 s to 27.0 s)"
    far = Prediction(value=22.41, low=19.1, high=27.0, ratio=20.0, indicative=True)
    assert far.text(seconds) == "19.1 s to 27.0 s (indicative)"


@pytest.mark.parametrize("few", [True, False])
def test_intervals_are_as_wide_as_the_record_has_it(few: bool) -> None:
    for ratio in (1.5, 2.0, 3.0, 8.0, 16.0):
        reach = track_record().at(ratio, few=few)
        found = calibrated(0.0, (0.1, 0.05), ratio, few=few)
        assert found.low == pytest.approx(math.exp(-0.1 * reach.fast))
        assert found.high == pytest.approx(math.exp(0.05 * reach.slow))
        assert found.indicative == (reach.coverage_left_out < 0.8)
    assert calibrated(0.0, (0.6, 0.6), 2.0, few=few).indicative
    both = calibrated(0.0, (0.1, 0.1), 2.0, few=few, fastest=-0.5)
    assert both.low < math.exp(-0.5) < 1 < both.high
    far = calibrated(0.0, (0.1, 0.1), 17.0, few=few, bounds=(-1.0, 2.0))
    assert far.indicative
    assert (far.low, far.high) == (pytest.approx(math.exp(-1)), pytest.approx(math.exp(2)))


@pytest.mark.parametrize("few", [True, False])
def test_the_record_says_how_far_off_and_where_worst(few: bool) -> None:
    record = track_record()
    reaches = [reach for reach in record.reaches if reach.few == few]
    for near, far in pairwise(reaches):
        assert near.up_to == far.beyond
        assert near.fast <= far.fast
        assert near.slow <= far.slow
    reach = record.at(2.0, few=few)
    worst = max(reach.clusters, key=lambda name: reach.clusters[name])
    sentence = record.sentence(2.0, few=few)
    assert f"{reach.mean_abs_pct:.0f} % off on average" in sentence
    assert f"{worst} {reach.clusters[worst]:.0f} %" in sentence
    assert f"{reach.models} models" in sentence
    assert "were never checked" in record.sentence(2 * FARTHEST, few=few)
