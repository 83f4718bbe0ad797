"""The cifar10 lab as `farandole lab` knows it."""

from __future__ import annotations

from collections.abc import Mapping

from farandole.labs.cifar10.choices import choices
from farandole.labs.cifar10.effort import LADDER, effort_of
from farandole.labs.cifar10.plan import pilot, studies
from farandole.labs.cifar10.questions import QUESTIONS
from farandole.labs.lab import Asked, DataFacts, Lab, Plan, Rate, on_use


def plan(asked: Asked, data: DataFacts, rates: Mapping[str, Rate], effort: int) -> Plan:
    """Return the studies of a size, with what they choose."""
    return Plan(
        studies=studies(asked, data, rates, effort),
        choices=choices(asked, data, effort_of(asked, effort)),
    )


LAB = Lab(
    name="cifar10",
    title="cifar10: where the time goes",
    line="ResNet-18 by batch and workers, communication measured, large batches, batch norm",
    questions=QUESTIONS,
    published=("cifar10_batch", "cifar10_speedup", "cifar10_communication", "cifar10_accuracy"),
    leading=("speedup", "communication", "accuracy"),
    efforts=len(LADDER),
    data=on_use("data:describe_cifar10"),
    pilot=pilot,
    plan=plan,
    answer=on_use("cifar10.answers:answer"),
    corrections=on_use("cifar10.corrections:corrections"),
)
