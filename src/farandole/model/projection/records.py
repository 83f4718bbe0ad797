"""What projections are made from and what they say, as plain records.

`fit_steps` (steps/ensemble.py) makes a StepFit of StepRows, `fit_epochs` (epochs/curve.py) an
EpochFit of EpochRows; `project` (project.py) joins the two. Intervals are of 90 %.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

LEAST_ROWS = 3
"""Step times; fewer say nothing that could be projected."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepRow:
    """How long a step of one model took in one launch."""

    workers: int
    hosts: int
    batch: int
    """Per worker."""
    step_s: float
    sync_s: float | None = None
    """What of it training waited for gradients; None where nobody measured it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochRow:
    """How many epochs one run took to the target."""

    global_batch: int
    epochs: float
    reached: bool = True
    """False: it ended before the target; `epochs` is a lower bound."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Projected:
    """A figure that nobody measured, with its 90 % interval."""

    value: float
    low: float
    high: float
    ratio: float
    """How far beyond the largest measured one: 4.0 for 16 workers from 4; 1.0 or less inside."""
    indicative: bool = False
    """Beyond 16 times the measured size: low and high are bounds, the value is no estimate."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkSpeed:
    """What connects hosts, or the workers of one."""

    name: str
    """As the user wrote it: "25Gbit"."""
    bytes_per_s: float
    latency_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Bucket:
    """One gradient bucket of a step, in the order in which buckets are reduced."""

    bytes: int
    ready_s: float
    """Computing alone; from the begin of computing, forward included, unless it says otherwise."""


class StepFit(Protocol):
    """A model's step time as a function of workers, hosts and batch."""

    @property
    def forms(self) -> tuple[tuple[str, float], ...]:
        """Names of the forms and their weights, the heaviest first."""
        ...

    @property
    def assumptions(self) -> tuple[str, ...]:
        """In sentences: what was not measured and had to be taken for granted."""
        ...

    def at(self, workers: int, hosts: int, batch: int) -> Projected:
        """Return the seconds of a step."""
        ...


class EpochFit(Protocol):
    """Epochs to the target as a function of the global batch."""

    @property
    def critical_batch(self) -> Projected | None:
        """Where twice the epochs of a small batch are needed; None when nothing tells."""
        ...

    @property
    def assumptions(self) -> tuple[str, ...]:
        """In sentences: what was not measured and had to be taken for granted."""
        ...

    def at(self, global_batch: int) -> Projected:
        """Return the epochs that a global batch needs."""
        ...
