"""Predictions with 90 % intervals: their arithmetic, their width, and how they are written.

Values multiply, intervals widen in logs. `track_record.json` is what
`farandole backtest ... --write-track-record` wrote (docs/explanation/backtest.md); nobody edits it.
It holds figures only, none of the measurements behind them.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from importlib.resources import files

from farandole.model.statistics import Estimate

FARTHEST = 16.0
"""Times the measured size; beyond it only bounds are given."""

# 90 % half-widths on the log scale: what a plain ring form missed by on a public cluster.
_HALF_WIDTHS = ((4.0, 0.20), (8.0, 0.35), (FARTHEST, 0.50))
# Such forms are too optimistic more often than not, so that the slow side gets more of the width.
_SLOW_SHARE = 0.6
_MINUTE_S, _HOUR_S, _DAY_S = 60.0, 3600.0, 86400.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """A value that nobody measured, with its 90 % interval."""

    value: float
    low: float
    high: float
    ratio: float
    """How far beyond the largest measured one: 4.0 for 16 workers from 4; 1.0 or less inside."""
    indicative: bool = False
    """Beyond 16 times the measured size: low and high are bounds, the value is no estimate."""

    def scaled(self, factor: float) -> Prediction:
        """Multiply by a number above 0."""
        return self._each(lambda value: value * factor)

    def shifted(self, by: float) -> Prediction:
        """Add a constant, such as a fixed time."""
        return self._each(lambda value: value + by)

    def at_least(self, least: float) -> Prediction:
        """Let neither the value nor its interval be below a bound."""
        return self._each(lambda value: max(value, least))

    def inverted(self, numerator: float = 1.0) -> Prediction:
        """Return numerator / value: a rate for a time, and a time for a rate."""
        low, high = numerator / self.high, numerator / self.low
        return replace(self, value=numerator / self.value, low=low, high=high)

    @property
    def width(self) -> float:
        """The larger half of the interval, relative: 0.2 for 20 % more."""
        return math.exp(max(_log(self.value, self.low), _log(self.high, self.value))) - 1

    def text(self, write: Callable[[float], str] | None = None) -> str:
        """Write it as "22.4 s (19.1 s to 27.0 s)"; bounds alone if indicative."""
        write = write or number
        low, high = write(self.low), write(self.high)
        if self.indicative:
            return f"{low} to {high} (indicative)"
        return write(self.value) if low == high else f"{write(self.value)} ({low} to {high})"

    def _each(self, change: Callable[[float], float]) -> Prediction:
        value, low, high = change(self.value), change(self.low), change(self.high)
        return replace(self, value=value, low=low, high=high)


def exactly(value: float) -> Prediction:
    """Return a value that is known."""
    return Prediction(value=value, low=value, high=value, ratio=1.0)


def measured(estimate: Estimate) -> Prediction:
    """Return a measured value; without repeats its interval is empty."""
    low = estimate.value if estimate.low is None else estimate.low
    high = estimate.value if estimate.high is None else estimate.high
    return Prediction(value=estimate.value, low=low, high=high, ratio=1.0)


def predict(
    value: float,
    fast: float,
    slow: float,
    ratio: float,
    *,
    floors: bool,
    bounds: Callable[[], tuple[float, float]],
) -> Prediction:
    """Give a value the interval that its distance from the measurements needs.

    Args:
        value: in seconds.
        fast: how far the interval reaches down, as a logarithm.
        slow: the same, up.
        ratio: how many times the measured size it is.
        floors: whether the interval is at least as wide as `least_sides`, beyond that size.
        bounds: least and most beyond FARTHEST times that size.
    """
    if floors and ratio > 1:
        least_fast, least_slow = least_sides(ratio)
        fast, slow = max(fast, least_fast), max(slow, least_slow)
    low, high = value * math.exp(-fast), value * math.exp(slow)
    if ratio > FARTHEST:
        least, most = bounds()
        low, high = min(low, least), max(high, most)
    return Prediction(value=value, low=low, high=high, ratio=ratio, indicative=ratio > FARTHEST)


def product(*parts: Prediction) -> Prediction:
    """Multiply predictions with independent errors.

    Half widths add in squares on the log scale, each side by itself. Bounds multiply: where one
    part has only bounds, so has the product.
    """
    value = math.prod(part.value for part in parts)
    indicative = any(part.indicative for part in parts)
    combine = math.fsum if indicative else lambda logs: math.hypot(*logs)
    down = combine([_log(part.value, part.low) for part in parts])
    up = combine([_log(part.high, part.value) for part in parts])
    return Prediction(
        value=value,
        low=value * math.exp(-down),
        high=value * math.exp(up),
        ratio=max(part.ratio for part in parts),
        indicative=indicative,
    )


def half_width(ratio: float) -> float:
    """Return half the width of an interval at this ratio, as a logarithm, without calibration."""
    return next((half for limit, half in _HALF_WIDTHS if ratio <= limit), _HALF_WIDTHS[-1][1])


def least_sides(ratio: float) -> tuple[float, float]:
    """Return how far such an interval reaches to the fast and to the slow side, as logarithms."""
    whole = 2 * half_width(ratio)
    return (1 - _SLOW_SHARE) * whole, _SLOW_SHARE * whole


def duration(seconds: float) -> str:
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
    """Write a number with three digits, and never an exponent."""
    if abs(value) >= 99.95:
        return f"{value:,.0f}"
    if abs(value) >= 9.995:
        return f"{value:.1f}"
    if value == 0 or abs(value) >= 0.995:
        return f"{value:.2f}"
    return f"{value:.{2 - math.floor(math.log10(abs(value)))}f}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reach:
    """Errors of projections at one distance beyond what was measured."""

    beyond: float
    up_to: float
    """Times the largest measured number of workers."""
    rows: int
    models: int
    mean_abs_pct: float
    median_abs_pct: float
    p90_abs_pct: float
    bias_pct: float
    coverage_left_out: float
    """Of 90 % intervals whose factors came from the other models only."""
    fast: float
    slow: float
    """How many standard deviations an interval reaches to either side: for nine in ten rows of the
    model that was hit worst, here or nearer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrackRecord:
    """Errors of projections on public clusters, where the truth is known."""

    clusters: tuple[str, ...]
    models: tuple[str, ...]
    reaches: tuple[Reach, ...]
    """The nearest first."""

    def at(self, ratio: float) -> Reach:
        """Return what is known at so many times the measured size; the farthest beyond it."""
        return next((reach for reach in self.reaches if ratio <= reach.up_to), self.reaches[-1])

    def sentence(self, ratio: float) -> str:
        """Say how right projections were at this distance."""
        reach = self.at(ratio)
        where = f"{len(self.models)} models of {' and '.join(self.clusters)}"
        if ratio > reach.up_to:
            return (
                f"Nobody has checked projections to {ratio:.3g} times the measured size; up to "
                f"{reach.up_to:g} times they were {reach.mean_abs_pct:.0f} % off on average "
                f"({where})."
            )
        return (
            f"At {reach.beyond:g} to {reach.up_to:g} times the measured size, projections of step "
            f"times were {reach.mean_abs_pct:.0f} % off on average, nine in ten of them by less "
            f"than {reach.p90_abs_pct:.0f} % ({where})."
        )


@lru_cache(maxsize=1)
def track_record() -> TrackRecord:
    """Return the record that came with this version."""
    text = files(__package__).joinpath("track_record.json").read_text(encoding="utf-8")
    content = json.loads(text)
    return TrackRecord(
        clusters=tuple(content["clusters"]),
        models=tuple(content["models"]),
        reaches=tuple(Reach(**reach) for reach in content["reaches"]),
    )


def _log(larger: float, smaller: float) -> float:
    # A bound of 0 says nothing, which is as wide as an interval gets here.
    return math.log(larger / smaller) if smaller > 0 and larger > 0 else math.log(1e6)
