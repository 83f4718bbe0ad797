"""Gradient noise of a cell."""

from __future__ import annotations

from dataclasses import dataclass

from farandole.model.noise import NoiseScale
from farandole.study.records import Cell


@dataclass(frozen=True, slots=True, kw_only=True)
class NoiseRow:
    """How far the gradients of a cell's workers scatter."""

    cell: Cell
    label: str
    noise: NoiseScale
    global_batch: float
    """Mean samples per step, of all workers."""
    launches: int
    buckets: tuple[NoiseScale | None, ...]
    """Of each gradient bucket alone; None where too few steps were sampled."""
