"""Throughput against batch."""

from __future__ import annotations

from dataclasses import dataclass

from farandole.model.statistics import Estimate
from farandole.study.records import Cell


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchPoint:
    """One batch of a sweep."""

    cell: Cell
    batch: int
    throughput: Estimate | None
    """None when the cell failed."""
    step_s: Estimate | None
    cpu: float | None
    gpu: float | None
    failed: str
    """Why there is no figure; empty when there is one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchSweep:
    """Throughput against batch at a fixed number of workers."""

    group: str
    label: str
    workers: int
    unit: str
    points: tuple[BatchPoint, ...]
    best: int | None
    """The smallest batch that is not clearly slower than the fastest."""
    sentence: str
