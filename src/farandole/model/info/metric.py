"""Metrics by epoch, at the end of training, and compared with fewer workers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from farandole.model.statistics import Estimate
from farandole.study.records import Cell

AccuracyVerdict = Literal["same", "worse", "better", "inconclusive", "not_measured"]


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
