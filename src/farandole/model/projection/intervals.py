"""Intervals of projected figures: their arithmetic, and how wide they are at least.

Values multiply, intervals widen in logs.
"""

from __future__ import annotations

import math
from dataclasses import replace

from farandole.model.projection.records import Projected
from farandole.model.statistics import Estimate

FARTHEST = 16.0
"""Times the measured size; beyond it only bounds are given."""

# 90 % half-widths on the log scale: what a plain ring form missed by on a public cluster.
_HALF_WIDTHS = ((4.0, 0.20), (8.0, 0.35), (FARTHEST, 0.50))
# Such forms are too optimistic more often than not, so that the slow side gets more of the width.
_SLOW_SHARE = 0.6


def exactly(value: float) -> Projected:
    """Return a figure that is known."""
    return Projected(value=value, low=value, high=value, ratio=1.0)


def measured(estimate: Estimate, ratio: float = 1.0) -> Projected:
    """Return a measured figure; without repeats its interval is empty."""
    low = estimate.value if estimate.low is None else estimate.low
    high = estimate.value if estimate.high is None else estimate.high
    return Projected(value=estimate.value, low=low, high=high, ratio=ratio)


def product(*parts: Projected) -> Projected:
    """Multiply figures whose errors have nothing to do with each other.

    Half widths add in squares on the scale of logs, those to either side apart. Bounds multiply:
    where one part has no more than bounds, the product has none that are narrower.
    """
    value = math.prod(part.value for part in parts)
    indicative = any(part.indicative for part in parts)
    down, up = (
        math.fsum(logs) if indicative else math.hypot(*logs)
        for logs in (
            [_log(part.value, part.low) for part in parts],
            [_log(part.high, part.value) for part in parts],
        )
    )
    return Projected(
        value=value,
        low=value * math.exp(-down),
        high=value * math.exp(up),
        ratio=max(part.ratio for part in parts),
        indicative=indicative,
    )


def scaled(figure: Projected, factor: float) -> Projected:
    """Multiply a figure and its interval by a number above 0."""
    return replace(
        figure, value=figure.value * factor, low=figure.low * factor, high=figure.high * factor
    )


def shifted(figure: Projected, by: float) -> Projected:
    """Add what is known, such as a fixed time."""
    return replace(figure, value=figure.value + by, low=figure.low + by, high=figure.high + by)


def at_least(figure: Projected, least: float) -> Projected:
    """Let neither a figure nor its interval be below a bound."""
    return replace(
        figure,
        value=max(figure.value, least),
        low=max(figure.low, least),
        high=max(figure.high, least),
    )


def inverted(figure: Projected, numerator: float = 1.0) -> Projected:
    """Return numerator / figure: a rate for a time, and a time for a rate."""
    return replace(
        figure,
        value=numerator / figure.value,
        low=numerator / figure.high,
        high=numerator / figure.low,
    )


def width(figure: Projected) -> float:
    """Return the larger half of the interval, relative: 0.2 for 20 % more."""
    return math.exp(max(_log(figure.value, figure.low), _log(figure.high, figure.value))) - 1


def half_width(ratio: float) -> float:
    """Return how wide half an interval is, as a logarithm, where nothing better is known.

    Args:
        ratio: how many times the measured size it reaches.
    """
    return next((half for limit, half in _HALF_WIDTHS if ratio <= limit), _HALF_WIDTHS[-1][1])


def floor_sides(ratio: float) -> tuple[float, float]:
    """Return how far such an interval reaches to the fast and to the slow side, as logarithms."""
    whole = 2 * half_width(ratio)
    return (1 - _SLOW_SHARE) * whole, _SLOW_SHARE * whole


def _log(larger: float, smaller: float) -> float:
    # A bound of 0 says nothing, which is as wide as an interval gets here.
    return math.log(larger / smaller) if smaller > 0 and larger > 0 else math.log(1e6)
