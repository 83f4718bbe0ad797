"""Epochs to a goal by global batch: E(B) = E_min (1 + B / Bc), and the metric after some epochs.

Bc, the critical batch, is integrated over on a grid, E_min by hand: no fit that may fail, and
intervals that hold for few points. Bc has a prior: from the gradient noise scale, or from the
batches that people choose to measure. Measured epochs depart from the hyperbola, since recipes are
retuned from batch to batch; intervals widen by as much as they do on public workloads.

After e epochs at batch B training is as far as after e E(B_ref) / E(B) epochs at B_ref. That holds
for runs whose rate does not decay: a point inside of a decaying schedule is not the end of a
shorter one.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from statistics import fmean, stdev
from typing import Literal, NamedTuple

import numpy as np

from farandole.errors import DataError, UsageError
from farandole.format import number, plural
from farandole.model.accuracy import collect_metrics
from farandole.model.analyse import ScalingInfo
from farandole.model.measured import Measured, stated
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
# How far log epochs depart from the hyperbola: each batch by itself, and, beyond the largest, as a
# walk per unit of log batch.
_DEPARTURE = 0.03
_WALK = 0.1
# Beyond the largest batch that was trained recipes run out, and epochs grow faster than the
# hyperbola: on public workloads by this, per unit of log batch, up to twice that batch. Farther
# away nothing like it was seen.
_RUN_OUT = 0.03
_RUN_OUT_RATIO = 2.0
# Of log(Bc / noise scale), from workload to workload.
_NOISE_SPREAD = 0.7
_CRITICAL_GRID = 201
_QUANTILE_GRID = 2001
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
    runs = [] if _stated_rows(cells) else _long_series(cells, metric)
    if not runs:
        return None
    higher = _higher(metric)
    smallest = min(global_batch_of(found) for found, _ in runs)
    levels = [
        plateau(_finite_values(series), higher=higher)
        for found, series in runs
        if global_batch_of(found) == smallest
    ]
    return (min if higher else max)(levels), smallest


def stable_sentence(cells: Sequence[Measured], goal: Goal | None) -> str:
    """Say what stable means; "" where that is not the goal."""
    if goal is None or goal.kind != "stable" or goal.metric is None:
        return ""
    level = stable_level(cells, goal.metric)
    if level is None:
        return (
            f"Epochs to a stable {goal.metric} are those in the table, at whatever level each run "
            "reached: a run that ended lower had an easier goal."
        )
    return (
        f"Stable means {goal.metric} {level[0]:.4g} at every batch: the level that all runs at the "
        f"smallest global batch, {level[1]}, end with."
    )


def global_batch_of(found: Measured) -> int:
    """Return a cell's global batch; where nobody knows it, in units of one worker's."""
    return found.global_batch or found.cell.workers


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
        EpochRow(global_batch=global_batch_of(found), epochs=epoch)
        for found in cells
        for launch in found.launches
        if (epoch := stated(launch, "stable_epoch")) is not None
    ]


def _rows_to(target: float, runs: Sequence[tuple[Measured, Series]], metric: str) -> list[EpochRow]:
    rows = []
    for found, series in runs:
        end = reach(series, target, higher=_higher(metric))
        epochs = end.censored_at if end.epoch is None else end.epoch
        batch, reached = global_batch_of(found), end.epoch is not None
        rows.append(EpochRow(global_batch=batch, epochs=epochs, reached=reached))
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


class Point(NamedTuple):
    """One global batch of which runs reached the goal."""

    global_batch: int
    log_epochs: float
    """Of the mean over runs."""
    variance: float
    """Of that log: by the spread between runs, and by how coarsely epochs were counted."""


def _points(rows: Sequence[EpochRow], spread: float) -> tuple[list[Point], list[EpochRow]]:
    """Return the batches that reached the goal, ascending, and the longest run of each other."""
    grain = grain_of([row.epochs for row in rows if row.reached])
    points, bounds = [], []
    for batch in sorted({row.global_batch for row in rows}):
        group = [row for row in rows if row.global_batch == batch]
        ends = [row.epochs for row in group if row.reached]
        cut = [row.epochs for row in group if not row.reached]
        if not ends:
            bounds.append(max(group, key=lambda row: row.epochs))
            continue
        centre = _censored_mean(ends, cut, spread) if cut else math.log(fmean(ends))
        # Counting in whole epochs rounds all runs alike: more of them do not make it finer.
        coarse = (grain / math.exp(centre)) ** 2 / 12
        variance = spread**2 / len(ends) + coarse
        points.append(Point(batch, centre, variance))
    return points, bounds


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


def _repeated_runs(rows: Sequence[EpochRow]) -> list[list[float]]:
    """Return the epochs of batches that were run several times, each to the goal."""
    groups = {
        row.global_batch: [r for r in rows if r.global_batch == row.global_batch] for row in rows
    }
    reached = [group for group in groups.values() if all(row.reached for row in group)]
    return [[row.epochs for row in group] for group in reached if len(group) > 1]


def _spread(groups: Sequence[Sequence[float]]) -> float:
    """Return the relative spread of runs of one batch, pooled, and drawn to what is usual."""
    squares = math.fsum((value / fmean(group) - 1) ** 2 for group in groups for value in group)
    freedom = sum(len(group) - 1 for group in groups)
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


@dataclass(frozen=True, kw_only=True)
class EpochCurve:
    """Epochs to the goal as a function of the global batch."""

    critical_batch: Prediction | None
    """Where twice the epochs of a small batch are needed; None when nothing tells."""
    assumptions: tuple[str, ...]
    """In sentences: what was not measured and had to be taken for granted."""
    largest_batch: int
    """That runs were made with, reached or not."""
    _posterior: _Posterior
    _known: dict[int, Prediction] = field(default_factory=dict)

    def at(self, global_batch: int) -> Prediction:
        """Return the mean number of epochs over runs of this global batch."""
        # Once each: it takes an integral.
        if global_batch not in self._known:
            self._known[global_batch] = self._predict(global_batch)
        return self._known[global_batch]

    def _predict(self, global_batch: int) -> Prediction:
        if global_batch < 1:
            raise DataError(f"A global batch of {global_batch}: it must be 1 or more.")
        low, value, high = map(math.exp, self._posterior.at(global_batch))
        ratio = global_batch / self.largest_batch
        if ratio <= FARTHEST:
            return Prediction(value=value, low=low, high=high, ratio=ratio)
        # At best a batch needs the epochs of a smaller one, at worst as many steps.
        low, _, high = map(math.exp, self._posterior.at(self.largest_batch))
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
    for row in rows:
        if row.global_batch < 1 or not (math.isfinite(row.epochs) and row.epochs > 0):
            raise DataError(
                f"A run at global batch {row.global_batch} has {row.epochs:g} epochs to the "
                "target. Both must be above 0: correct or leave out this row."
            )
    if not any(row.reached for row in rows):
        raise DataError(
            f"None of {plural(len(rows), 'run')} reached the target, so nothing tells how many "
            "epochs it takes. Train longer, or choose a target that the runs reach."
        )
    repeated = _repeated_runs(rows)
    spread = _spread(repeated)
    points, bounds = _points(rows, spread)
    largest = max(row.global_batch for row in rows)
    prior = _critical_prior(largest, noise)
    posterior = _Posterior(points, prior)
    for bound in bounds:
        points += _as_point(bound, spread, posterior)
        posterior = _Posterior(points, prior)
    critical = None
    if len(points) > 1 or bounds or prior.by_noise:
        low, value, high = map(math.exp, posterior.critical())
        critical = Prediction(value=value, low=low, high=high, ratio=value / largest)
    return EpochCurve(
        critical_batch=critical,
        assumptions=tuple(_assumptions(rows, noise, by_noise=prior.by_noise, repeated=repeated)),
        largest_batch=largest,
        _posterior=posterior,
    )


class _Prior(NamedTuple):
    """Of log Bc: a normal, or with `least` all that lies above."""

    centre: float
    spread: float
    least: float | None = None
    by_noise: bool = False


def _critical_prior(largest: int, noise: NoiseScale | None) -> _Prior:
    centre = math.log(_REACH * largest)
    if noise is None or (noise.low <= 0 if noise.value is None else noise.value <= 0):
        return _Prior(centre, _REACH_SPREAD)
    if noise.value is None:
        # A critical batch far above those measured is possible then: the bell must reach there.
        least = math.log(noise.low)
        return _Prior(max(centre, least), _REACH_SPREAD, least, by_noise=True)
    centre = math.log(noise.value)
    sides = [centre - math.log(noise.low)] if noise.low > 0 else []
    sides += [] if noise.high is None else [math.log(noise.high) - centre]
    half = max(sides, default=0.0)
    return _Prior(centre, math.hypot(_NOISE_SPREAD, half / NORMAL_90), by_noise=True)


class _Posterior:
    """Of the critical batch, on a grid; of each, the level that fits the points best."""

    def __init__(self, points: Sequence[Point], prior: _Prior) -> None:
        from scipy.special import log_ndtr

        reach_logs = 5 * prior.spread
        self._logs = np.linspace(
            prior.centre - reach_logs, prior.centre + reach_logs, _CRITICAL_GRID
        )
        at = np.log([point.global_batch for point in points])
        weights = 1 / (np.array([point.variance for point in points]) + _DEPARTURE**2)
        left = np.array([[point.log_epochs] for point in points]) - self._shape(at[:, None])
        self._level = weights @ left / weights.sum()
        density = -0.5 * (weights @ (left - self._level) ** 2)
        density -= 0.5 * ((self._logs - prior.centre) / prior.spread) ** 2
        if prior.least is not None:
            density += log_ndtr((self._logs - prior.least) / _NOISE_SPREAD)
        shares = np.exp(density - density.max())
        self._shares = shares / shares.sum()
        self._level_variance = 1 / weights.sum()
        self._largest = float(at.max())

    def at(self, global_batch: float) -> tuple[float, float, float]:
        """Return low, median and high of log epochs."""
        at = math.log(global_batch)
        beyond = max(0.0, at - self._largest)
        variance = self._level_variance + _DEPARTURE**2 + _WALK**2 * beyond
        low, middle, high = self._quantiles(
            self._level + self._shape(np.array(at)), math.sqrt(variance)
        )
        more = _RUN_OUT * min(beyond, math.log(_RUN_OUT_RATIO))
        # Here they may not: the lower end does without.
        return low, middle + more, high + more

    def critical(self) -> tuple[float, float, float]:
        """Return low, median and high of the log of the critical batch."""
        # A grid of points stands for a smooth density: each is spread over its cell.
        return self._quantiles(self._logs, 0.5 * float(self._logs[1] - self._logs[0]))

    def _shape(self, at: Floats) -> Floats:
        return np.logaddexp(0.0, at - self._logs)

    def _quantiles(self, means: Floats, deviation: float) -> tuple[float, float, float]:
        """Return low, median and high of a mixture of normals, one for each critical batch."""
        from scipy.special import ndtr

        tail = (1 - PROJECTION_CONFIDENCE) / 2
        ends = float(means.min()) - 5 * deviation, float(means.max()) + 5 * deviation
        places = np.linspace(*ends, _QUANTILE_GRID)
        reached = ndtr((places[:, None] - means) / deviation) @ self._shares
        low, middle, high = np.interp([tail, 0.5, 1 - tail], reached, places).tolist()
        return low, middle, high


def _as_point(bound: EpochRow, spread: float, posterior: _Posterior) -> list[Point]:
    """Return the point that says of a batch as much as its lower bound does.

    What the others predict for it, cut off at the bound, has another mean and a smaller variance;
    the normal that would have changed them so is the point.
    """
    low, centre, high = posterior.at(bound.global_batch)
    variance = ((high - low) / (2 * NORMAL_90)) ** 2
    deviation = math.sqrt(variance + spread**2)
    at = (math.log(bound.epochs) - centre) / deviation
    hazard = _hazard(at)
    shrink = hazard * (hazard - at) * variance / deviation**2
    if shrink < 1e-6:
        return []
    moved = centre + variance / deviation * hazard
    left = variance * (1.0 - min(shrink, 1.0 - 1e-6))
    own = 1.0 / (1.0 / left - 1.0 / variance)
    place = own * (moved / left - centre / variance)
    return [Point(bound.global_batch, place, own)]


def _assumptions(
    rows: Sequence[EpochRow],
    noise: NoiseScale | None,
    *,
    by_noise: bool,
    repeated: Sequence[object],
) -> Iterator[str]:
    yield _RECIPE
    batches = {row.global_batch for row in rows}
    if len(batches) == 1:
        how = "was not measured, so the interval spans what is usual elsewhere."
        yield (
            f"Only global batch {batches.pop()} was trained to the target: how epochs grow with "
            f"the batch {'comes from the gradient noise scale alone.' if by_noise else how}"
        )
    if by_noise and noise is not None:
        known = f"above {number(noise.low)}" if noise.value is None else number(noise.value)
        yield (
            f"The critical batch is assumed to be the gradient noise scale ({known} samples), "
            "within a factor of about 3, until epochs are measured."
        )
    elif noise is not None:
        yield "The gradient noise scale came out as 0, so it was not used."
    if not repeated:
        yield "No batch was run twice: runs are assumed to vary by 5 %."
    if cut := sum(not row.reached for row in rows):
        yield f"Ended before the target: {plural(cut, 'run')}, counted as lower bounds."


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
    found: dict[ScheduleKind, str] = {}
    for launch in launches:
        if launch.outcome != "ok":
            continue
        decay = dict(launch.cell.params).get("decay")
        if rates := _rates(launch):
            largest, last = max(rates), rates[-1]
            if last < _FALLEN * largest:
                said = f"the learning rate fell from {largest:g} to {last:g}"
                found.setdefault("decaying", said)
            else:
                found.setdefault("constant", f"the learning rate stayed at {last:g}")
        elif decay == "constant":
            found.setdefault("constant", "the rate is constant (decay=constant)")
        elif decay in DECAYS:
            found.setdefault("decaying", f"the learning rate decays (decay={decay})")
    for kind in ("decaying", "constant"):
        if kind in found:
            return Schedule(kind=kind, detail=found[kind])
    return Schedule(kind="unknown", detail="no learning rate was recorded")


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


class _Reference(NamedTuple):
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
) -> Prediction | str:
    """Return a metric after so many epochs at a global batch that nobody has trained with.

    Or say why these runs do not tell.

    Args:
        epochs: of the run in question.
        global_batch: of that run.
        runs: measured curves by global batch, one per seed; the nearest batch that reaches far
            enough is used.
        fit: epochs to a goal by batch.
        schedule: what the measured runs did with the learning rate.
    """
    if schedule.kind == "decaying":
        return (
            f"Not projectable from this run: {schedule.detail}, and a point inside of a "
            "decaying schedule is not the end of a shorter one. Train with a constant rate, or "
            "with a schedule for each batch."
        )
    distinct = ((batch, _distinct(seeds)) for batch, seeds in runs.items())
    references = [_Reference(batch, seeds) for batch, seeds in distinct if seeds]
    if not references:
        return (
            "Not projectable from this run: no metric was recorded by epoch. Record it with "
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
    about = f"{at.low:.2g} to {at.high:.2g}" if inside else f"about {at.value:.2g}"
    early = at.value < nearest.begin or (inside and at.low < nearest.begin)
    advice = (
        "Record it more often, or ask for more epochs."
        if early
        else "Train longer, or ask for fewer epochs."
    )
    return (
        f"Not projectable from this run: {epochs:g} epochs at global batch {global_batch} are "
        f"worth {about} at {nearest.global_batch}, and the metric was recorded from epoch "
        f"{nearest.begin:g} to {nearest.end:g} there. {advice}"
    )


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
