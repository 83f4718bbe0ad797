"""How right projections are where the truth is known: fit small rows, score large ones.

Steps are fitted on few workers and scored on more, epochs on small batches and scored on larger
ones, beside simpler laws. Fits never see the rows that are scored. `make_record` turns errors into
the track record: how wide intervals must be by distance.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import pairwise
from statistics import fmean, median
from typing import Any, Literal

import numpy as np

from farandole.errors import DataError
from farandole.format import plural
from farandole.model.curves import amdahl_fraction
from farandole.model.projection.epochs import EpochRow, fit_epochs
from farandole.model.projection.intervals import FARTHEST, Prediction, Reach
from farandole.model.projection.question import LinkSpeed
from farandole.model.projection.steps import LEAST_ROWS, Prior, Problem, StepRow, fit_steps, solve
from farandole.model.projection.tables import EpochTrace, StepTrace
from farandole.model.statistics import PROJECTION_CONFIDENCE
from farandole.study.records import Floats

Kind = Literal["steps", "epochs"]
Key = tuple[str, str]
"""Cluster and model."""

# Wide: Pollux bounds its parameters, and otherwise lets the rows decide.
_VAGUE = 10.0
_POLLUX_PARAMETERS = 7
_SHARPEST = 10.0
_SCHEMA = 1
_LIMITS = (3, 4, 6, 8, 12)
_EDGES = (1.0, 2.0, 4.0, 8.0, FARTHEST)
_LEAST_FACTOR = 1.0
_LEAST_MODELS = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoredRow:
    """One measured row that no fit had seen, and what was projected for it."""

    group: str
    """The model or workload: each counts the same, however many rows it has."""
    key: str
    """What errors are listed by: the workers, or the ratio of batches."""
    measured: float
    projected: Prediction
    baselines: Mapping[str, float] = field(default_factory=dict)
    """By simpler laws."""
    label: str = ""
    """The row in words, for people."""

    @property
    def covered(self) -> bool:
        """Whether the truth was inside of the interval."""
        return self.projected.low <= self.measured <= self.projected.high

    @property
    def log_width(self) -> float:
        """How wide the interval is on the scale of ratios: 0.4 is about 20 % to each side."""
        return math.log(self.projected.high / self.projected.low)


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorFigures:
    """Relative errors in percent: means over groups, the median over rows."""

    mean_abs_pct: float
    median_abs_pct: float
    bias_pct: float
    """Above 0: projections were too slow, or of too many epochs."""
    n: int
    """Rows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FileScore:
    """What a backtest says of one file."""

    kind: Kind
    rows_fit: int
    rows_scored: int
    error: Mapping[str, ErrorFigures]
    coverage_90: float | None
    """Share of the scored rows inside of their intervals; None where none is scored."""
    baselines: Mapping[str, Mapping[str, ErrorFigures]]
    rows: tuple[ScoredRow, ...] = ()
    notes: tuple[str, ...] = ()
    two_smallest: FileScore | None = None
    """Of epochs: the same with fits to the two smallest batches only."""


def score(
    kind: Kind, rows: Sequence[ScoredRow], *, rows_fit: int, notes: Iterable[str] = ()
) -> FileScore:
    """Sum scored rows up, by key."""
    names = dict.fromkeys(name for row in rows for name in row.baselines)
    return FileScore(
        kind=kind,
        rows_fit=rows_fit,
        rows_scored=len(rows),
        error=_by_key([(row, row.projected.value) for row in rows]),
        coverage_90=fmean(row.covered for row in rows) if rows else None,
        baselines={
            name: _by_key([(row, row.baselines[name]) for row in rows if name in row.baselines])
            for name in names
        },
        rows=tuple(rows),
        notes=tuple(notes),
    )


def _by_key(pairs: Sequence[tuple[ScoredRow, float]]) -> dict[str, ErrorFigures]:
    """Return the errors of rows and what was projected for them."""
    groups: dict[str, dict[str, list[float]]] = {}
    for row, value in pairs:
        errors = groups.setdefault(row.key, {}).setdefault(row.group, [])
        errors.append(100 * (value / row.measured - 1))
    found = {}
    for key in sorted(groups, key=float):
        each = list(groups[key].values())
        pooled = [error for errors in each for error in errors]
        found[key] = ErrorFigures(
            mean_abs_pct=fmean(fmean(map(abs, errors)) for errors in each),
            median_abs_pct=median(map(abs, pooled)),
            bias_pct=fmean(map(fmean, each)),
            n=len(pooled),
        )
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Split:
    """Which rows of steps are fitted, and what is known beside them."""

    fit_workers: int = 4
    """Rows of up to so many workers are fitted, all others scored."""
    fit_hosts: int | None = None
    """Rows of more hosts are not fitted either; None: all are."""
    link: LinkSpeed | None = None
    """What connects hosts, for fits that see one host only."""
    gradient_bytes: Mapping[str, int] = field(default_factory=dict)
    """By model, where known."""

    def fitted(self, row: StepRow) -> bool:
        """Tell whether a fit may see the row."""
        few_hosts = self.fit_hosts is None or row.hosts <= self.fit_hosts
        return few_hosts and row.workers <= self.fit_workers


def backtest(trace: StepTrace | EpochTrace, split: Split) -> FileScore:
    """Fit the small rows of a table and score its large ones.

    Of epochs, fits are to batches of at most half of the largest one, and once more to the two
    smallest only.

    Raises:
        DataError: no model or workload has rows to fit and rows to score.
    """
    if isinstance(trace, StepTrace):
        return score_steps(trace.groups, split, notes=trace.notes)
    half = score_epochs(trace.groups)
    try:
        two = score_epochs(trace.groups, two_smallest=True)
    except DataError:
        two = None
    return replace(half, notes=(*trace.notes, *half.notes), two_smallest=two)


def score_steps(
    groups: Mapping[Key, Sequence[StepRow]], split: Split, *, notes: Iterable[str] = ()
) -> FileScore:
    """Fit each model of each cluster on its small rows and score its large ones."""
    all_notes = list(notes)
    scored: list[ScoredRow] = []
    rows_fit = 0
    several = len({cluster for cluster, _ in groups}) > 1
    for (cluster, model), rows in groups.items():
        name = (f"{cluster} {model}" if several else model) or "all"
        small = [row for row in rows if split.fitted(row)]
        large = [row for row in rows if row.workers > split.fit_workers]
        if len(small) < LEAST_ROWS or not large:
            on = "" if split.fit_hosts is None else f" on {split.fit_hosts} nodes"
            all_notes.append(
                f"{name} was left out: it has {len(small)} rows of up to {split.fit_workers} "
                f"workers{on} to fit and {len(large)} larger ones to score. It needs {LEAST_ROWS} "
                "and 1; --fit-workers moves the limit."
            )
            continue
        rows_fit += len(small)
        fit = fit_steps(small, link=split.link, gradient_bytes=split.gradient_bytes.get(model))
        laws = fit_baselines(small)
        projected = fit.at_each([(row.workers, row.hosts, row.batch) for row in large])
        scored += [
            ScoredRow(
                group=name,
                key=str(row.workers),
                measured=row.step_s,
                projected=value,
                baselines={law: at(row) for law, at in laws.items()},
                label=f"{plural(row.workers, 'worker')} on {plural(row.hosts, 'node')}, "
                f"batch {row.batch}",
            )
            for row, value in zip(large, projected, strict=True)
        ]
    if not scored:
        raise DataError(" ".join(all_notes))
    return score("steps", scored, rows_fit=rows_fit, notes=all_notes)


def fit_baselines(rows: Sequence[StepRow]) -> Mapping[str, Callable[[StepRow], float]]:
    """Fit simpler laws to the same rows: linear scaling, Amdahl's law, Pollux's form.

    Each gives the seconds of a step on a row's workers, hosts and batch; its times are not looked
    at.
    """
    alone = _alone(rows)
    several = [row for row in rows if row.workers > 1]
    speedups = [row.workers * alone(row.batch) / row.step_s for row in several]
    fraction = 0.0
    if several:
        fraction = amdahl_fraction([row.workers for row in several], speedups)
        fraction = min(1.0, max(0.0, fraction))
    return {
        "linear": lambda row: alone(row.batch),
        "amdahl": lambda row: alone(row.batch) * (1 + fraction * (row.workers - 1)),
        "pollux": _pollux(rows),
    }


def _alone(rows: Sequence[StepRow]) -> Callable[[int], float]:
    """Return the seconds of a step by batch, from the rows of the fewest workers."""
    fewest = min(row.workers for row in rows)
    small = [row for row in rows if row.workers == fewest]
    batch = np.array([row.batch for row in small], dtype=np.float64)
    seconds = np.array([row.step_s for row in small])
    if len(set(batch.tolist())) < 2:
        # One batch says nothing of others but that work is proportional to samples.
        per_sample = float(np.exp(np.mean(np.log(seconds / batch))))
        return lambda at: per_sample * at
    design = np.column_stack([np.ones_like(batch), batch]) / seconds[:, None]
    (fixed, slope), *_ = np.linalg.lstsq(design, np.ones_like(batch), rcond=None)
    least = float(seconds.min()) / 10
    return lambda at: max(least, float(fixed + slope * at))


def _pollux(rows: Sequence[StepRow]) -> Callable[[StepRow], float]:
    """Fit Pollux's throughput model (OSDI'21) to step times and, where known, compute times."""
    observed = np.log([row.step_s for row in rows])
    timed = [row for row in rows if row.sync_s is not None and row.sync_s < row.step_s]
    computed = np.log([row.step_s - (row.sync_s or 0.0) for row in timed])
    typical = float(np.median(observed))
    batch = float(np.median([row.batch for row in rows]))

    def log_times(parameters: Floats) -> Floats:
        steps = _pollux_log_times(parameters, rows)
        compute = np.log(_pollux_compute(parameters, timed))
        return np.concatenate([steps, compute], axis=1)

    guess = np.full(_POLLUX_PARAMETERS, typical - 2)
    guess[1] = typical - math.log(batch)
    guess[6] = 0.0
    problem = Problem(
        log_times=log_times,
        observed=np.concatenate([observed, computed]),
        weights=np.ones(len(rows) + len(timed)),
        prior=Prior(
            lines=np.eye(_POLLUX_PARAMETERS), mean=guess, sd=np.full(_POLLUX_PARAMETERS, _VAGUE)
        ),
        sigma=0.1,
    )
    best = solve(problem, [guess]).parameters[None]
    return lambda row: float(np.exp(_pollux_log_times(best, [row])[0, 0]))


def _pollux_compute(parameters: Floats, rows: Sequence[StepRow]) -> Floats:
    batch = np.array([row.batch for row in rows], dtype=np.float64)
    fixed, per_sample = np.exp(parameters[:, :1]), np.exp(parameters[:, 1:2])
    return np.asarray(fixed + per_sample * batch)


def _pollux_log_times(parameters: Floats, rows: Sequence[StepRow]) -> Floats:
    workers = np.array([row.workers for row in rows], dtype=np.float64)
    several = np.array([row.hosts > 1 for row in rows])
    local, local_growth, between, between_growth = (
        np.exp(parameters[:, place : place + 1]) for place in range(2, 6)
    )
    beyond = np.maximum(workers - 2, 0.0)
    network = np.where(several, between + between_growth * beyond, local + local_growth * beyond)
    network = np.where(workers > 1, network, 0.0)
    sharpness = np.minimum(1 + np.exp(parameters[:, 6:7]), _SHARPEST)
    compute = _pollux_compute(parameters, rows)
    longer, shorter = np.maximum(compute, network), np.minimum(compute, network)
    return np.asarray(
        np.log(longer) + np.log1p((shorter / longer) ** sharpness) / sharpness, dtype=np.float64
    )


def score_epochs(
    groups: Mapping[str, Sequence[EpochRow]], *, two_smallest: bool = False
) -> FileScore:
    """Fit each workload on its small batches and predict the mean of each larger one.

    Errors are keyed by the ratio to the largest fitted batch, rounded to a power of two.
    """
    scored: list[ScoredRow] = []
    notes: list[str] = []
    rows_fit = rows_scored = 0
    for workload, rows in groups.items():
        sizes = sorted({row.global_batch for row in rows})
        limit = sizes[:2][-1] if two_smallest else sizes[-1] / 2
        fitted = [row for row in rows if row.global_batch <= limit]
        # A run that did not reach the target has no epochs to score.
        held_out = [row for row in rows if row.global_batch > limit and row.reached]
        if len({row.global_batch for row in fitted if row.reached}) < 2 or not held_out:
            notes.append(
                f"{workload} was left out: of its global batches ({', '.join(map(str, sizes))}) "
                "two must be there to fit, and a larger one to score."
            )
            continue
        rows_fit += len(fitted)
        rows_scored += len(held_out)
        scored += _scored_epochs(workload, fitted, held_out)
    if not scored:
        raise DataError(" ".join(notes) or "There is no workload to score.")
    # A scored row is of a batch, and a row of the file is a run.
    found = score("epochs", scored, rows_fit=rows_fit, notes=notes)
    return replace(found, rows_scored=rows_scored)


def _scored_epochs(
    workload: str, fitted: Sequence[EpochRow], held_out: Sequence[EpochRow]
) -> Iterator[ScoredRow]:
    from scipy.optimize import nnls

    fit = fit_epochs(fitted)
    sizes, epochs = _means(fitted)
    # The hyperbola by least squares of relative errors, without priors and weights.
    terms = np.array([[1.0 / e, size / e] for size, e in zip(sizes, epochs, strict=True)])
    (least, slope), _ = nnls(terms, np.ones(len(sizes)))
    for batch, measured in zip(*_means(held_out), strict=True):
        projected = fit.at(batch)
        yield ScoredRow(
            group=workload,
            # The nearest power of two, from 2 on.
            key=str(2 ** max(1, round(math.log2(projected.ratio)))),
            measured=measured,
            projected=projected,
            baselines={
                "constant_epochs": epochs[-1],
                "constant_steps": epochs[-1] * batch / sizes[-1],
                "hyperbola": float(least + slope * batch),
            },
            label=f"{workload}, global batch {batch}",
        )


def _means(rows: Sequence[EpochRow]) -> tuple[list[int], list[float]]:
    """Return batches, ascending, and the mean epochs of their runs that reached the target."""
    by_batch: dict[int, list[float]] = {}
    for row in rows:
        if row.reached:
            by_batch.setdefault(row.global_batch, []).append(row.epochs)
    sizes = sorted(by_batch)
    return sizes, [fmean(by_batch[size]) for size in sizes]


def make_record(groups: Mapping[Key, Sequence[StepRow]]) -> dict[str, Any]:
    """Return the content of `track_record.json`: errors by distance, and factors for intervals.

    Each model is fitted at several limits of workers and scored beyond each. A factor is how many
    standard deviations of the fit the errors reach: the quantile of the model that was hit worst,
    since the next model comes from another cluster, and never less than nearer by.

    Raises:
        DataError: Fewer than two models reach beyond what is fitted.
    """
    errors = {key: found for key, rows in groups.items() if len(found := _log_errors(rows))}
    if len(errors) < _LEAST_MODELS:
        raise DataError(
            f"{len(errors)} models have rows to fit and larger ones to score. Factors come from "
            f"at least {_LEAST_MODELS}: add a table."
        )
    factors = _factors(list(errors.values()))
    left_out = {
        key: _factors([found for other, found in errors.items() if other != key]) for key in errors
    }
    reaches = []
    for place, (low, high) in enumerate(pairwise(_EDGES)):
        parts = {key: _between(found, low, high) for key, found in errors.items()}
        parts = {key: part for key, part in parts.items() if len(part)}
        if parts:
            others = [left_out[key][place] for key in parts]
            reaches.append(_reach(low, high, list(parts.values()), factors[place], others))
    return {
        "schema": _SCHEMA,
        "made_by": "farandole backtest FILE.csv ... --write-track-record FILE",
        "clusters": sorted({cluster for cluster, _ in errors}),
        "models": sorted(" ".join(filter(None, key)) for key in errors),
        "fit_workers": list(_LIMITS),
        "reaches": [asdict(reach) for reach in reaches],
    }


def _log_errors(rows: Sequence[StepRow]) -> Floats:
    """Return what fits of one model missed by: ratio, log error, the same in deviations."""
    found = [np.empty((0, 3))]
    for limit in _LIMITS:
        small = [row for row in rows if row.workers <= limit]
        most = max((row.workers for row in small), default=0)
        large = [row for row in rows if limit < row.workers <= FARTHEST * most]
        if len(small) >= LEAST_ROWS and large:
            fit = fit_steps(small)
            spread = fit.spread([(row.workers, row.hosts, row.batch) for row in large])
            error = np.log([row.step_s for row in large]) - spread.log_s
            deviations = error / np.where(error > 0, spread.slow_sd, spread.fast_sd)
            ratio = np.array([row.workers for row in large]) / fit.measured_workers
            found.append(np.column_stack([ratio, error, deviations]))
    return np.concatenate(found)


def _between(errors: Floats, low: float, high: float) -> Floats:
    return errors[(errors[:, 0] > low) & (errors[:, 0] <= high)]


def _factors(models: Sequence[Floats]) -> list[tuple[float, float]]:
    """Return factors to the fast and the slow side, by distance."""
    tail = (1 - PROJECTION_CONFIDENCE) / 2
    fast = slow = _LEAST_FACTOR
    found = []
    for low, high in pairwise(_EDGES):
        for errors in models:
            deviations = _between(errors, low, high)[:, 2]
            if len(deviations):
                fast = max(fast, -float(np.quantile(deviations, tail)))
                slow = max(slow, float(np.quantile(deviations, 1 - tail)))
        found.append((fast, slow))
    return found


def _reach(
    low: float,
    high: float,
    models: Sequence[Floats],
    factors: tuple[float, float],
    others: Sequence[tuple[float, float]],
) -> Reach:
    errors = [100 * (np.exp(-model[:, 1]) - 1) for model in models]
    covered = [
        float(np.mean((model[:, 2] >= -fast) & (model[:, 2] <= slow)))
        for model, (fast, slow) in zip(models, others, strict=True)
    ]
    pooled = np.abs(np.concatenate(errors))

    def rounded(value: Any) -> float:
        return round(float(value), 3)

    return Reach(
        beyond=low,
        up_to=high,
        rows=len(pooled),
        models=len(models),
        mean_abs_pct=rounded(np.mean([np.abs(error).mean() for error in errors])),
        median_abs_pct=rounded(np.median(pooled)),
        p90_abs_pct=rounded(np.quantile(pooled, 0.9)),
        bias_pct=rounded(np.mean([error.mean() for error in errors])),
        coverage_left_out=rounded(np.mean(covered)),
        fast=rounded(factors[0]),
        slow=rounded(factors[1]),
    )
