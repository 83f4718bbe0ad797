"""Errors, bias and coverage of guesses."""

from __future__ import annotations

import math

import pytest

from farandole.model.projection.backtest.scores import Guess, log_width, score
from farandole.model.projection.records import Projected


def guess(group: str, key: str, measured: float, value: float, law: float = 1.0) -> Guess:
    projected = Projected(value=value, low=0.9 * value, high=1.1 * value, ratio=2.0)
    return Guess(
        group=group, key=key, measured=measured, projected=projected, baselines={"law": law}
    )


def test_each_group_counts_the_same() -> None:
    found = score(
        "steps",
        [
            guess("a", "8", 1.0, 1.2),
            guess("a", "8", 1.0, 1.0),
            guess("a", "8", 1.0, 1.0),
            guess("a", "8", 1.0, 1.0),
            guess("b", "8", 1.0, 0.5, law=2.0),
        ],
        rows_fit=7,
        notes=["said"],
    )
    figures = found.error["8"]
    assert figures.mean_abs_pct == pytest.approx((5 + 50) / 2)
    assert figures.bias_pct == pytest.approx((5 - 50) / 2)
    assert figures.median_abs_pct == pytest.approx(0)
    assert figures.n == 5
    assert found.baselines["law"]["8"].mean_abs_pct == pytest.approx(50)
    assert found.coverage_90 == pytest.approx(3 / 5)
    assert (found.rows_fit, found.rows_scored, found.notes) == (7, 5, ("said",))


def test_keys_are_in_the_order_of_their_numbers() -> None:
    found = score("steps", [guess("a", key, 1.0, 1.0) for key in ("16", "8", "64")], rows_fit=3)
    assert list(found.error) == ["8", "16", "64"]


def test_nothing_scored_has_no_coverage() -> None:
    assert score("steps", [], rows_fit=0).coverage_90 is None


def test_the_width_of_an_interval_is_a_ratio() -> None:
    assert log_width(Projected(value=2, low=1, high=math.e, ratio=1)) == pytest.approx(1)
