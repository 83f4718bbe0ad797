"""Figures drawn from tables: lines, bars, stacked bars, a heat map, panels, bands and a scatter.

A column is named by its key; a cell that is an `Estimate` has its interval drawn. A figure without
anything to draw has an empty `spec`, and the report leaves it out.

In the specifications, columns have neutral names (x, y, low, high, name, ...). Strings of users are
only ever values of data or titles, never field names or parts of expressions. Encodings are given
as Altair's classes: to find the class of a plain string takes it 10 ms each time.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any

import altair as alt

from farandole.format import brief, known, percent, plural, rate, seconds, size, whole
from farandole.model.accuracy import MetricCurve
from farandole.model.statistics import Estimate
from farandole.report.document import Figure, Spec, unlike
from farandole.report.table import Column, Table, shown
from farandole.report.theme import DASHES, SHAPES

Row = dict[str, Any]

MOST_SERIES = 8
"""As many as there are colours, shapes and dashes; more lines cannot be told apart."""
MOST_BARS = 24
# Beyond this ratio of the largest to the smallest count, doublings get equal room.
_LINEAR_SPAN = 4
_MOST_TICKS = 12
_SHORT_NAME = 16
# Where doublings get equal room on one axis only, y = x is bent.
_IDEAL_PARTS = 24
# Within this share of an axis, whole percents would repeat.
_NARROW = 0.05
# Of the axis, beyond the longest bar: as much as "11 min 02 s" takes in half a page.
_ROOM = 0.2
# How many of the theme's colours for parts are so strong that figures on them must be light.
_STRONG = 2
# Light to dark in grey as well; values of data, the same on light and dark pages.
_PALE, _DEEP, _INK, _WHITE = "#e6f0f7", "#08519c", "#1c2126", "#ffffff"
_NO_ZERO = " A zero has no place on this axis and is in the table only."
# Calibrations double sizes; in units of 1000 their labels would be long.
_BINARY_SIZE = (
    "datum.value >= 1048576 ? format(datum.value / 1048576, '~r') + ' MiB' : "
    "datum.value >= 1024 ? format(datum.value / 1024, '~r') + ' KiB' : datum.value + ' B'"
)


class Sheet:
    """The data of one chart, kept apart from its layers: Altair would copy and check every row."""

    def __init__(self, *, room: int = 72) -> None:
        self._datasets: dict[str, list[Row]] = {}
        self.room = room
        """Letters of a legend that fit side by side."""

    def chart(self, rows: Sequence[Row]) -> alt.Chart:
        """Return an empty layer on rows."""
        kept = list(rows)
        for name, others in self._datasets.items():
            if others == kept:
                return alt.Chart(alt.NamedData(name=name))
        name = f"rows{len(self._datasets)}"
        self._datasets[name] = kept
        return alt.Chart(alt.NamedData(name=name))

    def finished(self, *layers: alt.Chart, height: int = 260) -> Spec:
        """Return the specification of layers on each other, without theme or width."""
        # Not alt.layer: it copies every layer to the last of its fields, which takes half of the
        # time. And a test validates every specification: doing so here would take as long again.
        parts = [chart.to_dict(validate=False, context={"top_level": False}) for chart in layers]
        return {"height": height, "layer": parts, "datasets": dict(self._datasets)}

    def panels(self, chart: alt.FacetChart) -> Spec:
        """Return the specification of panels, without theme or width."""
        spec: Spec = chart.to_dict(validate=False)
        # The theme decides, and a schema's address would be the only address on the page.
        spec.pop("config", None)
        spec.pop("$schema", None)
        return spec | {"datasets": dict(self._datasets)}


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
    log: bool | int = False,
    zero: bool = True,
    ideal: bool | str = False,
    level: tuple[float, str] | None = None,
    published: Collection[str] = (),
    note: str | None = None,
    draw: Collection[str] | None = None,
    nouns: str = "lines",
    alt_text: str = "",
    height: int = 260,
    room: int = 72,
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
        log: Whether the figure's axis is logarithmic; 2 has its ticks double.
        zero: Whether a linear axis begins at zero.
        ideal: Also draw y = x, for a speedup; or the key of the column with the ideal.
        level: Also draw a level line at this value, with its word.
        published: Series that come from elsewhere, drawn with hollow marks.
        note: Key of a column of words: a row without a figure that has one failed and gets a cross.
        draw: Names of the series to draw; None: the first ones.
        nouns: What the series are, for "8 of 12 lines are drawn".
        alt_text: The description of the chart; made from the titles when empty.
        height: Of the chart, in pixels.
        room: Letters of a legend that fit side by side.
    """
    points = [point for point in _points(table, x, y, series, ideal) if known(point["x"])]
    failed = _failed(table, x, series, note)
    axis = _Axis(table, x=x, y=y, x_title=x_title, y_title=y_title, log=log, zero=zero, x_log=x_log)
    drawable = [point for point in points if point["y"] > 0 or not log]
    caption += _NO_ZERO if len(drawable) < len(points) else ""
    if x_log:
        drawable = [point for point in drawable if point["x"] > 0]
    # What was measured here gets the first colours and the solid line.
    drawable.sort(key=lambda point: point["name"] in published)
    names = list(dict.fromkeys(point["name"] for point in drawable))
    chosen = [one for one in names if draw is None or one in draw][:MOST_SERIES]
    drawn = [point for point in drawable if point["name"] in chosen]
    spec: Spec = {}
    if drawn:
        sheet = Sheet(room=room)
        layers = axis.prepare(drawn, [row for row in failed if row["name"] in chosen], ideal=ideal)
        spec = sheet.finished(
            *_line_layers(sheet, layers, axis, ideal=bool(ideal), level=level, published=published),
            height=height,
        )
    return Figure(
        name=name,
        title=title,
        caption=caption + left_out(len(chosen), len(names), nouns),
        spec=spec,
        table=table,
        alt=alt_text or f"{axis.y_title} against {axis.x_title}.",
    )


def bars(
    name: str,
    title: str,
    caption: str,
    table: Table,
    *,
    x: str,
    y: str | Sequence[str],
    series: str | None = None,
    y_title: str | None = None,
    log: bool = False,
    zero: bool = True,
    label: str | None = None,
    draw: Collection[str] | None = None,
    nouns: str = "bars",
    alt_text: str = "",
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
        y: Key of the column that is drawn; several columns are a series each, under their titles.
        series: Key of a column, one bar per value of it in each category.
        y_title: Words at the axis, the unit is added; None: the column's title.
        log: Whether the figure's axis is logarithmic.
        zero: Whether the axis begins at zero.
        label: Key of a column of words to write at the bars in place of the figures.
        draw: Categories to draw; None: the first ones.
        nouns: What the bars are, for "16 of 20 cells are drawn".
        alt_text: The description of the chart; made from the titles when empty.
    """
    keys = [y] if isinstance(y, str) else list(y)
    points = [point for key in keys for point in _points(table, x, key, series, label=label)]
    if len(keys) > 1:
        titles = {key: table.columns[table.index(key)].title for key in keys}
        points = [point | {"name": titles[point["key"]]} for point in points]
    axis = _Axis(table, x=x, y=keys[0], y_title=y_title, log=log, zero=zero)
    drawable = [point for point in points if point["y"] > 0 or not log]
    caption += _NO_ZERO if len(drawable) < len(points) else ""
    there = len(drawable)
    if draw is not None:
        drawable = [point for point in drawable if point["category"] in draw]
    drawn = drawable[:MOST_BARS]
    return Figure(
        name=name,
        title=title,
        caption=caption + left_out(len(drawn), there, nouns),
        spec=axis.bars(drawn, words=label is not None) if drawn else {},
        table=table,
        alt=alt_text or f"{axis.y_title} by {axis.x_title}.",
        wide=len(drawn) > 8 and draw is None,
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
        *(name, title, caption, table),
        x="epoch",
        y="value",
        series="series",
        y_title=y_title,
        x_log=False,
        log=log,
        zero=False,
    )


def stacked(
    table: Table,
    *,
    category: str,
    parts: Sequence[str],
    title: str,
    weights: Sequence[str] | None = None,
    draw: Collection[str] | None = None,
) -> Spec:
    """Draw horizontal bars, stacked in the order of the parts, with figures inside.

    Args:
        table: Where the figures are.
        category: Key of the column with the bars' names.
        parts: Keys of the columns that are stacked, in their order; all show the same unit.
        title: Words at the axis; the unit is added.
        weights: The same keys by weight: the first gets the calmest colour; None: as stacked.
        draw: Names of the bars to draw; None: all.
    """
    words = {key: table.columns[table.index(key)].title for key in parts}
    show = table.columns[table.index(parts[0])].show
    at = table.index(category)
    bars_of = [row for row in table.rows if draw is None or row[at] in draw]
    sums = [sum(v for key in parts if known(v := row[table.index(key)])) for row in bars_of]
    factor, unit = _unit_of(show, max(sums, default=0.0))
    rows: list[Row] = []
    for order, (bar, row) in enumerate(
        zip(unlike([str(row[at]) for row in bars_of]), bars_of, strict=True)
    ):
        begin = 0.0
        for key, word in words.items():
            value = row[table.index(key)]
            if not known(value) or not value:
                continue
            end = begin + value / factor
            span = {"x": begin, "end": end, "middle": (begin + end) / 2}
            rows.append({"name": bar, "order": order, "part": word, **span, "text": show(value)})
            begin = end
    if not rows:
        return {}
    longest = max(row["end"] for row in rows)
    present = [word for word in words.values() if any(row["part"] == word for row in rows)]
    heavy = [words[key] for key in weights or parts if words[key] in present]
    y = _category_axis("name", order=True)
    label = f"{title} ({unit})" if unit else title
    x = alt.X(
        "x:Q", scale=alt.Scale(domainMin=0), axis=alt.Axis(title=label, grid=True, tickCount=6)
    )
    # The legend in the order of the stack; colours by weight, so that the main part is the calmest.
    fitting = _legend_columns(present, _room_beside(row["name"] for row in rows))
    legend = alt.Legend(title=None, columns=fitting, values=present)
    colour = alt.Color("part:N", scale=alt.Scale(domain=heavy, range="ordinal"), legend=legend)
    sheet = Sheet()
    hover = tooltip(name="cell", part="part", text="value")
    bar_marks = sheet.chart(rows).mark_bar(style="bar")
    layers: list[Any] = [
        bar_marks.encode(y=y, x=x, x2=alt.X2("end:Q"), color=colour, tooltip=hover)
    ]
    # A figure that would not fit its segment is left to the pointer and the table.
    wide = [row for row in rows if row["end"] - row["x"] > 0.13 * longest]
    for style, inside in (("inside", heavy[:_STRONG]), ("value", heavy[_STRONG:])):
        figures = [row for row in wide if row["part"] in inside]
        if figures:
            layer = sheet.chart(figures).mark_text(style=style)
            layers.append(layer.encode(y=y, x=_same_x(x, "middle"), text=alt.Text("text:N")))
    return sheet.finished(*layers, height=max(70, 34 * len({row["name"] for row in rows})))


def heat_map(table: Table, *, x: str, y: str, value: str, note: str) -> Spec:
    """Draw figures by two counts; the cell whose note says "best" is framed."""
    at_x, at_y, at_value, at_note = (table.index(key) for key in (x, y, value, note))
    column = table.columns[at_value]
    cells = [row for row in table.rows if known(row[at_value].value)]
    top = max((row[at_value].value for row in cells), default=0.0)
    rows: list[Row] = [
        {
            "x": row[at_x],
            "y": row[at_y],
            "value": row[at_value].value,
            "short": column.show(row[at_value].value),
            "text": shown(column, row[at_value]),
            "split": f"{row[at_y]} x {row[at_x]}",
            "note": row[at_note],
            "ink": _WHITE if row[at_value].value > 0.55 * top else _INK,
        }
        for row in cells
    ]
    across, down = sorted({row["x"] for row in rows}), sorted({row["y"] for row in rows})
    titles = [table.columns[at].title for at in (at_x, at_y)]
    axis_x = alt.X("x:O", title=titles[0], sort=across, axis=alt.Axis(labelAngle=0))
    axis_y = alt.Y("y:O", title=titles[1], sort=down)
    sheet = Sheet()
    shade = alt.Color("value:Q", scale=alt.Scale(range=[_PALE, _DEEP], zero=True), legend=None)
    hover = tooltip(split="split", text=column.title, note="")
    squares = sheet.chart(rows).mark_rect(style="bar")
    layers = [squares.encode(x=axis_x, y=axis_y, color=shade, tooltip=hover)]
    for ink in (_INK, _WHITE):
        words = [row for row in rows if row["ink"] == ink]
        if words:
            text = sheet.chart(words).mark_text(fill=ink)
            layers.append(text.encode(x=axis_x, y=axis_y, text=alt.Text("short:N")))
    best = [row for row in rows if "best" in row["note"]]
    if best:
        frame = sheet.chart(best).mark_rect(style="best", fill=None)
        layers.append(frame.encode(x=axis_x, y=axis_y))
    return sheet.finished(*layers, height=max(90, 48 * len(down)))


def panels(rows: Sequence[Row], *, y_title: str) -> Spec:
    """Draw shares over time, one panel per name and one line per rank.

    Args:
        rows: With name, order, rank, x (seconds), y (a share), and words for the pointer: time,
            text, memory.
        y_title: Words at the axis.
    """
    ranks = sorted({row["rank"] for row in rows}, key=int)
    legend = alt.Legend(title="rank", columns=8)
    dashes = [list(dash) for dash in DASHES[: len(ranks)]]
    sheet = Sheet()
    chart = sheet.chart(rows).mark_line(strokeWidth=1.6)
    chart = chart.encode(
        x=alt.X("x:Q", title="seconds since the launch began", scale=alt.Scale(zero=True)),
        y=alt.Y(
            "y:Q",
            title=y_title,
            scale=alt.Scale(zero=True),
            axis=alt.Axis(tickCount=3, format="%"),
        ),
        color=alt.Color("rank:N", scale=alt.Scale(domain=ranks), legend=legend),
        strokeDash=alt.StrokeDash(
            "rank:N", scale=alt.Scale(domain=ranks, range=dashes), legend=legend
        ),
        tooltip=tooltip(name="cell", rank="rank", time="time", text=y_title, memory="memory"),
    )
    row = alt.Row(
        "name:N",
        title=None,
        sort=alt.EncodingSortField(field="order", op="min", order="ascending"),
        header=alt.Header(labelOrient="top", labelAnchor="start", labelAngle=0),
    )
    return sheet.panels(chart.properties(width=460, height=90).facet(row=row))


def bands(
    measured: Sequence[Row],
    projected: Sequence[Row],
    *,
    title: str,
    band: str,
    ideal: Callable[[int], float] | None = None,
    log: bool = True,
) -> Spec:
    """Draw projected lines by series over counts, a band, and measured points over them.

    Args:
        measured: Points with x, y, low, high and words for the pointer: name, workers, text.
        projected: The same, also `indicative` (no line is drawn) and `asked` (a point is drawn).
        title: Words at the axis.
        band: The series whose interval is drawn as a band; all of them would hide each other.
        ideal: The ideal at a count.
        log: Whether the axis is logarithmic where counts double.
    """
    everything = [*measured, *projected]
    counts = [row["x"] for row in everything]
    double = doubling(counts)
    x = _counts_axis("workers", counts, log=double)
    lowest = min(row["low"] for row in everything)
    if ideal is not None:
        lowest = min(lowest, *(ideal(count) for count in counts))
    if log and double:
        scale = alt.Scale(type="log", base=10, domainMin=0.75 * lowest, nice=False)
    else:
        scale = alt.Scale(zero=log)
    axis = alt.Axis(title=title, tickCount=6, format=",~r") if log else alt.Axis(tickCount=6)
    y = alt.Y("y:Q", title=title, scale=scale, axis=axis)
    sheet = Sheet()
    names = list(dict.fromkeys(row["name"] for row in projected))
    look = _by_series(names, legend=len(names) > 1)
    area = sheet.chart([row for row in projected if row["name"] == band]).mark_area(opacity=0.18)
    layers: list[Any] = [
        area.encode(x=x, y=_same_y(y, "low"), y2=alt.Y2("high:Q"), color=look["color"])
    ]
    if ideal is not None:
        rows = [{"x": count, "y": ideal(count)} for count in sorted(set(counts))]
        layers += _ideal_layers(sheet, rows, x, y)
    sure = [row for row in projected if not row["indicative"]]
    hover = tooltip(name="series", workers="workers", text="value")
    if sure:
        line = sheet.chart(sure).mark_line()
        layers.append(line.encode(x=x, y=y, color=look["color"], strokeDash=look["strokeDash"]))
    asked = [row for row in sure if row["asked"]]
    if asked:
        dots = sheet.chart(asked).mark_point(style="hollow")
        layers.append(dots.encode(x=x, y=y, color=look["color"], tooltip=hover))
    ends = _with_intervals(measured)
    if ends:
        rule = sheet.chart(ends).mark_rule(style=["interval", "over"])
        layers.append(rule.encode(x=x, y=_same_y(y, "low"), y2=alt.Y2("high:Q")))
    if measured:
        marks = sheet.chart(measured).mark_point(style="over", size=60)
        layers.append(marks.encode(x=x, y=y, tooltip=hover))
    return sheet.finished(*layers)


def scatter(rows: Sequence[Row], *, x_title: str, y_title: str, hover: Mapping[str, str]) -> Spec:
    """Draw named points with intervals on both axes: x, x_low, x_high, y, low, high, name."""
    right, top = (1.08 * max(row[end] for row in rows) for end in ("x_high", "high"))
    x = alt.X("x:Q", title=x_title, scale=alt.Scale(domain=[0, right], nice=False))
    y = alt.Y("y:Q", title=y_title, scale=alt.Scale(domain=[0, top], nice=False))
    low_x = alt.X("x_low:Q", title=x_title, scale=x["scale"])
    low_y = alt.Y("low:Q", title=y_title, scale=y["scale"])
    sheet = Sheet()
    rule = sheet.chart(rows).mark_rule(style="interval")
    names = sheet.chart(rows).mark_text(
        style="value", align="left", baseline="bottom", dx=7, dy=-5, limit=160
    )
    points = sheet.chart(rows).mark_point(style="first", size=80)
    return sheet.finished(
        rule.encode(x=low_x, x2=alt.X2("x_high:Q"), y=y),
        rule.encode(x=x, y=low_y, y2=alt.Y2("high:Q")),
        points.encode(x=x, y=y, tooltip=tooltip(**hover)),
        names.encode(x=x, y=y, text=alt.Text("name:N")),
    )


def left_out(drawn: int, there: int, nouns: str) -> str:
    """Return a sentence on what a chart does not show; empty when it shows all."""
    return "" if drawn == there else f" {drawn} of {there} {nouns} are drawn; the table has all."


def doubling(counts: Sequence[float]) -> bool:
    """Say whether an axis over these counts should give doublings equal room."""
    return bool(counts) and min(counts) > 0 and max(counts) / min(counts) > _LINEAR_SPAN


def tooltip(**titles: str) -> list[alt.Tooltip]:
    """Return hover texts: fields with words that Python has made, under fixed titles."""
    return [alt.Tooltip(f"{field}:N", title=title) for field, title in titles.items()]


def time_scale(longest_s: float) -> tuple[float, str]:
    """Return the unit in which an axis of time is read best, and its length in seconds."""
    if longest_s < 1e-3:
        return 1e-6, "us"
    if longest_s < 1.0:
        return 1e-3, "ms"
    return (1.0, "s") if longest_s < 600 else (60.0, "minutes")


def byte_scale(largest: float) -> tuple[float, str]:
    """Return the unit in which an axis of bytes is read best, and its size in bytes."""
    for limit, unit in ((1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if largest >= limit:
            return limit, unit
    return 1.0, "bytes"


class _Axis:
    """The axes of one figure of lines or bars, and its points in their units."""

    def __init__(
        self,
        table: Table,
        *,
        x: str,
        y: str,
        x_title: str | None = None,
        y_title: str | None = None,
        log: bool | int,
        zero: bool,
        x_log: bool | None = False,
    ) -> None:
        self.x_column, self.y_column = (table.columns[table.index(key)] for key in (x, y))
        self.x_title = x_title or self.x_column.title
        self.y_title = y_title or self.y_column.title
        self.x_log, self.log, self.zero = x_log, log, zero

    def prepare(
        self, points: Sequence[Row], failed: Sequence[Row], *, ideal: bool | str
    ) -> dict[str, Any]:
        """Put points into the axis's unit, and make both axes."""
        factor, title, ticks = self._unit(points)
        rows = self._scaled(points, factor)
        crosses = [row | {"y": 0.0} for row in failed]
        values = [row["x"] for row in (*rows, *crosses)]
        return {
            "rows": rows,
            "crosses": crosses,
            "x": self._x_axis(values),
            "y": alt.Y(
                "y:Q",
                scale=self._scale(rows),
                axis=alt.Axis(**{"title": title, **self._ticks(rows), **ticks}),
            ),
            "ideal": self._ideal_rows(rows, values, ideal, factor),
            "factor": factor,
        }

    def _ideal_rows(
        self, rows: Sequence[Row], values: Sequence[float], ideal: bool | str, factor: float
    ) -> list[Row]:
        if ideal is True:
            low, high = min(values), max(values)
            steps = range(1, _IDEAL_PARTS)
            between = [low * (high / low) ** (place / _IDEAL_PARTS) for place in steps]
            return [{"name": "", "x": value, "y": value} for value in (low, *between, high)]
        lined = [row for row in rows if known(row["ideal"]) and row["ideal"] > 0]
        found = [{"name": row["name"], "x": row["x"], "y": row["ideal"] / factor} for row in lined]
        # Curves with one ideal need one line.
        unique = {(row["x"], row["y"]): row for row in found}
        if len({x for x, _ in unique}) == len(unique):
            return [row | {"name": ""} for row in unique.values()]
        return found

    def bars(self, points: Sequence[Row], *, words: bool) -> Spec:
        """Return the specification of horizontal bars, or of points where a length says nothing."""
        factor, title, ticks = self._unit(points)
        rows = self._scaled(points, factor)
        names = list(dict.fromkeys(row["name"] for row in rows))
        if len(names) == 1:
            # Two rows of one category would be drawn over each other.
            alone = unlike([row["category"] for row in rows])
            rows = [row | {"category": word} for row, word in zip(rows, alone, strict=True)]
        categories = list(dict.fromkeys(row["category"] for row in rows))
        full = self.zero and not self.log
        y = _category_axis(
            "category",
            sort=categories,
            grid=not full,
            title=None if self.x_column.text else self.x_title,
        )
        scale = _with_room(rows) if full else self._scale(rows)
        axis = alt.Axis(**{"title": title, "grid": True, **self._ticks(rows), **ticks})
        x = alt.X("y:Q", scale=scale, axis=axis)
        shared: dict[str, Any] = {"y": y}
        if len(names) > 1:
            legend = alt.Legend(title=None, columns=_legend_columns(names))
            shared["yOffset"] = alt.YOffset("name:N", sort=names)
            shared["color"] = alt.Color(
                "name:N", scale=alt.Scale(domain=names, range="ordinal"), legend=legend
            )
        hover = tooltip(category=_unitless(self.x_title), name="series", text="value")
        sheet = Sheet()
        style = [] if len(names) > 1 else ["first"]
        layer = sheet.chart(rows)
        marked = (
            layer.mark_bar(style=["bar", *style])
            if full
            else layer.mark_point(size=80, style=style or "point")
        )
        hover = hover if len(names) > 1 else hover[::2]
        layers: list[Any] = [marked.encode(x=x, tooltip=hover, **shared)]
        places = {key: shared[key] for key in ("y", "yOffset") if key in shared}
        ends = _with_intervals(rows)
        if ends:
            rule = sheet.chart(ends).mark_rule(style=["interval", "over"])
            layers.append(rule.encode(x=_same_x(x, "low"), x2=alt.X2("high:Q"), **places))
        text = sheet.chart(rows).mark_text(style="value", align="left", dx=5 if full else 10)
        field = alt.Text("label:N" if words else "short:N")
        layers.append(text.encode(x=_same_x(x, "end"), text=field, **places))
        height = max(80, 26 * len(rows) + 10 * len(categories))
        return sheet.finished(*layers, height=height)

    def _scaled(self, points: Sequence[Row], factor: float) -> list[Row]:
        rows = []
        for point in points:
            low, high = (self._end(point[end], factor) for end in ("low", "high"))
            value = point["y"] / factor
            ends = {"y": value, "low": low, "high": high, "end": max(value, high or value)}
            x = point["x"] if known(point["x"]) else None
            rows.append(point | ends | {"x": x})
        return rows

    def _end(self, value: float | None, factor: float) -> float | None:
        if value is None or not known(value) or (self.log and value <= 0):
            return None
        return value / factor

    def _unit(self, points: Sequence[Row]) -> tuple[float, str, dict[str, Any]]:
        """Return what to divide by, the axis's title with its unit, and how ticks are written."""
        largest = max(abs(point["y"]) for point in points)
        if self.y_column.show is percent:
            span = largest if self.zero else largest - min(point["y"] for point in points)
            return 1.0, self.y_title, {"format": ".1%" if span < _NARROW else ".0%"}
        factor, unit = _unit_of(self.y_column.show, largest)
        if unit:
            return factor, f"{self.y_title} ({unit})", {"format": ",~r"}
        return 1.0, self.y_title, {"format": ",~g" if self.log else ",~r"}

    def _x_axis(self, values: Sequence[float]) -> alt.X:
        if self.x_column.show is size:
            scale = alt.Scale(type="log", base=2, nice=False)
            ticks: dict[str, Any] = {"values": sorted(set(values)), "labelExpr": _BINARY_SIZE}
            axis = alt.Axis(title=self.x_title, labelOverlap="greedy", **ticks)
            return alt.X("x:Q", scale=scale, axis=axis)
        counts = [int(value) for value in values if float(value).is_integer()]
        log = self.x_log
        if len(counts) == len(values) and len(set(counts)) <= _MOST_TICKS:
            log = doubling(counts) if log is None else log and min(counts) > 0
            return _counts_axis(self.x_title, counts, log=log)
        scale = (
            alt.Scale(type="log", base=2, nice=False, padding=8)
            if log
            else alt.Scale(zero=False, nice=False, padding=8)
        )
        return alt.X("x:Q", title=self.x_title, scale=scale, axis=alt.Axis(tickMinStep=1))

    def _ticks(self, rows: Sequence[Row]) -> dict[str, Any]:
        if not self.log:
            return {"tickCount": 6}
        low, high = _span(rows)
        if self.log is not True:
            doubles = [2.0**power for power in range(-20, 40)]
            return {"values": [value for value in doubles if low <= value < high]}
        powers = range(math.floor(math.log10(low)), 40)
        # Less than two decades need what lies between the tens, too.
        digits = (1, 2, 5) if high < 100 * low else (1,)
        values = [digit * 10.0**power for power in powers for digit in digits]
        values = [value for value in values if low <= value < high]
        return {"values": values} if len(values) > 1 else {"tickCount": 4}

    def _scale(self, rows: Sequence[Row]) -> alt.Scale:
        if not self.log:
            return alt.Scale(zero=self.zero)
        low, high = _span(rows)
        return alt.Scale(type="log", base=10, domain=[low, high], nice=False)


def _line_layers(
    sheet: Sheet,
    parts: Mapping[str, Any],
    axis: _Axis,
    *,
    ideal: bool,
    level: tuple[float, str] | None,
    published: Collection[str],
) -> list[alt.Chart]:
    """Return the layers of a figure of lines: ideal, lines, intervals, points and words."""
    rows, x, y = _with_symbols(parts["rows"]), parts["x"], parts["y"]
    names = list(dict.fromkeys(row["name"] for row in rows))
    several = len(names) > 1
    layers = _ideal_layers(sheet, parts["ideal"], x, y) if ideal and parts["ideal"] else []
    at_ends = several and not published and _far_apart(rows, log=bool(axis.log))
    # One line alone needs a name only where it is not this machine's.
    legend = (several and not at_ends) or names[0] in published
    look = _by_series(names, legend=legend, room=sheet.room)
    line = sheet.chart(rows).mark_line()
    layers.append(line.encode(x=x, y=y, color=look["color"], strokeDash=look["strokeDash"]))
    ends = _with_intervals(rows)
    if ends:
        rule = sheet.chart(ends).mark_rule(style="interval")
        low = _same_y(y, "low")
        layers.append(rule.encode(x=x, y=low, y2=alt.Y2("high:Q"), color=look["color"]))
        cap = sheet.chart(ends).mark_tick(style="cap", orient="horizontal")
        layers += [
            cap.encode(x=x, y=_same_y(y, end), color=look["color"]) for end in ("low", "high")
        ]
    hover = tooltip(name="series", category=_unitless(axis.x_title), text="value", note="note")
    hover = hover[0 if several else 1 : None if any(row["note"] for row in rows) else 3]
    for outlined in (False, True):
        points = [row for row in rows if (row["name"] in published) == outlined]
        if points:
            layer = sheet.chart(points)
            marked = layer.mark_point(style="hollow") if outlined else layer.mark_point()
            layers.append(
                marked.encode(x=x, y=y, color=look["color"], shape=look["shape"], tooltip=hover)
            )
    if at_ends:
        last = list({row["name"]: row for row in rows}.values())
        words = sheet.chart(last).mark_text(
            style="value", align="left", baseline="middle", dx=9, limit=130
        )
        layers.append(words.encode(x=x, y=y, text=alt.Text("name:N"), color=look["color"]))
    elif not several and len(rows) <= _MOST_TICKS:
        # To the right of a point, on the side that the line leaves free.
        along = sorted(rows, key=lambda row: row["x"])
        falls = along[-1]["y"] < along[0]["y"]
        beside: dict[str, Any] = (
            {"baseline": "bottom", "dy": -4} if falls else {"baseline": "top", "dy": 5}
        )
        words = sheet.chart(rows).mark_text(style="value", align="left", dx=7, **beside)
        layers.append(words.encode(x=x, y=y, text=alt.Text("short:N")))
    if parts["crosses"]:
        cross = sheet.chart(parts["crosses"]).mark_text(style="value", text="✕", dy=-8)
        layers.append(cross.encode(x=x, y=y, tooltip=tooltip(category=axis.x_title, note="failed")))
    best = [row for row in rows if row["note"] == "best"]
    if best and not several:
        layers.append(
            sheet.chart(best).mark_text(style="value", text="best", dy=-14).encode(x=x, y=y)
        )
    if level is not None:
        height = level[0] / parts["factor"]
        place = {"x": max(row["x"] for row in rows), "y": height, "text": level[1]}
        rule = sheet.chart([{"y": height}]).mark_rule(style="today")
        words = sheet.chart([place]).mark_text(
            style="ideal-label", align="right", baseline="bottom", dx=-2, dy=-3
        )
        layers += [rule.encode(y=y), words.encode(x=x, y=y, text=alt.Text("text:N"))]
    return layers


def _ideal_layers(sheet: Sheet, rows: Sequence[Row], x: alt.X, y: alt.Y) -> list[alt.Chart]:
    """Return a dashed line per name, with its word at the end."""
    rows = [{"name": "", **row} for row in rows]
    last = max(rows, key=lambda row: (row["x"], row["y"]))
    rising = last["y"] >= min(row["y"] for row in rows) and last["y"] >= rows[0]["y"]
    dashed = sheet.chart(rows).mark_line(style="ideal")
    word = sheet.chart([last | {"text": "ideal"}]).mark_text(
        style="ideal-label", align="right", dx=-6, dy=-7 if rising else 10
    )
    return [
        dashed.encode(x=x, y=y, detail=alt.Detail("name:N")),
        word.encode(x=x, y=y, text=alt.Text("text:N")),
    ]


def _points(
    table: Table,
    x: str,
    y: str,
    series: str | None,
    ideal: bool | str = False,
    label: str | None = None,
) -> list[Row]:
    """Return every row of a table that has a figure to draw."""
    at_x, at_y = table.index(x), table.index(y)
    at_series = None if series is None else table.index(series)
    x_column, y_column = table.columns[at_x], table.columns[at_y]
    places = {column.key: place for place, column in enumerate(table.columns)}
    found = []
    for row in table.rows:
        cell = row[at_y]
        value = _number(cell)
        if not known(value):
            continue
        estimate = cell if isinstance(cell, Estimate) else None
        name = "" if at_series is None else _named(table.columns[at_series], row[at_series])
        # In studies of several hosts a point says where its workers were.
        where = f" ({row[places['placement']]})" if "placement" in places else ""
        found.append(
            {
                "key": y,
                "name": name,
                "category": shown(x_column, row[at_x]) + where,
                "x": _number(row[at_x]),
                "y": value,
                "low": estimate.low if estimate else None,
                "high": estimate.high if estimate else None,
                "text": shown(y_column, cell),
                "short": y_column.show(value) + where,
                "label": "" if label is None else str(row[table.index(label)]),
                "ideal": row[table.index(ideal)] if isinstance(ideal, str) else None,
                "note": row[places["note"]] if "note" in places else "",
            }
        )
    return found


def _failed(table: Table, x: str, series: str | None, note: str | None) -> list[Row]:
    """Return the rows that failed: a note, and no figure."""
    if note is None:
        return []
    at_x, at_note = table.index(x), table.index(note)
    estimates = [i for i, column in enumerate(table.columns) if column.interval]
    return [
        {
            "name": "" if series is None else _named(*_cell(table, series, row)),
            "category": shown(table.columns[at_x], row[at_x]),
            "x": row[at_x],
            "note": row[at_note],
        }
        for row in table.rows
        if row[at_note] and all(row[place] is None for place in estimates)
    ]


def _cell(table: Table, key: str, row: Sequence[Any]) -> tuple[Column, Any]:
    at = table.index(key)
    return table.columns[at], row[at]


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


def _unit_of(show: Callable[[Any], str], largest: float) -> tuple[float, str]:
    """Return the unit of an axis by how its figures are shown; none where they have no unit."""
    if show is seconds:
        return time_scale(largest)
    if show is size:
        return byte_scale(largest)
    if show is rate:
        return 1e9, "GB/s"
    return (0.01, "%") if show is percent else (1.0, "")


def _counts_axis(title: str, counts: Sequence[int], *, log: bool) -> alt.X:
    """Return an axis whose ticks are the counts that were measured."""
    values = sorted(set(counts))
    if len(values) > _MOST_TICKS:
        values = [value for value in values if value & (value - 1) == 0] or values[::4]
    low, high = min(counts), max(counts)
    if log:
        # Room for the marks at both ends.
        scale = alt.Scale(type="log", base=2, domain=[low * 0.88, high * 1.14], nice=False)
    else:
        margin = max(0.25, (high - low) * 0.08)
        scale = alt.Scale(domain=[max(0.0, low - margin), high + margin], nice=False, zero=False)
    axis = alt.Axis(values=values, format="d", title=title, tickMinStep=1)
    return alt.X("x:Q", scale=scale, axis=axis)


def _category_axis(
    field: str,
    *,
    sort: Sequence[str] | None = None,
    order: bool = False,
    grid: bool = False,
    title: str | None = None,
) -> alt.Y:
    by_order = alt.EncodingSortField(field="order", op="min", order="ascending")
    return alt.Y(
        f"{field}:N",
        sort=by_order if order else list(sort or ()),
        title=title,
        axis=alt.Axis(labelLimit=220, ticks=False, domain=False, grid=grid),
        # Points have no width that could be padded.
        scale=alt.Undefined if grid else alt.Scale(paddingInner=0.25, paddingOuter=0.1),
    )


def _by_series(names: Sequence[str], *, legend: bool, room: int = 72) -> dict[str, Any]:
    """Return colour, shape and dash by series, so that grey print can tell them apart.

    The legend shows colours and dashes; shapes need rows that `_with_symbols` gives.
    """
    domain = list(dict.fromkeys(names))
    shown_legend = None
    if legend:
        shown_legend = alt.Legend(
            title=None,
            columns=_legend_columns(domain, room),
            symbolType="stroke",
            symbolSize=260,
            symbolOpacity=1,
        )
    dashes = [list(dash) for dash in DASHES[: len(domain)]]
    return {
        "color": alt.Color("name:N", scale=alt.Scale(domain=domain), legend=shown_legend),
        # As a value of data: a scale would join the legend and tear its dashes.
        "shape": alt.Shape("symbol:N", scale=None),
        "strokeDash": alt.StrokeDash(
            "name:N", scale=alt.Scale(domain=domain, range=dashes), legend=shown_legend
        ),
    }


def _legend_columns(names: Sequence[str], room: int = 72) -> int:
    """Return how many names of a legend fit side by side."""
    longest = max((len(name) for name in names), default=0)
    return max(1, min(5, len(names), room // (longest + 5)))


def _room_beside(labels: Iterable[str]) -> int:
    """Return the letters of a legend that fit behind an axis of words, on half a page of paper."""
    return 66 - min(34, max((len(label) for label in labels), default=0))


def _far_apart(rows: Sequence[Row], *, log: bool) -> bool:
    """Say whether the ends of at most three series leave room for their names."""
    last = {row["name"]: row for row in rows}
    values = sorted(row["y"] for row in last.values())
    if not 2 <= len(values) <= 3 or len({row["x"] for row in last.values()}) > 1:
        return False
    if max(len(name) for name in last) > _SHORT_NAME:
        return False
    if log:
        return all(b / a > 1.35 for a, b in pairwise(values))
    room = 0.13 * max(row["y"] for row in rows)
    return all(b - a > room for a, b in pairwise(values))


def _with_symbols(rows: Sequence[Row]) -> list[Row]:
    """Return the rows with one shape per series."""
    names = list(dict.fromkeys(row["name"] for row in rows))
    shapes = {name: SHAPES[index % len(SHAPES)] for index, name in enumerate(names)}
    return [{**row, "symbol": shapes[row["name"]]} for row in rows]


def _with_intervals(rows: Sequence[Row]) -> list[Row]:
    """Return the rows that have an interval of some length."""
    there = [row for row in rows if known(row["low"]) and known(row["high"])]
    return [row for row in there if row["low"] < row["high"]]


def _with_room(rows: Sequence[Row]) -> alt.Scale:
    """Return a scale from zero on which the longest bar leaves room for the figure beside it."""
    low = min(0.0, *(row["y"] if row["low"] is None else row["low"] for row in rows))
    high = max(0.0, *(row["end"] for row in rows))
    return alt.Scale(domain=[low, high + _ROOM * (high - low)], nice=False)


def _span(rows: Sequence[Row]) -> tuple[float, float]:
    """Return the ends of a logarithmic axis, with room for marks and words."""
    low = min(row["low"] or row["y"] for row in rows)
    return 0.7 * low, 1.4 * max(row["end"] for row in rows)


def _same_x(x: alt.X, field: str) -> alt.X:
    # Layers share an axis only if all say the same of it.
    return alt.X(f"{field}:Q", scale=x["scale"], axis=x["axis"])


def _same_y(y: alt.Y, field: str) -> alt.Y:
    return alt.Y(f"{field}:Q", scale=y["scale"], axis=y["axis"])


def _unitless(title: str) -> str:
    """Return an axis's title without its unit, for a hover text."""
    return title.partition(" (")[0]
