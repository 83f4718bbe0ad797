"""Throughput by processes x threads."""

from __future__ import annotations

from dataclasses import dataclass

from farandole.model.statistics import Estimate
from farandole.study.records import Cell


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitPoint:
    """One way to share the cores among processes and threads."""

    cell: Cell
    workers: int
    threads: int
    throughput: Estimate
    today: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitTable:
    """Throughput by processes x threads at one global batch, or at one batch of a worker."""

    group: str
    label: str
    unit: str
    points: tuple[SplitPoint, ...]
    best: tuple[int, int] | None
    """(workers, threads)"""
    sentence: str
