"""Epochs to the target by global batch: E(B) = E_min (1 + B / Bc), with intervals.

Measured epochs depart from the hyperbola: recipes are retuned from batch to batch, and departures
of neighbouring batches are alike. So what is left over counts as a walk along log B plus a part of
each batch's own, of a size that the points tell together with a prior. Bc, the critical batch, has
a prior, too: from the gradient noise scale, or from the batches that people choose to measure.
Both are integrated over on a grid: no fit that may fail, and intervals that hold for few points.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from farandole.errors import DataError
from farandole.model.measured import figure
from farandole.model.noise import NoiseScale
from farandole.model.projection.epochs.points import Bound, Point, Points, points_of
from farandole.model.projection.intervals import FARTHEST
from farandole.model.projection.records import EpochRow, Projected
from farandole.model.statistics import NORMAL_90, PROJECTION_CONFIDENCE
from farandole.study.records import Floats

RECIPE = (
    "The learning rate is retuned for each global batch, as it was in the runs; with a rate that "
    "does not fit its batch, more epochs are needed than projected."
)

# Chosen on public workloads, where results hardly depend on them (docs/noise-scale.md). Whoever
# sweeps batches goes up to where they begin to cost, so that the critical batch is near the largest
# one; how near differs much, and measured epochs tell better.
_REACH = 3.0
_REACH_SPREAD = 1.75
# How far log epochs depart from the hyperbola: per unit of log batch, and its spread.
_DEPARTURE = 0.045
_DEPARTURE_SPREAD = 0.8
# The variance of a batch's own departure over that of the walk's per unit of log batch.
_OWN = 0.5
# Beyond the largest batch that was trained recipes run out, and epochs grow faster than the
# hyperbola: on public workloads by this, per unit of log batch, up to twice that batch. Farther
# away nothing like it was seen.
_RUN_OUT = 0.1
_RUN_OUT_RATIO = 2.0
# Of log(Bc / noise scale), from workload to workload.
_NOISE_SPREAD = 0.7

_CRITICAL_GRID = 101
_DEPARTURE_GRID = 11
# Of quantiles of log epochs: 6 or 7 steps do, and halving alone would take some 50.
_NEWTON_STEPS = 200
_ENOUGH = 1e-12
# A slope below it is 0: Newton's step leaves the brackets then.
_FLAT = 1e-300


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochCurve:
    """What `fit_epochs` found; an EpochFit."""

    critical_batch: Projected | None
    assumptions: tuple[str, ...]
    largest_batch: int
    """That runs were made with, reached or not."""
    _grid: _Grid

    def at(self, global_batch: int) -> Projected:
        """Return the mean number of epochs over runs of this global batch."""
        if global_batch < 1:
            raise DataError(f"A global batch of {global_batch}: it must be 1 or more.")
        low, value, high = (math.exp(log) for log in self._grid.at(float(global_batch)))
        ratio = global_batch / self.largest_batch
        if ratio <= FARTHEST:
            return Projected(value=value, low=low, high=high, ratio=ratio)
        # At best a batch needs the epochs of a smaller one, at worst as many steps.
        low, _, high = (math.exp(log) for log in self._grid.at(float(self.largest_batch)))
        high *= ratio
        return Projected(
            value=min(max(value, low), high), low=low, high=high, ratio=ratio, indicative=True
        )


def fit_epochs(rows: Sequence[EpochRow], *, noise: NoiseScale | None = None) -> EpochCurve:
    """Fit epochs to the target as a function of the global batch.

    Args:
        rows: one per run. Those that did not reach the target count as lower bounds.
        noise: what the gradient noise scale says of the critical batch, in the same unit as the
            batches; leave out where nothing was recorded.

    Raises:
        DataError: there is no run that reached the target, or a row is not positive.
    """
    if not rows:
        raise DataError("No run has a target: train to one, or name a metric that was recorded.")
    points = points_of(rows)
    batches = sorted({row.global_batch for row in rows})
    prior = _critical_prior(batches[-1], noise)
    grid = _Grid(points.reached, prior)
    for bound in points.bounds:
        grid = _Grid((*grid.points, *_as_point(bound, grid)), prior)
    told = len(points.reached) > 1 or bool(points.bounds) or prior.by_noise
    low, value, high = (math.exp(log) for log in grid.critical())
    return EpochCurve(
        critical_batch=Projected(value=value, low=low, high=high, ratio=value / batches[-1])
        if told
        else None,
        assumptions=_assumptions(points, batches, noise, prior),
        largest_batch=batches[-1],
        _grid=grid,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Prior:
    """Of log Bc: a normal, or with `least` all that lies above."""

    centre: float
    spread: float
    least: float | None = None
    by_noise: bool = False

    def log_density(self, logs: Floats) -> Floats:
        from scipy.special import log_ndtr

        density = -0.5 * ((logs - self.centre) / self.spread) ** 2
        if self.least is not None:
            density = density + log_ndtr((logs - self.least) / _NOISE_SPREAD)
        return np.asarray(density, dtype=np.float64)


def _critical_prior(largest: int, noise: NoiseScale | None) -> _Prior:
    chosen = _Prior(centre=math.log(_REACH * largest), spread=_REACH_SPREAD)
    if noise is None or (noise.value is None and noise.low <= 0):
        return chosen
    if noise.value is None:
        # A critical batch far above those measured is possible then: the bell must reach there.
        centre = max(chosen.centre, math.log(noise.low))
        return replace(chosen, centre=centre, least=math.log(noise.low), by_noise=True)
    if noise.value <= 0:
        return chosen
    centre = math.log(noise.value)
    sides = [centre - math.log(noise.low)] if noise.low > 0 else []
    sides += [] if noise.high is None else [math.log(noise.high) - centre]
    half = max(sides, default=0.0)
    return _Prior(centre=centre, spread=math.hypot(_NOISE_SPREAD, half / NORMAL_90), by_noise=True)


class _Grid:
    """The posterior over critical batches and departures, the level integrated out."""

    def __init__(self, points: Sequence[Point], prior: _Prior) -> None:
        self.points = tuple(points)
        self._logs = np.linspace(
            prior.centre - 5 * prior.spread, prior.centre + 5 * prior.spread, _CRITICAL_GRID
        )
        offsets = np.linspace(-2.5, 2.5, _DEPARTURE_GRID)
        self._departures = _DEPARTURE * np.exp(_DEPARTURE_SPREAD * offsets)
        self._at = np.log([float(point.global_batch) for point in self.points])
        residuals = np.array([[p.log_epochs] for p in self.points]) - self._shape(self._at[:, None])
        walk = np.minimum.outer(self._at, self._at) + _OWN * np.eye(len(self.points))
        noise = np.diag([point.variance for point in self.points])
        self._solved = [
            _Solved(departure**2 * walk + noise, residuals) for departure in self._departures
        ]
        density = np.array([solved.log_likelihood for solved in self._solved])
        density += prior.log_density(self._logs) - 0.5 * offsets[:, None] ** 2
        weights = np.exp(density - density.max())
        self._weights = weights / weights.sum()

    def at(self, global_batch: float) -> tuple[float, float, float]:
        """Return low, median and high of log epochs."""
        at = math.log(global_batch)
        means, deviations = [], []
        for departure, solved in zip(self._departures, self._solved, strict=True):
            common = departure**2 * np.minimum(self._at, at)
            mean, variance = solved.predict(common, departure**2 * (at + _OWN))
            means.append(self._shape(np.array(at)) + mean)
            deviations.append(np.full(len(self._logs), math.sqrt(variance)))
        low, middle, high = _quantiles(np.array(means), np.array(deviations), self._weights)
        beyond = min(max(0.0, at - float(self._at.max())), math.log(_RUN_OUT_RATIO))
        # Here they may not: the lower end does without.
        return low, middle + _RUN_OUT * beyond, high + _RUN_OUT * beyond

    def critical(self) -> tuple[float, float, float]:
        """Return low, median and high of the log of the critical batch."""
        weights = self._weights.sum(axis=0)
        # A grid of points stands for a smooth density: each is spread over its cell.
        width = np.full(len(self._logs), 0.5 * (self._logs[1] - self._logs[0]))
        return _quantiles(self._logs, width, weights)

    def _shape(self, at: Floats) -> Floats:
        return np.logaddexp(0.0, at - self._logs)


class _Solved:
    """Residuals of one covariance for all critical batches, with a level that is not known."""

    def __init__(self, covariance: Floats, residuals: Floats) -> None:
        self._inverse = np.linalg.inv(covariance)
        self._ones = self._inverse.sum(axis=1)
        self._weight = float(self._ones.sum())
        self._level = self._ones @ residuals / self._weight
        left = residuals - self._level
        self._pull = self._inverse @ left
        _, volume = np.linalg.slogdet(covariance)
        self.log_likelihood = -0.5 * (
            volume + math.log(self._weight) + (left * self._pull).sum(axis=0)
        )

    def predict(self, common: Floats, own: float) -> tuple[Floats, float]:
        """Return mean and variance at a place, given its covariances with the points."""
        unknown = (1.0 - float(self._ones @ common)) ** 2 / self._weight
        variance = own - float(common @ self._inverse @ common) + unknown
        return self._level + common @ self._pull, max(variance, 1e-12)


def _quantiles(means: Floats, deviations: Floats, weights: Floats) -> tuple[float, float, float]:
    """Return low, median and high of a mixture of normals, by Newton's steps within brackets."""
    from scipy.special import ndtr, ndtri

    tail = (1 - PROJECTION_CONFIDENCE) / 2
    shares = np.array([tail, 0.5, 1 - tail])
    means, deviations, weights = (part.ravel() for part in (means, deviations, weights))
    low = np.full(3, float((means - 8 * deviations).min()))
    high = np.full(3, float((means + 8 * deviations).max()))
    centre = weights @ means
    # From where they would be if it were one normal.
    at = centre + math.sqrt(weights @ (deviations**2 + (means - centre) ** 2)) * ndtri(shares)
    heights = weights / (deviations * math.sqrt(2 * math.pi))
    moved = high - low
    for _ in range(_NEWTON_STEPS):
        scores = (at[:, None] - means) / deviations
        beyond = ndtr(scores) @ weights - shares
        low, high = np.where(beyond < 0, at, low), np.where(beyond < 0, high, at)
        slope = np.exp(-0.5 * scores**2) @ heights
        fresh = at - beyond / np.maximum(slope, _FLAT)
        # Where a step leaves the brackets, or is not half of the last one, these are halved.
        good = (low <= fresh) & (fresh <= high) & (2 * np.abs(fresh - at) <= moved)
        fresh = np.where(good, fresh, 0.5 * (low + high))
        moved, at = np.abs(fresh - at), fresh
        if float(moved.max()) < _ENOUGH:
            break
    first, middle, last = at.tolist()
    return first, middle, last


def _as_point(bound: Bound, grid: _Grid) -> tuple[Point, ...]:
    """Return the point that says of a batch as much as its lower bound does.

    What the others predict for it, cut off at the bound, has another mean and a smaller variance;
    the normal that would have changed them so is the point.
    """
    from scipy.special import log_ndtr

    low, centre, high = grid.at(float(bound.global_batch))
    variance = ((high - low) / (2 * NORMAL_90)) ** 2
    deviation = math.sqrt(variance + bound.spread**2)
    at = (bound.log_epochs - centre) / deviation
    hazard = math.exp(-0.5 * at * at - 0.5 * math.log(2 * math.pi) - float(log_ndtr(-at)))
    shrink = hazard * (hazard - at) * variance / deviation**2
    if shrink < 1e-6:
        return ()
    moved = centre + variance / deviation * hazard
    left = variance * (1.0 - min(shrink, 1.0 - 1e-6))
    own = 1.0 / (1.0 / left - 1.0 / variance)
    place = own * (moved / left - centre / variance)
    return (Point(global_batch=bound.global_batch, log_epochs=place, variance=own),)


def _assumptions(
    points: Points, batches: Sequence[int], noise: NoiseScale | None, prior: _Prior
) -> tuple[str, ...]:
    said = [RECIPE]
    if len(batches) == 1:
        said.append(
            f"Only global batch {batches[0]} was trained to the target: how epochs grow with the "
            + (
                "batch comes from the gradient noise scale alone."
                if prior.by_noise
                else "batch was not measured, and the interval spans what is usual elsewhere."
            )
        )
    if prior.by_noise and noise is not None:
        known = f"above {figure(noise.low)}" if noise.value is None else figure(noise.value)
        said.append(
            f"The critical batch is the gradient noise scale ({known} samples) within a factor of "
            "about 3, before measured epochs say more."
        )
    elif noise is not None:
        said.append("The gradient noise scale came out as 0 and was not used.")
    if not points.repeated:
        said.append("No batch was run twice: runs are taken to spread by 5 %.")
    if points.cut_short:
        runs = "1 run" if points.cut_short == 1 else f"{points.cut_short} runs"
        said.append(f"{runs} ended before the target and count as lower bounds.")
    return tuple(said)
