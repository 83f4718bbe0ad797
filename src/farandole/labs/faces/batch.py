"""Throughput by batch: one process with all cores here, one GPU in the lab."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from farandole.format import listed, seconds, times, whole
from farandole.labs.disturbed import disturbed
from farandole.labs.evidence import NO_INTERVALS, interval_words, without_intervals
from farandole.labs.faces.plan import BATCH as BATCH_STUDY
from farandole.labs.faces.points import GPU, HERE, title_of
from farandole.labs.faces.questions import BATCH, MODELS
from farandole.labs.lab import Answered, Found
from farandole.model.info.scaling import ScalingInfo
from farandole.model.statistics import SPEED_MARGIN, Estimate
from farandole.report.charts import lines
from farandole.report.table import Column, Table


@dataclass(frozen=True, slots=True, kw_only=True)
class _Row:
    source: str
    model: str
    batch: int
    throughput: Estimate
    step_s: Estimate | None


def answer_batch(found: Found) -> Answered:
    """Answer by a sweep of batches."""
    info = found.studies.get(BATCH_STUDY)
    here = _rows(info, HERE)
    lab = _rows(found.published.get("faces_batch"), GPU)
    table = Table(
        name="batch",
        title="Throughput by batch: one process with all cores (here), one GPU (lab)",
        columns=(
            Column(key="source", title="measured", text=True),
            Column(key="model", title="network", text=True),
            Column(key="batch", title="batch", show=whole),
            Column(key="images_per_s", title="images/s", show=_two, interval=True),
            Column(key="step_s", title="step", show=_step, interval=True),
        ),
        rows=tuple(
            (row.source, row.model, row.batch, row.throughput, row.step_s) for row in (*here, *lab)
        ),
    )
    return Answered(
        question=BATCH,
        sentences=(
            *_words(here),
            *_best_words(info),
            *disturbed(found, BATCH_STUDY),
            *_lab_words(lab),
            *([NO_INTERVALS] if without_intervals(row.throughput for row in here) else []),
        ),
        tables=(table,),
        figures=(
            lines(
                "batch-throughput",
                "Images per second by batch",
                "One process with all cores. Bars are 95 % intervals.",
                Table(
                    name="batch-throughput",
                    title="Images per second by batch",
                    columns=(
                        Column(key="model", title="network", text=True),
                        Column(key="batch", title="batch", show=whole),
                        Column(key="images_per_s", title="images/s", show=_two, interval=True),
                    ),
                    rows=tuple((row.model, row.batch, row.throughput) for row in here),
                ),
                x="batch",
                y="images_per_s",
                series="model",
                x_log=True,
            ),
        ),
    )


def _rows(info: ScalingInfo | None, source: str) -> list[_Row]:
    rows = [
        _Row(
            source=source,
            model=title_of(row.cell),
            batch=row.cell.batch,
            throughput=row.throughput,
            step_s=row.step_s if source == HERE else None,
        )
        for row in (info.cells if info else ())
        if row.throughput is not None and row.cell.batch is not None
    ]
    order = list(MODELS.values())
    return sorted(rows, key=lambda row: (order.index(row.model), row.batch))


def gains(rows: Sequence[_Row]) -> dict[str, tuple[_Row, _Row]]:
    """Return the smallest and the largest batch of each network that has several."""
    found = {}
    for title in MODELS.values():
        own = [row for row in rows if row.model == title]
        if len(own) > 1:
            found[title] = (own[0], own[-1])
    return found


def batch_gains(found: Found) -> dict[str, float]:
    """Return by how much the fastest batch here beats the slowest, by network."""
    rows = _rows(found.studies.get(BATCH_STUDY), HERE)
    return {
        title: max(speeds) / min(speeds)
        for title in MODELS.values()
        if len(speeds := [row.throughput.value for row in rows if row.model == title]) > 1
    }


def _words(rows: Sequence[_Row]) -> list[str]:
    ends = gains(rows)
    if not ends:
        return ["No two batches have a figure here: there is nothing to compare."]
    small, large = next(iter(ends.values()))
    parts = [
        f"{times(last.throughput.value / first.throughput.value)} for {title} "
        f"({interval_words(first.throughput)} to {interval_words(last.throughput)} images/s)"
        for title, (first, last) in ends.items()
    ]
    said = [
        f"From batch {small.batch} to {large.batch} throughput on all cores changes by "
        f"{listed(parts)}."
    ]
    if any(b.throughput.value > (1 + SPEED_MARGIN) * a.throughput.value for a, b in ends.values()):
        said.append(
            "A step has costs that do not depend on its images: reading and updating all weights, "
            "and the calls of every layer. A larger batch shares them among more images, until "
            "they no longer matter."
        )
    return said


def _best_words(info: ScalingInfo | None) -> list[str]:
    best = [
        f"{sweep.best} for {title_of(sweep.points[0].cell)}"
        for sweep in (info.batch_sweeps if info else ())
        if sweep.best is not None
    ]
    return [f"The smallest batch that is as fast as any: {listed(best)}."] if best else []


def _lab_words(rows: Sequence[_Row]) -> list[str]:
    said = ["On the lab's CPU nodes throughput rose until a batch of about 8 and then stayed flat."]
    if rows:
        each = [f"{row.model} {row.throughput.value:g}" for row in rows]
        said.append(
            f"One of its GPUs made, at a batch of {rows[0].batch}, {listed(each)} images/s; "
            "InceptionV3 slightly more at 64."
        )
    return said


def _two(value: float) -> str:
    return f"{value:.2f}"


def _step(value: float | None) -> str:
    return "" if value is None else seconds(value)
