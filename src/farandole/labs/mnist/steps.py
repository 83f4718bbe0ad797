"""How many steps a job takes: by the formula, and as workers counted."""

from __future__ import annotations

from typing import Any

from farandole.format import listed, optional, plural, whole
from farandole.labs import columns
from farandole.labs.columns import HERE, LAB
from farandole.labs.lab import Answered, Found
from farandole.labs.mnist import plan
from farandole.labs.mnist.questions import STEPS
from farandole.labs.settings import Setting, settings_of
from farandole.model.info.scaling import ScalingInfo
from farandole.model.jobs import training_steps
from farandole.report.table import Column, Table

LAB_TWO_NODES = 3120
"""Steps that the lab names for its run on two nodes."""


def full_steps(epochs: float, samples: int, batch: int, workers: int) -> int:
    """Return a job's steps when each epoch leaves its last, smaller batch out."""
    return int(epochs) * (samples // (batch * workers))


def answer_steps(found: Found) -> Answered:
    """Answer by the formula, and by what workers counted."""
    here = settings_of(found, "workers", "recipes")
    table = Table(
        name="steps",
        title="Steps of a job: by the formula, in whole steps, and counted",
        columns=(
            columns.SOURCE,
            columns.WORKERS,
            columns.RECIPE,
            Column(key="epochs", title="epochs", show=whole),
            Column(key="samples", title="samples", show=whole),
            Column(key="global_batch", title="global batch", show=whole),
            Column(key="formula", title="epochs x samples / global batch"),
            Column(key="whole_steps", title="in whole steps", show=whole),
            Column(key="counted", title="counted", show=optional),
        ),
        rows=(*map(_measured, here), *_published(found.published.get("mnist"))),
        notes=(
            "In whole steps: here an epoch's last, smaller batch is a step, too; the lab's rows "
            f"leave it out, which gives the {LAB_TWO_NODES:,} steps that it names for two nodes.",
        ),
    )
    return Answered(question=STEPS, sentences=tuple(_said(here)), tables=(table,))


def _measured(one: Setting) -> tuple[Any, ...]:
    return (
        *(HERE, one.workers, one.recipe, one.epochs, one.samples, one.global_batch),
        *(one.steps, one.whole_steps, one.counted),
    )


def _published(info: ScalingInfo | None) -> list[tuple[Any, ...]]:
    rows = []
    for job in info.job_times if info else ():
        batch, workers = job.cell.batch, job.cell.workers
        if batch is None or job.epochs is None:
            continue
        rows.append(
            (
                *(LAB, workers, "linear", job.epochs, plan.LAB_SAMPLES, batch * workers),
                training_steps(job.epochs, plan.LAB_SAMPLES, batch, workers),
                full_steps(job.epochs, plan.LAB_SAMPLES, batch, workers),
                LAB_TWO_NODES if job.cell.hosts > 1 else None,
            )
        )
    return rows


def _said(here: tuple[Setting, ...]) -> list[str]:
    lab = training_steps(plan.LAB_EPOCHS, plan.LAB_SAMPLES, plan.WORK.batch)
    said = [
        f"Steps = epochs x samples / (batch x workers): {plan.LAB_EPOCHS} epochs of "
        f"{plan.LAB_SAMPLES:,} samples at {plan.WORK.batch} are {lab:,.0f} on one worker."
    ]
    counted = [one for one in here if one.counted is not None]
    if not counted:
        return [*said, "No launch here ran to its end, so that none could be counted."]
    alike = [one for one in counted if one.recipe == counted[0].recipe]
    told = [f"{one.counted:,} on {plural(one.workers, 'worker')}" for one in alike]
    said.append(
        f"Counted here, {alike[0].epochs} epochs of {alike[0].samples:,} samples at "
        f"{alike[0].batch} per worker, recipe {alike[0].recipe}: {listed(told)}."
    )
    agree = sum(one.counted == one.whole_steps for one in counted)
    said.append(
        f"In {agree} of {plural(len(counted), 'setting')} the count is that of whole steps: the "
        "formula's fraction is an epoch's last, smaller batch, which is a step all the same."
    )
    return said
