"""Question 3: communication measured and derived, and the bandwidth that follows from each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from farandole.format import plural, seconds, size
from farandole.labs.cifar10.effort import LAB_SAMPLES
from farandole.labs.cifar10.places import (
    BATCH,
    GB,
    IMAGES,
    WORKERS,
    Place,
    places,
    plain,
    published,
)
from farandole.labs.cifar10.plan import TIME
from farandole.labs.cifar10.runs import why_missing
from farandole.labs.evidence import only
from farandole.labs.lab import Answered, Found, Question
from farandole.model.communication import steps_per_epoch
from farandole.model.info.communication import Communication
from farandole.model.info.scaling import ScalingInfo
from farandole.report.charts import bars
from farandole.report.document import Figure
from farandole.report.table import Column, Table

# Two figures within a quarter of each other are called about the same.
_ALIKE = 1.25


def answer_communication(found: Found, question: Question) -> Answered:
    """Answer it."""
    info, lab = found.studies.get(TIME), found.published["cifar10_communication"]
    rows = tuple(
        row
        for place in places(info, lab)
        if place.workers > 1 and (row := _row(place, info, lab)) is not None
    )
    table = Table(
        name="communication",
        title=f"Communication: measured, and derived as T(N) - T(1)/N; an epoch is {IMAGES}",
        columns=(
            BATCH,
            WORKERS,
            Column(key="transfer_step_s", title="transfer per step (s)", show=plain),
            Column(key="waiting_step_s", title="waiting for the slower, per step (s)", show=plain),
            Column(key="derived_step_s", title="derived per step (s)", show=plain),
            Column(key="transfer_epoch_s", title="transfer per epoch (s)", show=plain),
            Column(key="derived_epoch_s", title="derived per epoch (s)", show=plain),
            Column(key="bus_gb_per_s", title="measured (GB/s)", show=plain),
            Column(key="peak_gb_per_s", title="link's peak (GB/s)", show=plain),
            Column(key="derived_gb_per_s", title="derived (GB/s)", show=plain),
            Column(key="lab_derived_epoch_s", title="lab: derived per epoch (s)", show=published),
            Column(key="lab_derived_gb_per_s", title="lab: derived (GB/s)", show=_five),
        ),
        rows=rows,
        notes=(
            "GB = 10^9 bytes. Bus bandwidth: 2(N-1)/N x bytes of gradients / seconds. Transfer: "
            "moving the gradients, while backward still computes or after it, without waiting for "
            "the slower worker.",
        ),
    )
    return Answered(
        question=question,
        sentences=(*_here(info), *_theirs(lab)),
        tables=(table,),
        figures=(_figure(rows),),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Moved:
    """What a cell's gradients took to get to the other workers, as it was measured."""

    row: Communication
    transfer_s: float
    """Per step: moving the gradients, without the wait for slower workers."""
    waiting_s: float | None
    """Per step: for the slowest worker."""


def moved(info: ScalingInfo | None, row: Communication | None) -> Moved | None:
    """Return what was measured of a cell; None when nothing was."""
    if row is None or not row.measured_s:
        return None
    split = next((one for one in (info.splits if info else ()) if one.cell == row.cell), None)
    return Moved(row=row, transfer_s=row.measured_s, waiting_s=split.waiting_s if split else None)


def largest_moved(info: ScalingInfo | None) -> Moved | None:
    """Return what was measured at the largest number of workers, and there at the largest batch."""
    rows = [one for row in (info.communication if info else ()) if (one := moved(info, row))]
    return max(rows, key=lambda one: (one.row.cell.workers, one.row.cell.batch or 0), default=None)


def measured_words(found: Moved) -> str:
    """Say what was measured, beside what T(N) - T(1)/N gives."""
    row, bus = found.row, found.row.bus_bytes_per_s
    rate = f", {bus / GB:.2f} GB/s" if bus else ""
    return (
        f"At batch {row.cell.batch} on {plural(row.cell.workers, 'worker')} the gradients "
        f"({size(row.gradient_bytes)}) take {seconds(found.transfer_s)} of a step{rate}; "
        f"{_derived_words(found)}."
    )


def _row(place: Place, info: ScalingInfo | None, lab: ScalingInfo) -> tuple[Any, ...] | None:
    here = only(info.communication, workers=place.workers, batch=place.batch) if info else None
    theirs = only(lab.communication, workers=place.workers, batch=place.batch)
    if here is None and theirs is None:
        return None
    found = moved(info, here)
    steps = steps_per_epoch(LAB_SAMPLES, place.batch, place.workers)
    return (
        place.batch,
        place.workers,
        found.transfer_s if found else None,
        found.waiting_s if found else None,
        here.derived_s if here else None,
        _times(found.transfer_s if found else None, steps),
        _times(here.derived_s if here else None, steps),
        _times(here.bus_bytes_per_s if here else None, 1 / GB),
        _times(here.peak_bytes_per_s if here else None, 1 / GB),
        _times(here.derived_bus_bytes_per_s if here else None, 1 / GB),
        theirs.derived_epoch_s if theirs else None,
        _times(theirs.derived_bus_bytes_per_s if theirs else None, 1 / GB),
    )


def _five(value: float | None) -> str:
    """Return a bandwidth to the digits that the lab gives."""
    return "" if value is None else f"{value:.5f}"


def _times(value: float | None, factor: float) -> float | None:
    return None if value is None else value * factor


def _here(info: ScalingInfo | None) -> list[str]:
    found = largest_moved(info)
    if found is None:
        return [f"No communication was measured: {why_missing(info)}."]
    return [measured_words(found)]


def _derived_words(found: Moved) -> str:
    derived_s = found.row.derived_s
    if derived_s is None:
        return "T(N) - T(1)/N cannot be given without the time of one worker"
    if derived_s <= 0:
        return (
            f"T(N) - T(1)/N comes out as {seconds(derived_s)}, not above zero: the difference of "
            "two times is no measurement of a third"
        )
    derived, ratio = seconds(derived_s), derived_s / found.transfer_s
    if ratio > _ALIKE:
        waiting = f" ({seconds(found.waiting_s)})" if found.waiting_s else ""
        return (
            f"T(N) - T(1)/N says {derived}, {ratio:.1f} times as much, for it also holds waiting "
            f"for the slower worker{waiting} and what workers lose by sharing memory and caches"
        )
    if ratio < 1 / _ALIKE:
        return (
            f"T(N) - T(1)/N says {derived}, less than was measured: one worker alone was slower "
            "than each of several"
        )
    return f"T(N) - T(1)/N says {derived}, about the same"


def _theirs(lab: ScalingInfo) -> list[str]:
    rates = [rate / GB for row in lab.communication if (rate := row.derived_bus_bytes_per_s)]
    if not rates:
        return []
    return [
        f"The lab could only derive it: between {min(rates):.2f} and {max(rates):.2f} GB/s, for "
        "the same gradients over the same links."
    ]


def _figure(rows: Sequence[tuple[Any, ...]]) -> Figure:
    kinds = ("transfer, measured", "T(N) - T(1)/N", "lab: T(N) - T(1)/N")
    drawn = [
        (f"batch {row[0]}, {plural(row[1], 'worker')}", kind, value)
        for row in rows
        for kind, value in zip(kinds, (row[5], row[6], row[10]), strict=True)
        # What is below zero has no place on a logarithmic axis; the table has it.
        if value is not None and value > 0
    ]
    return bars(
        "communication-epoch",
        f"Communication in an epoch of {IMAGES}",
        "What was measured, what the lab's formula gives here, and what it gave in the lab.",
        Table(
            name="communication-epoch",
            title=f"Communication in an epoch of {IMAGES}",
            columns=(
                Column(key="cell", title="cell", text=True),
                Column(key="kind", title="kind", text=True),
                Column(key="epoch_s", title="communication per epoch", show=seconds),
            ),
            rows=tuple(drawn),
        ),
        x="cell",
        y="epoch_s",
        series="kind",
        log=True,
    )
