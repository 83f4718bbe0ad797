"""The questions of a lab on transfer learning answered, in their order."""

from __future__ import annotations

from farandole.labs.keeping import answer_keeping
from farandole.labs.lab import Answered, Found
from farandole.labs.transfer.curves import answer_accuracy
from farandole.labs.transfer.kind import Kind
from farandole.labs.transfer.original import answer_original
from farandole.labs.transfer.overfitting import answer_overfitting
from farandole.labs.transfer.questions import KEEPING_ACCURACY
from farandole.labs.transfer.sixteen import answer_sixteen
from farandole.labs.transfer.stable import answer_soonest, answer_stable
from farandole.labs.transfer.times import answer_times
from farandole.labs.transfer.utilisation import answer_utilisation
from farandole.labs.transfer.wrapped import answer_wrapped


def answer(kind: Kind, found: Found) -> tuple[Answered, ...]:
    """Answer every question from what the studies found."""
    return (
        answer_times(found, kind),
        answer_accuracy(found, kind),
        answer_utilisation(found),
        answer_overfitting(found, kind),
        answer_stable(found, kind),
        answer_soonest(found, kind),
        answer_keeping(found, KEEPING_ACCURACY),
        answer_original(found, kind),
        answer_wrapped(found),
        answer_sixteen(found, kind),
    )
