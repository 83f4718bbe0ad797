"""Figures that a lab draws straight from a table: lines, bars, a metric by epoch.

A column is named by its key; a cell that is an `Estimate` has its interval drawn. A figure without
anything to draw has an empty `spec`, and the report leaves it out: labs need no branch for it.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import altair as alt

from farandole.model.info import MetricCurve
from farandole.model.statistics import Estimate
from farandole.report.charts import marks
from farandole.report.figure import Figure, Spec
from farandole.report.series import MOST_SERIES, left_out, unlike
from farandole.report.table import Column, Table, shown
from farandole.report.text import brief, known, percent, seconds, size, times, whole

_MOST_BARS = 24
_MOST_TICKS = 12
# Within this share of an axis, whole percents would repeat.
_NARROW = 0.05


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
    points = [point for point in _points(table, columns) if known(point.x)]
    points = [point for point in points if point.y > 0 or not log]
    if log or x_log:
        points = [point for point in points if point.x > 0]
    # What was measured here gets the first colours and the solid line.
    points.sort(key=lambda point: point.name in published)
    names = list(dict.fromkeys(point.name for point in points))
    drawn = [point for point in points if point.name in names[:MOST_SERIES]]
    spec: Spec = {}
    if drawn:
        drawing = _Drawing(
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
    points = [point for point in _points(table, columns) if point.y > 0 or not log]
    drawn = points[:_MOST_BARS]
    spec: Spec = {}
    if drawn:
        drawing = _Drawing(
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


@dataclass(frozen=True, slots=True, kw_only=True)
class _Columns:
    """The columns of a table that a figure is drawn from, with their places."""

    x: Column
    y: Column
    series: Column | None
    at: tuple[int, int, int | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Point:
    name: str
    """Of its series; empty where there is one."""
    category: str
    x: float
    """NaN where the category is no number."""
    y: float
    low: float | None
    high: float | None
    text: str
    """The figure with its interval, as the table shows it."""
    short: str


def _chosen(table: Table, x: str, y: str, series: str | None) -> _Columns:
    keys = [column.key for column in table.columns]
    for key in (x, y, series):
        assert key is None or key in keys, f"table {table.name} has {keys}, not {key!r}"
    at = (keys.index(x), keys.index(y), None if series is None else keys.index(series))
    return _Columns(
        x=table.columns[at[0]],
        y=table.columns[at[1]],
        series=None if at[2] is None else table.columns[at[2]],
        at=at,
    )


def _points(table: Table, columns: _Columns) -> list[_Point]:
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
            name = shown(columns.series, row[at_series])
        found.append(
            _Point(
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


@dataclass(frozen=True, slots=True, kw_only=True)
class _Drawing:
    """How the points of one figure are drawn."""

    columns: _Columns
    x_title: str
    y_title: str
    x_log: bool | None
    log: bool
    zero: bool

    def lines(self, points: Sequence[_Point], *, ideal: bool, published: Collection[str]) -> Spec:
        factor, title, axis = self._unit(points)
        rows = self._rows(points, factor)
        x = self._x_axis([point.x for point in points])
        y = self._y_axis(rows, title, axis)
        sheet = marks.Sheet()
        layers: list[Any] = []
        if ideal:
            ends = sorted({point.x for point in points})
            layers += _ideal(sheet, [ends[0], ends[-1]], x, y)
        hover = marks.tooltip(name="series", category=_plain(self.x_title), text="value")
        several = len({point.name for point in points}) > 1
        layers += marks.lined_points(
            sheet,
            rows,
            x=x,
            y=y,
            legend=several,
            hover=hover if several else hover[1:],
            hollow=published,
        )
        if not several and len(rows) <= _MOST_TICKS:
            words = sheet.chart(rows).mark_text(
                style="value", align="left", baseline="top", dx=7, dy=5
            )
            layers.append(words.encode(x=x, y=y, text="short:N"))
        return sheet.finished(alt.layer(*layers))

    def bars(self, points: Sequence[_Point]) -> Spec:
        factor, title, axis = self._unit(points)
        rows = self._rows(points, factor)
        names = list(dict.fromkeys(row["name"] for row in rows))
        if len(names) == 1:
            # Two rows of one category would be drawn over each other.
            alone = unlike(row["category"] for row in rows)
            rows = [row | {"category": word} for row, word in zip(rows, alone, strict=True)]
        categories = list(dict.fromkeys(row["category"] for row in rows))
        y = alt.Y(
            "category:N",
            sort=categories,
            title=None if self.columns.x.text else self.x_title,
            axis=alt.Axis(labelLimit=220, ticks=False, domain=False, grid=not self._full),
            scale=alt.Scale(paddingInner=0.25, paddingOuter=0.1),
        )
        x = alt.X(
            "y:Q",
            scale=self._scale(rows),
            axis=alt.Axis(**{"title": title, "grid": True, "tickCount": 6, **axis}),
        )
        shared: dict[str, Any] = {"y": y}
        if len(names) > 1:
            legend = alt.Legend(title=None, columns=marks.legend_columns(names))
            shared["yOffset"] = alt.YOffset("name:N", sort=names)
            shared["color"] = alt.Color(
                "name:N", scale=alt.Scale(domain=names, range="ordinal"), legend=legend
            )
        hover = marks.tooltip(category=_plain(self.x_title), name="series", text="value")
        sheet = marks.Sheet()
        layer = sheet.chart(rows)
        style = [] if len(names) > 1 else ["first"]
        marked = (
            layer.mark_bar(style=["bar", *style])
            if self._full
            else layer.mark_point(size=80, style=style or "point")
        )
        layers: list[Any] = [
            marked.encode(x=x, tooltip=hover if len(names) > 1 else hover[::2], **shared)
        ]
        places = {key: shared[key] for key in ("y", "yOffset") if key in shared}
        ends = marks.with_intervals(rows)
        if ends:
            low = alt.X("low:Q", scale=x["scale"], axis=x["axis"])
            rule = sheet.chart(ends).mark_rule(style=["interval", "over"])
            layers.append(rule.encode(x=low, x2="high:Q", **places))
        far = alt.X("end:Q", scale=x["scale"], axis=x["axis"])
        words = sheet.chart(rows).mark_text(style="value", align="left", dx=5 if self._full else 10)
        layers.append(words.encode(x=far, text="short:N", **places))
        height = max(80, 26 * len(rows) + 10 * len(categories))
        return sheet.finished(alt.layer(*layers), height=height)

    @property
    def _full(self) -> bool:
        """Whether lengths from zero can be drawn."""
        return self.zero and not self.log

    def _rows(self, points: Sequence[_Point], factor: float) -> list[dict[str, Any]]:
        return [
            {
                "name": point.name,
                "category": point.category,
                "x": point.x if known(point.x) else None,
                "y": point.y / factor,
                "low": self._end(point.low, factor),
                "high": self._end(point.high, factor),
                "end": max(point.y, self._end(point.high, 1.0) or point.y) / factor,
                "text": point.text,
                "short": point.short,
            }
            for point in points
        ]

    def _end(self, value: float | None, factor: float) -> float | None:
        if value is None or not known(value) or (self.log and value <= 0):
            return None
        return value / factor

    def _unit(self, points: Sequence[_Point]) -> tuple[float, str, dict[str, Any]]:
        """Return what to divide by, the axis's title with its unit, and how ticks are written."""
        largest = max(abs(point.y) for point in points)
        show = self.columns.y.show
        if show is seconds:
            factor, unit = marks.time_scale(largest)
            return factor, f"{self.y_title} ({unit})", {"format": ",~r"}
        if show is size:
            factor, unit = marks.byte_scale(largest)
            return factor, f"{self.y_title} ({unit})", {"format": ",~r"}
        if show is percent:
            span = largest if self.zero else largest - min(point.y for point in points)
            return 1.0, self.y_title, {"format": ".1%" if span < _NARROW else ".0%"}
        if show is times:
            return 1.0, self.y_title, {"format": ",~r"}
        return 1.0, self.y_title, {"format": ",~g" if self.log else ",~r"}

    def _x_axis(self, values: Sequence[float]) -> alt.X:
        counts = [int(value) for value in values if float(value).is_integer()]
        log = self.x_log
        if len(counts) == len(values) and len(set(counts)) <= _MOST_TICKS:
            log = marks.doubling(counts) if log is None else log and min(counts) > 0
            return marks.counts_axis(self.x_title, counts, log=log)
        if log is None:
            log = False
        scale = (
            alt.Scale(type="log", base=2, nice=False, padding=8)
            if log
            else alt.Scale(zero=False, nice=False, padding=8)
        )
        return alt.X("x:Q", title=self.x_title, scale=scale, axis=alt.Axis(tickMinStep=1))

    def _y_axis(
        self, rows: Sequence[Mapping[str, Any]], title: str, axis: Mapping[str, Any]
    ) -> alt.Y:
        return alt.Y(
            "y:Q",
            scale=self._scale(rows),
            axis=alt.Axis(**{"title": title, "tickCount": 6, **axis}),
        )

    def _scale(self, rows: Sequence[Mapping[str, Any]]) -> alt.Scale:
        if not self.log:
            return alt.Scale(zero=self.zero)
        lowest = min(row["low"] or row["y"] for row in rows)
        return alt.Scale(type="log", base=10, domainMin=0.75 * lowest, nice=False)


def _ideal(sheet: marks.Sheet, ends: Sequence[float], x: alt.X, y: alt.Y) -> list[alt.Chart]:
    """Return y = x, a line with its word."""
    rows = [{"x": value, "y": value} for value in ends]
    word = sheet.chart([rows[-1] | {"text": "ideal"}]).mark_text(
        style="ideal-label", align="right", dx=-6, dy=-7
    )
    return [
        sheet.chart(rows).mark_line(style="ideal").encode(x=x, y=y),
        word.encode(x=x, y=y, text="text:N"),
    ]


def _plain(title: str) -> str:
    """Return an axis's title without its unit, for a hover text."""
    return title.partition(" (")[0]
