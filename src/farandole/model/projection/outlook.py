"""What a projection says, as plain records that the report draws and tabulates.

Times are in seconds, rates per second, money in the currency of the price. Intervals are of 90 %:
those of measured rows over launches and runs. None stands for "not known".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from farandole.model.info.curve import Scaling
from farandole.model.projection.records import Projected

Limit = Literal["compute", "communication", "input", "epochs", "fixed_cost"]

GoalKind = Literal["target", "stable", "epochs", "job", "epoch"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Goal:
    """Where a time ends."""

    kind: GoalKind
    words: str
    """After a time: "to val_accuracy 0.98", "for 40 epochs"."""
    metric: str | None = None
    value: float | None = None
    epochs: float | None = None
    """Where it is a number of epochs, the same at every batch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outlook:
    """What one number of workers gives, on one kind of link."""

    workers: int
    hosts: int
    link: str | None
    """None: as measured, no other link is needed."""
    batch: int | None
    """Per worker and backward pass."""
    global_batch: int | None
    measured: bool
    step_s: Projected | None
    """None where steps cannot be told from epochs: an imported table without a data set's size."""
    throughput: Projected
    speedup: Projected
    """Over the smallest measured count, of throughput."""
    epoch_s: Projected | None
    epochs: Projected | None
    """To the goal."""
    time_s: Projected | None
    """To the goal, fixed times included."""
    cost: Projected | None
    """Of that time, whole hosts billed."""
    metric: Projected | None
    """At the epochs of the measured runs."""
    limited_by: Limit
    parts: Mapping[str, float]
    """Shares of the time: compute, communication, input (what loaders hold steps up for, beyond
    what measured steps waited), epochs (more than the smallest count needs), fixed_cost. They add
    up to 1."""

    @property
    def indicative(self) -> bool:
        """Whether its speed, its time or its cost has bounds only: workers or batch are far off."""
        figures = (self.throughput, self.time_s, self.cost)
        return any(figure is not None and figure.indicative for figure in figures)


@dataclass(frozen=True, slots=True, kw_only=True)
class Recommendation:
    """How many workers to use, by one rule, and why."""

    rule: Literal["knee", "deadline", "budget"]
    workers: int | None
    """None when no count meets the rule."""
    link: str | None
    sentence: str


@dataclass(frozen=True, slots=True, kw_only=True)
class OfferOutlook:
    """What one offer gives."""

    name: str
    text: str
    """As the user wrote it."""
    speed: float
    """Of computing, over the measured machine's."""
    outlook: Outlook


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetOutlook:
    """All workers of a fleet, shared out among jobs of one size."""

    workers: int
    """Of one job."""
    jobs: int
    """At once."""
    link: str | None
    """Between the hosts of one job; None: as measured, no other link is needed."""
    time_s: Projected
    """Of one job."""
    per_day: Projected
    """Jobs that all of the fleet finishes in a day."""
    cost: Projected | None
    """Of one job."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NextStep:
    """The cheapest measurement that would narrow a projection."""

    sentence: str
    spec: Mapping[str, object] | None
    """What to change in the study's spec; None when no launch of it is needed."""
    command: str = ""
    """In place of a study's: a command as it stands."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Projection:
    """Everything that a projection says."""

    headline: str
    sentences: tuple[str, ...]
    goal: Goal | None
    """None: neither an epoch's time nor the number of samples is known, so only speed is."""
    scaling: Scaling
    group: str
    """Which of the study's cells it stands on, in words; "" when there is one group."""
    device: str
    recipe: str
    """Of the learning rate, which the epochs assume."""
    metric: str | None
    unit: str
    """Of the throughput."""
    measured_workers: tuple[int, ...]
    per_host: int
    price: str
    """As the user wrote it; "" without one."""
    rows: tuple[Outlook, ...]
    """Measured ones first, then what was asked for, by link and workers."""
    curve: tuple[Outlook, ...]
    """More counts in between, for drawing."""
    recommendations: tuple[Recommendation, ...]
    offers: tuple[OfferOutlook, ...]
    offers_sentence: str
    fleet: tuple[FleetOutlook, ...]
    fleet_sentence: str
    forms: tuple[tuple[str, float], ...]
    """Of the step time, with their weights."""
    critical_batch: Projected | None
    assumptions: tuple[str, ...]
    next: NextStep
    track_record: str
    """How right such projections were on public clusters at this distance."""
