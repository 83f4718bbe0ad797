"""What the answers about times share: places to look at, units, notes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from farandole.format import number, times, whole
from farandole.labs.cifar10.effort import LAB_SAMPLES
from farandole.labs.evidence import NO_INTERVALS, only, without_intervals
from farandole.model.info.curve import CurvePoint
from farandole.model.info.scaling import ScalingInfo
from farandole.model.statistics import Estimate
from farandole.report.table import Column

GB = 1e9
IMAGES = f"{LAB_SAMPLES:,} images"
BATCH = Column(key="batch", title="batch per worker", show=whole)
WORKERS = Column(key="workers", title="workers", show=whole)


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """One number of workers at one batch per worker."""

    workers: int
    batch: int


def places(*infos: ScalingInfo | None) -> list[Place]:
    """Return every batch and number of workers that one of the studies has."""
    found = {
        (row.cell.batch, row.cell.workers)
        for info in infos
        for row in (info.cells if info else ())
        if not row.cell.today and row.cell.batch is not None
    }
    return [Place(workers=workers, batch=batch) for batch, workers in sorted(found)]


def weak_points(info: ScalingInfo | None) -> list[CurvePoint]:
    """Return all points of curves with a fixed batch per worker, held against one worker."""
    return [
        point
        for curve in (info.curves if info else ())
        if curve.scaling == "weak" and curve.baseline_workers == 1
        for point in curve.points
        if point.valid and point.speedup is not None
    ]


def weak_point(info: ScalingInfo | None, place: Place) -> CurvePoint | None:
    """Return the point of one place."""
    return only(weak_points(info), workers=place.workers, batch=place.batch)


def alone(value: float | None) -> Estimate | None:
    """Return a figure without an interval as an estimate."""
    return None if value is None else Estimate(value=value, low=None, high=None)


def interval_note(estimates: Iterable[Estimate | None]) -> tuple[str, ...]:
    """Return the note of a table whose figures come from one launch each."""
    return (NO_INTERVALS,) if without_intervals(estimates) else ()


def plain(value: float | None) -> str:
    """Return a figure; nothing where the lab or this machine has no such cell."""
    return "" if value is None else number(value)


def factor(value: float | None) -> str:
    """Return a speedup; nothing where there is no such cell."""
    return "" if value is None else times(value)


def published(value: float | None) -> str:
    """Return a figure with the digits that it was published with; nothing where there is none."""
    return "" if value is None else f"{value:.10g}"


def four(value: float | None) -> str:
    """Return an accuracy with four decimals; nothing where there is none."""
    return "" if value is None else f"{value:.4f}"


def signed(value: float | None) -> str:
    """Return a difference of accuracies with its sign; nothing where there is none."""
    return "" if value is None else f"{value:+.4f}"


def value_of(estimate: Estimate | None) -> float:
    """Return the value of an estimate that is known to be there."""
    assert estimate is not None
    return estimate.value
