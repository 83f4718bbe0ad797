"""Job and epoch time by workers, and by kind of device: this machine's beside the lab's."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from farandole.format import listed, percent, plural, seconds, times, whole
from farandole.labs import columns
from farandole.labs.columns import HERE, LAB
from farandole.labs.disturbed import disturbed
from farandole.labs.evidence import (
    NO_INTERVALS,
    interval_words,
    only,
    void_times,
    without_intervals,
)
from farandole.labs.lab import Answered, Found
from farandole.labs.settings import settings_of
from farandole.labs.transfer.kind import Kind
from farandole.labs.transfer.questions import TIMES
from farandole.model.info.job import JobTime
from farandole.model.info.scaling import ScalingInfo
from farandole.model.statistics import Estimate
from farandole.report.charts import lines
from farandole.report.table import Column, Table

CPU = "CPU"
_DEVICES = ("faster_device_gains_nothing",)


@dataclass(frozen=True, slots=True, kw_only=True)
class Timed:
    """How long one configuration took."""

    source: str
    device: str
    workers: int
    job_s: Estimate | None
    epoch_s: Estimate | None
    epochs: float | None
    fixed_share: float | None
    """Of the job: what is not a pass over the training data."""
    runs: int

    @property
    def series(self) -> str:
        """Where it was measured, and on what."""
        return f"{self.source}, {self.device}"


def timed(found: Found, kind: Kind) -> list[Timed]:
    """Return the configurations of this machine, then the lab's."""
    return [*_measured(found), *published_times(found.published.get(kind.published))]


def answer_times(found: Found, kind: Kind) -> Answered:
    """Answer by the study of worker counts, beside the lab's table."""
    rows = timed(found, kind)
    table = Table(
        name=TIMES.key,
        title="Job and epoch time by workers and device",
        columns=(
            columns.SOURCE,
            columns.DEVICE,
            columns.WORKERS,
            Column(key="job_s", title="job", show=seconds, interval=True),
            Column(key="job_speedup", title="speedup of the job", show=times),
            Column(key="epoch_s", title="epoch", show=seconds, interval=True),
            Column(key="epoch_speedup", title="speedup of the epoch", show=times),
            Column(key="epochs", title="epochs", show=whole),
            Column(key="fixed_share", title="fixed share of the job", show=percent),
            Column(key="runs", title="runs", show=whole),
        ),
        rows=tuple(_row(row, rows) for row in rows),
        notes=(
            "Speedups are over the fewest workers of the same device. Fixed: what of a job is not "
            "a pass over the training data, such as starting, loading and validation.",
        ),
    )
    figures = tuple(
        lines(
            f"{key}-by-workers",
            f"{title} by workers and device",
            f"{caption} On logarithmic axes; more workers than cores have no time to show.",
            _drawn(rows, key),
            x="workers",
            y="time_s",
            series="series",
            x_log=True,
            log=True,
            published=tuple(dict.fromkeys(row.series for row in rows if row.source == LAB)),
        )
        for key, title, caption in (
            ("epoch", "Epoch time", "One pass over the training data of each, which differ."),
            ("job", "Job time", "From the launch to the end, each with its own epochs."),
        )
    )
    return Answered(
        question=TIMES,
        sentences=(*_said(found, kind, rows), *_lab_words(found, kind, rows)),
        tables=(table,),
        figures=figures,
    )


def gained_here(found: Found, kind: Kind) -> str:
    """Say what the epoch gained on this machine, by quotients of its times."""
    rows = [row for row in timed(found, kind) if row.source == HERE and row.epoch_s is not None]
    if len(rows) < 2:
        return "No two epoch times were measured here."
    few, many = rows[0], rows[-1]
    assert few.epoch_s is not None
    assert many.epoch_s is not None
    slow, fast = few.epoch_s.value, many.epoch_s.value
    return (
        f"Here an epoch takes {seconds(slow)} on {plural(few.workers, 'worker')} and "
        f"{seconds(fast)} on {many.workers}: {times(slow / fast)} as fast for "
        f"{many.workers / few.workers:g} times the workers, {percent(1 - fast / slow)} less."
    )


def base_of(row: Timed, rows: list[Timed]) -> Timed:
    """Return the configuration with the fewest workers of the same device."""
    return min((one for one in rows if one.series == row.series), key=lambda one: one.workers)


def _measured(found: Found) -> list[Timed]:
    info = found.studies.get("workers")
    rows = []
    for one in settings_of(found, "workers") if info else ():
        # None for more workers than cores: they take turns, and their times say nothing.
        job = only(info.job_times, workers=one.workers) if info else None
        rows.append(
            Timed(
                source=HERE,
                device=CPU,
                workers=one.workers,
                job_s=job.job_s if job else None,
                epoch_s=job.epoch_s if job else None,
                epochs=one.epochs,
                fixed_share=job.fixed_share if job else None,
                runs=one.seeds,
            )
        )
    return rows


def published_times(info: ScalingInfo | None) -> list[Timed]:
    """Return the configurations of a published table."""
    return [_published(job) for job in (info.job_times if info else ())]


def _published(job: JobTime) -> Timed:
    # A share below nothing is a contradiction in the table, not a cost.
    share = job.fixed_share if job.fixed_share is None or job.fixed_share >= 0 else None
    return Timed(
        source=LAB,
        device=job.cell.device or "GPU",
        workers=job.cell.workers,
        job_s=job.job_s,
        epoch_s=job.epoch_s,
        epochs=job.epochs,
        fixed_share=share,
        runs=1,
    )


def _row(row: Timed, rows: list[Timed]) -> tuple[Any, ...]:
    base = base_of(row, rows)
    return (
        *(row.source, row.device, row.workers),
        *(row.job_s, ratio(base.job_s, row.job_s), row.epoch_s, ratio(base.epoch_s, row.epoch_s)),
        *(row.epochs, row.fixed_share, row.runs),
    )


def ratio(slow: Estimate | None, fast: Estimate | None) -> float | None:
    """Return how many times shorter the second time is; None where one is not known."""
    return slow.value / fast.value if slow is not None and fast is not None else None


def _drawn(rows: list[Timed], key: str) -> Table:
    return Table(
        name=f"{key}-by-workers",
        title=f"{key.capitalize()} time by workers",
        columns=(
            Column(key="series", title="measured", text=True),
            columns.WORKERS,
            Column(key="time_s", title=key, show=seconds, interval=True),
        ),
        rows=tuple(
            (row.series, row.workers, time_s)
            for row in rows
            if (time_s := row.epoch_s if key == "epoch" else row.job_s) is not None
        ),
    )


def _said(found: Found, kind: Kind, rows: list[Timed]) -> list[str]:
    here = [row for row in rows if row.source == HERE]
    known = [row for row in here if row.job_s is not None and row.epoch_s is not None]
    if len(known) < 2:
        said = ["No two numbers of workers have times here that count: nothing to compare."]
    else:
        few, many = known[0], known[-1]
        assert many.epoch_s is not None
        assert many.job_s is not None
        said = [
            f"{plural(many.workers, 'worker')} take {interval_words(many.epoch_s, unit='s')} for "
            f"an epoch and {seconds(many.job_s.value)} for the job, "
            f"{plural(few.workers, 'worker')} {times(ratio(few.epoch_s, many.epoch_s))} and "
            f"{times(ratio(few.job_s, many.job_s))} as long.",
            *_fixed_words(many),
        ]
    said += void_times((row.workers for row in here), found.asked.cores)
    said += disturbed(found, "workers")
    if without_intervals(row.job_s for row in known):
        said.append(NO_INTERVALS)
    return said


def _fixed_words(row: Timed) -> list[str]:
    if row.fixed_share is None:
        return []
    return [
        f"{percent(row.fixed_share)} of that job are no pass over the training data, but starting, "
        "loading and validation."
    ]


def _lab_words(found: Found, kind: Kind, rows: list[Timed]) -> list[str]:
    """Say what the lab measured on each of its devices, and which device gains nothing."""
    said = []
    lab = [row for row in rows if row.source == LAB]
    for device in dict.fromkeys(row.device for row in lab):
        of_device = [row for row in lab if row.device == device]
        each = [
            f"{seconds(row.epoch_s.value)} an epoch on {row.workers}"
            for row in of_device
            if row.epoch_s is not None
        ]
        said.append(f"The lab on {device}: {listed(each)}.")
    info = found.published.get(kind.published)
    said += [
        f"The lab's devices: {verdict.sentence}"
        for verdict in (info.verdicts if info else ())
        if verdict.kind in _DEVICES
    ]
    return said
