"""Question 1: seconds per epoch of one worker by batch, until memory runs out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from farandole.format import seconds
from farandole.labs.cifar10.effort import LAB_SAMPLES, LAB_TOO_LARGE
from farandole.labs.cifar10.places import (
    BATCH,
    GB,
    IMAGES,
    alone,
    interval_note,
    plain,
    published,
    value_of,
)
from farandole.labs.cifar10.plan import TIME
from farandole.labs.cifar10.runs import why_missing
from farandole.labs.evidence import batches, matching, only, seconds_for
from farandole.labs.lab import Answered, Found, Question
from farandole.model.info.launches import CellRow
from farandole.model.info.scaling import ScalingInfo
from farandole.model.statistics import SPEED_MARGIN
from farandole.report.charts import lines
from farandole.report.document import Figure
from farandole.report.table import Column, Table

_LAB = "lab, 1 K80"


def answer_batch(found: Found, question: Question) -> Answered:
    """Answer it."""
    info, lab = found.studies.get(TIME), found.published["cifar10_batch"]
    every = sorted({*(batches(info) if info else ()), *batches(lab)})
    rows = tuple(_row(batch, info, lab) for batch in every)
    table = Table(
        name="batch",
        title=f"One worker by batch: an epoch of {IMAGES}, without data loading",
        columns=(
            BATCH,
            Column(key="epoch_s", title="epoch here (s)", show=plain, interval=True),
            Column(key="images_per_s", title="images/s here", show=plain, interval=True),
            Column(key="step_s", title="step here (s)", show=plain, interval=True),
            Column(key="memory_gb", title="memory here (GB)", show=plain),
            Column(key="outcome", title="here", text=True),
            Column(key="lab_epoch_s", title="epoch in the lab (s, K80)", show=published),
            Column(key="lab_outcome", title="in the lab", text=True),
        ),
        rows=rows,
        notes=interval_note(row[1] for row in rows),
    )
    return Answered(
        question=question,
        sentences=(*_sentences(info, lab), *_lack(info)),
        tables=(table,),
        figures=(_figure(rows),),
    )


def _row(batch: int, info: ScalingInfo | None, lab: ScalingInfo) -> tuple[Any, ...]:
    here = only(info.cells, workers=1, batch=batch) if info else None
    used = only(info.utilisation, workers=1, batch=batch) if info else None
    job = only(lab.job_times, workers=1, batch=batch)
    return (
        batch,
        seconds_for(LAB_SAMPLES, here.throughput) if here else None,
        here.throughput if here else None,
        here.step_s if here else None,
        used.memory_bytes / GB if used and used.memory_bytes else None,
        _outcome(here),
        job.epoch_s.value if job and job.epoch_s else None,
        _outcome(only(lab.cells, workers=1, batch=batch)),
    )


def _outcome(row: CellRow | None) -> str:
    if row is None:
        return ""
    # The whole reason is in a sentence.
    return row.failed.partition(":")[0] or "ran"


def _sentences(info: ScalingInfo | None, lab: ScalingInfo) -> list[str]:
    known = [row for row in matching(info.cells, workers=1) if row.throughput] if info else []
    known.sort(key=lambda row: row.cell.batch or 0)
    if not known:
        return [f"No time of one worker counts: {why_missing(info)}."]
    epochs = [seconds(value_of(seconds_for(LAB_SAMPLES, row.throughput))) for row in known]
    if len(known) == 1:
        return [
            f"Only batch {known[0].cell.batch} has a time: {epochs[0]} for an epoch of {IMAGES}."
        ]
    gain = value_of(known[-1].throughput) / value_of(known[0].throughput)
    sentences = [
        f"On one worker an epoch of {IMAGES} takes {epochs[0]} at batch {known[0].cell.batch} and "
        f"{epochs[-1]} at batch {known[-1].cell.batch}, {gain:.2f} times as fast: {_why(gain)}."
    ]
    theirs = [job for job in lab.job_times if job.epoch_s is not None]
    if len(theirs) > 1:
        lab_gain = value_of(theirs[0].epoch_s) / value_of(theirs[-1].epoch_s)
        why = (
            ": a small batch leaves most of a GPU idle, while a CPU core has enough to do with it"
            if lab_gain > gain
            else ""
        )
        sentences.append(
            f"The lab's GPU gained {lab_gain:.2f} times from batch {theirs[0].cell.batch} to "
            f"{theirs[-1].cell.batch}{why}."
        )
    return sentences


def _why(gain: float) -> str:
    if gain > 1 + SPEED_MARGIN:
        return (
            "what a step costs beside its images, the update of all weights above all, is shared "
            "by more of them"
        )
    if gain < 1 - SPEED_MARGIN:
        return "the larger batch is the slower one here, as its layers outgrow the caches"
    return "the batch hardly matters here"


def _lack(info: ScalingInfo | None) -> list[str]:
    failed = [row for row in matching(info.cells, workers=1) if row.failed] if info else []
    sentences = [f"Batch {row.cell.batch} does not fit: {row.failed}." for row in failed]
    if any(row.failed.startswith("out of memory") for row in failed):
        sentences.append(f"In the lab {LAB_TOO_LARGE:,} was too much for a GPU's memory.")
    return sentences


def _figure(rows: Sequence[tuple[Any, ...]]) -> Figure:
    drawn = [(row[0], "here", row[1]) for row in rows if row[1] is not None]
    drawn += [(row[0], _LAB, alone(row[6])) for row in rows if row[6] is not None]
    return lines(
        "batch-epoch",
        f"Seconds per epoch of {IMAGES}, by batch",
        "One worker here beside the lab's one GPU; both axes are logarithmic.",
        Table(
            name="batch-epoch",
            title=f"Seconds per epoch of {IMAGES}, by batch",
            columns=(
                BATCH,
                Column(key="where", title="where", text=True),
                Column(key="epoch_s", title="epoch", show=seconds, interval=True),
            ),
            rows=tuple(drawn),
        ),
        x="batch",
        y="epoch_s",
        series="where",
        log=True,
        x_log=True,
        published=(_LAB,),
    )
