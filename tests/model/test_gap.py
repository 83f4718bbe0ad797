"""Differences over seeds, and what a test set can tell."""

from __future__ import annotations

import math

import numpy as np
import pytest

from farandole.model.gap import finals_by_seed, paired_gap, smallest_difference
from farandole.study.records import Cell
from tests.model.build import make_launch, trained_launch

ONE = Cell(workers=1, batch=32)


def test_a_gap_is_students_t_over_the_differences() -> None:
    found = paired_gap({0: 0.80, 1: 0.70, 2: 0.61}, {0: 0.81, 1: 0.72, 2: 0.64})
    assert found is not None
    # Differences -0.01, -0.02, -0.03: standard deviation 0.01; t(0.95, 2) = 2.919986.
    half_width = 2.919986 * 0.01 / math.sqrt(3)
    assert found.difference.value == pytest.approx(-0.02)
    assert found.difference.low == pytest.approx(-0.02 - half_width, rel=1e-6)
    assert found.difference.high == pytest.approx(-0.02 + half_width, rel=1e-6)
    assert (found.seeds, found.diverged) == (3, 0)


def test_a_gap_agrees_with_scipys_paired_test() -> None:
    from scipy.stats import ttest_rel

    values, reference = [0.71, 0.68, 0.74, 0.70], [0.73, 0.66, 0.75, 0.74]
    expected = ttest_rel(values, reference).confidence_interval(0.90)
    found = paired_gap(dict(enumerate(values)), dict(enumerate(reference)))
    assert found is not None
    assert (found.difference.low, found.difference.high) == pytest.approx(
        (expected.low, expected.high)
    )


def test_only_seeds_of_both_sides_count_and_one_has_no_interval() -> None:
    found = paired_gap({0: 0.5, 7: 0.9}, {0: 0.6, 1: 0.1})
    assert found is not None
    assert found.difference.value == pytest.approx(-0.1)
    assert (found.difference.low, found.difference.high) == (None, None)
    assert paired_gap({0: 0.5}, {1: 0.5}) is None


def test_what_diverged_is_counted_and_left_out() -> None:
    found = paired_gap({0: math.nan, 1: 0.5, 2: 0.5}, {0: 0.6, 1: 0.6, 2: 0.6})
    assert found is not None
    assert (found.seeds, found.diverged) == (2, 1)
    assert found.difference.value == pytest.approx(-0.1)
    assert paired_gap({0: math.nan}, {0: 0.6}) is None


def test_finals_are_the_last_values_of_whole_runs_by_seed() -> None:
    launches = [
        trained_launch(ONE, 0, [0.1, 0.5]),
        trained_launch(ONE, 3, [0.2, 0.6]),
        trained_launch(ONE, 3, [0.2, 0.7]),
        make_launch(ONE),
        make_launch(ONE, purpose="accuracy", outcome="failed", seed=4),
    ]
    assert finals_by_seed(launches, "val_accuracy") == {0: 0.5, 3: 0.7}
    assert finals_by_seed(launches, "val_loss") == {}


def test_the_smallest_difference_by_hand() -> None:
    # 1.644854 x sqrt(2 x 0.25 / 10,000)
    assert smallest_difference(10_000, 0.5, 1) == pytest.approx(1.644854 * math.sqrt(5e-5))
    assert smallest_difference(2000, 0.7, 3) == pytest.approx(
        smallest_difference(2000, 0.7, 1) / math.sqrt(3)
    )
    # All right: no spread is left, but no less than one answer can be seen.
    assert smallest_difference(500, 1.0, 1) == 1 / 500


def test_equal_trainings_differ_by_more_in_at_most_a_tenth_of_cases() -> None:
    rng = np.random.default_rng(1)
    chances = np.full(400, 0.6)
    limit = smallest_difference(400, 0.6, 2)
    # 4000 pairs of means over two seeds, each test sample drawn anew.
    means = rng.binomial(1, chances, size=(4000, 2, 2, 400)).mean(axis=(2, 3))
    beyond = float(np.mean(np.abs(means[:, 0] - means[:, 1]) > limit))
    # Of 10 %, with a standard error of 0.5 %.
    assert beyond == pytest.approx(0.10, abs=0.02)
