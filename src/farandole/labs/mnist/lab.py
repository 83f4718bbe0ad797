"""The mnist lab as `farandole lab` knows it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from farandole.labs.lab import Answered, Asked, Correction, DataFacts, Found, Plan, Planned, Rate
from farandole.labs.mnist import plan as plans
from farandole.labs.mnist.questions import QUESTIONS


@dataclass(frozen=True, slots=True)
class MnistLab:
    """Utilisation, efficiency and accuracy by workers, and what two nodes change."""

    name = "mnist"
    title = "mnist: utilisation, efficiency, two nodes"
    line = "utilisation by batch, time and accuracy on 1, 2, 4 workers, recipes that keep accuracy"
    questions = QUESTIONS
    published = ("mnist", "mnist_21_epochs", "mnist_two_nodes", "mnist_utilisation")
    leading = ("workers", "keeping_accuracy", "utilisation")
    efforts = len(plans.LADDER)

    def data(self, asked: Asked) -> DataFacts:
        """Look at the data as a whole."""
        from farandole.labs.data import describe_mnist

        return describe_mnist(asked.data)

    def pilot(self, asked: Asked) -> tuple[Planned, ...]:
        """Return the study that measures one worker's rate."""
        return plans.pilot(asked)

    def plan(self, asked: Asked, data: DataFacts, rates: Mapping[str, Rate], effort: int) -> Plan:
        """Return the studies of a size."""
        return plans.plan(asked, data, rates, effort)

    def answer(self, found: Found) -> tuple[Answered, ...]:
        """Answer every question, in order."""
        from farandole.labs.mnist.answers import answer

        return answer(found)

    def corrections(self, found: Found) -> tuple[Correction, ...]:
        """Say what the original got wrong."""
        from farandole.labs.mnist.corrections import corrections

        return corrections(found)


LAB = MnistLab()
