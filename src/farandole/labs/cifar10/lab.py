"""The cifar10 lab as `farandole lab` knows it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from farandole.labs.cifar10 import plan as plans
from farandole.labs.cifar10.choices import choices
from farandole.labs.cifar10.effort import LADDER, effort_of
from farandole.labs.cifar10.questions import QUESTIONS
from farandole.labs.lab import Answered, Asked, Correction, DataFacts, Found, Plan, Planned, Rate


@dataclass(frozen=True, slots=True)
class Cifar10Lab:
    """Where the time of a step goes, and what a large batch does to accuracy."""

    name = "cifar10"
    title = "cifar10: where the time goes"
    line = "ResNet-18 by batch and workers, communication measured, large batches, batch norm"
    questions = QUESTIONS
    published = ("cifar10_batch", "cifar10_speedup", "cifar10_communication", "cifar10_accuracy")
    leading = ("speedup", "communication", "accuracy")
    efforts = len(LADDER)

    def data(self, asked: Asked) -> DataFacts:
        """Look at the data as a whole."""
        from farandole.labs.data import describe_cifar10

        return describe_cifar10(asked.data)

    def pilot(self, asked: Asked) -> tuple[Planned, ...]:
        """Return the studies that measure one worker's rates, of both networks."""
        return plans.pilot(asked)

    def plan(self, asked: Asked, data: DataFacts, rates: Mapping[str, Rate], effort: int) -> Plan:
        """Return the studies of a size."""
        return Plan(
            studies=plans.studies(asked, data, rates, effort),
            choices=choices(asked, data, effort_of(asked, effort)),
        )

    def answer(self, found: Found) -> tuple[Answered, ...]:
        """Answer every question, in order."""
        from farandole.labs.cifar10.answers import answer

        return answer(found)

    def corrections(self, found: Found) -> tuple[Correction, ...]:
        """Say what the original got wrong."""
        from farandole.labs.cifar10.corrections import corrections

        return corrections(found)


LAB = Cifar10Lab()
