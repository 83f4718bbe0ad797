"""Metrics by workers, over seeds: curves, ends, differences, epochs and time to get there.

And how long accuracy runs would take, for a study that has made none.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Literal

from farandole.errors import UsageError
from farandole.model.curves import Curve
from farandole.model.jobs import JobTime
from farandole.model.measured import Measured
from farandole.model.metrics import (
    WINDOW,
    Reached,
    Series,
    evaluation_spread,
    higher_is_better,
    kaplan_meier_median,
    main_metric,
    plateau,
    reach,
    series_of,
)
from farandole.model.pace import stated
from farandole.model.statistics import (
    ACCURACY_MARGIN,
    LEAST_SEEDS,
    SPEED_MARGIN,
    Estimate,
    mean,
    relation,
    welch,
)
from farandole.study.records import Cell

AccuracyVerdict = Literal["same", "worse", "better", "inconclusive", "not_measured"]
Seeds = dict[str, list[Series]]
_POINTS = 300
"""Of a metric curve: a value per step is thinned to so many."""
# --epochs 10, --num-epochs=10, trainer.max_epochs=10
_EPOCHS = re.compile(r"(?:-*|[\w.]+\.)(?:num|max|n|train)?[-_]?epochs(?:=(\d+))?")


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricPoint:
    """A metric at one epoch, over seeds."""

    epoch: float
    value: Estimate
    time_s: float | None
    """Mean time since the launch began."""
    seeds: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricCurve:
    """A metric by epoch (and by time) of a cell."""

    cell: Cell
    label: str
    metric: str
    points: tuple[MetricPoint, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricRow:
    """A metric at the end of training, over seeds, compared with the fewest workers."""

    cell: Cell
    label: str
    metric: str
    higher_is_better: bool
    final: Estimate | None
    """Mean over seeds of the last value; None when all diverged."""
    seeds: int
    diverged: int
    """Seeds whose last value is not finite."""
    difference: Estimate | None
    """Minus the baseline's; None for the baseline itself."""
    margin: float
    verdict: AccuracyVerdict | None
    """None for the baseline itself."""
    stable_epoch: float | None
    """Median over seeds of the epochs to stability; None when not reached (see `censored`)."""
    stable_s: float | None
    censored: int
    """Seeds that never became stable."""
    target: float | None
    target_epoch: float | None
    target_s: float | None
    target_reached: int
    """Seeds that reached the target."""
    seeds_alike: bool = False
    """Whether all seeds gave the very same values, so that they count as one."""
    rising: int = 0
    """Seeds whose values still improve at the last epoch."""

    @property
    def smallest_difference(self) -> float | None:
        """Half the difference's interval: what so many seeds can detect; None without one."""
        found = self.difference
        if found is None or found.low is None or found.high is None:
            return None
        return (found.high - found.low) / 2


def collect_metrics(cells: Sequence[Measured]) -> dict[Cell, Seeds]:
    """Return each cell's series by metric, one per launch that was made for accuracy.

    Launches that were ended early say nothing of where training ends.
    """
    found: dict[Cell, Seeds] = {}
    for cell in cells:
        seeds: Seeds = {}
        for launch in cell.launches:
            if launch.outcome == "ok" and launch.purpose in ("accuracy", "imported"):
                for name, series in series_of(launch).items():
                    seeds.setdefault(name, []).append(series)
        if seeds:
            found[cell.cell] = seeds
    return found


def choose_metric(metrics: Mapping[Cell, Seeds], target: tuple[str, float] | None) -> str | None:
    """Return the target's metric, or the one that stands for accuracy.

    Raises:
        UsageError: when metrics were recorded, but not the target's.
    """
    names = {name for seeds in metrics.values() for name in seeds}
    if target is None:
        return main_metric(names)
    if names and target[0] not in names:
        raise UsageError(
            f"You asked for {target[0]}={target[1]:g}, but this study recorded "
            f"{', '.join(sorted(names))}. Choose one of these."
        )
    return target[0]


def margin_of(name: str, values: Sequence[float]) -> float:
    """Return the difference that does not matter: 1 point of a rate, 3 % of anything else."""
    finite = [abs(value) for value in values if math.isfinite(value)]
    largest = max(finite, default=1.0)
    if higher_is_better(name):
        # Rates come as 0.98 or as 98.
        return ACCURACY_MARGIN if largest <= 1.0 else 100 * ACCURACY_MARGIN
    return SPEED_MARGIN * median(finite) if finite else SPEED_MARGIN


def metric_curves(found: Measured, metrics: Mapping[Cell, Seeds]) -> tuple[MetricCurve, ...]:
    """Return a cell's metrics by epoch, their means and intervals over seeds."""
    curves = []
    for name, seeds in sorted(metrics.get(found.cell, {}).items()):
        by_epoch: dict[float, list[tuple[float, float | None]]] = {}
        for series in seeds:
            for epoch, value, time_s in _thinned(series):
                if math.isfinite(value):
                    by_epoch.setdefault(epoch, []).append((value, time_s))
        points = tuple(_point(epoch, by_epoch[epoch]) for epoch in sorted(by_epoch))
        if points:
            curves.append(
                MetricCurve(cell=found.cell, label=found.label, metric=name, points=points)
            )
    return tuple(curves)


def metric_rows(
    found: Measured,
    cells: Sequence[Measured],
    metrics: Mapping[Cell, Seeds],
    target: tuple[str, float] | None,
) -> list[MetricRow]:
    """Return a cell's metrics at the end of training, compared with the fewest workers."""
    rows = []
    for name, seeds in sorted(metrics.get(found.cell, {}).items()):
        base = baseline(found, cells, metrics, name)
        reference = [] if base is None else finals(metrics[base.cell][name])
        goal = target[1] if target and target[0] == name else None
        rows.append(_row(found, name, seeds, reference, base is None, goal))
    return rows


def baseline(
    found: Measured, cells: Sequence[Measured], metrics: Mapping[Cell, Seeds], name: str
) -> Measured | None:
    """Return the cell with fewer workers to compare with; None when this one has the fewest.

    The same parameters and device are a must; the same batch per worker is preferred to the same
    global batch, and that to any other.
    """
    candidates = [
        other
        for other in cells
        if name in metrics.get(other.cell, {})
        and other.cell.workers < found.cell.workers
        and other.cell.params == found.cell.params
        and other.cell.device == found.cell.device
    ]
    if not candidates:
        return None
    return min(
        candidates,
        key=lambda other: (
            other.cell.workers,
            other.worker_batch != found.worker_batch,
            other.global_batch != found.global_batch,
        ),
    )


def finals(seeds: Sequence[Series]) -> list[float]:
    """Return the finite values at the end, one per seed.

    Seeds without any effect are one run, however often it was made.
    """
    values = [series.final for series in seeds if math.isfinite(series.final)]
    return values[:1] if seeds_alike(seeds) else values


def seeds_alike(seeds: Sequence[Series]) -> bool:
    """Tell whether all seeds gave the very same values: the script does not use them."""
    return len(seeds) > 1 and len({series.values for series in seeds}) == 1


def compare_finals(
    values: Sequence[float],
    reference: Sequence[float],
    diverged: int,
    *,
    higher: bool,
    margin: float,
) -> AccuracyVerdict:
    """Judge the ends of training: same within the margin, clearly better or worse, or neither."""
    if diverged and reference:
        return "worse"
    if not values or not reference:
        return "inconclusive"
    found = relation(values, reference, margin=margin, least=LEAST_SEEDS)
    if found == "same":
        return "same"
    if found == "cannot_tell":
        return "inconclusive"
    return "better" if (found == "higher") is higher else "worse"


def _row(
    cell: Measured,
    name: str,
    seeds: Sequence[Series],
    reference: Sequence[float],
    is_base: bool,
    goal: float | None,
) -> MetricRow:
    values = finals(seeds)
    diverged = sum(not math.isfinite(series.final) for series in seeds)
    higher = higher_is_better(name) is not False
    margin = margin_of(name, [*values, *reference])
    stable = [_stable(series, higher, margin) for series in seeds]
    rising = sum(still_improving(series, higher=higher, margin=margin) for series in seeds)
    told = [epoch for one in cell.launches if (epoch := stated(one, "stable_epoch")) is not None]
    target = [reach(series, goal, higher=higher) for series in seeds] if goal is not None else []
    return MetricRow(
        cell=cell.cell,
        label=cell.label,
        metric=name,
        higher_is_better=higher,
        final=mean(values) if values else None,
        seeds=len(seeds),
        diverged=diverged,
        difference=welch(values, reference) if values and reference else None,
        margin=margin,
        verdict=None
        if is_base
        else compare_finals(values, reference, diverged, higher=higher, margin=margin),
        stable_epoch=median(told) if told else kaplan_meier_median(stable),
        stable_s=_median_time(stable),
        censored=0 if told else sum(one.epoch is None for one in stable),
        target=goal,
        target_epoch=kaplan_meier_median(target) if target else None,
        target_s=_median_time(target),
        target_reached=sum(one.epoch is not None for one in target),
        seeds_alike=seeds_alike(seeds),
        rising=rising,
    )


def still_improving(series: Series, *, higher: bool, margin: float) -> bool:
    """Tell whether the last three evaluations are better than the three before, and still rise.

    Better by more than their noise (two standard deviations) and than half of the margin; of a
    straight line, the last three have two thirds of that gain among them.
    """
    finite = [value for value in series.values if math.isfinite(value)]
    if len(finite) < 2 * WINDOW or series.by_step:
        return False
    values = finite if higher else [-value for value in finite]
    gain = median(values[-WINDOW:]) - median(values[-2 * WINDOW : -WINDOW])
    clear = gain > max(2 * evaluation_spread(values), margin / 2)
    return clear and values[-1] - values[-WINDOW] > gain / 3


def _stable(series: Series, higher: bool, margin: float) -> Reached:
    finite = [value for value in series.values if math.isfinite(value)]
    rising = still_improving(series, higher=higher, margin=margin)
    if len(finite) < 2 * WINDOW or series.by_step or rising:
        # Too short to have a plateau, not there yet, or a value per step, which is no evaluation.
        return Reached(epoch=None, time_s=None, censored_at=series.epochs[-1])
    return reach(series, plateau(finite, higher=higher), higher=higher)


def _median_time(reached: Sequence[Reached]) -> float | None:
    """Return the Kaplan-Meier median of the times; None where a time is not known."""
    if any(one.epoch is not None and one.time_s is None for one in reached):
        return None
    longest = max((one.time_s for one in reached if one.time_s is not None), default=0.0)
    return kaplan_meier_median(
        [
            Reached(epoch=one.time_s, time_s=None, censored_at=longest + 1.0)
            if one.epoch is not None
            else Reached(epoch=None, time_s=None, censored_at=longest + 1.0)
            for one in reached
        ]
    )


def _point(epoch: float, values: Sequence[tuple[float, float | None]]) -> MetricPoint:
    times = [time_s for _, time_s in values if time_s is not None]
    return MetricPoint(
        epoch=epoch,
        value=mean([value for value, _ in values]),
        time_s=sum(times) / len(times) if times else None,
        seeds=len(values),
    )


def _thinned(series: Series) -> list[tuple[float, float, float | None]]:
    points = list(zip(series.epochs, series.values, series.times_s, strict=True))
    stride = math.ceil(len(points) / _POINTS)
    return points[::stride] if stride > 1 else points


def with_times(row: MetricRow, job: JobTime | None) -> MetricRow:
    """Fill in times that were not recorded: epochs x time of an epoch, without the fixed time."""
    if job is None or job.epoch_s is None:
        return row
    epoch_s = job.epoch_s.value
    stable, target = row.stable_s, row.target_s
    if stable is None and row.stable_epoch is not None:
        stable = row.stable_epoch * epoch_s
    if target is None and row.target_epoch is not None:
        target = row.target_epoch * epoch_s
    return replace(row, stable_s=stable, target_s=target)


def accuracy_time(
    cells: Sequence[Measured], curve: Curve, jobs: Mapping[Cell, JobTime | None], seeds: int
) -> str:
    """Say what accuracy runs of a curve would take: `about 14 min`, `about 20 s per epoch`.

    A script that came to its end tells by itself. Of one that was ended after an epoch its command
    may say how many there are; otherwise only what each of them takes is known. Empty when not even
    that is.
    """
    measured = [next(c for c in cells if c.cell == point.cell) for point in curve.points]
    whole = [_whole_s(found, jobs.get(found.cell)) for found in measured]
    if None not in whole:
        minutes = seeds * sum(length or 0.0 for length in whole) / 60
        return f"about {max(1, round(minutes))} min"
    each = [_epoch_s(jobs.get(found.cell)) for found in measured]
    if None in each:
        return ""
    seconds = seeds * sum(length or 0.0 for length in each)
    if seconds < 90:
        return f"about {max(1, round(seconds))} s per epoch"
    return f"about {round(seconds / 60)} min per epoch"


def epochs_in(argv: Sequence[str]) -> int | None:
    """Return how many epochs a command asks for by a flag of the usual names."""
    for part, following in itertools.pairwise([*argv, ""]):
        match = _EPOCHS.fullmatch(part.lower())
        if match is None:
            continue
        text = match[1] or (following if part.startswith("-") else "")
        if text.isdecimal() and int(text):
            return int(text)
    return None


def _whole_s(found: Measured, job: JobTime | None) -> float | None:
    lengths = [one.wall_s for one in found.launches if one.outcome == "ok" and one.wall_s]
    if lengths:
        return max(lengths)
    epochs = next((number for one in found.launches if (number := epochs_in(one.argv))), None)
    each = _epoch_s(job)
    if epochs is None or each is None or job is None:
        return None
    return (job.startup_s or 0.0) + epochs * each


def _epoch_s(job: JobTime | None) -> float | None:
    """Return what an epoch takes, with the validation and the checkpoint that belong to it."""
    if job is None or job.job_s is None or not job.epochs:
        return None
    return (job.job_s.value - (job.startup_s or 0.0)) / job.epochs
