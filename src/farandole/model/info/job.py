"""Time and money of a whole job."""

from __future__ import annotations

from dataclasses import dataclass

from farandole.model.statistics import Estimate
from farandole.study.records import Cell


@dataclass(frozen=True, slots=True, kw_only=True)
class JobTime:
    """Job, epoch and fixed time of a cell."""

    cell: Cell
    label: str
    job_s: Estimate | None
    epochs: float | None
    """Of the job that was measured."""
    epoch_s: Estimate | None
    """One pass over the training data, measured or steps per epoch x step time."""
    epoch_measured: bool
    steps_per_epoch: int | None
    startup_s: float | None
    """From the launch to the first step."""
    between_s: float | None
    """Validation, checkpoints and whatever else lies between and after epochs, whole job."""
    fixed_s: float | None
    """job - epochs x epoch."""
    fixed_share: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """Money, at a price per worker and hour."""

    cell: Cell
    label: str
    price_per_worker_hour: float
    per_epoch: float | None
    job: float | None
    to_target: float | None
    per_million_samples: float | None
