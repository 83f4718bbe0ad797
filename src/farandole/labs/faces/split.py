"""Processes x threads: how the cores of a node are best shared out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from farandole.format import listed, percent, size, times, whole
from farandole.labs.disturbed import disturbed
from farandole.labs.evidence import NO_INTERVALS, without_intervals
from farandole.labs.faces.plan import BATCH, SCALING
from farandole.labs.faces.plan import SPLIT as SPLIT_STUDY
from farandole.labs.faces.points import CPU, HERE, curves, title_of, together
from farandole.labs.faces.questions import MODELS, SPLIT
from farandole.labs.lab import Answered, Found
from farandole.model.info.scaling import ScalingInfo
from farandole.model.statistics import SPEED_MARGIN, Estimate
from farandole.report.charts import bars
from farandole.report.table import Column, Table


@dataclass(frozen=True, slots=True, kw_only=True)
class _Row:
    source: str
    model: str
    workers: int
    threads: int
    throughput: Estimate
    memory_bytes: float | None = None
    """Of all processes at their peaks."""

    @property
    def split(self) -> str:
        return f"{self.workers} x {self.threads}"


def answer_split(found: Found) -> Answered:
    """Answer by all cells that share one global batch and use all cores."""
    here, batch = _measured(found)
    lab = _published(found.published.get("faces_split"))
    most = {(row.source, row.model): _best((*here, *lab), row) for row in (*here, *lab)}
    table = Table(
        name="split",
        title="Processes x threads at one global batch",
        columns=(
            Column(key="source", title="measured", text=True),
            Column(key="model", title="network", text=True),
            Column(key="processes", title="processes", show=whole),
            Column(key="threads", title="threads each", show=whole),
            Column(key="images_per_s", title="images/s", show=_two, interval=True),
            Column(key="share", title="of the best", show=percent),
            Column(key="memory_bytes", title="memory of all", show=_memory),
        ),
        rows=tuple(
            (
                *(row.source, row.model, row.workers, row.threads, row.throughput),
                row.throughput.value / most[row.source, row.model].throughput.value,
                row.memory_bytes,
            )
            for row in (*here, *lab)
        ),
        notes=(
            "Splits come from two studies or more, so that they did not all take turns.",
            "The lab publishes its best split, and for ResNet50 another one.",
        ),
    )
    return Answered(
        question=SPLIT,
        sentences=(
            *_words(here, batch),
            *disturbed(found, BATCH),
            *_lab_words(lab),
            *([NO_INTERVALS] if without_intervals(row.throughput for row in here) else []),
        ),
        tables=(table,),
        figures=(
            bars(
                "split-throughput",
                "Images per second by processes x threads",
                f"All cores of this machine at a global batch of {batch}.",
                Table(
                    name="split-throughput",
                    title="Images per second by processes x threads",
                    columns=(
                        Column(key="model", title="network", text=True),
                        Column(key="split", title="processes x threads", text=True),
                        Column(key="images_per_s", title="images/s", show=_two, interval=True),
                    ),
                    rows=tuple((row.model, row.split, row.throughput) for row in here),
                ),
                x="model",
                y="images_per_s",
                series="split",
            ),
        ),
    )


def split_words(found: Found) -> str:
    """Say which split is the fastest here, network by network."""
    return f"Here: {_words(*_measured(found))[0]}"


def _measured(found: Found) -> tuple[list[_Row], int]:
    """Return the splits of all cores, and the global batch that they share."""
    cores = found.asked.cores
    strong = curves(found.studies.get(SCALING), "strong")
    batch = next((curve.batch for curve in strong.values() if curve.batch is not None), 0)
    info = together(found, BATCH, SPLIT_STUDY, SCALING)
    peaks = {row.cell: row.memory_bytes for row in (info.utilisation if info else ())}
    rows = [
        _Row(
            source=HERE,
            model=title_of(row.cell),
            workers=row.cell.workers,
            threads=row.cell.threads,
            throughput=row.throughput,
            memory_bytes=_times(row.cell.workers, peaks.get(row.cell)),
        )
        for row in (info.cells if info else ())
        if row.throughput is not None
        and row.cell.threads is not None
        and row.cell.global_batch == batch
        and row.cell.workers * row.cell.threads == cores
    ]
    order = list(MODELS.values())
    return sorted(rows, key=lambda row: (order.index(row.model), row.workers)), batch


def _published(info: ScalingInfo | None) -> list[_Row]:
    return [
        _Row(
            source=CPU,
            model=title_of(row.cell),
            workers=row.cell.workers,
            threads=row.cell.threads,
            throughput=row.throughput,
        )
        for row in (info.cells if info else ())
        if row.throughput is not None and row.cell.threads is not None
    ]


def _best(rows: Sequence[_Row], like: _Row) -> _Row:
    own = [row for row in rows if (row.source, row.model) == (like.source, like.model)]
    return max(own, key=lambda row: row.throughput.value)


def _words(rows: Sequence[_Row], batch: int) -> list[str]:
    several = [
        [row for row in rows if row.model == title]
        for title in MODELS.values()
        if sum(row.model == title for row in rows) > 1
    ]
    if not several:
        return ["No two splits of the cores have a figure: there is nothing to compare."]
    parts, wins = [], []
    for own in several:
        ordered = sorted(own, key=lambda row: -row.throughput.value)
        gain = ordered[0].throughput.value / ordered[-1].throughput.value
        if gain <= 1 + SPEED_MARGIN:
            parts.append(f"{own[0].model} as fast either way (within {SPEED_MARGIN:.0%})")
            continue
        parts.append(f"{own[0].model} by {ordered[0].split} ({times(gain)} of {ordered[-1].split})")
        wins.append(ordered[0].workers > ordered[-1].workers)
    said = [
        f"Processes x threads at a global batch of {batch}: {listed(parts)}."
        if wins
        else f"At a global batch of {batch} it does not matter how the cores are shared out: "
        f"{listed(parts)}."
    ]
    if wins and all(wins):
        said.append(
            "Processes win: each runs its whole step on its own core, whereas threads share the "
            "work of single layers and wait for each other after each. What they cost is memory, "
            "and gradients that have to be exchanged."
        )
    elif wins and not any(wins):
        said.append(
            "Threads win: one process exchanges no gradients and reads its weights once, and its "
            "layers are large enough to keep all cores busy."
        )
    return said


def _lab_words(rows: Sequence[_Row]) -> list[str]:
    said = []
    for title in MODELS.values():
        own = sorted(
            (row for row in rows if row.model == title), key=lambda row: -row.throughput.value
        )
        if len(own) > 1:
            gain = own[0].throughput.value / own[1].throughput.value - 1
            said.append(
                f"The lab calls {own[1].split} best; its {title} has "
                f"{own[0].throughput.value:g} images/s at {own[0].split} and "
                f"{own[1].throughput.value:g} at {own[1].split}, a difference of {gain:.1%} that "
                "single runs cannot tell from none."
            )
    return said


def _two(value: float) -> str:
    return f"{value:.2f}"


def _times(workers: int, peak_bytes: float | None) -> float | None:
    return None if peak_bytes is None else workers * peak_bytes


def _memory(value: float | None) -> str:
    return "" if value is None else size(value)
