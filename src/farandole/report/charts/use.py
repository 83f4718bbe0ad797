"""Utilisation of processors over time, and its means by cell."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import altair as alt

from farandole.model.info.scaling import ScalingInfo
from farandole.model.info.utilisation import UtilisationRow, UtilisationSeries
from farandole.report.charts import marks
from farandole.report.figure import Figure, Missing
from farandole.report.series import Named, foremost, labelled, left_out
from farandole.report.table import Column, Table
from farandole.report.text import known, number, percent, seconds, size, whole
from farandole.report.theme import DASHES

_MOST_PANELS = 4
_MOST_RANKS = 8


def utilisation(infos: Sequence[ScalingInfo]) -> Figure | Missing:
    """Draw each worker's utilisation over time, one panel per cell; the GPU's if there is one."""
    every = labelled(infos, lambda info: info.utilisation_series)
    cells = list(dict.fromkeys(named.name for named in every))
    firsts = [next(named for named in every if named.name == name) for name in cells]
    panels = [named.name for named in foremost(firsts, _MOST_PANELS)]
    gpu = any(known(value) for named in every for value in named.item.gpu)
    rows = [
        row
        for order, panel in enumerate(panels)
        for named in _one_launch(every, panel)
        for row in _rows(named, order, gpu=gpu)
    ]
    if not rows:
        return Missing(
            title="Utilisation over time",
            hint="Needs launches of more than a few seconds; imported tables have none.",
        )
    ranks = sorted({row["rank"] for row in rows}, key=int)
    what = "GPU busy" if gpu else "CPU busy"
    x = alt.X("x:Q", title="seconds since the launch began", scale=alt.Scale(zero=True))
    y = alt.Y(
        "y:Q",
        title=what,
        scale=alt.Scale(zero=True),
        axis=alt.Axis(tickCount=3, format="%"),
    )
    dashes = [list(dash) for dash in DASHES[: len(ranks)]]
    sheet = marks.Sheet()
    lines = (
        sheet.chart(rows)
        .mark_line(strokeWidth=1.6)
        .encode(
            x=x,
            y=y,
            color=alt.Color(
                "rank:N", scale=alt.Scale(domain=ranks), legend=alt.Legend(title="rank", columns=8)
            ),
            strokeDash=alt.StrokeDash(
                "rank:N",
                scale=alt.Scale(domain=ranks, range=dashes),
                legend=alt.Legend(title="rank", columns=8),
            ),
            tooltip=marks.tooltip(
                name="cell", rank="rank", time="time", text=what, memory="memory"
            ),
        )
        .properties(width=460, height=90)
        .facet(
            row=alt.Row(
                "name:N",
                title=None,
                sort=alt.EncodingSortField(field="order", op="min", order="ascending"),
                header=alt.Header(labelOrient="top", labelAnchor="start", labelAngle=0),
            )
        )
    )
    return Figure(
        name="utilisation",
        title="Utilisation over time",
        caption=(
            "Share of time that each worker's GPU was busy, in one launch per cell."
            if gpu
            else "Share of its threads that each worker kept busy, in one launch per cell."
        )
        + left_out(len(panels), len(cells), "cells"),
        spec=sheet.panels(lines),
        table=_means(labelled(infos, lambda info: info.utilisation)),
        alt=f"{what} of each worker over time, one panel per cell.",
    )


def over_time(infos: Sequence[ScalingInfo]) -> Table:
    """Return every point of every worker, for files only: it is long."""
    columns = (
        Column(key="cell", title="cell", text=True),
        Column(key="launch", title="launch", text=True),
        Column(key="rank", title="rank", show=whole),
        Column(key="time_s", title="time", show=seconds),
        Column(key="cpu", title="CPU", show=percent),
        Column(key="gpu", title="GPU", show=percent),
        Column(key="memory_bytes", title="memory", show=size),
    )
    rows = [
        (named.name, named.item.launch, named.item.rank, *values)
        for named in labelled(infos, lambda info: info.utilisation_series)
        for values in _points(named.item)
    ]
    return Table(
        name="utilisation-over-time",
        title="Utilisation over time",
        columns=columns,
        rows=tuple(rows),
    )


def _means(found: Sequence[Named[UtilisationRow]]) -> Table:
    columns = (
        Column(key="cell", title="cell", text=True),
        Column(key="cpu", title="CPU, of its threads", show=percent),
        Column(key="gpu", title="GPU", show=percent),
        Column(key="memory_bytes", title="memory at most", show=size),
        Column(key="gpu_memory_bytes", title="GPU memory", show=size),
        Column(key="energy_j", title="energy (J)", show=number),
        Column(key="cpu_by_rank", title="CPU by rank", text=True),
    )
    rows = [
        (
            named.name,
            named.item.cpu,
            named.item.gpu,
            named.item.memory_bytes,
            named.item.gpu_memory_bytes,
            named.item.energy_j,
            ", ".join(f"{rank}: {percent(cpu)}" for rank, cpu, _, _ in named.item.by_rank),
        )
        for named in found
    ]
    return Table(name="utilisation", title="Utilisation by cell", columns=columns, rows=tuple(rows))


def _one_launch(
    every: Sequence[Named[UtilisationSeries]], panel: str
) -> list[Named[UtilisationSeries]]:
    """Return the ranks of a cell's longest launch; all launches in one panel would be a tangle."""
    mine = [named for named in every if named.name == panel and named.item.time_s]
    if not mine:
        return []
    longest = max(mine, key=lambda named: named.item.time_s[-1]).item.launch
    ranks = [named for named in mine if named.item.launch == longest]
    return sorted(ranks, key=lambda named: named.item.rank)[:_MOST_RANKS]


def _rows(named: Named[UtilisationSeries], order: int, *, gpu: bool) -> list[dict[str, Any]]:
    return [
        {
            "name": named.name,
            "order": order,
            "rank": str(named.item.rank),
            "x": time_s,
            "y": gpu_share if gpu else cpu,
            "time": seconds(time_s),
            "text": percent(gpu_share if gpu else cpu),
            "memory": size(memory),
        }
        for time_s, cpu, gpu_share, memory in _points(named.item)
        if known(gpu_share if gpu else cpu)
    ]


def _points(
    series: UtilisationSeries,
) -> list[tuple[float, float | None, float | None, float | None]]:
    return list(zip(series.time_s, series.cpu, series.gpu, series.memory_bytes, strict=True))
