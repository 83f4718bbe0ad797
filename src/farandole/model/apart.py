"""What workers of a host cost each other: computing and loading, one alone and all at once."""

from __future__ import annotations

from collections.abc import Sequence

from farandole.model.info.apart import ApartRow
from farandole.model.measured import TOO_BUSY, Measured
from farandole.study.records import Apart, Cell


def quiet(apart: Sequence[Apart]) -> tuple[Apart, ...]:
    """Return those whose figures count: others did not take too much of the machine."""
    return tuple(one for one in apart if (one.foreign_share or 0.0) <= TOO_BUSY)


def alone_s(one: Apart) -> float | None:
    """Return a step of one copy alone, without waiting for data."""
    return _whole(one.computing_alone_s, one.update_alone_s)


def together_s(one: Apart) -> float | None:
    """Return a step of all copies at once, without waiting for data."""
    return _whole(one.computing_together_s, one.update_together_s)


def contention_s(apart: Sequence[Apart], cell: Cell) -> float | None:
    """Return what the workers of a cell cost each other in a step; None where nobody measured it.

    It is what T(N) is above T(1) for another reason than communication.
    """
    for one in quiet(apart):
        alone, together = alone_s(one), together_s(one)
        if one.cell == cell and alone is not None and together is not None:
            return together - alone
    return None


def apart_rows(apart: Sequence[Apart], cells: Sequence[Measured]) -> tuple[ApartRow, ...]:
    """Return what was measured, beside what training took."""
    by_cell = {found.cell: found for found in cells}
    return tuple(_row(one, by_cell[one.cell]) for one in apart if one.cell in by_cell)


def _row(one: Apart, found: Measured) -> ApartRow:
    why_not = one.why_not
    if one not in quiet([one]):
        why_not = f"other programs took {one.foreign_share:.0%} of the cores"
        one = Apart(cell=one.cell)
    alone, together, batch = alone_s(one), together_s(one), found.worker_batch
    return ApartRow(
        cell=one.cell,
        label=found.label,
        computing_alone_s=one.computing_alone_s,
        computing_together_s=one.computing_together_s,
        update_alone_s=one.update_alone_s,
        update_together_s=one.update_together_s,
        contention_s=contention_s([one], one.cell),
        slowdown=together / alone if alone and together else None,
        loaded_alone_per_s=one.loaded_alone_per_s,
        loaded_together_per_s=one.loaded_together_per_s,
        trained_per_s=batch / found.step_s.value if batch and found.step_s else None,
        why_not=why_not,
    )


def _whole(computing_s: float | None, update_s: float | None) -> float | None:
    return None if computing_s is None else computing_s + (update_s or 0.0)
