"""Throughput by batch, and by processes x threads."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import altair as alt

from farandole.model.info.batches import BatchSweep
from farandole.model.info.cores import SplitTable
from farandole.model.info.scaling import ScalingInfo
from farandole.report.charts import marks
from farandole.report.figure import Figure, Missing
from farandole.report.series import MOST_SERIES, Named, labelled, left_out, unlike
from farandole.report.table import Column, Table, shown
from farandole.report.text import known, number, percent, seconds, whole

_THROUGHPUT = Column(key="throughput", title="throughput", interval=True)
# Light to dark in grey as well; values of data, the same on light and dark pages.
_PALE, _DEEP = "#e6f0f7", "#08519c"
_INK, _WHITE = "#1c2126", "#ffffff"


def batch_sweep(infos: Sequence[ScalingInfo]) -> Figure | Missing:
    """Draw throughput against batch; batches that failed stand at the bottom."""
    found = [
        named
        for named in labelled(infos, lambda info: info.batch_sweeps)
        if any(point.throughput and known(point.throughput.value) for point in named.item.points)
    ]
    found = [n for n in found if n.item.unit == found[0].item.unit]
    if not found:
        return Missing(
            title="Batch sweep",
            hint="Study several batches: farandole study -L batch=32,64,128 -- COMMAND "
            "--batch-size '{batch}'",
        )
    drawn = found[:MOST_SERIES]
    names = unlike(named.name for named in drawn)
    rows = [row for n, name in zip(drawn, names, strict=True) for row in _sweep_rows(n, name)]
    batches = [row["x"] for row in rows]
    log = marks.doubling(batches)
    x = marks.counts_axis("batch per worker", batches, log=log)
    y = marks.value_axis(f"throughput ({drawn[0].item.unit})")
    hover = marks.tooltip(name="series", batch="batch", text="throughput", step="step", use="used")
    good = [row for row in rows if known(row["y"])]
    sheet = marks.Sheet()
    layers = marks.lined_points(sheet, good, x=x, y=y, legend=len(drawn) > 1, hover=hover)
    failed = [row | {"y": 0} for row in rows if not known(row["y"])]
    if failed:
        cross = sheet.chart(failed).mark_text(style="value", text="✕", dy=-8)
        layers.append(
            cross.encode(
                x=x, y=y, tooltip=marks.tooltip(name="series", batch="batch", why="failed")
            )
        )
    best = [row for row in good if row["best"]]
    if best and len(drawn) == 1:
        layers.append(
            sheet.chart(best).mark_text(style="value", text="best", dy=-14).encode(x=x, y=y)
        )
    return Figure(
        name="batch-sweep",
        title="Batch sweep",
        caption=" ".join(named.item.sentence for named in drawn[:2] if named.item.sentence)
        + (" A cross marks a batch that failed." if failed else "")
        + left_out(len(drawn), len(found), "sweeps"),
        spec=sheet.finished(*layers),
        table=_sweep_table(found),
        alt="Throughput against batch per worker.",
    )


def split_heatmap(infos: Sequence[ScalingInfo]) -> Figure | Missing:
    """Draw throughput by processes and threads as a heat map."""
    found = [
        named
        for named in labelled(infos, lambda info: info.split_tables)
        if any(known(point.throughput.value) for point in named.item.points)
    ]
    if not found:
        return Missing(
            title="Processes x threads",
            hint="Study the splits of the cores: farandole study --split all -- COMMAND",
        )
    named = found[0]
    rows = _split_rows(named)
    threads = sorted({point.threads for point in named.item.points})
    workers = sorted({point.workers for point in named.item.points})
    x = alt.X("x:O", title="threads per process", sort=threads, axis=alt.Axis(labelAngle=0))
    y = alt.Y("y:O", title="processes", sort=workers)
    sheet = marks.Sheet()
    base = sheet.chart(rows)
    best = [row for row in rows if row["best"]]
    layers = [
        base.mark_rect(style="bar").encode(
            x=x,
            y=y,
            color=alt.Color(
                "value:Q", scale=alt.Scale(range=[_PALE, _DEEP], zero=True), legend=None
            ),
            tooltip=marks.tooltip(cores="split", text="throughput", today="today"),
        ),
    ]
    for ink in (_INK, _WHITE):
        words = [row for row in rows if row["ink"] == ink]
        if words:
            layers.append(
                sheet.chart(words).mark_text(fill=ink).encode(x=x, y=y, text=alt.Text("short:N"))
            )
    if best:
        layers.append(sheet.chart(best).mark_rect(style="best", fill=None).encode(x=x, y=y))
    spec = sheet.finished(*layers, height=max(90, 48 * len(workers)))
    return Figure(
        name="processes-threads",
        title="Processes x threads",
        caption=f"Throughput ({named.item.unit}); the frame marks the best split. "
        + named.item.sentence
        + left_out(1, len(found), "groups"),
        spec=spec,
        table=_split_table(found),
        alt="Heat map of throughput by processes and threads per process.",
    )


def _sweep_rows(named: Named[BatchSweep], name: str) -> list[dict[str, Any]]:
    return [
        {
            "name": name,
            "x": point.batch,
            **marks.spread(point.throughput),
            "batch": str(point.batch),
            "text": shown(_THROUGHPUT, point.throughput),
            "step": seconds(None if point.step_s is None else point.step_s.value),
            "use": _used(point.cpu, point.gpu),
            "why": point.failed,
            "best": point.batch == named.item.best,
        }
        for point in named.item.points
    ]


def _used(cpu: float | None, gpu: float | None) -> str:
    return f"CPU {percent(cpu)}" if gpu is None else f"GPU {percent(gpu)}"


def _sweep_table(found: Sequence[Named[BatchSweep]]) -> Table:
    columns = (
        Column(key="sweep", title="sweep", text=True),
        Column(key="workers", title="workers", show=whole),
        Column(key="batch_per_worker", title="batch", show=whole),
        Column(key="throughput", title=found[0].item.unit, interval=True),
        Column(key="step_s", title="step", show=seconds, interval=True),
        Column(key="cpu", title="CPU", show=percent),
        Column(key="gpu", title="GPU", show=percent),
        Column(key="note", title="note", text=True),
    )
    rows = [
        (
            named.name,
            named.item.workers,
            point.batch,
            point.throughput,
            point.step_s,
            point.cpu,
            point.gpu,
            point.failed or ("best" if point.batch == named.item.best else ""),
        )
        for named in found
        for point in named.item.points
    ]
    return Table(name="batch-sweep", title="Throughput by batch", columns=columns, rows=tuple(rows))


def _split_rows(named: Named[SplitTable]) -> list[dict[str, Any]]:
    there = [point for point in named.item.points if known(point.throughput.value)]
    top = max(point.throughput.value for point in there)
    return [
        {
            "x": point.threads,
            "y": point.workers,
            "value": point.throughput.value,
            "short": number(point.throughput.value),
            "text": shown(_THROUGHPUT, point.throughput),
            "cores": f"{point.workers} x {point.threads}",
            "today": "what you have today" if point.today else "",
            "ink": _WHITE if point.throughput.value > 0.55 * top else _INK,
            "best": named.item.best == (point.workers, point.threads),
        }
        for point in there
    ]


def _split_table(found: Sequence[Named[SplitTable]]) -> Table:
    columns = (
        Column(key="group", title="group", text=True),
        Column(key="processes", title="processes", show=whole),
        Column(key="threads", title="threads", show=whole),
        Column(key="throughput", title=found[0].item.unit, interval=True),
        Column(key="note", title="note", text=True),
    )
    rows = [
        (
            named.name,
            point.workers,
            point.threads,
            point.throughput,
            ", ".join(
                word
                for word, holds in (
                    ("best", named.item.best == (point.workers, point.threads)),
                    ("today", point.today),
                )
                if holds
            ),
        )
        for named in found
        for point in named.item.points
    ]
    return Table(
        name="processes-threads",
        title="Throughput by processes x threads",
        columns=columns,
        rows=tuple(rows),
    )
