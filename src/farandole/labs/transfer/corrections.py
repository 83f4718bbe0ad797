"""What both labs on transfer learning got wrong, and the right account of it."""

from __future__ import annotations

from farandole.format import listed, plural
from farandole.labs.averaging import shown_by
from farandole.labs.columns import four
from farandole.labs.keeping import trained
from farandole.labs.lab import Correction, Found
from farandole.labs.transfer.kind import Kind
from farandole.labs.transfer.original import original_words
from farandole.labs.transfer.wrapped import same_batch_words, unwrapped_words, wrapped_example


def shared_corrections(found: Found, kind: Kind) -> tuple[Correction, ...]:
    """Return the corrections that hold for both labs."""
    return (averaging(found), wrapper(found), rates(found, kind))


def averaging(found: Found) -> Correction:
    """Say why accuracy falls with more workers."""
    return Correction(
        said="Accuracy falls with more workers because averaging weights loses precision.",
        right=(
            "Gradients are averaged, in every step, and that loses nothing: the mean of the "
            "workers' gradients is the gradient of one large batch. What changes is training: "
            "steps get fewer and larger, at a rate that was multiplied without a warm-up."
        ),
        shown_by=" ".join([*_averaged(found), *_steps(found), *same_batch_words(found)]),
    )


def wrapper(found: Found) -> Correction:
    """Show what would have happened without the line that the excerpt lacks."""
    return Correction(
        said="The code excerpt wraps no optimizer, although the text says that it was wrapped.",
        right=(
            "Had the DistributedOptimizer been missing, nothing would have been averaged: every "
            "GPU would have trained a network of its own, on its part of the data."
        ),
        shown_by=" ".join([*_averaged(found), *unwrapped_words(found)]),
    )


def rates(found: Found, kind: Kind) -> Correction:
    """Show what the rates of the original do."""
    told = original_words(found, kind)
    return Correction(
        said=f"The optimizer was used with a large rate ({kind.optimizer}).",
        right=(
            "Such a rate usually does not train at all. A rate is first chosen for one worker, and "
            "multiplied by the workers after that, with a warm-up."
        ),
        shown_by=f"Here {listed(told)}." if told else "The original's rate was not tried here.",
    )


def _averaged(found: Found) -> list[str]:
    example = wrapped_example(found)
    if example is None:
        return ["No launch on several workers ran to its end here."]
    return [f"Here, {shown_by(example.moved)}."]


def _steps(found: Found) -> list[str]:
    """Say how many steps were counted, and what accuracy came of them."""
    told = [
        f"{row.setting.counted:,} steps of {row.setting.global_batch} samples on "
        f"{plural(row.setting.workers, 'worker')} (accuracy {four(row.accuracy.value)})"
        for row in trained(found, ("workers",))
        if row.setting.counted is not None
    ]
    return [f"Counted: {listed(told)}."] if told else []
