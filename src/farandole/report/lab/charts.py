"""Figures that a lab draws straight from a table: lines, bars, a metric by epoch.

A column is named by its key; a cell that is an `Estimate` has its interval drawn. A figure without
anything to draw has an empty `spec`, and the report leaves it out: labs need no branch for it.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from typing import Any

from farandole.model.info.metric import MetricCurve
from farandole.model.statistics import Estimate
from farandole.report.figure import Figure, Spec
from farandole.report.lab.drawing import Columns, Drawing, Point
from farandole.report.series import MOST_SERIES, left_out
from farandole.report.table import Column, Table, shown
from farandole.report.text import brief, known, plural, whole

_MOST_BARS = 24
_NO_ZERO = " A zero has no place on this axis and is in the table only."


def lines(
    name: str,
    title: str,
    caption: str,
    table: Table,
    *,
    x: str,
    y: str,
    series: str | None = None,
    x_title: str | None = None,
    y_title: str | None = None,
    x_log: bool | None = None,
    log: bool = False,
    zero: bool = True,
    ideal: bool = False,
    published: Collection[str] = (),
) -> Figure:
    """Draw a figure against workers, batch or epoch: one line per series.

    Args:
        name: File name without ending, and the chart's id.
        title: Above the figure.
        caption: Below it.
        table: Where its figures are; stands under it.
        x: Key of the column on the horizontal axis; its cells are numbers.
        y: Key of the column that is drawn.
        series: Key of a column, one line per value of it; None: one line.
        x_title: Words at the axis; None: the column's title.
        y_title: Words at the axis, the unit is added; None: the column's title.
        x_log: Equal room for doublings; None: where the values span more than four times.
        log: Whether the figure's axis is logarithmic.
        zero: Whether a linear axis begins at zero.
        ideal: Also draw y = x, for a speedup.
        published: Series that come from elsewhere, drawn with hollow marks.
    """
    columns = _chosen(table, x, y, series)
    found = [point for point in _points(table, columns) if known(point.x)]
    points = [point for point in found if point.y > 0 or not log]
    caption += _NO_ZERO if len(points) < len(found) else ""
    if x_log:
        points = [point for point in points if point.x > 0]
    # What was measured here gets the first colours and the solid line.
    points.sort(key=lambda point: point.name in published)
    names = list(dict.fromkeys(point.name for point in points))
    drawn = [point for point in points if point.name in names[:MOST_SERIES]]
    spec: Spec = {}
    if drawn:
        drawing = Drawing(
            columns=columns,
            x_title=x_title or columns.x.title,
            y_title=y_title or columns.y.title,
            x_log=x_log,
            log=log,
            zero=zero,
        )
        spec = drawing.lines(drawn, ideal=ideal, published=published)
    return Figure(
        name=name,
        title=title,
        caption=caption + left_out(min(len(names), MOST_SERIES), len(names), "lines"),
        spec=spec,
        table=table,
        alt=f"{y_title or columns.y.title} against {x_title or columns.x.title}.",
    )


def bars(
    name: str,
    title: str,
    caption: str,
    table: Table,
    *,
    x: str,
    y: str,
    series: str | None = None,
    y_title: str | None = None,
    log: bool = False,
    zero: bool = True,
) -> Figure:
    """Draw a figure by category, as horizontal bars, several per category with `series`.

    A bar's length says nothing on an axis without a zero: with `log`, or without `zero`, the
    figures are drawn as points.

    Args:
        name: File name without ending, and the chart's id.
        title: Above the figure.
        caption: Below it.
        table: Where its figures are; stands under it.
        x: Key of the column with the categories: words or numbers.
        y: Key of the column that is drawn.
        series: Key of a column, one bar per value of it in each category.
        y_title: Words at the axis, the unit is added; None: the column's title.
        log: Whether the figure's axis is logarithmic.
        zero: Whether the axis begins at zero.
    """
    columns = _chosen(table, x, y, series)
    found = _points(table, columns)
    points = [point for point in found if point.y > 0 or not log]
    caption += _NO_ZERO if len(points) < len(found) else ""
    drawn = points[:_MOST_BARS]
    spec: Spec = {}
    if drawn:
        drawing = Drawing(
            columns=columns,
            x_title=columns.x.title,
            y_title=y_title or columns.y.title,
            x_log=False,
            log=log,
            zero=zero,
        )
        spec = drawing.bars(drawn)
    return Figure(
        name=name,
        title=title,
        caption=caption + left_out(len(drawn), len(points), "bars"),
        spec=spec,
        table=table,
        alt=f"{y_title or columns.y.title} by {columns.x.title}.",
        wide=len(drawn) > 8,
    )


def by_epoch(
    name: str,
    title: str,
    caption: str,
    curves: Mapping[str, MetricCurve],
    *,
    y_title: str | None = None,
    log: bool = False,
) -> Figure:
    """Draw a metric during training: one line per name, such as a recipe or a worker count.

    Args:
        name: File name without ending of the figure and of its table.
        title: Above the figure.
        caption: Below it.
        curves: What to draw, by the names that the reader sees.
        y_title: Words at the axis; None: the metric's name.
        log: Whether the metric's axis is logarithmic.
    """
    metric = next((curve.metric for curve in curves.values()), "value")
    table = Table(
        name=name,
        title=f"{metric} by epoch",
        columns=(
            Column(key="series", title="run", text=True),
            Column(key="epoch", title="epoch", show=brief),
            Column(key="value", title=metric, interval=True),
            Column(key="seeds", title="seeds", show=whole),
        ),
        rows=tuple(
            (series, point.epoch, point.value, point.seeds)
            for series, curve in curves.items()
            for point in curve.points
        ),
    )
    return lines(
        name,
        title,
        caption,
        table,
        x="epoch",
        y="value",
        series="series",
        y_title=y_title,
        x_log=False,
        log=log,
        zero=False,
    )


def _chosen(table: Table, x: str, y: str, series: str | None) -> Columns:
    keys = [column.key for column in table.columns]
    for key in (x, y, series):
        assert key is None or key in keys, f"table {table.name} has {keys}, not {key!r}"
    at = (keys.index(x), keys.index(y), None if series is None else keys.index(series))
    return Columns(
        x=table.columns[at[0]],
        y=table.columns[at[1]],
        series=None if at[2] is None else table.columns[at[2]],
        at=at,
    )


def _points(table: Table, columns: Columns) -> list[Point]:
    """Return every row that has a figure to draw."""
    found = []
    at_x, at_y, at_series = columns.at
    for row in table.rows:
        cell = row[at_y]
        estimate = cell if isinstance(cell, Estimate) else None
        value = _number(cell if estimate is None else estimate.value)
        if not known(value):
            continue
        name = ""
        if columns.series is not None and at_series is not None:
            name = _named(columns.series, row[at_series])
        found.append(
            Point(
                name=name,
                category=shown(columns.x, row[at_x]),
                x=_number(row[at_x]),
                y=value,
                low=estimate.low if estimate else None,
                high=estimate.high if estimate else None,
                text=shown(columns.y, cell),
                short=columns.y.show(value),
            )
        )
    return found


def _number(cell: Any) -> float:
    if isinstance(cell, Estimate):
        return cell.value
    return float(cell) if isinstance(cell, int | float) else math.nan


def _named(column: Column, cell: Any) -> str:
    """Return a series' name: a bare figure would not say what it is of."""
    if column.text or not isinstance(cell, int | float):
        return shown(column, cell)
    if column.title == "workers" and isinstance(cell, int):
        return plural(cell, "worker")
    return f"{column.title} {shown(column, cell)}"
