"""Figures in sentences."""

from __future__ import annotations

import pytest

from farandole.model.projection import words
from tests.model.projection.known import figure


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
    assert words.time(seconds) == written


@pytest.mark.parametrize(
    ("value", "written"), [(0.0, "0.00"), (0.0451, "0.0451"), (1.0, "1.00"), (0.5, "0.500")]
)
def test_small_figures_keep_three_digits(value: float, written: str) -> None:
    assert words.number(value) == written


def test_a_figure_has_its_interval() -> None:
    assert words.spoken(figure(22.0, width=1.1), words.time) == "22.0 s (20.0 s to 24.2 s)"


def test_what_is_indicative_has_bounds_alone() -> None:
    said = words.spoken(figure(22.0, width=2.0, indicative=True))
    assert said == "11.0 to 44.0 (indicative)"


def test_what_is_known_has_no_interval() -> None:
    assert words.spoken(figure(12345.0, width=1.0)) == "12,345"
