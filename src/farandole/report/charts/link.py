"""Bus bandwidth: what training reached, and what a calibration of the link reached."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import altair as alt

from farandole.model.info.communication import Communication, LinkPoint
from farandole.model.info.scaling import ScalingInfo
from farandole.report.charts import marks
from farandole.report.figure import Figure, Missing
from farandole.report.series import (
    MOST_SERIES,
    Named,
    foremost,
    labelled,
    left_out,
    prefixed,
    unlike,
)
from farandole.report.table import Column, Table
from farandole.report.text import known, number, percent, seconds, size, whole

_MOST_CELLS = 16
# Calibrations double sizes; in units of 1000 their labels would be long.
_BINARY_SIZE = (
    "datum.value >= 1048576 ? format(datum.value / 1048576, '~r') + ' MiB' : "
    "datum.value >= 1024 ? format(datum.value / 1024, '~r') + ' KiB' : datum.value + ' B'"
)
_WAYS = ("measured", "derived", "peak of the link")


def bandwidth(infos: Sequence[ScalingInfo]) -> Figure | Missing:
    """Draw the bus bandwidth that the gradients of each cell reached."""
    found = labelled(infos, lambda info: info.communication)
    drawable = [
        named
        for named in found
        if known(named.item.bus_bytes_per_s) or known(named.item.derived_bus_bytes_per_s)
    ]
    if not drawable:
        return Missing(
            title="Bandwidth",
            hint="Needs at least two workers and gradients whose communication was measured.",
        )
    drawn = foremost(drawable, _MOST_CELLS)
    rows = _bandwidth_rows(drawn)
    present = [way for way in _WAYS if any(row["way"] == way for row in rows)]
    y = alt.Y(
        "name:N",
        sort=alt.EncodingSortField(field="order", op="min", order="ascending"),
        title=None,
        axis=alt.Axis(labelLimit=220, ticks=False, domain=False, grid=True),
    )
    x = alt.X("x:Q", title="bus bandwidth (GB/s)", scale=alt.Scale(zero=True))
    scale = alt.Scale(domain=present)
    shapes = {"measured": "circle", "derived": "diamond", "peak of the link": "cross"}
    fitting = marks.legend_columns(present, marks.room_beside(row["name"] for row in rows))
    legend = alt.Legend(title=None, columns=fitting)
    sheet = marks.Sheet()
    points = (
        sheet.chart(rows)
        .mark_point(size=90, strokeWidth=2)
        .encode(
            x=x,
            y=y,
            color=alt.Color("way:N", scale=scale, legend=legend),
            shape=alt.Shape(
                "way:N",
                scale=alt.Scale(domain=present, range=[shapes[way] for way in present]),
                legend=legend,
            ),
            tooltip=marks.tooltip(name="cell", way="", text="value"),
        )
    )
    return Figure(
        name="bandwidth",
        title="Bandwidth",
        caption="Bus bandwidth of the gradients' all-reduce, 2(N-1)/N x bytes / time. Derived: "
        "from T(N) - T(1), as without a recorder. Contention, in the table: what N copies of the "
        "script that send nothing take longer at once than one alone."
        + left_out(len(drawn), len(drawable), "cells"),
        spec=sheet.finished(points, height=max(70, 34 * len(drawn))),
        table=_bandwidth_table(found),
        alt="Bus bandwidth by cell: measured, derived and the link's peak.",
    )


def calibration(infos: Sequence[ScalingInfo]) -> Figure | Missing:
    """Draw what all-reduces of a short calibration reached, by size."""
    names: list[str] = []
    groups: list[list[LinkPoint]] = []
    for info in infos:
        for workers in sorted({p.workers for p in info.link if known(p.bus_bytes_per_s)}):
            names.append(prefixed(infos, info, f"{workers} workers"))
            points = [point for point in info.link if point.workers == workers]
            groups.append(sorted(points, key=lambda point: point.bytes))
    if not names:
        return Missing(
            title="Calibration of the link",
            hint="A study calibrates the link once when it has at least two workers.",
        )
    named = list(zip(unlike(names), groups, strict=True))
    rows: list[dict[str, Any]] = [
        {
            "name": name,
            "x": point.bytes,
            "y": point.bus_bytes_per_s / 1e9,
            "low": None,
            "high": None,
            "size": size(point.bytes),
            "text": f"{number(point.bus_bytes_per_s / 1e9)} GB/s",
            "time": seconds(point.seconds),
        }
        for name, points in named[:MOST_SERIES]
        for point in points
    ]
    x = alt.X(
        "x:Q",
        scale=alt.Scale(type="log", base=2, nice=False),
        axis=alt.Axis(
            title="size of the all-reduce",
            values=sorted({row["x"] for row in rows}),
            labelExpr=_BINARY_SIZE,
            labelOverlap="greedy",
        ),
    )
    y = marks.value_axis("bus bandwidth (GB/s)")
    hover = marks.tooltip(name="series", size="size", text="bus bandwidth", time="time")
    sheet = marks.Sheet()
    layers = marks.lined_points(sheet, rows, x=x, y=y, legend=len(named) > 1, hover=hover)
    columns = (
        Column(key="series", title="series", text=True),
        Column(key="bytes", title="bytes", show=size),
        Column(key="time_s", title="time", show=seconds),
        Column(key="bus_bytes_per_s", title="bus bandwidth", show=_rate),
        Column(key="of_peak", title="of the peak", show=percent),
    )
    return Figure(
        name="calibration",
        title="Calibration of the link",
        caption="Bus bandwidth of single all-reduces by size, measured apart from training."
        + left_out(min(MOST_SERIES, len(named)), len(named), "series"),
        spec=sheet.finished(*layers),
        table=Table(
            name="calibration",
            title="All-reduces of the calibration, medians",
            columns=columns,
            rows=tuple(
                (name, point.bytes, point.seconds, point.bus_bytes_per_s, point.utilisation)
                for name, points in named
                for point in points
            ),
        ),
        alt="Bus bandwidth against the size of an all-reduce.",
    )


def _bandwidth_rows(drawn: Sequence[Named[Communication]]) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    names = unlike(named.name for named in drawn)
    for order, (name, named) in enumerate(zip(names, drawn, strict=True)):
        one = named.item
        values = (one.bus_bytes_per_s, one.derived_bus_bytes_per_s, one.peak_bytes_per_s)
        for way, value in zip(_WAYS, values, strict=True):
            if known(value) and value is not None:
                rows.append(
                    {
                        "name": name,
                        "order": order,
                        "way": way,
                        "x": value / 1e9,
                        "text": _rate(value),
                    }
                )
    return rows


def _bandwidth_table(found: Sequence[Named[Communication]]) -> Table:
    columns = (
        Column(key="cell", title="cell", text=True),
        Column(key="workers", title="workers", show=whole),
        Column(key="gradient_bytes", title="gradients per worker", show=size),
        Column(key="measured_s", title="communication", show=seconds),
        Column(key="exposed_s", title="training waited", show=seconds),
        Column(key="derived_s", title="T(N) - T(1)", show=seconds),
        Column(key="contention_s", title="of it contention", show=seconds),
        Column(key="derived_epoch_s", title="per epoch, derived", show=seconds),
        Column(key="bus_bytes_per_s", title="bus bandwidth", show=_rate),
        Column(key="derived_bus_bytes_per_s", title="derived", show=_rate),
        Column(key="peak_bytes_per_s", title="peak", show=_rate),
        Column(key="of_peak", title="of the peak", show=percent),
    )
    return Table(
        name="bandwidth",
        title="Communication per step, measured and derived",
        columns=columns,
        rows=tuple(
            (
                named.name,
                named.item.cell.workers,
                named.item.gradient_bytes,
                named.item.measured_s,
                named.item.exposed_s,
                named.item.derived_s,
                named.item.contention_s,
                named.item.derived_epoch_s,
                named.item.bus_bytes_per_s,
                named.item.derived_bus_bytes_per_s,
                named.item.peak_bytes_per_s,
                named.item.utilisation,
            )
            for named in found
        ),
    )


def _rate(bytes_per_s: float | None) -> str:
    shown = size(bytes_per_s)
    return f"{shown}/s" if known(bytes_per_s) else shown
