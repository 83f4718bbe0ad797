"""What the report of a lab is made from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from farandole.labs.lab import Answered, Asked, Correction, DataFacts, Plan
from farandole.model.info.scaling import ScalingInfo
from farandole.version import __version__

_MOST_LEADING = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class LabReport:
    """Everything that the report of one lab shows."""

    name: str
    title: str
    asked: Asked
    data: DataFacts
    plan: Plan
    answered: tuple[Answered, ...]
    """In the lab's order."""
    corrections: tuple[Correction, ...]
    published: Mapping[str, ScalingInfo]
    """By the name of the file in labs/published/."""
    studies: Mapping[str, ScalingInfo]
    """By `Planned.name`; one that could not be made is not there."""
    created: str
    """ISO 8601, UTC."""
    command: tuple[str, ...]
    """`farandole lab ...` as the user gave it."""
    leading: tuple[str, ...] = ()
    """Keys of the questions whose first sentence opens the report; empty: the first three."""
    beside: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """By name of a published file: the studies to draw beside it. For one that is not named:
    those whose name its own ends with ("cifar10_speedup": "speedup"), or else all."""
    notes: tuple[str, ...] = ()
    """What could not be made or was left out, in sentences."""
    version: str = __version__

    @property
    def headline(self) -> tuple[str, ...]:
        """The first sentence of each of the most important answers."""
        by_key = {one.question.key: one for one in self.answered}
        chosen = [by_key[key] for key in self.leading if key in by_key]
        chosen = chosen or [one for one in self.answered if one.sentences][:_MOST_LEADING]
        return tuple(one.sentences[0] for one in chosen if one.sentences)


def missing_answers(report: LabReport) -> list[str]:
    """Return the keys of the questions whose own table is not there, or has no figure in it."""
    return [one.question.key for one in report.answered if not _told(one)]


def _told(answered: Answered) -> bool:
    own = answered.tables[0] if answered.tables else None
    if own is None:
        return False
    return any(cell not in (None, "") for row in own.rows for cell in row)
