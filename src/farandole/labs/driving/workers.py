"""Time and loss by workers, beside the lab's."""

from __future__ import annotations

from typing import Any

from farandole.format import listed, percent, plural, seconds, whole
from farandole.labs import columns
from farandole.labs.columns import HERE, LAB
from farandole.labs.disturbed import disturbed
from farandole.labs.driving.questions import CONSTANT, LOSS_COLUMN, METRIC, WORKERS, four
from farandole.labs.evidence import (
    NO_INTERVALS,
    counts_in_words,
    only,
    void_times,
    without_intervals,
)
from farandole.labs.lab import Answered, Found
from farandole.labs.settings import Setting, settings_of
from farandole.model.info.scaling import ScalingInfo
from farandole.model.statistics import Estimate
from farandole.report.charts import lines
from farandole.report.table import Column, Table


def answer_workers(found: Found) -> Answered:
    """Answer by the studies of worker counts and recipes."""
    here = settings_of(found, "workers", "recipes")
    lab = _published(found.published.get("driving"))
    table = Table(
        name="workers",
        title="Job time and loss by workers",
        columns=(
            columns.SOURCE,
            Column(key="device", title="device", text=True),
            columns.RECIPE,
            columns.WORKERS,
            Column(key="job_s", title="job", show=seconds, interval=True),
            Column(key="steps_per_epoch", title="steps per epoch", show=whole),
            LOSS_COLUMN,
            Column(key="constant_mse", title="loss of a constant", show=four),
            Column(key="share", title="of the constant's", show=percent),
            Column(key="runs", title="runs", show=whole),
        ),
        rows=(*(_measured(found, one) for one in here), *lab),
        notes=(
            "The loss here is the mean squared error on the test set; the loss of a constant is "
            "what the best constant prediction gets there. Which loss the lab gives is not said.",
        ),
    )
    return Answered(
        question=WORKERS,
        sentences=tuple(_said(found, here)),
        tables=(table,),
        figures=(
            lines(
                "time-by-workers",
                "Job time by workers",
                "From the launch to the end. More workers than cores have no time to show.",
                _times(found, here, lab),
                x="workers",
                y="job_s",
                series="source",
                published=tuple(f"{LAB}, {row[1]}" for row in lab),
            ),
            lines(
                "loss-by-workers",
                "Loss by workers",
                "At the end of training, on a logarithmic axis.",
                _losses(here, lab),
                x="workers",
                y="loss",
                series="source",
                log=True,
                published=(LAB,),
            ),
        ),
    )


def job_time(found: Found, one: Setting) -> Estimate | None:
    """Return how long jobs of a setting took; None where it does not count."""
    info = found.studies.get(one.study)
    job = only(info.job_times, workers=one.workers, recipe=one.recipe) if info else None
    return job.job_s if job else None


def constant_mse(one: Setting) -> float | None:
    """Return what the best constant prediction gets on the test set."""
    estimate = one.final(CONSTANT)
    return None if estimate is None else estimate.value


def steps_per_epoch(one: Setting) -> int:
    """Return the steps of one epoch."""
    return (one.counted or one.whole_steps) // one.epochs


def _measured(found: Found, one: Setting) -> tuple[Any, ...]:
    loss, constant = one.final(METRIC), constant_mse(one)
    return (
        *(HERE, "CPU", one.recipe, one.workers, job_time(found, one), steps_per_epoch(one)),
        *(loss, constant, loss.value / constant if loss and constant else None, one.seeds),
    )


def _published(info: ScalingInfo | None) -> list[tuple[Any, ...]]:
    rows = []
    for job in info.job_times if info else ():
        metric = next((row for row in (info.metrics if info else ()) if row.cell == job.cell), None)
        rows.append(
            (
                *(LAB, job.cell.device, "not said", job.cell.workers, job.job_s, None),
                *(metric.final if metric else None, None, None, 1),
            )
        )
    return rows


def _times(found: Found, here: tuple[Setting, ...], lab: list[tuple[Any, ...]]) -> Table:
    rows: list[tuple[Any, ...]] = [
        (HERE, one.workers, job_time(found, one)) for one in here if one.study == "workers"
    ]
    rows += [(f"{LAB}, {row[1]}", row[3], row[4]) for row in lab]
    return Table(
        name="time-by-workers",
        title="Job time by workers",
        columns=(
            columns.SOURCE,
            columns.WORKERS,
            Column(key="job_s", title="job", show=seconds, interval=True),
        ),
        rows=tuple(row for row in rows if row[2] is not None),
    )


def _losses(here: tuple[Setting, ...], lab: list[tuple[Any, ...]]) -> Table:
    """Return the losses as lines, those of each recipe beginning with the fewest workers'."""
    rows: list[tuple[Any, ...]] = []
    base = min((one for one in here if one.study == "workers"), key=_size, default=None)
    for name in dict.fromkeys(one.recipe for one in here):
        of_recipe = [one for one in here if one.recipe == name]
        if base is not None and base not in of_recipe:
            of_recipe.insert(0, base)
        rows += [(f"{HERE}, {name}", one.workers, one.final(METRIC)) for one in of_recipe]
    constants = {one.workers: constant_mse(one) for one in here}
    rows += [
        ("a constant", number, Estimate(value=value, low=None, high=None))
        for number, value in sorted(constants.items())
        if value is not None
    ]
    rows += [(LAB, row[3], row[6]) for row in lab]
    return Table(
        name="loss-by-workers",
        title="Loss by workers",
        columns=(columns.SOURCE, columns.WORKERS, LOSS_COLUMN),
        rows=tuple(row for row in rows if row[2] is not None),
    )


def _size(one: Setting) -> int:
    return one.workers


def _said(found: Found, here: tuple[Setting, ...]) -> list[str]:
    lab_recipe = [one for one in here if one.study == "workers"]
    said = [*_time_words(found, lab_recipe), *disturbed(found, "workers")]
    said += _loss_words(lab_recipe)
    info = found.published.get("driving")
    timed = [job for job in (info.job_times if info else ()) if job.job_s is not None]
    if timed:
        each = [
            f"{seconds(job.job_s.value)} on {job.cell.workers} ({job.cell.device})"
            for job in timed
            if job.job_s
        ]
        said.append(f"The lab: {listed(each)}{_lab_losses(info)}.")
    if without_intervals(one.final(METRIC) for one in lab_recipe):
        said.append(NO_INTERVALS)
    return said


def _lab_losses(info: ScalingInfo | None) -> str:
    ends = sorted(
        (row.cell.workers, row.final.value)
        for row in (info.metrics if info else ())
        if info and row.metric == info.main_metric and row.final is not None
    )
    if len(ends) < 2:
        return ""
    (few, first), (many, last) = ends[0], ends[-1]
    return f", with a loss of {four(first)} on {few} and {four(last)} on {many}"


def _time_words(found: Found, settings: list[Setting]) -> list[str]:
    timed = [(one, job) for one in settings if (job := job_time(found, one)) is not None]
    said = []
    if len(timed) > 1:
        (few, slow), (many, fast) = timed[0], timed[-1]
        gain = slow.value / fast.value
        what = "shorter" if gain > 1 else "longer"
        said.append(
            f"{plural(many.workers, 'worker')} take {seconds(fast.value)} for the job and "
            f"{plural(few.workers, 'worker')} {seconds(slow.value)}: {percent(abs(1 - 1 / gain))} "
            f"{what} with {many.workers / few.workers:g} times the workers."
        )
    elif timed:
        one, job = timed[0]
        said.append(f"Only {plural(one.workers, 'worker')} were timed: {seconds(job.value)}.")
    else:
        said.append("No job time was measured that counts.")
    return said + void_times((one.workers for one in settings), found.asked.cores, metric="loss")


def _loss_words(settings: list[Setting]) -> list[str]:
    scored = [(one, loss) for one in settings if (loss := one.final(METRIC)) is not None]
    if not scored:
        return ["The loss was not measured: no launch ran to its end."]
    each = [f"{four(loss.value)} on {plural(one.workers, 'worker')}" for one, loss in scored]
    said = [f"The loss on the test set ends at {listed(each)}."]
    constant = constant_mse(scored[0][0])
    if constant is not None:
        beats = [one.workers for one, loss in scored if loss.value < constant]
        which = counts_in_words(beats) if beats else "no number of workers"
        said.append(f"The best constant gets {four(constant)}, beaten by {which}.")
    return said
