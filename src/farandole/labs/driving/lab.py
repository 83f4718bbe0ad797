"""The driving lab as `farandole lab` knows it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from farandole.labs.driving import plan as plans
from farandole.labs.driving.questions import QUESTIONS
from farandole.labs.lab import Answered, Asked, Correction, DataFacts, Found, Plan, Planned, Rate


@dataclass(frozen=True, slots=True)
class DrivingLab:
    """A data set too small to scale, and from which size on workers would pay."""

    name = "driving"
    title = "driving: a data set too small to scale"
    line = "time and loss by workers, why more do not pay, and from which size on they would"
    questions = QUESTIONS
    published = ("driving",)
    leading = ("verdict", "size", "workers")
    efforts = len(plans.LADDER)

    def data(self, asked: Asked) -> DataFacts:
        """Look at the data as a whole."""
        from farandole.labs.data import describe_driving

        return describe_driving(asked.data)

    def pilot(self, asked: Asked) -> tuple[Planned, ...]:
        """Return the study that measures one worker's rate."""
        return plans.pilot(asked)

    def plan(self, asked: Asked, data: DataFacts, rates: Mapping[str, Rate], effort: int) -> Plan:
        """Return the studies of a size."""
        return plans.plan(asked, data, rates, effort)

    def answer(self, found: Found) -> tuple[Answered, ...]:
        """Answer every question, in order."""
        from farandole.labs.driving.answers import answer

        return answer(found)

    def corrections(self, found: Found) -> tuple[Correction, ...]:
        """Say what the original got wrong."""
        from farandole.labs.driving.corrections import corrections

        return corrections(found)


LAB = DrivingLab()
