"""Question 2: speedup by batch and workers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from farandole.format import listed, plural, seconds, times
from farandole.labs.cifar10.effort import LAB_SAMPLES
from farandole.labs.cifar10.places import (
    BATCH,
    IMAGES,
    WORKERS,
    Place,
    alone,
    factor,
    interval_note,
    places,
    plain,
    published,
    value_of,
    weak_point,
    weak_points,
)
from farandole.labs.cifar10.plan import TIME
from farandole.labs.cifar10.runs import why_missing
from farandole.labs.disturbed import disturbed
from farandole.labs.evidence import interval_words, only, seconds_for, worker_counts
from farandole.labs.lab import Answered, Found, Question
from farandole.model.communication import steps_per_epoch
from farandole.model.info.curve import CurvePoint
from farandole.model.info.scaling import ScalingInfo
from farandole.report.charts import lines
from farandole.report.document import Figure
from farandole.report.table import Column, Table


def answer_speedup(found: Found, question: Question) -> Answered:
    """Answer it."""
    info, lab = found.studies.get(TIME), found.published["cifar10_speedup"]
    rows = tuple(_row(place, info, lab) for place in places(info, lab) if not _failed(place, info))
    table = Table(
        name="speedup",
        title=f"Speedup by batch per worker and workers; an epoch is {IMAGES}",
        columns=(
            BATCH,
            WORKERS,
            Column(key="step_s", title="step here (s)", show=plain, interval=True),
            Column(key="epoch_s", title="epoch here (s)", show=plain, interval=True),
            Column(key="speedup", title="speedup here", show=factor, interval=True),
            Column(key="efficiency", title="efficiency here", show=plain, interval=True),
            Column(key="lab_epoch_s", title="epoch in the lab (s, K80)", show=published),
            Column(key="lab_speedup", title="speedup in the lab", show=factor),
        ),
        rows=rows,
        notes=interval_note(row[2] for row in rows),
    )
    return Answered(
        question=question,
        sentences=(
            *(*_here(info), *_beyond(found, info, lab), *_theirs(lab)),
            *disturbed(found, TIME),
        ),
        tables=(table,),
        figures=(_figure(rows),),
    )


def scaling_words(info: ScalingInfo | None) -> str:
    """Tell weak scaling of the step from strong scaling of the epoch, by a pair of figures."""
    for point in reversed(_most(info)):
        one = only(info.cells, workers=1, batch=point.batch) if info else None
        if one is None or one.step_s is None or point.step_s is None or point.batch is None:
            continue
        few, many = (
            math.ceil(steps_per_epoch(LAB_SAMPLES, point.batch, workers))
            for workers in (point.workers, 1)
        )
        return (
            f"At batch {point.batch} per worker a step takes {seconds(one.step_s.value)} on one "
            f"worker and {seconds(point.step_s.value)} on {point.workers} (weak scaling: each has "
            f"as much to do as before), while an epoch has {few:,} steps in place of "
            f"{many:,} (strong scaling: the same images)."
        )
    return ""


def _row(place: Place, info: ScalingInfo | None, lab: ScalingInfo) -> tuple[Any, ...]:
    here = only(info.cells, workers=place.workers, batch=place.batch) if info else None
    point, theirs = weak_point(info, place), weak_point(lab, place)
    job = only(lab.job_times, workers=place.workers, batch=place.batch)
    return (
        place.batch,
        place.workers,
        here.step_s if here else None,
        seconds_for(LAB_SAMPLES, here.throughput) if here else None,
        point.speedup if point else None,
        point.efficiency if point else None,
        job.epoch_s.value if job and job.epoch_s else None,
        theirs.speedup.value if theirs and theirs.speedup else None,
    )


def _failed(place: Place, info: ScalingInfo | None) -> bool:
    here = only(info.cells, workers=place.workers, batch=place.batch) if info else None
    return here is not None and bool(here.failed)


def _most(info: ScalingInfo | None) -> list[CurvePoint]:
    """Return the points of the largest number of workers, by batch."""
    several = [point for point in weak_points(info) if point.workers > 1]
    most = max((point.workers for point in several), default=0)
    return sorted(
        (point for point in several if point.workers == most), key=lambda point: point.batch or 0
    )


def _here(info: ScalingInfo | None) -> list[str]:
    most = _most(info)
    if not most:
        return [f"No speedup can be given: {why_missing(info)}."]
    parts = [
        f"{interval_words(point.speedup)} times at batch {point.batch}"
        for point in most
        if point.speedup is not None
    ]
    sentences = [
        f"{plural(most[0].workers, 'worker')} against one, throughput: {listed(parts)}.",
        _trend(most),
        scaling_words(info),
    ]
    return [sentence for sentence in sentences if sentence]


def _trend(most: Sequence[CurvePoint]) -> str:
    """Say whether a larger batch scales better, as far as the intervals tell."""
    first, last = most[0].speedup, most[-1].speedup
    if len(most) == 1 or first is None or last is None:
        return ""
    small, large = f"batch {most[0].batch}", f"batch {most[-1].batch}"
    if first.low is None or first.high is None or last.low is None or last.high is None:
        better = "better" if last.value > first.value else "no better"
        return f"In these single launches {large} scales {better} than {small}, without intervals."
    if last.low > first.high:
        return (
            f"{large.capitalize()} scales better than {small}: the same bytes of gradients cross "
            "for more images."
        )
    if last.high < first.low:
        return f"{large.capitalize()} scales worse than {small}."
    return f"Whether {large} scales better than {small} cannot be told: their intervals overlap."


def _beyond(found: Found, info: ScalingInfo | None, lab: ScalingInfo) -> list[str]:
    """Say which of the lab's counts are not measured, and why."""
    here = worker_counts(info) if info else ()
    beyond = [n for n in worker_counts(lab) if n > found.asked.cores and n not in here]
    if not beyond:
        return []
    words = listed([str(number) for number in beyond])
    return [
        f"The lab's {words} workers would take turns on {plural(found.asked.cores, 'core')}: their "
        "speed is not measured here, since it would say nothing."
    ]


def _theirs(lab: ScalingInfo) -> list[str]:
    most = _most(lab)
    if not most:
        return []
    words = [f"{value_of(point.speedup):.2f} times at batch {point.batch}" for point in most]
    return [f"In the lab {most[0].workers} GPUs against one: {listed(words)}."]


def _figure(rows: Sequence[tuple[Any, ...]]) -> Figure:
    here = [(row[1], f"batch {row[0]}, here", row[4]) for row in rows if row[4]]
    theirs = [(row[1], f"batch {row[0]}, lab", alone(row[7])) for row in rows if row[7]]
    return lines(
        "speedup-workers",
        "Speedup by workers",
        "Throughput over that of one worker at the same batch per worker; hollow: the lab's GPUs.",
        Table(
            name="speedup-workers",
            title="Speedup by workers",
            columns=(
                WORKERS,
                Column(key="where", title="batch per worker", text=True),
                Column(key="speedup", title="speedup", show=times, interval=True),
            ),
            rows=tuple(here + theirs),
        ),
        x="workers",
        y="speedup",
        series="where",
        ideal=True,
        published={name for _, name, _ in theirs},
    )
