"""Predictions with 90 % intervals: their arithmetic, and how wide public tables make them.

Values multiply, intervals widen in logs. `track_record.json` is what
`farandole backtest ... --write-track-record` wrote (docs/explanation/backtest.md); nobody edits it.
It holds figures only, none of the measurements behind them.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from importlib.resources import files

from farandole.format import number, percent, plural
from farandole.model.statistics import NORMAL_90, Estimate

FARTHEST = 16.0
"""Times the measured size; beyond it only bounds are given."""
# An interval from half to twice the value is no estimate any more.
_WIDEST = math.log(4.0)
# Of 90 % intervals, on a cluster that they were not calibrated on: where fewer held, none is
# promised.
_PROMISED = 0.8


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """A value that nobody measured, with its 90 % interval."""

    value: float
    low: float
    high: float
    ratio: float
    """How far beyond the largest measured one: 4.0 for 16 workers from 4; 1.0 or less inside."""
    indicative: bool = False
    """Too far or too uncertain to promise: low and high are bounds, the value is no estimate."""

    def scaled(self, factor: float) -> Prediction:
        """Multiply by a constant, such as the steps of an epoch or a price."""
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

    def text(self, write: Callable[[float], str] = number) -> str:
        """Write it as "22.4 s (19.1 s to 27.0 s)"; bounds alone if indicative."""
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


def calibrated(
    log_s: float,
    spread: tuple[float, float],
    ratio: float,
    *,
    few: bool,
    fastest: float | None = None,
    bounds: tuple[float, float] | None = None,
) -> Prediction:
    """Give a step time the interval that held on public tables at this distance.

    Args:
        log_s: log seconds.
        spread: standard deviations to the fast and to the slow side.
        ratio: how many times the measured size it is.
        few: whether few settings were measured.
        fastest: log seconds by the faster of two readings of the rows; the interval has both.
        bounds: least and most log seconds, beyond FARTHEST times the measured size.
    """
    reach = track_record().at(ratio, few=few)
    # Between measured sizes there is no distance to be wrong about.
    fast, slow = (reach.fast, reach.slow) if ratio > 1 else (NORMAL_90, NORMAL_90)
    low = (log_s if fastest is None else fastest) - fast * spread[0]
    high = log_s + slow * spread[1]
    if ratio > FARTHEST and bounds is not None:
        low, high = min(low, bounds[0]), max(high, bounds[1])
    return Prediction(
        value=math.exp(log_s),
        low=math.exp(low),
        high=math.exp(high),
        ratio=ratio,
        indicative=ratio > FARTHEST
        or (ratio > 1 and (high - low > _WIDEST or reach.coverage_left_out < _PROMISED)),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Reach:
    """Errors of projections at one distance beyond what was measured."""

    few: bool
    """From few settings (workers, hosts, batch), or from many."""
    beyond: float
    up_to: float
    """Times the largest measured number of workers."""
    rows: int
    models: int
    mean_abs_pct: float
    median_abs_pct: float
    p90_abs_pct: float
    bias_pct: float
    clusters: Mapping[str, float]
    """The mean absolute error on each, in percent."""
    coverage_left_out: float
    """Of 90 % intervals whose factors came from the other clusters only, or the other models where
    there is one cluster: the mean over these."""
    fast: float
    slow: float
    """How many standard deviations an interval reaches to either side, here or nearer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrackRecord:
    """Errors of projections on public clusters, where the truth is known."""

    models: tuple[str, ...]
    reaches: tuple[Reach, ...]
    """From many settings and from few, the nearest first."""

    def at(self, ratio: float, *, few: bool) -> Reach:
        """Return what is known at so many times the measured size; the farthest beyond it."""
        alike = [reach for reach in self.reaches if reach.few == few]
        return next((reach for reach in alike if ratio <= reach.up_to), alike[-1])

    def sentence(self, ratio: float, *, few: bool) -> str:
        """Say how right projections were at this distance, on which clusters, and where worst."""
        reach = self.at(ratio, few=few)
        ranked = sorted(reach.clusters.items(), key=lambda pair: -pair[1])
        each = ", ".join(f"{name} {percent(error / 100)}" for name, error in ranked)
        where = f"{plural(reach.models, 'model')}; {'worst first: ' if ranked[1:] else ''}{each}"
        if ratio > reach.up_to:
            return (
                f"Projections to {number(ratio)} times the measured size were never checked; up "
                f"to {reach.up_to:g} times they were {percent(reach.mean_abs_pct / 100)} off on "
                f"average ({where})."
            )
        return (
            f"On public clusters, step times {reach.beyond:g} to {reach.up_to:g} times beyond the "
            f"measured size were {percent(reach.mean_abs_pct / 100)} off on average, nine in ten "
            f"of them by less than {percent(reach.p90_abs_pct / 100)} ({where})."
        )


@lru_cache(maxsize=1)
def track_record() -> TrackRecord:
    """Return the record that came with this version."""
    text = files(__package__).joinpath("track_record.json").read_text(encoding="utf-8")
    content = json.loads(text)
    return TrackRecord(
        models=tuple(content["models"]),
        reaches=tuple(Reach(**reach) for reach in content["reaches"]),
    )


def _log(larger: float, smaller: float) -> float:
    # A bound of 0 says nothing, which is as wide as an interval gets here.
    return math.log(larger / smaller) if smaller > 0 and larger > 0 else math.log(1e6)
