"""The faces lab's questions answered, in its order."""

from __future__ import annotations

from farandole.labs.faces.accuracy import answer_accuracy
from farandole.labs.faces.batch import answer_batch
from farandole.labs.faces.order import answer_order
from farandole.labs.faces.scaling import answer_strong, answer_weak
from farandole.labs.faces.split import answer_split
from farandole.labs.faces.technologies import answer_technologies
from farandole.labs.faces.why import answer_why
from farandole.labs.lab import Answered, Found


def answer(found: Found) -> tuple[Answered, ...]:
    """Answer every question from what the studies found."""
    return (
        answer_technologies(found),
        answer_split(found),
        answer_batch(found),
        answer_weak(found),
        answer_strong(found),
        answer_why(found),
        answer_order(found),
        answer_accuracy(found),
    )
