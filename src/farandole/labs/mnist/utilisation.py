"""How utilisation and throughput of one worker depend on the batch."""

from __future__ import annotations

from dataclasses import dataclass

from farandole.format import percent, plural, seconds, times, whole
from farandole.labs import columns
from farandole.labs.columns import HERE, LAB
from farandole.labs.disturbed import disturbed
from farandole.labs.evidence import NO_INTERVALS, interval_words, only, without_intervals
from farandole.labs.lab import Answered, Found
from farandole.labs.mnist.questions import UTILISATION
from farandole.model.info.scaling import ScalingInfo
from farandole.model.statistics import SPEED_MARGIN, Estimate
from farandole.report.charts import lines
from farandole.report.table import Column, Table

_CHANGE = 0.02
"""Shares closer than this are the same to a sampler that looks twice a second."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Row:
    source: str
    device: str
    batch: int
    share: float | None
    throughput: Estimate | None = None
    step_s: Estimate | None = None


def answer_utilisation(found: Found) -> Answered:
    """Answer by a sweep of batches on one worker."""
    info = found.studies.get("batch")
    here = _measured(info) if info is not None else []
    lab = _published(found.published.get("mnist_utilisation"))
    table = Table(
        name="utilisation",
        title="Utilisation and throughput of one worker by batch",
        columns=(
            columns.SOURCE,
            Column(key="device", title="device", text=True),
            Column(key="batch", title="batch", show=whole),
            Column(key="utilisation", title="utilisation", show=percent),
            Column(key="samples_per_s", title="samples/s", interval=True),
            Column(key="step_s", title="step", show=seconds, interval=True),
        ),
        rows=tuple(
            (row.source, row.device, row.batch, row.share, row.throughput, row.step_s)
            for row in (*here, *lab)
        ),
        notes=("Utilisation is sampled twice a second, from the end of the first step on.",),
    )
    return Answered(
        question=UTILISATION,
        sentences=(
            *_said(here),
            *disturbed(found, "batch"),
            *_sweep_words(info),
            *_lab_words(lab),
            *_without(here),
        ),
        tables=(table,),
        figures=(
            lines(
                "utilisation-by-batch",
                "Utilisation by batch",
                "Share of its cores (here) or of its GPU (the lab) that one worker keeps busy.",
                table,
                x="batch",
                y="utilisation",
                series="source",
                published=(LAB,),
            ),
            lines(
                "throughput-by-batch",
                "Throughput by batch",
                "Samples that one worker with all cores trains on in a second.",
                table,
                x="batch",
                y="samples_per_s",
            ),
        ),
    )


def _measured(info: ScalingInfo) -> list[_Row]:
    rows = []
    for row in info.cells:
        if row.cell.batch is None or row.cell.today:
            continue
        used = only(info.utilisation, workers=row.cell.workers, batch=row.cell.batch)
        rows.append(
            _Row(
                source=HERE,
                device=plural(row.cell.threads, "core") if row.cell.threads else "CPU",
                batch=row.cell.batch,
                share=None if used is None else used.cpu,
                throughput=row.throughput,
                step_s=row.step_s,
            )
        )
    return sorted(rows, key=lambda row: row.batch)


def _published(info: ScalingInfo | None) -> list[_Row]:
    return [
        _Row(source=LAB, device="1 GPU", batch=point.batch, share=point.gpu)
        for sweep in (info.batch_sweeps if info else ())
        for point in sweep.points
    ]


def _said(rows: list[_Row]) -> list[str]:
    said = []
    shares = [(row, row.share) for row in rows if row.share is not None]
    speeds = [(row, row.throughput) for row in rows if row.throughput is not None]
    if len(shares) > 1:
        (small, low), (large, high) = shares[0], shares[-1]
        ends = (
            f"one worker keeps {small.device} {percent(low)} busy at batch {small.batch} and "
            f"{percent(high)} at {large.batch:,}"
        )
        change = "rises" if high > low + _CHANGE else "falls" if high < low - _CHANGE else "stays"
        # One launch of a few steps has too few looks for so small a fall to be one.
        if change == "falls" and without_intervals(row.throughput for row in rows):
            change = "does not rise"
        said.append(
            f"Utilisation {change} as the batch grows: {ends}."
            if speeds
            else f"On a machine too busy for a comparison {ends}."
        )
    if len(speeds) > 1:
        (small, slow), (large, fast) = speeds[0], speeds[-1]
        gain = fast.value / slow.value
        why = (
            "what a step costs whatever its size (Python, calls into the framework, the update of "
            "all weights) is shared by its samples"
            if gain > 1 + SPEED_MARGIN
            else "these cores have enough to do with the smaller batch already"
        )
        said.append(
            f"Throughput goes from {interval_words(slow)} samples/s at batch {small.batch} to "
            f"{interval_words(fast)} at {large.batch:,}, {times(gain)}: {why}."
        )
    if not said:
        said.append("No two batches have a launch here whose figures count: nothing to compare.")
    return said


def _sweep_words(info: ScalingInfo | None) -> list[str]:
    sweeps = info.batch_sweeps if info else ()
    return [sweep.sentence for sweep in sweeps if sweep.best is not None]


def _lab_words(rows: list[_Row]) -> list[str]:
    if len(rows) < 2:
        return []
    first, last = rows[0], rows[-1]
    return [
        f"The lab's GPU was {percent(first.share)} busy at batch {first.batch} and "
        f"{percent(last.share)} at {last.batch:,}: the faster the device, the more the fixed part "
        "of a step weighs."
    ]


def _without(rows: list[_Row]) -> list[str]:
    return [NO_INTERVALS] if without_intervals(row.throughput for row in rows) else []
