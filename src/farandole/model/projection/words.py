"""Projected figures in sentences."""

from __future__ import annotations

import math
from collections.abc import Callable

from farandole.model.projection.records import Projected

_MINUTE_S, _HOUR_S, _DAY_S = 60.0, 3600.0, 86400.0


def time(seconds: float) -> str:
    """Write a time in the unit that suits it: 50.0 us, 12.3 ms, 22.4 s, 14.3 min, 5.2 h."""
    for limit, unit, word in (
        (1e-3, 1e-6, "us"),
        (1.0, 1e-3, "ms"),
        (2 * _MINUTE_S, 1.0, "s"),
        (2 * _HOUR_S, _MINUTE_S, "min"),
        (2 * _DAY_S, _HOUR_S, "h"),
    ):
        if seconds < limit:
            return f"{number(seconds / unit)} {word}"
    return f"{number(seconds / _DAY_S)} days"


def number(value: float) -> str:
    """Write a figure with three digits, and never an exponent."""
    if abs(value) >= 99.95:
        return f"{value:,.0f}"
    if abs(value) >= 9.995:
        return f"{value:.1f}"
    if value == 0 or abs(value) >= 0.995:
        return f"{value:.2f}"
    return f"{value:.{2 - math.floor(math.log10(abs(value)))}f}"


def spoken(figure: Projected, write: Callable[[float], str] = number) -> str:
    """Write a figure with its interval: "22.4 s (19.1 s to 27.0 s)"; bounds alone if indicative."""
    low, high = write(figure.low), write(figure.high)
    if figure.indicative:
        return f"{low} to {high} (indicative)"
    return write(figure.value) if low == high else f"{write(figure.value)} ({low} to {high})"
