"""Throughput, speedup and efficiency by workers, and the laws fitted to them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from farandole.model.statistics import Estimate
from farandole.study.records import Cell

Scaling = Literal["strong", "weak"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CurvePoint:
    """One worker count on a curve."""

    cell: Cell
    workers: int
    batch: int | None
    """Per worker and backward pass."""
    global_batch: int | None
    throughput: Estimate
    speedup: Estimate | None
    """Against the curve's baseline; None when void."""
    efficiency: Estimate | None
    ideal_throughput: float
    ideal_speedup: float
    step_s: Estimate | None
    launches: int
    valid: bool
    """Whether its speed counts; else `why` says why not. Its speedup is not to be shown then."""
    why: str = ""
    accumulation: int = 1
    """Backward passes per step."""

    @property
    def worker_batch(self) -> int | None:
        """Samples per step of a worker."""
        return None if self.batch is None else self.batch * self.accumulation


@dataclass(frozen=True, slots=True, kw_only=True)
class LawFit:
    """A serial fraction fitted to a curve, and what it means in words."""

    law: Literal["amdahl", "gustafson"]
    serial_fraction: Estimate
    limit: float | None
    """Largest speedup that Amdahl's law leaves; None without a limit, and for Gustafson's."""
    sentence: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """Throughput, speedup and efficiency by workers, all other factors fixed."""

    scaling: Scaling
    group: str
    """The other factors in words, "" when there is only one group."""
    label: str
    """For a legend: group and batch."""
    batch: int | None
    """The fixed batch of a step: per worker (weak) or global (strong)."""
    unit: str
    """Of the throughput: samples/s, batches/s, epochs/s or jobs/s."""
    baseline_workers: int
    points: tuple[CurvePoint, ...]
    """By workers, ascending."""
    amdahl: LawFit | None
    gustafson: LawFit | None
    best_workers: int | None
    sentence: str
    main: bool = False
    """Whether the answer speaks of this curve."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Today:
    """One process with all cores, beside the answer."""

    cell: Cell
    throughput: Estimate
    unit: str
    gain: Estimate | None
    """Throughput of the answer's cell over today's."""
    sentence: str
