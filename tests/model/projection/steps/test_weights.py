"""Weights of fits by what they missed."""

from __future__ import annotations

import math

import pytest

from farandole.model.projection.steps.weights import weigh


def test_an_error_that_is_a_twentieth_larger_counts_1_of_e() -> None:
    best, other = weigh([0.03, 0.08])
    assert best + other == pytest.approx(1)
    assert other / best == pytest.approx(1 / math.e)


def test_the_order_is_kept_and_equal_fits_count_alike() -> None:
    first, second, third = weigh([0.2, 0.05, 0.05])
    assert second == third > first


def test_a_fit_that_is_far_off_counts_nothing() -> None:
    assert weigh([1e6, 0.1]) == [0.0, 1.0]
    assert weigh([math.inf, 0.1]) == [0.0, 1.0]
