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
from farandole.model.curves import amdahl_fraction, gustafson_fraction
from farandole.model.projection.epochs import EpochRow, fit_epochs
from farandole.model.projection.intervals import FARTHEST, Prediction, Reach
from farandole.model.projection.question import LinkSpeed
from farandole.model.projection.steps import Problem, StepRow, fit_steps, solve
from farandole.model.projection.tables import EpochTrace, StepTrace
from farandole.model.statistics import PROJECTION_CONFIDENCE
from farandole.study.records import Floats

Kind = Literal["steps", "epochs"]
Key = tuple[str, str]
"""Cluster and model."""

# Wide: Pollux bounds its parameters, and otherwise lets the rows decide.
_VAGUE = 10.0
_SHARPEST = 10.0
_SCHEMA = 2
# Up to how many workers whole tables are fitted for the record; curves of them: at which counts.
_LIMITS = (3, 4, 6, 8, 12)
_COUNTS = (1, 2, 4, 8, 16, 32, 64)
# Of the batches of a table, every third gives curves: more would say the same again.
_EVERY = 3
_EDGES = (1.0, 2.0, 4.0, 8.0, FARTHEST)
_LEAST_FACTOR = 1.0
# How far factors lie from what holds for all clusters together to what holds for the worst.
_TO_WORST = 0.75


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
        if len({row.workers for row in small}) < 2 or not large:
            on = "" if split.fit_hosts is None else f" on {plural(split.fit_hosts, 'node')}"
            all_notes.append(
                f"{name} was left out: it needs rows of two worker counts up to "
                f"{split.fit_workers}{on} to fit, and larger ones to score. --fit-workers moves "
                "the limit."
            )
            continue
        rows_fit += len(small)
        fit = fit_steps(small, link=split.link, gradient_bytes=split.gradient_bytes.get(model))
        laws = fit_baselines(small)
        projected = fit.at_each([(row.workers, row.hosts, row.batch) for row in large])
        for row, value in zip(large, projected, strict=True):
            workers, hosts = plural(row.workers, "worker"), plural(row.hosts, "node")
            scored.append(
                ScoredRow(
                    group=name,
                    key=str(row.workers),
                    measured=row.step_s,
                    projected=value,
                    baselines={law: at(row) for law, at in laws.items()},
                    label=f"{workers} on {hosts}, batch {row.batch}",
                )
            )
    if not scored:
        raise DataError(" ".join(all_notes))
    return score("steps", scored, rows_fit=rows_fit, notes=all_notes)


def fit_baselines(rows: Sequence[StepRow]) -> Mapping[str, Callable[[StepRow], float]]:
    """Fit simpler laws to the same rows.

    linear: perfect scaling. line: a straight line of throughput by workers (Gustafson's law).
    amdahl: Amdahl's law. pollux: the form of Pollux (OSDI'21). Each gives the seconds of a step on
    a row's workers, hosts and batch; its times are not looked at.
    """
    alone = _alone(rows)
    fewest = min(row.workers for row in rows)
    several = [row for row in rows if row.workers > fewest]
    counts = [row.workers / fewest for row in several]
    speedups = [
        count * alone(row.batch) / row.step_s for count, row in zip(counts, several, strict=True)
    ]
    serial = scaled = 0.0
    if several:
        serial = min(1.0, max(0.0, amdahl_fraction(counts, speedups)))
        scaled = min(0.99, max(0.0, gustafson_fraction(counts, speedups)))

    def line(row: StepRow) -> float:
        count = row.workers / fewest
        return alone(row.batch) * count / (count - scaled * (count - 1))

    return {
        "linear": lambda row: alone(row.batch),
        "line": line,
        "amdahl": lambda row: alone(row.batch) * (1 + serial * (row.workers / fewest - 1)),
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
    """Fit Pollux's throughput model to step times and, where known, compute times.

    T = (C^g + G^g)^(1/g) with C = a + b batch and G = c + d (N - 2), apart inside of a host and
    between hosts: seven parameters, as logarithms.
    """
    timed = [row for row in rows if row.sync_s is not None and row.sync_s < row.step_s]
    observed = np.log([row.step_s for row in rows])
    computed = np.log([row.step_s - (row.sync_s or 0.0) for row in timed])

    def compute(values: Floats, some: Sequence[StepRow]) -> Floats:
        batch = np.array([row.batch for row in some], dtype=np.float64)
        return np.asarray(values[:, :1] + values[:, 1:2] * batch)

    def log_steps(parameters: Floats, some: Sequence[StepRow]) -> Floats:
        values = np.exp(parameters)
        workers = np.array([row.workers for row in some], dtype=np.float64)
        first = np.array([2 if row.hosts == 1 else 4 for row in some])  # inside, or between hosts
        network = values[:, first] + values[:, first + 1] * np.maximum(workers - 2, 0.0)
        network = np.where(workers > 1, network, 0.0)
        sharpness = np.minimum(1 + values[:, 6:7], _SHARPEST)
        own = compute(values, some)
        longer, shorter = np.maximum(own, network), np.minimum(own, network)
        return np.asarray(np.log(longer) + np.log1p((shorter / longer) ** sharpness) / sharpness)

    guess = np.full(7, float(np.median(observed)) - 2)
    guess[1] += 2 - math.log(float(np.median([row.batch for row in rows])))
    guess[6] = 0.0
    problem = Problem(
        log_times=lambda parameters: np.concatenate(
            [log_steps(parameters, rows), np.log(compute(np.exp(parameters), timed))], axis=1
        ),
        observed=np.concatenate([observed, computed]),
        weights=np.ones(len(rows) + len(timed)),
        lines=np.eye(len(guess)),
        mean=guess,
        sd=np.full(len(guess), _VAGUE),
        sigma=0.1,
    )
    best = solve(problem, [guess]).parameters[None]
    return lambda row: float(np.exp(log_steps(best, [row])[0, 0]))


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

    Each model is fitted at several limits of workers and scored beyond each, and so are curves of
    a single batch, as somebody with few settings would have them. A factor is how many standard
    deviations of the fit the errors reach, never less than nearer by. All clusters count the same;
    a single one stands for itself alone, so that its worst model decides.

    Raises:
        DataError: Fewer than two models reach beyond what is fitted.
    """
    reaches: list[Reach] = []
    models: set[Key] = set()
    for few in (False, True):
        errors = {key: found for key, rows in groups.items() if len(found := _errors(rows, few))}
        models |= errors.keys()
        if len(errors) > 1:
            reaches += _reaches(few, errors)
    if not reaches:
        raise DataError(
            f"{plural(len(models), 'model')} with rows to fit and larger ones to score. Factors "
            "come from two or more: add a table."
        )
    return {
        "schema": _SCHEMA,
        "made_by": "farandole backtest FILE.csv ... --write-track-record FILE",
        "clusters": sorted({cluster for cluster, _ in models}),
        "models": sorted(" ".join(filter(None, key)) for key in models),
        "reaches": [asdict(reach) for reach in reaches],
    }


def _errors(rows: Sequence[StepRow], few: bool) -> Floats:
    """Return what fits of one model missed by: ratio, log error, the same in deviations."""
    found = [np.empty((0, 3))]
    for small, large in _few_rows(rows) if few else _many_rows(rows):
        fit = fit_steps(small)
        if not large or fit.few != few:
            continue
        spread = fit.spread([(row.workers, row.hosts, row.batch) for row in large])
        log_s, fast, slow = np.array([one[:3] for one in spread]).T
        error = np.log([row.step_s for row in large]) - log_s
        ratio = np.array([row.workers for row in large]) / fit.measured_workers
        found.append(np.column_stack([ratio, error, error / np.where(error > 0, slow, fast)]))
    return np.concatenate(found)


def _many_rows(rows: Sequence[StepRow]) -> Iterator[tuple[list[StepRow], list[StepRow]]]:
    for limit in _LIMITS:
        small = [row for row in rows if row.workers <= limit]
        most = max((row.workers for row in small), default=0)
        if len({row.workers for row in small}) > 1:
            yield small, [row for row in rows if limit < row.workers <= FARTHEST * most]


def _few_rows(rows: Sequence[StepRow]) -> Iterator[tuple[list[StepRow], list[StepRow]]]:
    """Yield curves of one batch, hosts full or with one worker each: two or more counts of them."""
    local = max(math.ceil(row.workers / row.hosts) for row in rows)
    for batch in sorted({row.batch for row in rows})[::_EVERY]:
        known = {(row.workers, row.hosts): row for row in rows if row.batch == batch}
        for each in {1, local}:
            places = [(count, math.ceil(count / each)) for count in _COUNTS]
            curve = [known[place] for place in places if place in known]
            for last in range(1, len(curve) - 1):
                most = FARTHEST * curve[last].workers
                # Nothing tells one host of a network: that is another question (--link).
                large = [
                    row
                    for row in curve[last + 1 :]
                    if row.workers <= most and (row.hosts == 1 or curve[last].hosts > 1)
                ]
                yield curve[: last + 1], large
                if last > 1:
                    yield [curve[0], curve[last]], large


def _reaches(few: bool, errors: Mapping[Key, Floats]) -> Iterator[Reach]:
    clusters = sorted({cluster for cluster, _ in errors})
    # Who is left out to see whether factors hold for somebody new: clusters, or models of one.
    parties = [[key for key in errors if key[0] == name] for name in clusters]
    if len(parties) == 1:
        parties = [[key] for key in errors]
    factors = _factors(errors, parties, worst=len(clusters) == 1)
    left_out = [
        _factors(errors, [party for party in parties if party is not one], len(clusters) == 1)
        for one in parties
    ]
    for place, band in enumerate(pairwise(_EDGES)):
        near = {key: part for key, all_of in errors.items() if len(part := _between(all_of, band))}
        if not near:
            continue
        percents = {key: 100 * (np.exp(-part[:, 1]) - 1) for key, part in near.items()}
        means = {key: float(np.abs(error).mean()) for key, error in percents.items()}
        pooled = np.abs(np.concatenate(list(percents.values())))
        covered = []
        for party, other in zip(parties, left_out, strict=True):
            fast, slow = other[place]
            some = [near[key][:, 2] for key in party if key in near]
            shares = [float(np.mean((z >= -fast) & (z <= slow))) for z in some]
            covered += [fmean(shares)] if shares else []
        by_cluster = {name: [means[key] for key in means if key[0] == name] for name in clusters}
        figures = {
            "mean_abs_pct": fmean(means.values()),
            "median_abs_pct": np.median(pooled),
            "p90_abs_pct": np.quantile(pooled, 0.9),
            "bias_pct": fmean(float(error.mean()) for error in percents.values()),
            "coverage_left_out": fmean(covered),
            "fast": factors[place][0],
            "slow": factors[place][1],
        }
        yield Reach(
            few=few,
            beyond=band[0],
            up_to=band[1],
            rows=len(pooled),
            models=len(near),
            clusters={name: round(fmean(own), 3) for name, own in by_cluster.items() if own},
            **{name: round(float(value), 3) for name, value in figures.items()},
        )


def _factors(
    errors: Mapping[Key, Floats], parties: Sequence[Sequence[Key]], worst: bool
) -> list[tuple[float, float]]:
    """Return factors to the fast and the slow side, by distance."""
    sides = np.array([(1 - PROJECTION_CONFIDENCE) / 2, (1 + PROJECTION_CONFIDENCE) / 2])
    factors = np.full(2, _LEAST_FACTOR)
    found = []
    for band in pairwise(_EDGES):
        each = [
            np.concatenate([_between(errors[key], band)[:, 2] for key in party])
            for party in parties
        ]
        each = [z for z in each if len(z)]
        if each:
            # The party that was hit worst; and all together, each with the same weight.
            ends = np.array([np.quantile(z, sides) for z in each])
            reached = np.array([ends[:, 0].min(), ends[:, 1].max()])
            if not worst:
                pooled = np.concatenate(each)
                order = np.argsort(pooled)
                shares = np.concatenate([np.full(len(z), 1 / len(z) / len(each)) for z in each])
                places = [np.argmax(np.cumsum(shares[order]) >= side) for side in sides]
                reached = _TO_WORST * reached + (1 - _TO_WORST) * pooled[order][places]
            factors = np.maximum(factors, reached * (-1, 1))
        found.append((float(factors[0]), float(factors[1])))
    return found


def _between(errors: Floats, band: tuple[float, float]) -> Floats:
    return errors[(errors[:, 0] > band[0]) & (errors[:, 0] <= band[1])]
