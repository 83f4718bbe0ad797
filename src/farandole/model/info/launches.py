"""Every cell and every launch of a study, one row each."""

from __future__ import annotations

from dataclasses import dataclass

from farandole.model.statistics import Estimate
from farandole.study.records import Cell


@dataclass(frozen=True, slots=True, kw_only=True)
class CellRow:
    """One cell with all that was measured of its speed."""

    cell: Cell
    label: str
    launches: int
    """That count for speed."""
    attempts: int
    step_s: Estimate | None
    throughput: Estimate | None
    unit: str
    failed: str
    """Why no launch of it ended well; empty when one did."""
    void_for_speed: str
    """E.g. more ranks than cores; empty when its speed counts."""
    gradient_bytes: int | None
    parameters: int | None
    steps_per_epoch: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchRow:
    """One launch: whether its speed was kept, and why not."""

    id: str
    cell: Cell
    label: str
    purpose: str
    outcome: str
    repeat: int
    seed: int | None
    kept: bool
    why: str
    """Why its speed was left out; empty when kept."""
    outlier: bool
    """Flagged, and kept all the same."""
    steps: int
    """That were recorded: with `--steps 20` these are 20."""
    counted_steps: int
    """That entered its figure."""
    warmup_steps: int
    """Dropped at the begin."""
    step_s: float | None
    throughput: float | None
    unit: str
    wall_s: float | None
    started: str
