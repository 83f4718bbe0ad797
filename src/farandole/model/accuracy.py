"""Metrics by workers, over seeds: curves, ends, differences, epochs and time to get there."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Literal

from farandole.errors import UsageError
from farandole.model.jobs import JobTime
from farandole.model.measured import Measured, stated
from farandole.model.metrics import (
    WINDOW,
    Reached,
    Series,
    evaluation_spread,
    higher_is_better,
    kaplan_meier_median,
    main_metric,
    mean_of_seeds,
    plateau,
    reach,
    series_of,
)
from farandole.model.statistics import (
    ACCURACY_MARGIN,
    LEAST_SEEDS,
    SPEED_MARGIN,
    Estimate,
    difference,
    known_mean,
    relation,
)
from farandole.study.records import Cell

AccuracyVerdict = Literal["same", "worse", "better", "inconclusive", "not_measured"]
Seeds = dict[str, list[Series]]
_POINTS = 300
"""Of a metric curve: a value per step is thinned to so many."""


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
        return self.difference.half_width if self.difference else None


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
            values = list(zip(series.epochs, series.values, series.times_s, strict=True))
            for epoch, value, time_s in values[:: math.ceil(len(values) / _POINTS)]:
                if math.isfinite(value):
                    by_epoch.setdefault(epoch, []).append((value, time_s))
        points = tuple(
            MetricPoint(
                epoch=epoch,
                value=mean_of_seeds(name, [value for value, _ in values]),
                time_s=known_mean(time_s for _, time_s in values),
                seeds=len(values),
            )
            for epoch, values in sorted(by_epoch.items())
        )
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
    job: JobTime | None = None,
) -> tuple[MetricRow, ...]:
    """Return a cell's metrics at the end of training, compared with the fewest workers.

    Times that were not recorded are epochs x the job's time of an epoch, without the fixed time.
    """
    epoch_s = job.epoch_s.value if job and job.epoch_s else None
    claims = [claim for one in found.launches if (claim := stated(one, "stable_epoch"))]
    rows = []
    for name, seeds in sorted(metrics.get(found.cell, {}).items()):
        base = baseline(found, cells, metrics, name)
        reference = [] if base is None else finals(metrics[base.cell][name])
        values = finals(seeds)
        diverged = sum(not math.isfinite(series.final) for series in seeds)
        higher = higher_is_better(name) is not False
        margin = margin_of(name, [*values, *reference])
        stable = [when_stable(series, higher, margin) for series in seeds]
        stable_epoch = median(claims) if claims else kaplan_meier_median(stable)
        goal = target[1] if target and target[0] == name else None
        reached = [] if goal is None else [reach(one, goal, higher=higher) for one in seeds]
        goal_epoch = kaplan_meier_median(reached)
        verdict = compare_finals(values, reference, diverged, higher=higher, margin=margin)
        rows.append(
            MetricRow(
                cell=found.cell,
                label=found.label,
                metric=name,
                higher_is_better=higher,
                final=mean_of_seeds(name, values) if values else None,
                seeds=len(seeds),
                diverged=diverged,
                difference=difference(values, reference) if values and reference else None,
                margin=margin,
                verdict=None if base is None else verdict,
                stable_epoch=stable_epoch,
                stable_s=_median_time(stable, stable_epoch, epoch_s),
                censored=0 if claims else sum(one.epoch is None for one in stable),
                target=goal,
                target_epoch=goal_epoch,
                target_s=_median_time(reached, goal_epoch, epoch_s),
                target_reached=sum(one.epoch is not None for one in reached),
                seeds_alike=seeds_alike(seeds),
                rising=sum(still_improving(one, higher=higher, margin=margin) for one in seeds),
            )
        )
    return tuple(rows)


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
    return min(
        candidates,
        key=lambda other: (
            other.cell.workers,
            other.worker_batch != found.worker_batch,
            other.global_batch != found.global_batch,
        ),
        default=None,
    )


def finals(seeds: Sequence[Series]) -> list[float]:
    """Return the finite values at the end, one per seed; seeds without any effect are one run."""
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
    found = "cannot_tell"
    if values and reference:
        found = relation(values, reference, margin=margin, least=LEAST_SEEDS)
    if found in ("same", "cannot_tell"):
        return "same" if found == "same" else "inconclusive"
    return "better" if (found == "higher") is higher else "worse"


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


def when_stable(series: Series, higher: bool, margin: float) -> Reached:
    """Find the evaluation from which one run's metric is at the level where it ends."""
    finite = [value for value in series.values if math.isfinite(value)]
    rising = still_improving(series, higher=higher, margin=margin)
    if len(finite) < 2 * WINDOW or series.by_step or rising:
        # Too short to have a plateau, not there yet, or a value per step, which is no evaluation.
        return Reached(epoch=None, time_s=None, censored_at=series.epochs[-1])
    return reach(series, plateau(finite, higher=higher), higher=higher)


def _median_time(
    reached: Sequence[Reached], median_epoch: float | None, epoch_s: float | None
) -> float | None:
    """Return the Kaplan-Meier median of the times; by epochs where a time is not known."""
    times = [one.time_s for one in reached if one.epoch is not None]
    known = [time_s for time_s in times if time_s is not None]
    found = None
    if len(known) == len(times):
        after = max(known, default=0.0) + 1.0
        found = kaplan_meier_median(
            [replace(r, epoch=r.time_s, censored_at=after) for r in reached]
        )
    if found is None and median_epoch is not None and epoch_s is not None:
        return median_epoch * epoch_s
    return found
