"""Time, speedup, efficiency and accuracy by workers, beside the lab's."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from farandole.format import listed, percent, plural, seconds, times, whole
from farandole.labs import columns
from farandole.labs.columns import HERE, LAB, four
from farandole.labs.disturbed import disturbed
from farandole.labs.evidence import (
    NO_INTERVALS,
    interval_words,
    only,
    void_times,
    without_intervals,
    worker_counts,
)
from farandole.labs.lab import Answered, Found
from farandole.labs.mnist.questions import METRIC, WORKERS
from farandole.labs.settings import settings_of
from farandole.model.info.launches import CellRow
from farandole.model.info.scaling import ScalingInfo
from farandole.model.statistics import Estimate
from farandole.report.charts import lines
from farandole.report.table import Column, Table

_COUNTS = "counts"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Row:
    source: str
    workers: int
    job_s: Estimate | None
    job_speedup: float | None
    """Length of the job with the fewest workers over this one's."""
    throughput: Estimate | None
    speedup: Estimate | None
    """Of the throughput."""
    efficiency: Estimate | None
    accuracy: Estimate | None
    runs: int
    speed: str

    def cells(self) -> tuple[Any, ...]:
        return (
            *(self.source, self.workers, self.job_s, self.job_speedup, self.throughput),
            *(self.speedup, self.efficiency, self.accuracy, self.runs, self.speed),
        )


def answer_workers(found: Found) -> Answered:
    """Answer by the study of worker counts."""
    here, lab = _measured(found), _published(found.published.get("mnist"))
    table = Table(
        name="workers",
        title="Time, speedup, efficiency and accuracy by workers",
        columns=(
            columns.SOURCE,
            columns.WORKERS,
            Column(key="job_s", title="job", show=seconds, interval=True),
            Column(key="job_speedup", title="speedup of the job", show=times),
            Column(key="samples_per_s", title="samples/s", interval=True),
            Column(key="speedup", title="speedup of training", show=times, interval=True),
            Column(key="efficiency", title="efficiency", show=percent, interval=True),
            columns.ACCURACY,
            Column(key="runs", title="runs", show=whole),
            Column(key="speed", title="its speed", text=True),
        ),
        rows=tuple(row.cells() for row in (*here, *lab)),
        notes=("The lab has whole jobs only: its efficiency is the job's speedup / workers.",),
    )
    return Answered(
        question=WORKERS,
        sentences=(
            *_speed_words(here, found.asked.cores),
            *disturbed(found, "workers"),
            *_accuracy_words(here),
            *_lab_words(lab),
            *_at_21_epochs(found.published.get("mnist_21_epochs")),
        ),
        tables=(table,),
        figures=(
            lines(
                "speedup-by-workers",
                "Speedup by workers",
                "Samples per second over those of one worker (here), and one worker's time for the "
                "job over this one's (the lab). More workers than cores have no speed to show.",
                _speedups(here, lab),
                x="workers",
                y="speedup",
                series="source",
                ideal=True,
                published=(LAB,),
            ),
            lines(
                "accuracy-by-workers",
                "Accuracy by workers",
                "At the end of training; over several seeds with 95 % intervals.",
                _accuracies(here, lab),
                x="workers",
                y="accuracy",
                series="source",
                zero=False,
                published=(LAB,),
            ),
        ),
    )


def _measured(found: Found) -> list[_Row]:
    info = found.studies.get("workers")
    if info is None:
        return []
    settings = {one.workers: one for one in settings_of(found, "workers")}
    base = only(info.job_times, workers=min(worker_counts(info), default=1))
    rows = []
    for number in worker_counts(info):
        cell, job = only(info.cells, workers=number), only(info.job_times, workers=number)
        point = only(info.curves[0].points, workers=number) if info.curves else None
        counts = point is not None and point.valid
        job_s = job.job_s if job else None
        first_s = base.job_s if base else None
        one = settings.get(number)
        rows.append(
            _Row(
                source=HERE,
                workers=number,
                job_s=job_s,
                job_speedup=first_s.value / job_s.value if first_s and job_s else None,
                throughput=cell.throughput if cell else None,
                speedup=point.speedup if point and counts else None,
                efficiency=point.efficiency if point and counts else None,
                accuracy=one.final(METRIC) if one else None,
                runs=one.seeds if one else 0,
                speed=_speed(cell),
            )
        )
    return rows


def _speed(row: CellRow | None) -> str:
    """Say whether a cell's speed counts, or else why not."""
    if row is None or row.failed:
        return "no launch ended well"
    return row.void_for_speed or (_COUNTS if row.launches else "the machine was too busy")


def _published(info: ScalingInfo | None) -> list[_Row]:
    rows = []
    for job in info.job_times if info else ():
        assert info is not None
        number = job.cell.workers
        point = only(info.curves[0].points, workers=number)
        scored = [row for row in info.metrics if row.metric == info.main_metric]
        metric = only(scored, workers=number)
        rows.append(
            _Row(
                source=LAB,
                workers=number,
                job_s=job.job_s,
                job_speedup=point.speedup.value if point and point.speedup else None,
                throughput=None,
                speedup=None,
                efficiency=point.efficiency if point else None,
                accuracy=metric.final if metric else None,
                runs=1,
                speed=f"on {plural(job.cell.hosts, 'node')}",
            )
        )
    return rows


def _speedups(here: list[_Row], lab: list[_Row]) -> Table:
    """Return what the figure compares: training here, whole jobs in the lab."""
    rows = [(row.source, row.workers, row.speedup) for row in here if row.speedup]
    rows += [
        (row.source, row.workers, Estimate(value=row.job_speedup, low=None, high=None))
        for row in lab
        if row.job_speedup
    ]
    return Table(
        name="speedup-by-workers",
        title="Speedup by workers",
        columns=(
            columns.SOURCE,
            columns.WORKERS,
            Column(key="speedup", title="speedup", show=times, interval=True),
        ),
        rows=tuple(rows),
    )


def _accuracies(here: list[_Row], lab: list[_Row]) -> Table:
    return Table(
        name="accuracy-by-workers",
        title="Accuracy by workers",
        columns=(columns.SOURCE, columns.WORKERS, columns.ACCURACY),
        rows=tuple(
            (row.source, row.workers, row.accuracy) for row in (*here, *lab) if row.accuracy
        ),
    )


def _at_21_epochs(info: ScalingInfo | None) -> list[str]:
    ends = [
        f"{four(row.final.value)} on {row.cell.workers}"
        for row in (info.metrics if info else ())
        if info and row.metric == info.main_metric and row.final is not None
    ]
    return [f"After 21 epochs the lab has {listed(ends)}."] if ends else []


def _speed_words(here: list[_Row], cores: int) -> list[str]:
    said = []
    for row in here[1:]:
        if row.speedup is None or row.efficiency is None:
            continue
        words = (
            f"{plural(row.workers, 'worker')} train {interval_words(row.speedup)} times as fast as "
            f"{plural(here[0].workers, 'worker')}, an efficiency of {percent(row.efficiency.value)}"
        )
        if row.job_speedup is not None:
            words += f"; the whole job, start-up and tests included, is {times(row.job_speedup)}"
        said.append(f"{words}.")
    if not said:
        said.append("No speedup was measured: no launch on several workers counts for speed.")
    return said + void_times((row.workers for row in here), cores)


def _accuracy_words(here: list[_Row]) -> list[str]:
    scored = [(row.workers, row.accuracy) for row in here if row.accuracy is not None]
    if not scored:
        return ["Accuracy was not measured: no launch ran to its end."]
    each = [f"{four(accuracy.value)} on {plural(number, 'worker')}" for number, accuracy in scored]
    said = [f"Accuracy ends at {listed(each)}."]
    if without_intervals(accuracy for _, accuracy in scored):
        said.append(NO_INTERVALS)
    return said


def _lab_words(lab: list[_Row]) -> list[str]:
    several = [(row.workers, row.job_speedup) for row in lab if row.workers > 1 and row.job_speedup]
    if not several:
        return []
    each = [f"{times(gain)} on {number} GPUs" for number, gain in several]
    shares = [percent(gain / number) for number, gain in several]
    return [f"The lab's jobs: {listed(each)}, an efficiency of {listed(shares)}."]
