"""How busy workers were, on average and over time."""

from __future__ import annotations

from dataclasses import dataclass

from farandole.study.records import Cell


@dataclass(frozen=True, slots=True, kw_only=True)
class UtilisationRow:
    """What the workers of a cell used, on average and at most."""

    cell: Cell
    label: str
    cpu: float | None
    """Mean share of its threads that a worker kept busy (of one core where threads are unknown)."""
    gpu: float | None
    memory_bytes: float | None
    """Largest high-water mark of any worker."""
    gpu_memory_bytes: float | None
    energy_j: float | None
    by_rank: tuple[tuple[int, float | None, float | None, float | None], ...]
    """(rank, cpu, gpu, memory bytes)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UtilisationSeries:
    """One worker's utilisation over time, thinned to at most 200 points."""

    cell: Cell
    label: str
    launch: str
    rank: int
    time_s: tuple[float, ...]
    cpu: tuple[float | None, ...]
    gpu: tuple[float | None, ...]
    memory_bytes: tuple[float | None, ...]
