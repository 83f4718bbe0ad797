"""Epochs to a goal by global batch: E(B) = E_min (1 + B / Bc), and the metric after some epochs.

Measured epochs depart from the hyperbola: recipes are retuned from batch to batch, and departures
of neighbouring batches are alike. So what is left over counts as a walk along log B plus a part of
each batch's own, of a size that the points tell together with a prior. Bc, the critical batch, has
a prior, too: from the gradient noise scale, or from the batches that people choose to measure.
Both are integrated over on a grid: no fit that may fail, and intervals that hold for few points.

After e epochs at batch B training is as far as after e E(B_ref) / E(B) epochs at B_ref. That holds
for runs whose rate does not decay: a point inside of a decaying schedule is not the end of a
shorter one.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from statistics import fmean, stdev
from typing import Literal

import numpy as np

from farandole.errors import DataError, UsageError
from farandole.format import plural
from farandole.model.accuracy import collect_metrics
from farandole.model.analyse import ScalingInfo
from farandole.model.measured import Measured, figure, stated
from farandole.model.metrics import (
    WINDOW,
    Series,
    evaluation_spread,
    higher_is_better,
    plateau,
    reach,
)
from farandole.model.noise import NoiseScale
from farandole.model.projection.intervals import FARTHEST, Prediction
from farandole.model.statistics import NORMAL_90, PROJECTION_CONFIDENCE, t_quantile
from farandole.recipes import DECAYS
from farandole.study.records import Floats, Launch

GoalKind = Literal["target", "stable", "epochs", "job", "epoch"]
ScheduleKind = Literal["constant", "decaying", "unknown"]

_RECIPE = (
    "The learning rate is retuned for each global batch, as it was in the runs; with a rate that "
    "does not fit its batch, more epochs are needed than projected."
)
# Median over public workloads of the spread between runs of one batch, and how many
# repetitions one's own must have to weigh as much.
_USUAL_SPREAD = 0.05
_USUAL_WEIGHT = 2.0
_TOBIT_ROUNDS = 100
# Chosen on public workloads, where results hardly depend on them
# (docs/explanation/noise-scale.md). Whoever
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
# Weight decay and rounding do not make a schedule; a rate that falls to less than this does.
_FALLEN = 0.9
# Between the ends of an interval of epochs a metric may turn: it is looked at so many times.
_LOOKS = 33


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochRow:
    """How many epochs one run took to the goal."""

    global_batch: int
    epochs: float
    reached: bool = True
    """False: it ended before the goal; `epochs` is a lower bound."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Goal:
    """Where a time ends."""

    kind: GoalKind
    words: str
    """After a time: "to val_accuracy 0.98", "for 40 epochs"."""
    metric: str | None = None
    value: float | None = None
    epochs: float | None = None
    """Where it is a number of epochs, the same at every batch."""


def choose_goal(
    cells: Sequence[Measured], info: ScalingInfo, target: tuple[str, float] | None
) -> Goal | None:
    """Return the target; or a stable metric, the epochs of the jobs, one epoch: what is known.

    Args:
        cells: that the projection stands on.
        info: of the whole study.
        target: a metric and the value to reach.

    Raises:
        UsageError: when no run recorded the target's metric.
    """
    if target is not None:
        name, value = target
        _check_recorded(name, value, cells)
        return Goal(kind="target", words=f"to {name} {value:g}", metric=name, value=value)
    metric = info.main_metric
    if metric is not None and any(row.reached for row in _stable_rows(cells, metric)):
        level = stable_level(cells, metric)
        return Goal(
            kind="stable",
            words=f"to a stable {metric}",
            metric=metric,
            value=None if level is None else level[0],
        )
    known = {found.cell for found in cells}
    jobs = [job for job in info.each("job") if job.cell in known]
    if most := max((job.epochs for job in jobs if job.epochs), default=None):
        return Goal(kind="epochs", words=f"for {most:g} epochs", epochs=most)
    if any(job.epoch_s is not None for job in jobs):
        return Goal(kind="epoch", words="for an epoch", epochs=1.0)
    if any(job.job_s is not None for job in jobs):
        return Goal(kind="job", words="for the job", epochs=1.0)
    return None


def epoch_rows(cells: Sequence[Measured], goal: Goal) -> list[EpochRow]:
    """Return the epochs that each run took to the goal.

    Raises:
        UsageError: when no run reached the target; the message says how far they came.
    """
    if goal.kind == "stable" and goal.metric is not None:
        return _stable_rows(cells, goal.metric)
    if goal.kind != "target" or goal.metric is None or goal.value is None:
        return []
    rows = _rows_to(goal.value, series_of(cells, goal.metric), goal.metric)
    if not any(row.reached for row in rows):
        raise _never_reached(cells, goal.metric, goal.value)
    return rows


def stable_level(cells: Sequence[Measured], metric: str) -> tuple[float, int] | None:
    """Return what every run of the smallest global batch holds in the end, and that batch.

    None when a table states epochs without it, or no run is long enough.
    """
    if _stated_rows(cells):
        return None
    higher = _higher(metric)
    ends: dict[int, list[float]] = {}
    for found, series in _long_series(cells, metric):
        if found.global_batch:
            level = plateau(_finite_values(series), higher=higher)
            ends.setdefault(found.global_batch, []).append(level)
    if not ends:
        return None
    smallest = min(ends)
    return (min if higher else max)(ends[smallest]), smallest


def stable_sentence(cells: Sequence[Measured], goal: Goal | None) -> str:
    """Say what stable means; "" where that is not the goal."""
    if goal is None or goal.kind != "stable" or goal.metric is None:
        return ""
    level = stable_level(cells, goal.metric)
    if level is None:
        return (
            f"Epochs to a stable {goal.metric} are taken as the table states them, at whatever "
            "level each run held: one that ended lower had an easier goal."
        )
    return (
        f"Stable means {goal.metric} {level[0]:.4g} at every batch: what all runs at global "
        f"batch {level[1]}, the smallest, hold in the end."
    )


def series_of(cells: Sequence[Measured], metric: str) -> list[tuple[Measured, Series]]:
    """Return one series per run that has values by epoch."""
    metrics = collect_metrics(cells)
    return [
        (found, series)
        for found in cells
        for series in metrics.get(found.cell, {}).get(metric, ())
        if not series.by_step
    ]


def _stable_rows(cells: Sequence[Measured], metric: str) -> list[EpochRow]:
    """Return the epochs until a metric held, as a table states them or by the rule of 1.6.

    All runs have one level to hold: with each one's own, a batch that ends lower would have an
    easier goal. Those that end below count as lower bounds.
    """
    level = stable_level(cells, metric)
    if level is None:
        return _stated_rows(cells)
    return _rows_to(level[0], _long_series(cells, metric), metric)


def _stated_rows(cells: Sequence[Measured]) -> list[EpochRow]:
    return [
        EpochRow(global_batch=found.global_batch, epochs=epoch)
        for found in cells
        for launch in found.launches
        if found.global_batch and (epoch := stated(launch, "stable_epoch")) is not None
    ]


def _rows_to(target: float, runs: Sequence[tuple[Measured, Series]], metric: str) -> list[EpochRow]:
    rows = []
    for found, series in runs:
        if found.global_batch:
            end = reach(series, target, higher=_higher(metric))
            epochs = end.censored_at if end.epoch is None else end.epoch
            reached = end.epoch is not None
            rows.append(EpochRow(global_batch=found.global_batch, epochs=epochs, reached=reached))
    return rows


def _long_series(cells: Sequence[Measured], metric: str) -> list[tuple[Measured, Series]]:
    """Return the runs that are long enough for an end to show."""
    return [run for run in series_of(cells, metric) if len(_finite_values(run[1])) >= 2 * WINDOW]


def _finite_values(series: Series) -> list[float]:
    return [value for value in series.values if math.isfinite(value)]


def _higher(metric: str) -> bool:
    return higher_is_better(metric) is not False


def _check_recorded(name: str, value: float, cells: Sequence[Measured]) -> None:
    recorded = {metric for seeds in collect_metrics(cells).values() for metric in seeds}
    if name in recorded:
        return
    if recorded:
        raise UsageError(
            f"You asked for {name}={value:g}, but these runs recorded "
            f"{', '.join(sorted(recorded))}. Choose one of these."
        )
    raise UsageError(
        f"You asked for {name}={value:g}, but this study recorded no metric at all. Train to the "
        f"end with farandole study --measure both, in a script that calls "
        f"farandole.record({name}=...); or leave --target out."
    )


def _never_reached(cells: Sequence[Measured], metric: str, target: float) -> UsageError:
    values = [
        (value, epoch, found)
        for found, series in series_of(cells, metric)
        for epoch, value in zip(series.epochs, series.values, strict=True)
        if math.isfinite(value)
    ]
    if not values:
        return UsageError(
            f"{metric}={target:g} cannot be looked for: its values have no epochs. Record it with "
            f"farandole.record({metric}=..., epoch=...)."
        )
    sign = 1 if _higher(metric) else -1
    value, epoch, found = max(values, key=lambda one: sign * one[0])
    best = f"the best is {value:g} ({plural(found.cell.workers, 'worker')}, epoch {epoch:g})"
    if sign * value >= sign * target:
        return UsageError(
            f"{metric}={target:g} was not held in any run: {best}, but {WINDOW} evaluations in a "
            f"row must have it. Train longer, or record {metric} at every epoch."
        )
    return UsageError(
        f"{metric}={target:g} was never reached: {best}. Choose a target that a run has reached, "
        "or train longer."
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One global batch of which runs reached the goal."""

    global_batch: int
    log_epochs: float
    """Of the mean over runs."""
    variance: float
    """Of that log: by the spread between runs, and by how coarsely epochs were counted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Points:
    """All batches of a workload, ascending."""

    reached: tuple[Point, ...]
    bounds: tuple[tuple[int, float], ...]
    """Global batches of which no run reached the goal, and the log epochs that they had."""
    spread: float
    """Of a single run, relative."""
    repeated: bool
    """Whether the spread between runs was seen."""


def points_of(rows: Sequence[EpochRow]) -> Points:
    """Gather runs by batch.

    Raises:
        DataError: a row is not positive, or no run reached the goal.
    """
    by_batch: dict[int, list[EpochRow]] = {}
    for row in sorted(rows, key=lambda row: row.global_batch):
        if row.global_batch < 1 or not (math.isfinite(row.epochs) and row.epochs > 0):
            raise DataError(
                f"A run at global batch {row.global_batch} has {row.epochs:g} epochs to the "
                "target. Both must be above 0: correct or leave out this row."
            )
        by_batch.setdefault(row.global_batch, []).append(row)
    if not any(row.reached for row in rows):
        raise DataError(
            f"None of {len(rows)} runs reached the target, so that nothing tells how many epochs "
            "it takes. Train longer, or choose a target that the runs reach."
        )
    groups = by_batch.values()
    whole = [[row.epochs for row in group] for group in groups if all(r.reached for r in group)]
    spread = _spread(whole)
    grain = grain_of([row.epochs for row in rows if row.reached])
    points, bounds = [], []
    for batch, group in by_batch.items():
        ends = [row.epochs for row in group if row.reached]
        cut = [row.epochs for row in group if not row.reached]
        if not ends:
            bounds.append((batch, math.log(max(cut))))
            continue
        centre = _censored_mean(ends, cut, spread) if cut else math.log(fmean(ends))
        # Counting in whole epochs rounds all runs alike: more of them do not make it finer.
        coarse = (grain / math.exp(centre)) ** 2 / 12
        variance = spread**2 / len(ends) + coarse
        points.append(Point(global_batch=batch, log_epochs=centre, variance=variance))
    return Points(
        reached=tuple(points),
        bounds=tuple(bounds),
        spread=spread,
        repeated=any(len(group) > 1 for group in whole),
    )


def grain_of(values: Iterable[float]) -> float:
    """Return the step in which epochs were counted (1, or 0.05 of an epoch); 0 when none shows."""
    distinct = sorted({round(value, 9) for value in values})
    whole = all(math.isclose(value, round(value), abs_tol=1e-9) for value in distinct)
    if len(distinct) < 3:
        # The distance of two values is a multiple of any grain.
        return 1.0 if whole else 0.0
    least = min(b - a for a, b in pairwise(distinct))
    multiples = (value / least for value in distinct)
    return least if all(math.isclose(m, round(m), rel_tol=1e-6) for m in multiples) else 0.0


def _spread(groups: Sequence[Sequence[float]]) -> float:
    """Return the relative spread of runs of one batch, pooled, and drawn to what is usual."""
    squares, freedom = 0.0, 0
    for group in groups:
        centre = fmean(group)
        squares += math.fsum((value / centre - 1) ** 2 for value in group)
        freedom += len(group) - 1
    return math.sqrt((_USUAL_WEIGHT * _USUAL_SPREAD**2 + squares) / (_USUAL_WEIGHT + freedom))


def _censored_mean(ends: Sequence[float], cut: Sequence[float], spread: float) -> float:
    """Return the log of the mean when some runs are known to need more than they had (Tobit)."""
    logs, limits = [math.log(end) for end in ends], [math.log(end) for end in cut]
    centre = fmean([*logs, *limits])
    for _ in range(_TOBIT_ROUNDS):
        beyond = [centre + spread * _hazard((limit - centre) / spread) for limit in limits]
        renewed = fmean([*logs, *beyond])
        if abs(renewed - centre) < 1e-9:
            break
        centre = renewed
    return centre + spread**2 / 2


def _hazard(at: float) -> float:
    """Return the mean of a standard normal above a limit, in a form that does not underflow."""
    from scipy.special import log_ndtr

    return math.exp(-0.5 * at * at - 0.5 * math.log(2 * math.pi) - float(log_ndtr(-at)))


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochCurve:
    """Epochs to the goal as a function of the global batch."""

    critical_batch: Prediction | None
    """Where twice the epochs of a small batch are needed; None when nothing tells."""
    assumptions: tuple[str, ...]
    """In sentences: what was not measured and had to be taken for granted."""
    largest_batch: int
    """That runs were made with, reached or not."""
    _grid: _Grid
    _known: dict[int, Prediction] = field(default_factory=dict)

    def at(self, global_batch: int) -> Prediction:
        """Return the mean number of epochs over runs of this global batch."""
        if global_batch < 1:
            raise DataError(f"A global batch of {global_batch}: it must be 1 or more.")
        # Once each: it takes an integral.
        if global_batch not in self._known:
            self._known[global_batch] = self._predict(global_batch)
        return self._known[global_batch]

    def _predict(self, global_batch: int) -> Prediction:
        low, value, high = (math.exp(log) for log in self._grid.at(float(global_batch)))
        ratio = global_batch / self.largest_batch
        if ratio <= FARTHEST:
            return Prediction(value=value, low=low, high=high, ratio=ratio)
        # At best a batch needs the epochs of a smaller one, at worst as many steps.
        low, _, high = (math.exp(log) for log in self._grid.at(float(self.largest_batch)))
        high *= ratio
        value = min(max(value, low), high)
        return Prediction(value=value, low=low, high=high, ratio=ratio, indicative=True)


def fit_epochs(rows: Sequence[EpochRow], *, noise: NoiseScale | None = None) -> EpochCurve:
    """Fit epochs to the goal as a function of the global batch.

    Args:
        rows: one per run. Those that did not reach the goal count as lower bounds.
        noise: what the gradient noise scale says of the critical batch, in the same unit as the
            batches; leave out where nothing was recorded.

    Raises:
        DataError: there is no run that reached the goal, or a row is not positive.
    """
    if not rows:
        raise DataError("No run has a target: train to one, or name a metric that was recorded.")
    points = points_of(rows)
    largest = max(row.global_batch for row in rows)
    prior = _critical_prior(largest, noise)
    grid = _Grid(points.reached, prior)
    for batch, log_epochs in points.bounds:
        grid = _Grid((*grid.points, *_as_point(batch, log_epochs, points.spread, grid)), prior)
    critical = None
    if len(points.reached) > 1 or points.bounds or prior.by_noise:
        low, value, high = (math.exp(log) for log in grid.critical())
        critical = Prediction(value=value, low=low, high=high, ratio=value / largest)
    return EpochCurve(
        critical_batch=critical,
        assumptions=_assumptions(rows, noise, by_noise=prior.by_noise, repeated=points.repeated),
        largest_batch=largest,
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
    if noise is None or (noise.low <= 0 if noise.value is None else noise.value <= 0):
        return chosen
    if noise.value is None:
        # A critical batch far above those measured is possible then: the bell must reach there.
        centre = max(chosen.centre, math.log(noise.low))
        return replace(chosen, centre=centre, least=math.log(noise.low), by_noise=True)
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


def _as_point(batch: int, log_epochs: float, spread: float, grid: _Grid) -> tuple[Point, ...]:
    """Return the point that says of a batch as much as its lower bound does.

    What the others predict for it, cut off at the bound, has another mean and a smaller variance;
    the normal that would have changed them so is the point.
    """
    low, centre, high = grid.at(float(batch))
    variance = ((high - low) / (2 * NORMAL_90)) ** 2
    deviation = math.sqrt(variance + spread**2)
    at = (log_epochs - centre) / deviation
    hazard = _hazard(at)
    shrink = hazard * (hazard - at) * variance / deviation**2
    if shrink < 1e-6:
        return ()
    moved = centre + variance / deviation * hazard
    left = variance * (1.0 - min(shrink, 1.0 - 1e-6))
    own = 1.0 / (1.0 / left - 1.0 / variance)
    place = own * (moved / left - centre / variance)
    return (Point(global_batch=batch, log_epochs=place, variance=own),)


def _assumptions(
    rows: Sequence[EpochRow], noise: NoiseScale | None, *, by_noise: bool, repeated: bool
) -> tuple[str, ...]:
    sentences = [_RECIPE]
    batches = {row.global_batch for row in rows}
    if len(batches) == 1:
        sentences.append(
            f"Only global batch {batches.pop()} was trained to the target: how epochs grow with "
            + (
                "the batch comes from the gradient noise scale alone."
                if by_noise
                else "the batch was not measured, and the interval spans what is usual elsewhere."
            )
        )
    if by_noise and noise is not None:
        known = f"above {figure(noise.low)}" if noise.value is None else figure(noise.value)
        sentences.append(
            f"The critical batch is the gradient noise scale ({known} samples) within a factor of "
            "about 3, before measured epochs say more."
        )
    elif noise is not None:
        sentences.append("The gradient noise scale came out as 0 and was not used.")
    if not repeated:
        sentences.append("No batch was run twice: runs are taken to spread by 5 %.")
    if cut := sum(not row.reached for row in rows):
        sentences.append(f"{plural(cut, 'run')} ended before the target and count as lower bounds.")
    return tuple(sentences)


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """What the learning rate did; one that only grows at first (warm-up) counts as constant."""

    kind: ScheduleKind
    detail: str
    """For a sentence: "the learning rate fell from 0.1 to 0.001"."""


def schedule_of(launches: Iterable[Launch]) -> Schedule:
    """Find out whether the rate of any of these runs decays.

    Rates that the recorder or the script recorded count more than a factor called `decay`. A launch
    that was ended early has seen the beginning of its schedule only, and does not count.
    """
    found = [_schedule(launch) for launch in launches if launch.outcome == "ok"]
    unknown = Schedule(kind="unknown", detail="no learning rate was recorded")
    for kind in ("decaying", "constant"):
        if alike := [one for one in found if one is not None and one.kind == kind]:
            return alike[0]
    return unknown


def _schedule(launch: Launch) -> Schedule | None:
    if rates := _rates(launch):
        largest, last = max(rates), rates[-1]
        if last < _FALLEN * largest:
            detail = f"the learning rate fell from {largest:g} to {last:g}"
            return Schedule(kind="decaying", detail=detail)
        return Schedule(kind="constant", detail=f"the learning rate stayed at {last:g}")
    decay = dict(launch.cell.params).get("decay")
    if decay not in DECAYS:
        return None
    if decay == "constant":
        return Schedule(kind="constant", detail="the rate is constant (decay=constant)")
    return Schedule(kind="decaying", detail=f"the learning rate decays (decay={decay})")


def _rates(launch: Launch) -> list[float]:
    """Return the rates of one run in the order of time: rank 0's, or the launch's own."""
    for rank in launch.ranks:
        if rank.learning_rates:
            return [rate for _, rate in rank.learning_rates]
    metrics = [*launch.metrics, *(m for rank in launch.ranks[:1] for m in rank.metrics)]
    for name in ("learning_rate", "lr"):
        rates = [one.value for one in metrics if one.name.lower() == name]
        rates = [rate for rate in rates if math.isfinite(rate)]
        if len(rates) > 1:
            return rates
    return []


@dataclass(frozen=True, slots=True, kw_only=True)
class NotProjectable:
    """Why a question has no answer from these runs."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _Reference:
    """A metric by epochs done, of runs of one batch that differ in their seeds only."""

    global_batch: int
    seeds: tuple[Series, ...]

    @property
    def begin(self) -> float:
        return max(series.epochs[0] for series in self.seeds)

    @property
    def end(self) -> float:
        return min(series.epochs[-1] for series in self.seeds)


def metric_after(
    epochs: float,
    global_batch: int,
    runs: Mapping[int, Sequence[Series]],
    fit: EpochCurve,
    schedule: Schedule,
) -> Prediction | NotProjectable:
    """Return a metric after so many epochs at a global batch that nobody has trained with.

    Args:
        epochs: of the run in question.
        global_batch: of that run.
        runs: measured curves by global batch, one per seed; the nearest batch that reaches far
            enough is used.
        fit: epochs to a goal by batch.
        schedule: what the measured runs did with the learning rate.
    """
    if schedule.kind == "decaying":
        return NotProjectable(
            reason=f"Not projectable from this run: {schedule.detail}, and a point inside of a "
            "decaying schedule is not the end of a shorter one. Train with a constant rate, or "
            "with a schedule for each batch."
        )
    references = [
        _Reference(global_batch=batch, seeds=distinct)
        for batch, seeds in runs.items()
        if (distinct := _distinct(seeds))
    ]
    if not references:
        return NotProjectable(
            reason="Not projectable from this run: no metric was recorded by epoch. Record it with "
            "farandole.record(val_accuracy=..., epoch=...)."
        )
    places = [(one, _equal_epochs(one, fit, global_batch, epochs)) for one in references]
    inside = [pair for pair in places if pair[0].begin <= pair[1].value <= pair[0].end]
    nearest, at = min(
        inside or places,
        key=lambda pair: abs(math.log(pair[0].global_batch / global_batch)),
    )
    if inside:
        ratio = global_batch / max(one.global_batch for one in references)
        found = _read_curve(nearest, at, ratio)
        if math.isfinite(found.low) and math.isfinite(found.high):
            return found
    return NotProjectable(reason=_outside(nearest, at, global_batch, epochs))


def _equal_epochs(
    runs: _Reference, fit: EpochCurve, global_batch: int, epochs: float
) -> Prediction:
    """Return how many epochs of the reference are worth the run in question.

    At best a larger batch needs the epochs of a smaller one, at worst as many steps.
    """
    if runs.global_batch == global_batch:
        return Prediction(value=epochs, low=epochs, high=epochs, ratio=1.0)
    needed, known = fit.at(global_batch), fit.at(runs.global_batch)
    value = epochs * known.value / needed.value
    least, most = sorted((epochs, epochs * runs.global_batch / global_batch))
    return Prediction(
        value=value,
        low=min(value, max(least, epochs * known.value / needed.high)),
        high=max(value, min(most, epochs * known.value / needed.low)),
        ratio=needed.ratio,
    )


def _read_curve(runs: _Reference, at: Prediction, ratio: float) -> Prediction:
    """Read a curve where it is worth as much; a side to which it does not reach is left open."""

    def values(epoch: float) -> list[float]:
        return [float(np.interp(epoch, one.epochs, one.values)) for one in runs.seeds]

    here = values(at.value)
    centre = fmean(here)
    low, high = max(at.low, runs.begin), min(at.high, runs.end)
    means = [fmean(values(place)) for place in np.linspace(low, max(low, high), _LOOKS).tolist()]
    # How well the mean over seeds is known; by single evaluations where there is one.
    if len(here) > 1:
        error = stdev(here) / math.sqrt(len(here))
        half = t_quantile(len(here) - 1, PROJECTION_CONFIDENCE) * error
    else:
        half = NORMAL_90 * evaluation_spread(runs.seeds[0].values)
    seen = [value for series in runs.seeds for value in series.values]
    changes = [series.values[-1] - series.values[0] for series in runs.seeds]
    rises, falls = min(changes) > 0, max(changes) < 0
    # What is never below 0 stays so; what grows and is never above 1 is a share.
    least = 0.0 if min(seen) >= 0.0 else -math.inf
    most = 1.0 if min(changes) >= 0 and max(seen) <= 1.0 else math.inf
    below, above = min(centre, *means) - half, max(centre, *means) + half
    # Before a rising curve begins the metric is lower, and who knows how much; and so on.
    early, late = at.low < runs.begin, at.high > runs.end
    if (early and not falls) or (late and not rises):
        below = -math.inf
    if (early and not rises) or (late and not falls):
        above = math.inf
    return Prediction(
        value=centre,
        low=max(below, least),
        high=min(above, most),
        ratio=ratio,
        indicative=ratio > FARTHEST,
    )


def _distinct(seeds: Sequence[Series]) -> tuple[Series, ...]:
    """Return the curves that count, without evaluations that diverged.

    A seed without any effect is the same run once more; one that diverged in the end does not
    count.
    """
    found: dict[tuple[float, ...], Series] = {}
    for series in seeds:
        if series.by_step or not series.values or not math.isfinite(series.values[-1]):
            continue
        finite = [place for place, value in enumerate(series.values) if math.isfinite(value)]
        values = tuple(series.values[place] for place in finite)
        found[values] = replace(
            series,
            epochs=tuple(series.epochs[place] for place in finite),
            values=values,
            times_s=tuple(series.times_s[place] for place in finite),
        )
    return tuple(found.values())


def _outside(runs: _Reference, at: Prediction, global_batch: int, epochs: float) -> str:
    inside = runs.begin <= at.value <= runs.end
    about = f"{at.low:.2g} to {at.high:.2g}" if inside else f"about {at.value:.2g}"
    worth = (
        f"Not projectable from this run: {epochs:g} epochs at global batch {global_batch} are "
        f"worth {about} at {runs.global_batch}, and the metric was recorded from epoch "
        f"{runs.begin:g} to {runs.end:g} there."
    )
    if at.value < runs.begin or (inside and at.low < runs.begin):
        return f"{worth} Record it more often, or ask for more epochs."
    return f"{worth} Train longer, or ask for fewer epochs."
