"""Where a projected time ends, and the epochs that measured runs took to get there."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from farandole.errors import UsageError
from farandole.model.accuracy import Seeds, collect_metrics
from farandole.model.info.scaling import ScalingInfo
from farandole.model.measured import Measured, count
from farandole.model.pace import stated
from farandole.model.projection.outlook import Goal
from farandole.model.projection.records import EpochRow
from farandole.model.series import Series, higher_is_better
from farandole.model.stability import WINDOW, plateau, reach


@dataclass(frozen=True, slots=True, kw_only=True)
class Level:
    """Where a metric is stable."""

    value: float
    global_batch: int
    """Whose runs end there."""


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
        _must_be_recorded(name, value, cells)
        return Goal(kind="target", words=f"to {name} {value:g}", metric=name, value=value)
    metric = info.main_metric
    if metric is not None and any(row.reached for row in stable_rows(cells, metric)):
        level = stable_level(cells, metric)
        return Goal(
            kind="stable",
            words=f"to a stable {metric}",
            metric=metric,
            value=None if level is None else level.value,
        )
    known = {found.cell for found in cells}
    jobs = [job for job in info.job_times if job.cell in known]
    epochs = [job.epochs for job in jobs if job.epochs]
    if epochs and jobs:
        most = max(epochs)
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
        return stable_rows(cells, goal.metric)
    if goal.kind != "target" or goal.metric is None or goal.value is None:
        return []
    higher = higher_is_better(goal.metric) is not False
    rows = [
        row
        for found, series in _series(cells, goal.metric)
        if (row := _row(found, series, goal.value, higher=higher)) is not None
    ]
    if not any(row.reached for row in rows):
        raise _never_reached(cells, goal.metric, goal.value, higher=higher)
    return rows


def stable_rows(cells: Sequence[Measured], metric: str) -> list[EpochRow]:
    """Return the epochs until a metric held, as a table states them or by the rule of 1.6.

    All runs have one level to hold: with each one's own, a batch that ends lower would have an
    easier goal. Those that end below count as lower bounds.
    """
    level = stable_level(cells, metric)
    if level is None:
        return _stated_rows(cells)
    higher = higher_is_better(metric) is not False
    return [
        row
        for found, series in _long_series(cells, metric)
        if (row := _row(found, series, level.value, higher=higher)) is not None
    ]


def stable_level(cells: Sequence[Measured], metric: str) -> Level | None:
    """Return what every run of the smallest global batch holds in the end.

    None when a table states epochs without it, or no run is long enough.
    """
    if _stated_rows(cells):
        return None
    higher = higher_is_better(metric) is not False
    ends: dict[int, list[float]] = {}
    for found, series in _long_series(cells, metric):
        if found.global_batch:
            level = plateau(_finite(series), higher=higher)
            ends.setdefault(found.global_batch, []).append(level)
    if not ends:
        return None
    smallest = min(ends)
    worst = min(ends[smallest]) if higher else max(ends[smallest])
    return Level(value=worst, global_batch=smallest)


def stable_words(cells: Sequence[Measured], goal: Goal | None) -> str:
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
        f"Stable means {goal.metric} {level.value:.4g} at every batch: what all runs at global "
        f"batch {level.global_batch}, the smallest, hold in the end."
    )


def _stated_rows(cells: Sequence[Measured]) -> list[EpochRow]:
    return [
        EpochRow(global_batch=found.global_batch, epochs=epoch)
        for found in cells
        for launch in found.launches
        if found.global_batch and (epoch := stated(launch, "stable_epoch")) is not None
    ]


def _long_series(cells: Sequence[Measured], metric: str) -> list[tuple[Measured, Series]]:
    """Return the runs that are long enough for an end to show."""
    return [pair for pair in _series(cells, metric) if len(_finite(pair[1])) >= 2 * WINDOW]


def _finite(series: Series) -> list[float]:
    return [value for value in series.values if math.isfinite(value)]


def _series(cells: Sequence[Measured], metric: str) -> list[tuple[Measured, Series]]:
    """Return one series per run that has values by epoch."""
    metrics = collect_metrics(cells)
    nothing: Seeds = {}
    return [
        (found, series)
        for found in cells
        for series in metrics.get(found.cell, nothing).get(metric, ())
        if not series.by_step
    ]


def _row(found: Measured, series: Series, target: float, *, higher: bool) -> EpochRow | None:
    if not found.global_batch:
        return None
    got = reach(series, target, higher=higher)
    if got.epoch is None:
        return EpochRow(global_batch=found.global_batch, epochs=got.censored_at, reached=False)
    return EpochRow(global_batch=found.global_batch, epochs=got.epoch)


def _must_be_recorded(name: str, value: float, cells: Sequence[Measured]) -> None:
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


def _never_reached(
    cells: Sequence[Measured], metric: str, target: float, *, higher: bool
) -> UsageError:
    runs = _series(cells, metric)
    best: tuple[float, float, Measured] | None = None
    for found, series in runs:
        for epoch, value in zip(series.epochs, series.values, strict=True):
            if math.isfinite(value) and (
                best is None or (value > best[0] if higher else value < best[0])
            ):
                best = (value, epoch, found)
    if best is None:
        return UsageError(
            f"{metric}={target:g} cannot be looked for: its values have no epochs. Record it with "
            f"farandole.record({metric}=..., epoch=...)."
        )
    value, epoch, found = best
    seen = f"the best is {value:g} ({count(found.cell.workers, 'worker')}, epoch {epoch:g})"
    passed = value >= target if higher else value <= target
    if passed:
        return UsageError(
            f"{metric}={target:g} was not held in any run: {seen}, but {WINDOW} evaluations in a "
            f"row must have it. Train longer, or record {metric} at every epoch."
        )
    return UsageError(
        f"{metric}={target:g} was never reached: {seen}. Choose a target that a run has reached, "
        "or train longer."
    )
