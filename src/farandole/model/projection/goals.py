"""Where a projected time ends, and the epochs that measured runs took to get there."""

from __future__ import annotations

import math
from collections.abc import Sequence

from farandole.errors import UsageError
from farandole.model.accuracy import Seeds, collect_metrics
from farandole.model.info import ScalingInfo
from farandole.model.measured import Measured, count
from farandole.model.pace import stated
from farandole.model.projection.outlook import Goal
from farandole.model.projection.records import EpochRow
from farandole.model.series import Series, higher_is_better
from farandole.model.stability import WINDOW, plateau, reach


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
        return Goal(kind="stable", words=f"to a stable {metric}", metric=metric)
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
    """Return the epochs until a metric held, as a table states them or by the rule of 1.6."""
    told = [
        EpochRow(global_batch=found.global_batch, epochs=epoch)
        for found in cells
        for launch in found.launches
        if found.global_batch and (epoch := stated(launch, "stable_epoch")) is not None
    ]
    if told:
        return told
    higher = higher_is_better(metric) is not False
    rows = []
    for found, series in _series(cells, metric):
        finite = [value for value in series.values if math.isfinite(value)]
        if len(finite) >= 2 * WINDOW:
            row = _row(found, series, plateau(finite, higher=higher), higher=higher)
            rows += [row] if row is not None else []
    return rows


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
