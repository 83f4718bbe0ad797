"""Question 3: communication measured and derived, and the bandwidth that follows from each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

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
from farandole.model.info import Communication, ScalingInfo
from farandole.model.measured import count
from farandole.report.figure import Figure
from farandole.report.lab.charts import bars
from farandole.report.table import Column, Table
from farandole.report.text import seconds, size

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
            Column(key="measured_step_s", title="transfer per step (s)", show=plain),
            Column(key="exposed_step_s", title="waited per step (s)", show=plain),
            Column(key="derived_step_s", title="derived per step (s)", show=plain),
            Column(key="measured_epoch_s", title="transfer per epoch (s)", show=plain),
            Column(key="derived_epoch_s", title="derived per epoch (s)", show=plain),
            Column(key="bus_gb_per_s", title="measured (GB/s)", show=plain),
            Column(key="derived_gb_per_s", title="derived (GB/s)", show=plain),
            Column(key="lab_derived_epoch_s", title="lab: derived per epoch (s)", show=published),
            Column(key="lab_derived_gb_per_s", title="lab: derived (GB/s)", show=plain),
        ),
        rows=rows,
        notes=(
            "GB = 10^9 bytes. Bus bandwidth: 2(N-1)/N x bytes of gradients / seconds. Waited for: "
            "transfer that nothing runs beside, and waiting for the slower worker.",
        ),
    )
    return Answered(
        question=question,
        sentences=(*_here(info), *_theirs(lab)),
        tables=(table,),
        figures=(_figure(rows),),
    )


def measured_row(info: ScalingInfo | None) -> Communication | None:
    """Return the row of the largest batch and count whose transfer was measured."""
    rows = [row for row in (info.communication if info else ()) if row.measured_s]
    return max(rows, key=lambda row: (row.cell.workers, row.cell.batch or 0), default=None)


def measured_words(row: Communication) -> str:
    """Say what was measured, beside what T(N) - T(1)/N gives."""
    rate = f", {row.bus_bytes_per_s / GB:.2f} GB/s" if row.bus_bytes_per_s else ""
    return (
        f"At batch {row.cell.batch} on {count(row.cell.workers, 'worker')} the gradients "
        f"({size(row.gradient_bytes)}) take {seconds(row.measured_s)} of a step{rate}; "
        f"{_derived_words(row)}."
    )


def _row(place: Place, info: ScalingInfo | None, lab: ScalingInfo) -> tuple[Any, ...] | None:
    here = only(info.communication, workers=place.workers, batch=place.batch) if info else None
    theirs = only(lab.communication, workers=place.workers, batch=place.batch)
    if here is None and theirs is None:
        return None
    steps = steps_per_epoch(LAB_SAMPLES, place.batch, place.workers)
    return (
        place.batch,
        place.workers,
        here.measured_s if here else None,
        here.exposed_s if here else None,
        here.derived_s if here else None,
        _times(here.measured_s if here else None, steps),
        _times(here.derived_s if here else None, steps),
        _times(here.bus_bytes_per_s if here else None, 1 / GB),
        _times(here.derived_bus_bytes_per_s if here else None, 1 / GB),
        theirs.derived_epoch_s if theirs else None,
        _times(theirs.derived_bus_bytes_per_s if theirs else None, 1 / GB),
    )


def _times(value: float | None, factor: float) -> float | None:
    return None if value is None else value * factor


def _here(info: ScalingInfo | None) -> list[str]:
    row = measured_row(info)
    if row is None:
        return [f"No communication was measured: {why_missing(info)}."]
    return [measured_words(row)]


def _derived_words(row: Communication) -> str:
    if row.derived_s is None or row.measured_s is None:
        return "T(N) - T(1)/N cannot be given without the time of one worker"
    if row.derived_s <= 0:
        return (
            f"T(N) - T(1)/N comes out as {seconds(row.derived_s)}, not above zero: the difference "
            "of two times is no measurement of a third"
        )
    derived, ratio = seconds(row.derived_s), row.derived_s / row.measured_s
    if ratio > _ALIKE:
        return (
            f"T(N) - T(1)/N says {derived}, {ratio:.1f} times as much, for it also holds waiting "
            "for the slower worker and what workers lose by sharing memory and caches"
        )
    if ratio < 1 / _ALIKE:
        return (
            f"T(N) - T(1)/N says {derived}, less than was measured: part of the transfer runs "
            "beside computing, or one worker alone was slow"
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
        (f"batch {row[0]}, {row[1]} workers", kind, value)
        for row in rows
        for kind, value in zip(kinds, (row[5], row[6], row[9]), strict=True)
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
