"""The mnist lab's questions answered, in its order."""

from __future__ import annotations

from farandole.labs.lab import Answered, Found
from farandole.labs.mnist.accuracy import answer_best, answer_keeping
from farandole.labs.mnist.bottlenecks import answer_bottlenecks
from farandole.labs.mnist.steps import answer_steps
from farandole.labs.mnist.two_nodes import answer_two_nodes
from farandole.labs.mnist.utilisation import answer_utilisation
from farandole.labs.mnist.workers import answer_workers


def answer(found: Found) -> tuple[Answered, ...]:
    """Answer every question from what the studies found."""
    return (
        answer_utilisation(found),
        answer_steps(found),
        answer_workers(found),
        answer_bottlenecks(found),
        answer_two_nodes(found),
        answer_keeping(found),
        answer_best(found),
    )
