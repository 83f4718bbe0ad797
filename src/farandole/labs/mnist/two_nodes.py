"""What two nodes change: arithmetic from `size()`, the lab's rows, and as many workers here."""

from __future__ import annotations

from typing import Any

from farandole.format import listed, number, plural, seconds, whole
from farandole.labs.columns import four, plain
from farandole.labs.lab import Answered, Found
from farandole.labs.mnist import plan
from farandole.labs.mnist.questions import METRIC, TWO_NODES
from farandole.labs.settings import Setting, settings_of
from farandole.model.info.metric import MetricRow
from farandole.model.info.scaling import ScalingInfo
from farandole.model.jobs import training_steps
from farandole.report.table import Column, Table

_NODES = ((1, 1), (1, 2), (1, 4), (2, 1), (2, 3), (2, 4))
"""Nodes and workers on each, as in the lab."""


def answer_two_nodes(found: Found) -> Answered:
    """Answer by what `size()` does to batch, steps and rate."""
    here = {one.workers: one for one in settings_of(found, "workers")}
    table = Table(
        name="two_nodes",
        title=f"Batch, steps and learning rate by nodes, {plan.WORK.batch} samples per worker",
        columns=(
            Column(key="nodes", title="nodes", show=whole),
            Column(key="per_node", title="per node", show=whole),
            Column(key="workers", title="size()", show=whole),
            Column(key="global_batch", title="global batch", show=whole),
            Column(key="steps_per_epoch", title="steps per epoch"),
            Column(key="steps", title="steps"),
            Column(key="rate", title="rate", show=plain),
            Column(key="lab_job_s", title="lab's job", show=seconds),
            Column(key="lab_accuracy", title="lab's accuracy", show=four),
            Column(key="accuracy", title="accuracy here", show=four, interval=True),
        ),
        rows=tuple(_row(found, nodes, per_node, here) for nodes, per_node in _NODES),
        notes=(
            f"Steps are of {plan.LAB_EPOCHS} epochs of {plan.LAB_SAMPLES:,} samples, as in the "
            "lab; the last column is this machine's, with as many workers on one host and its own "
            "number of samples.",
        ),
    )
    return Answered(question=TWO_NODES, sentences=tuple(_said(here)), tables=(table,))


def published_accuracy(found: Found, nodes: int, workers: int) -> float | None:
    """Return the lab's accuracy; that of 40 epochs where there are two."""
    for name in ("mnist", "mnist_two_nodes"):
        info = found.published.get(name)
        for row in _main(info) if info else ():
            if (row.cell.hosts, row.cell.workers) == (nodes, workers) and row.final is not None:
                return row.final.value
    return None


def _main(info: ScalingInfo) -> list[MetricRow]:
    return [row for row in info.metrics if row.metric == info.main_metric]


def _row(found: Found, nodes: int, per_node: int, here: dict[int, Setting]) -> tuple[Any, ...]:
    workers = nodes * per_node
    info = found.published.get("mnist")
    jobs = [
        job.job_s.value
        for job in (info.job_times if info else ())
        if (job.cell.hosts, job.cell.workers) == (nodes, workers) and job.job_s is not None
    ]
    one = here.get(workers)
    return (
        *(nodes, per_node, workers, plan.WORK.batch * workers),
        training_steps(1, plan.LAB_SAMPLES, plan.WORK.batch, workers),
        training_steps(plan.LAB_EPOCHS, plan.LAB_SAMPLES, plan.WORK.batch, workers),
        plan.WORK.learning_rate * workers,
        jobs[0] if jobs else None,
        published_accuracy(found, nodes, workers),
        one.final(METRIC) if one else None,
    )


def _said(here: dict[int, Setting]) -> list[str]:
    one, two = 4, 8
    batch, rate = plan.WORK.batch, plan.WORK.learning_rate
    steps = [number(training_steps(1, plan.LAB_SAMPLES, batch, size)) for size in (one, two)]
    said = [
        "size() counts the workers of all nodes, so a second node with as many workers doubles "
        "the global batch, halves the steps of an epoch, and doubles a rate that is scaled by "
        f"size(): with 4 per node from {batch * one} to {batch * two:,} samples, from {steps[0]} "
        f"to {steps[1]} steps and from {rate * one:g} to {rate * two:g}.",
        "Nothing else follows from a second node: workers on two nodes take the very steps that as "
        "many on one node take; only the time that gradients need differs.",
        "A lab runs on one host: times of two nodes are the original's. Where there are two, "
        "this measures them: farandole study -np 4,2x4 -H HOST1:4,HOST2:4 -- examples/mnist.py",
    ]
    scored = [(size, found) for size, s in here.items() if (found := s.final(METRIC)) is not None]
    if scored:
        each = [f"{four(value.value)} with {plural(size, 'worker')}" for size, value in scored]
        said.append(f"On this one host, with its own samples and epochs: {listed(each)}.")
    return said
