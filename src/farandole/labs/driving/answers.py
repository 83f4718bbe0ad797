"""The driving lab's questions answered, in its order."""

from __future__ import annotations

from farandole.labs.averaging import answer_averaging
from farandole.labs.driving.questions import AVERAGING
from farandole.labs.driving.ranks import answer_ranks
from farandole.labs.driving.size import answer_size
from farandole.labs.driving.verdict import answer_verdict
from farandole.labs.driving.workers import answer_workers
from farandole.labs.lab import Answered, Found


def answer(found: Found) -> tuple[Answered, ...]:
    """Answer every question from what the studies found."""
    return (
        answer_workers(found),
        answer_verdict(found),
        answer_size(found),
        answer_ranks(found),
        answer_averaging(found, AVERAGING),
    )
