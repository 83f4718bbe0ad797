"""Marks of training: what ranks say between steps, so that a difference is found and named.

A rank that has ended its epoch waits for something else than a rank that trains on, and both would
wait for ever. So a mark travels where a gradient would: whoever is in a step meets it there.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from farandole.engine.buckets import REPLAN
from farandole.errors import StepsDifferError
from farandole.transport.reduction import Array

MARK = 4 | REPLAN
"""Flags of a bucket that carries a mark: odd, so that nothing is reduced."""
NOTE_BYTES = 16
"""Room that a mark needs in a bucket's note."""

_SAYS = (
    "at the begin of epoch {}",
    "at the end of the epoch, after {} steps",
    "done, after {} epochs",
)
BEGIN_EPOCH, END_EPOCH, END = range(3)


class Mark(NamedTuple):
    """Where a rank stands."""

    kind: int
    """BEGIN_EPOCH, END_EPOCH or END."""
    number: int
    """Of the epoch, of steps or of epochs."""

    def encode(self, note_bytes: int) -> Array:
        """Return it as a bucket's note."""
        note = np.zeros(note_bytes, np.uint8)
        note[:NOTE_BYTES] = np.array(self, np.int64).view(np.uint8)
        return note


def marks_of(answers: Sequence[tuple[int, Array]]) -> list[Mark | None] | None:
    """Return every rank's mark from a bucket's answers; None if nobody gave one."""
    if not any(flags & ~REPLAN & MARK for flags, _ in answers):
        return None
    return [_decode(note) if flags & ~REPLAN & MARK else None for flags, note in answers]


def check(marks: Sequence[Sequence[int] | None]) -> None:
    """Compare every rank's mark; None stands for a rank that goes on training.

    Raises:
        StepsDifferError: they are not all the same.
    """
    said = [None if mark is None else Mark(*mark) for mark in marks]
    if len(set(said)) == 1:
        return
    ranks: dict[str, list[int]] = {}
    for rank, mark in enumerate(said):
        text = "in another training step" if mark is None else _SAYS[mark.kind].format(mark.number)
        ranks.setdefault(text, []).append(rank)
    words = "; ".join(
        f"rank{'s' if len(who) > 1 else ''} {', '.join(map(str, who))}: {text}"
        for text, who in ranks.items()
    )
    raise StepsDifferError(
        f"The workers are not at the same point of training: {words}. Give every worker equally "
        "many batches (hvd.shard does, or steps_per_epoch=) and let all stop at the same epoch "
        "(hvd.callbacks.standard does)."
    )


def _decode(note: Array) -> Mark:
    kind, number = note[:NOTE_BYTES].view(np.int64).tolist()
    return Mark(kind, number)


def as_json(kind: int, number: int) -> dict[str, Any]:
    """Return a mark as a message to a meeting of all ranks."""
    return {"mark": [kind, number]}
