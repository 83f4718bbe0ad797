"""What workers of a host cost each other without a word between them."""

from __future__ import annotations

from dataclasses import dataclass

from farandole.study.records import Cell


@dataclass(frozen=True, slots=True, kw_only=True)
class ApartRow:
    """Copies of the script that ran at once, each for itself: one alone, and all together."""

    cell: Cell
    """The cell whose workers they would have been."""
    label: str
    computing_alone_s: float | None
    """Of a step: all but waiting for data and the update."""
    computing_together_s: float | None
    update_alone_s: float | None
    update_together_s: float | None
    contention_s: float | None
    """What a step, without waiting for data, takes longer with all at once."""
    slowdown: float | None
    """How many times as long it takes then."""
    loaded_alone_per_s: float | None
    """Samples per second and worker that come when nothing is done with them."""
    loaded_together_per_s: float | None
    trained_per_s: float | None
    """Samples per second and worker that training takes."""
    why_not: str
    """Why figures are missing or do not count; empty when all do."""
