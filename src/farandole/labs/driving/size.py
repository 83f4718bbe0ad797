"""From which size of the data set on more workers would pay."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from farandole.format import listed, number, optional, percent, plural, seconds, whole
from farandole.labs import columns
from farandole.labs.columns import HERE
from farandole.labs.driving.questions import SIZE
from farandole.labs.driving.workers import job_time
from farandole.labs.evidence import only
from farandole.labs.lab import Answered, Found
from farandole.labs.settings import Setting, settings_of
from farandole.model.pays import SAVED, Pays, Speed, enough_steps, fixed_time, size_that_pays
from farandole.report.charts import lines
from farandole.report.table import Column, Table

_SIZES = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0)
"""Of the data set, for the figure."""
_ASSUMED = (
    "Assumed: fixed time, time per sample, epochs, test set and batch per worker stay as they are "
    "when the training data grow."
)


def answer_size(found: Found) -> Answered:
    """Answer by fixed time and speed of the worker counts that could be timed."""
    speeds = _speeds(found)
    base = next((one for one in settings_of(found, "workers") if one.workers in speeds), None)
    pays = [
        size_that_pays(speeds[base.workers], speed, epochs=base.epochs, batch=base.batch)
        for workers, speed in speeds.items()
        if base is not None and workers != base.workers
    ]
    table = Table(
        name="size",
        title="From which number of training samples on more workers pay",
        columns=(
            columns.WORKERS,
            Column(key="fixed_s", title="fixed time of a job", show=seconds),
            Column(key="samples_per_s", title="samples/s"),
            Column(key="even", title="not longer from", show=optional),
            Column(key="time", title=f"{percent(SAVED)} shorter from", show=optional),
            Column(key="steps", title="enough steps from", show=optional),
            Column(key="samples", title="pays from", show=optional),
            Column(key="here", title="samples here", show=whole),
        ),
        rows=tuple(_row(one, pays, speeds) for one in settings_of(found, "workers")),
        notes=(_ASSUMED,),
    )
    curves = _curves(base, speeds)
    return Answered(
        question=SIZE,
        sentences=tuple(_said(found, base, pays)),
        tables=(table, *_check(found, speeds)),
        figures=(
            lines(
                "time-by-size",
                "Job time by size of the data set",
                f"From fixed time and speed as measured; not launches. {_ASSUMED}",
                curves,
                x="samples",
                y="job_s",
                series="setting",
                x_log=True,
                log=True,
            ),
        ),
    )


def _speeds(found: Found) -> dict[int, Speed]:
    """Return what each count needs, as far as its job and its steps count for time."""
    info = found.studies.get("workers")
    speeds = {}
    for one in settings_of(found, "workers") if info else ():
        row = only(info.cells, workers=one.workers) if info else None
        job = job_time(found, one)
        if job is None or row is None or row.throughput is None or row.unit != "samples/s":
            continue
        rate = row.throughput.value
        fixed_s = fixed_time(job.value, one.epochs, one.samples, rate)
        speeds[one.workers] = Speed(workers=one.workers, fixed_s=fixed_s, samples_per_s=rate)
    return speeds


def _row(one: Setting, pays: Sequence[Pays], speeds: dict[int, Speed]) -> tuple[Any, ...]:
    speed = speeds.get(one.workers)
    times = (speed.fixed_s, speed.samples_per_s) if speed else (None, None)
    found = next((each for each in pays if each.many is speed), None)
    sizes = (found.even, found.time) if found else (None, None)
    # Steps need no time to be known, unlike the rest.
    steps = enough_steps(one.batch, one.workers)
    return (one.workers, *times, *sizes, steps, found.samples if found else None, one.samples)


def _curves(base: Setting | None, speeds: dict[int, Speed]) -> Table:
    return Table(
        name="time-by-size",
        title="Job time by size of the data set, computed",
        columns=(
            Column(key="setting", title="setting", text=True),
            Column(key="samples", title="training samples", show=whole),
            Column(key="job_s", title="job", show=seconds),
        ),
        rows=tuple(
            (plural(workers, "worker"), size, speed.job_s(size, base.epochs))
            for workers, speed in speeds.items()
            if base is not None
            for size in (round(base.samples * factor) for factor in _SIZES)
        ),
    )


def _check(found: Found, speeds: dict[int, Speed]) -> tuple[Table, ...]:
    """Compare computed job times with launches on smaller data sets, where there are some."""
    info = found.studies.get("size")
    rows = []
    for one in settings_of(found, "size") if info else ():
        job = only(info.job_times, workers=one.workers, samples=str(one.samples)) if info else None
        speed = speeds.get(one.workers)
        if job is not None and job.job_s is not None and speed is not None:
            computed = speed.job_s(one.samples, one.epochs)
            rows.append((HERE, one.workers, one.samples, job.job_s, computed))
    if not rows:
        return ()
    return (
        Table(
            name="size-check",
            title="The same on smaller data sets: launched and computed",
            columns=(
                columns.SOURCE,
                columns.WORKERS,
                Column(key="samples", title="training samples", show=whole),
                Column(key="job_s", title="job, launched", show=seconds, interval=True),
                Column(key="computed_s", title="computed", show=seconds),
            ),
            rows=tuple(rows),
        ),
    )


def _by_steps(settings: Sequence[Setting]) -> list[str]:
    """Say what steps alone ask for."""
    each = [
        f"{enough_steps(one.batch, one.workers):,} on {plural(one.workers, 'worker')}"
        for one in settings
    ]
    return [f"For enough steps per epoch it takes {listed(each)}."] if each else []


def _said(found: Found, base: Setting | None, pays: Sequence[Pays]) -> list[str]:
    if base is None or not pays:
        return [
            "By time it cannot be told: that takes two numbers of workers whose times count, and "
            "there are none here.",
            *_by_steps(settings_of(found, "workers")),
        ]
    said = []
    for one in pays:
        many = plural(one.many.workers, "worker")
        if one.samples is None:
            gain = one.many.samples_per_s / one.few.samples_per_s
            said.append(
                f"{many} would not pay at any size: they train {number(gain)} times as fast as "
                f"{plural(one.few.workers, 'worker')}, which never saves {percent(SAVED)}."
            )
            continue
        times_here = one.samples / base.samples
        here = (
            f"{number(times_here)} times the {base.samples:,} of this run"
            if times_here > 1
            else f"the {base.samples:,} of this run are enough"
        )
        reason = "time" if one.samples == one.time else "steps per epoch"
        said.append(
            f"{many} pay from about {one.samples:,} training samples on ({here}); {reason} "
            f"{'decides' if reason == 'time' else 'decide'}."
        )
    first, last = pays[-1].few, pays[-1].many
    fixed = [
        f"{seconds(speed.fixed_s)} on {plural(speed.workers, 'worker')}" for speed in (first, last)
    ]
    said.append(
        f"A job of {base.epochs} epochs has {listed(fixed)} that do not depend on the data; a "
        f"worker count pays when it saves {percent(SAVED)} of the job and an epoch still has "
        "enough steps."
    )
    said.append(_ASSUMED)
    return said
