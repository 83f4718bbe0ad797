"""Digits and units."""

from __future__ import annotations

import math
import re
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from farandole import format as text
from farandole.model.statistics import Estimate


@pytest.mark.parametrize(
    ("show", "value", "expected"),
    [
        (text.number, 1234.5, "1,234"),
        (text.number, 12.345, "12.3"),
        (text.number, 9.996, "10.0"),
        (text.number, 0.012345, "0.0123"),
        (text.number, 0, "0"),
        (text.number, None, "not measured"),
        (text.number, math.nan, "not measured"),
        (text.number, math.inf, "infinite"),
        (text.whole, 18750, "18,750"),
        (text.percent, 0.06, "6 %"),
        (text.percent, 0.0031, "0.3 %"),
        (text.percent, 0.0, "0 %"),
        (text.percent, 0.0004, "under 0.1 %"),
        (text.percent, None, "not measured"),
        (text.times, 1.8312, "1.83x"),
        (text.times, 10.56, "10.6x"),
        (text.seconds, 1.82e-12, "0.002 ns"),
        (text.seconds, 182e-9, "182 ns"),
        (text.seconds, 25e-6, "25.0 us"),
        (text.seconds, 0.99999e-3, "1.00 ms"),
        (text.seconds, 0.0312, "31.2 ms"),
        (text.seconds, 0.9999, "1.00 s"),
        (text.seconds, 62.661095, "62.7 s"),
        (text.seconds, 319, "5 min 19 s"),
        (text.seconds, 5910, "1 h 38 min"),
        (text.seconds, 0.0, "0 s"),
        (text.size, 44_695_848, "44.7 MB"),
        (text.size, 999_960, "1.00 MB"),
        (text.size, 512, "512 B"),
    ],
)
def test_figures(show: Callable[[float | None], str], value: float | None, expected: str) -> None:
    assert show(value) == expected


@given(st.floats(min_value=-1e18, max_value=1e18, allow_nan=False))
def test_a_figure_with_a_unit_has_one_to_four_digits(value: float) -> None:
    for show in (text.seconds, text.size, text.rate):
        shown = show(value)
        digits = re.match(r"-?([\d,]+)(\.\d+)?(?:e-\d+)? ", shown)
        assert digits, shown
        # Neither 0.00 GB/s nor 0.00000182 us nor 365:46:51 h.
        assert len(digits[2] or "") <= 5, shown
        is_zero = float(digits[1].replace(",", "") + (digits[2] or "")) == 0
        assert not is_zero or "." not in shown, shown
        assert ":" not in shown


def test_needless_zeros_and_what_need_not_be_there() -> None:
    assert [text.brief(value) for value in (5.0, 0.98, 2.5, 100, None)] == [
        *("5", "0.98", "2.5", "100"),
        "not measured",
    ]
    assert [text.optional(None), text.optional(7)] == ["", "7"]


def test_moments() -> None:
    assert text.moment("2026-11-15T22:00:41Z") == "2026-11-15 22:00 UTC"
    assert text.moment("2026-11-15T22:00:41.5+00:00") == "2026-11-15 22:00 UTC"
    assert text.moment("yesterday") == "yesterday"


def test_intervals_and_lists() -> None:
    assert text.between(1.79, 1.874) == "1.79 to 1.87"
    assert text.between(None, 2.0) == ""
    # Two launches that differ: t intervals of logs reach far.
    assert text.between(1e-4, 4e6) == "too noisy for bounds"
    assert text.listed(["1", "2", "4"]) == "1, 2 and 4"
    assert text.listed(["1"]) == "1"


def test_a_sentence_is_filled_by_the_functions_and_by_nouns() -> None:
    point = Estimate(value=1.834, low=1.79, high=1.871)
    filled = text.fill(
        "{name}: {share:percent} of {step_s:seconds} with {workers:worker}, {point:interval}",
        name="a",
        share=0.2,
        step_s=1.5,
        workers=4,
        point=point,
    )
    assert filled == "a: 20 % of 1.50 s with 4 workers, 1.83x (1.79 to 1.87)"
    assert text.interval(Estimate(value=12.34, low=None, high=None)) == "12.3x"
