"""Figures drawn from tables: lines, bars, stacked bars, heat map, boxes, panels, bands, scatter.

A column is named by its key; a cell that is an `Estimate` has its interval drawn. A figure without
anything to draw has an empty `spec`, and the report leaves it out.

Specifications are Vega-Lite as plain dictionaries. Their columns have neutral names (x, y, low,
high, name, ...): strings of users are values of data or titles, never fields or expressions.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import pairwise
from textwrap import fill
from typing import Any

from farandole.format import known, percent, plural, rate, seconds, size
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
# Of the axis, beyond the longest bar: as much as "11 min 02 s" takes in half a page.
_ROOM = 0.2
# Letters of a legend that fit side by side.
_LEGEND_ROOM = 72
# Letters of a line of boxes side by side.
_BOX_ROOM = 66
# How many of the theme's colours for parts are so strong that figures on them must be light.
_STRONG = 2
# Light to dark in grey as well; values of data, the same on light and dark pages.
_PALE, _DEEP, _INK, _WHITE = "#e6f0f7", "#08519c", "#1c2126", "#ffffff"
_NO_ZERO = " A zero has no place on this axis and is in the table only."
_BY_ORDER = {"field": "order", "op": "min", "order": "ascending"}
# Calibrations double sizes; in units of 1000 their labels would be long.
_BINARY_SIZE = (
    "datum.value >= 1048576 ? format(datum.value / 1048576, '~r') + ' MiB' : "
    "datum.value >= 1024 ? format(datum.value / 1024, '~r') + ' KiB' : datum.value + ' B'"
)


class _Chart:
    """The layers of one chart, and their data: equal rows are stored once."""

    def __init__(self) -> None:
        self._layers: list[Spec] = []
        self._datasets: dict[str, list[Row]] = {}

    def data(self, rows: Sequence[Row]) -> Spec:
        """Store rows, and return what refers to them."""
        for name, others in self._datasets.items():
            if others == rows:
                return {"name": name}
        name = f"rows{len(self._datasets)}"
        self._datasets[name] = list(rows)
        return {"name": name}

    def add(self, rows: Sequence[Row], mark: Spec, **encoding: Any) -> None:
        """Add a layer of marks; none where there are no rows."""
        if rows:
            self._layers.append({"data": self.data(rows), "mark": mark, "encoding": encoding})

    def spec(self, *, height: int = 260, **panels: Any) -> Spec:
        """Return the specification, without theme or width: layers, or panels."""
        drawn = panels or {"height": height, "layer": self._layers}
        return {**drawn, "datasets": self._datasets}


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
    ideal: bool | str = False,
    square: bool = False,
    published: Collection[str] = (),
    note: str | None = None,
    height: int = 260,
    room: int = _LEGEND_ROOM,
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
        ideal: Also draw y = x, for a speedup; or the key of the column with the ideal.
        square: Whether both axes have one scale, so that the ideal is the diagonal.
        published: Series that come from elsewhere, drawn with hollow marks.
        note: Key of a column of words: a row without a figure that has one failed and gets a cross.
        height: Of the chart, in pixels.
        room: Letters of a legend that fit side by side.
    """
    column = table.column(y)
    x_column = table.column(x)
    x_title, y_title = x_title or x_column.title, y_title or column.title
    ideals = ideal if isinstance(ideal, str) else None
    points = _points(table, x, y, series, ideal=ideals, note=note)
    failed = [one | {"y": 0.0} for one in points if one["failed"]]
    points = [one for one in points if known(one["x"]) and not one["failed"]]
    drawable = [one for one in points if one["y"] > 0 or not log]
    caption += _NO_ZERO if len(drawable) < len(points) else ""
    drawable = [one for one in drawable if one["x"] > 0 or not x_log]
    # What was measured here gets the first colours and the solid line.
    drawable.sort(key=lambda one: one["name"] in published)
    names = _unique(row["name"] for row in drawable)
    chosen = names[:MOST_SERIES]
    spec: Spec = {}
    if chosen:
        drawn = [one for one in drawable if one["name"] in chosen]
        rows, y_axis, factor = _measured(drawn, column, y_title, log=log, zero=zero)
        crosses = [row for row in failed if row["name"] in chosen]
        values = [row["x"] for row in (*rows, *crosses)]
        axes = {"x": _x_axis(values, x_column, x_title, log=x_log), "y": y_axis}
        if square and all(0 < row["y"] < 4 * max(values) for row in rows):
            axes = _square(rows, [int(value) for value in values], x_title, y_title)
        rows = _side_by_side(rows)
        chart = _Chart()
        if ideal:
            _add_ideal(chart, _ideal_rows(rows, values, factor, straight=ideal is True), axes)
        several = len(chosen) > 1
        at_ends = several and not published and _far_apart(rows, log=bool(log))
        # One line alone needs a name only where it is not this machine's.
        legend = (several and not at_ends) or chosen[0] in published
        look = _by_series(chosen, legend=legend, room=room)
        _add_lines(chart, rows, axes, look, published, hover_title=_unitless(x_title))
        _add_names(chart, rows, axes, look, at_ends=at_ends)
        hover = _tooltip(category=x_title, note="failed")
        cross = {"type": "text", "style": "value", "text": "✕", "dy": -8}
        chart.add(crosses, cross, **axes, tooltip=hover)
        if not several:
            best = [row for row in rows if row["note"] == "best"]
            chart.add(best, {"type": "text", "style": "value", "text": "best", "dy": -14}, **axes)
        spec = chart.spec(height=height)
    return Figure(
        name=name,
        title=title,
        caption=caption + left_out(len(chosen), len(names), "lines"),
        spec=spec,
        table=table,
        alt=f"{y_title} against {x_title}.",
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
) -> Figure:
    """Draw a figure by category, as horizontal bars, several per category with `series`.

    A bar's length says nothing on an axis without a zero: with `log`, or without `zero`, the
    figures are drawn as points.

    Args:
        name: File name, title, caption, table, series, axis and words as for `lines`.
        x: Key of the column with the categories: words or numbers.
        y: Key of the column that is drawn; several columns are a series each, under their titles.
        label: Key of a column of words to write at the bars in place of the figures.
    """
    keys = [y] if isinstance(y, str) else list(y)
    columns = {key: table.column(key) for key in keys}
    x_column = table.column(x)
    y_title = y_title or columns[keys[0]].title
    points = [
        point | ({"name": columns[key].title} if len(keys) > 1 else {})
        for key in keys
        for point in _points(table, x, key, series, label=label)
    ]
    drawable = [point for point in points if point["y"] > 0 or not log]
    caption += _NO_ZERO if len(drawable) < len(points) else ""
    drawn = drawable[:MOST_BARS]
    spec: Spec = {}
    if drawn:
        rows, axis, _ = _measured(drawn, columns[keys[0]], y_title, log=log, zero=zero)
        spec = _bars(rows, axis, x_column, full=zero and not log, words=label is not None)
    return Figure(
        name=name,
        title=title,
        caption=caption + left_out(len(drawn), len(drawable), "bars"),
        spec=spec,
        table=table,
        alt=f"{y_title} by {x_column.title}.",
        wide=len(drawn) > 8,
    )


def stacked(
    table: Table,
    *,
    category: str,
    parts: Sequence[str],
    title: str,
    weights: Sequence[str] | None = None,
) -> Spec:
    """Draw horizontal bars, stacked in the order of the parts, with figures inside.

    Args:
        table: Where the figures are.
        category: Key of the column with the bars' names.
        parts: Keys of the columns that are stacked, in their order; all show the same unit.
        title: Words at the axis; the unit is added.
        weights: The same keys by weight: the first gets the calmest colour; None: as stacked.
    """
    words = {key: table.column(key).title for key in parts}
    show = table.column(parts[0]).show
    drawn = table.records()
    sums = [sum(row[key] for key in parts if known(row[key])) for row in drawn]
    factor, unit = _unit_of(show, max(sums, default=0.0))
    rows: list[Row] = []
    names = unlike(_without_common_end([str(row[category]) for row in drawn]))
    for order, row in enumerate(drawn):
        begin = 0.0
        for key in parts:
            if not known(row[key]) or not row[key]:
                continue
            end = begin + row[key] / factor
            span = {"x": begin, "end": end, "middle": (begin + end) / 2}
            words_of = {"name": names[order], "part": words[key], "text": show(row[key])}
            rows.append({"order": order, **span, **words_of})
            begin = end
    if not rows:
        return {}
    present = [word for word in words.values() if any(row["part"] == word for row in rows)]
    heavy = [words[key] for key in weights or parts if words[key] in present]
    y = _category_axis("name", sort=_BY_ORDER)
    axis = {"title": f"{title} ({unit})" if unit else title, "grid": True, "tickCount": 6}
    x = _quantity("x", scale={"domainMin": 0}, axis=axis)
    # Behind an axis of words, a legend has less room on half a page of paper.
    beside = 66 - min(34, max(len(row["name"]) for row in rows))
    # The legend in the order of the stack; colours by weight, so that the main part is the calmest.
    legend = {"title": None, "columns": _legend_columns(present, beside), "values": present}
    colour = _word("part", scale={"domain": heavy, "range": "ordinal"}, legend=legend)
    hover = _tooltip(name="cell", part="part", text="value")
    chart = _Chart()
    bar_mark = {"type": "bar", "style": "bar"}
    chart.add(rows, bar_mark, y=y, x=x, x2={"field": "end"}, color=colour, tooltip=hover)
    # A figure that would not fit its segment is left to the pointer and the table.
    longest = max(row["end"] for row in rows)
    wide = [row for row in rows if row["end"] - row["x"] > 0.13 * longest]
    for style, inside in (("inside", heavy[:_STRONG]), ("value", heavy[_STRONG:])):
        figures = [row for row in wide if row["part"] in inside]
        mark = {"type": "text", "style": style}
        chart.add(figures, mark, y=y, x=x | {"field": "middle"}, text=_word("text"))
    return chart.spec(height=max(70, 34 * len({row["name"] for row in rows})))


def heat_map(table: Table, *, x: str, y: str, value: str, note: str) -> Spec:
    """Draw figures by two counts; the cell whose note says "best" is framed."""
    column = table.column(value)
    cells = [row for row in table.records() if known(row[value].value)]
    top = max((row[value].value for row in cells), default=0.0)
    rows: list[Row] = [
        {
            "x": row[x],
            "y": row[y],
            "value": row[value].value,
            "short": column.show(row[value].value),
            "text": shown(column, row[value]),
            "split": f"{row[y]} x {row[x]}",
            "note": row[note],
            "ink": _WHITE if row[value].value > 0.55 * top else _INK,
        }
        for row in cells
    ]
    across, down = (sorted({row[end] for row in rows}) for end in ("x", "y"))
    axes = {
        "x": _ordinal("x", title=table.column(x).title, sort=across, axis={"labelAngle": 0}),
        "y": _ordinal("y", title=table.column(y).title, sort=down),
    }
    shade = _quantity("value", scale={"range": [_PALE, _DEEP], "zero": True}, legend=None)
    hover = _tooltip(split="split", text=column.title, note="")
    chart = _Chart()
    chart.add(rows, {"type": "rect", "style": "bar"}, **axes, color=shade, tooltip=hover)
    for ink in (_INK, _WHITE):
        words = [row for row in rows if row["ink"] == ink]
        chart.add(words, {"type": "text", "fill": ink}, **axes, text=_word("short"))
    best = [row for row in rows if "best" in row["note"]]
    chart.add(best, {"type": "rect", "style": "best", "fill": None}, **axes)
    return chart.spec(height=max(90, 48 * len(down)))


def boxes(name: str, title: str, caption: str, table: Table) -> Figure:
    """Draw a table of words as boxes, for designs: the first column names the rows.

    Args:
        name: File name, title, caption and table as for `lines`; an empty cell has no box.
    """
    first, *others = table.columns
    rows: list[Row] = [
        {
            "order": order,
            "place": place,
            "y": shown(first, record[first.key]),
            "x": column.title,
            "text": fill(record[column.key], _BOX_ROOM // len(others)),
        }
        for order, record in enumerate(table.records())
        for place, column in enumerate(others)
        if record[column.key]
    ]
    across = {"orient": "top", "ticks": False, "domain": False, "labelAngle": 0}
    by_place = _BY_ORDER | {"field": "place"}
    axes = {
        "x": _word("x", sort=by_place, title=None, axis=across, scale={"padding": 0.06}),
        "y": _category_axis("y", sort=_BY_ORDER),
    }
    chart = _Chart()
    chart.add(rows, {"type": "rect", "fill": _PALE, "cornerRadius": 3}, **axes)
    mark = {"type": "text", "fill": _INK, "lineBreak": "\n", "baseline": "middle"}
    lines_each = max((row["text"].count("\n") + 1 for row in rows), default=1)
    # Vega sets the first line at the middle: moved up by half of what follows it.
    for line in range(1, lines_each + 1):
        some = [row for row in rows if row["text"].count("\n") + 1 == line]
        chart.add(some, mark | {"dy": -6.5 * (line - 1)}, **axes, text=_word("text"))
    height = (14 * lines_each + 14) * len(table.rows)
    spec = chart.spec(height=height) if rows else {}
    alt = f"{title}: {', '.join(column.title for column in others)}."
    return Figure(
        name=name, title=title, caption=caption, spec=spec, table=table, alt=alt, wide=True
    )


def panels(rows: Sequence[Row], *, y_title: str) -> Spec:
    """Draw shares over time, one panel per name and one line per rank.

    Args:
        rows: With name, order, rank, x (seconds), y (percent), and words for the pointer: time,
            text, memory.
        y_title: Words at the axis.
    """
    ranks = sorted({row["rank"] for row in rows}, key=int)
    legend = {"title": "rank", "columns": 8}
    header = {"labelOrient": "top", "labelAnchor": "start", "labelAngle": 0}
    y_axis = {"title": f"{y_title} (%)", "tickCount": 3}
    chart = _Chart()
    return chart.spec(
        data=chart.data(rows),
        facet={"row": _word("name", title=None, sort=_BY_ORDER, header=header)},
        spec={
            "width": 460,
            "height": 90,
            "mark": {"type": "line", "strokeWidth": 1.6},
            "encoding": {
                "x": _quantity("x", title="seconds since the launch began", scale={"zero": True}),
                "y": _quantity("y", scale={"zero": True}, axis=y_axis),
                "color": _word("rank", scale={"domain": ranks}, legend=legend),
                "strokeDash": _word(
                    "rank",
                    scale={"domain": ranks, "range": DASHES[: len(ranks)]},
                    legend=legend,
                ),
                "tooltip": _tooltip(
                    name="cell", rank="rank", time="time", text=y_title, memory="memory"
                ),
            },
        },
    )


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
    counts = sorted({row["x"] for row in everything})
    promised = [{"name": "", "x": count, "y": ideal(count)} for count in counts] if ideal else []
    lowest = min([row["low"] for row in everything] + [row["y"] for row in promised])
    double = doubling(counts)
    scale: Spec = {"zero": log}
    if log and double:
        scale = {"type": "log", "base": 10, "domainMin": 0.75 * lowest, "nice": False}
    axis = {"title": title, "tickCount": 6} | ({"format": ",~r"} if log else {})
    axes = {
        "x": _counts_axis("workers", counts, log=double),
        "y": _quantity("y", scale=scale, axis=axis),
    }
    between = axes | {"y": axes["y"] | {"field": "low"}, "y2": {"field": "high"}}
    names = _unique(row["name"] for row in projected)
    look = _by_series(names, legend=len(names) > 1)
    colour, hover = look["color"], _tooltip(name="series", workers="workers", text="value")
    within = [row for row in projected if row["name"] == band]
    sure = [row for row in projected if not row["indicative"]]
    asked = [row for row in sure if row["asked"]]
    chart = _Chart()
    chart.add(within, {"type": "area", "opacity": 0.18}, **between, color=colour)
    _add_ideal(chart, promised, axes)
    _add_strokes(chart, sure, axes, colour)
    hollow = {"type": "point", "style": "hollow"}
    chart.add(asked, hollow, **axes, color=colour, tooltip=hover)
    rule = {"type": "rule", "style": ["interval", "over"]}
    chart.add(_with_intervals(measured), rule, **between)
    mark = {"type": "point", "style": "over", "size": 60}
    chart.add(measured, mark, **axes, tooltip=hover)
    return chart.spec()


def scatter(rows: Sequence[Row], *, x_title: str, y_title: str, hover: Mapping[str, str]) -> Spec:
    """Draw named points with intervals on both axes: x, x_low, x_high, y, low, high, name."""
    right, top = (1.08 * max(row[end] for row in rows) for end in ("x_high", "high"))
    x = _quantity("x", scale={"domain": [0, right], "nice": False})
    y = _quantity("y", scale={"domain": [0, top], "nice": False})
    x["axis"], y["axis"] = ({"title": title, "tickCount": 6} for title in (x_title, y_title))
    rule = {"type": "rule", "style": "interval"}
    point = {"type": "point", "style": "first", "size": 80}
    word = {"type": "text", "style": "value", "align": "left", "baseline": "bottom", "limit": 160}
    chart = _Chart()
    chart.add(rows, rule, x=x | {"field": "x_low"}, x2={"field": "x_high"}, y=y)
    chart.add(rows, rule, x=x, y=y | {"field": "low"}, y2={"field": "high"})
    chart.add(rows, point, x=x, y=y, tooltip=_tooltip(**hover))
    chart.add(rows, word | {"dx": 7, "dy": -5}, x=x, y=y, text=_word("name"))
    return chart.spec()


def _without_common_end(names: Sequence[str]) -> list[str]:
    """Return the names without what all of them end with: "2 workers" of "2 workers, batch 64"."""
    parts = [name.split(", ") for name in names]
    while len(names) > 1 and all(len(one) > 1 and one[-1] == parts[0][-1] for one in parts):
        parts = [one[:-1] for one in parts]
    return [", ".join(one) for one in parts]


def left_out(drawn: int, there: int, nouns: str) -> str:
    """Return a sentence on what a chart does not show; empty when it shows all."""
    return "" if drawn == there else f" {drawn} of {there} {nouns} are drawn; the table has all."


def doubling(counts: Sequence[float]) -> bool:
    """Say whether an axis over these counts should give doublings equal room."""
    return bool(counts) and min(counts) > 0 and max(counts) / min(counts) > _LINEAR_SPAN


def time_scale(longest_s: float) -> tuple[float, str]:
    """Return the unit in which an axis of time is read best, and its length in seconds."""
    if longest_s < 1e-3:
        return 1e-6, "us"
    if longest_s < 1.0:
        return 1e-3, "ms"
    return (1.0, "s") if longest_s < 600 else (60.0, "minutes")


# Points of a table.


def _points(
    table: Table,
    x: str,
    y: str,
    series: str | None,
    *,
    ideal: str | None = None,
    label: str | None = None,
    note: str | None = None,
) -> list[Row]:
    """Return the rows of a table that have a figure to draw, or a note in place of it."""
    column, x_column = table.column(y), table.column(x)
    found = []
    for cells in table.records():
        cell = cells[y]
        value = _number(cell)
        failed = cell is None and note is not None and bool(cells[note])
        if not known(value) and not failed:
            continue
        estimate = cell if isinstance(cell, Estimate) else None
        # In studies of several hosts a point says where its workers were.
        where = f" ({cells['placement']})" if "placement" in cells else ""
        found.append(
            {
                "name": _series_name(table, series, cells),
                "category": shown(x_column, cells[x]) + where,
                "x": _number(cells[x]),
                "y": value,
                "low": estimate.low if estimate else None,
                "high": estimate.high if estimate else None,
                "text": shown(column, cell),
                "short": column.show(value) + where,
                "label": str(cells[label]) if label else "",
                "ideal": cells[ideal] if ideal else None,
                "note": cells.get("note", ""),
                "failed": failed,
            }
        )
    return found


def _series_name(table: Table, series: str | None, cells: Mapping[str, Any]) -> str:
    """Return a series' name: a bare figure would not say what it is of."""
    if series is None:
        return ""
    column, cell = table.column(series), cells[series]
    if column.text or not isinstance(cell, int | float):
        return shown(column, cell)
    if column.title == "workers" and isinstance(cell, int):
        return plural(cell, "worker")
    return f"{column.title} {shown(column, cell)}"


def _number(cell: Any) -> float:
    if isinstance(cell, Estimate):
        return cell.value
    return float(cell) if isinstance(cell, int | float) else math.nan


def _unique(names: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(names))


def _with_intervals(rows: Sequence[Row]) -> list[Row]:
    """Return the rows that have an interval of some length."""
    there = [row for row in rows if known(row["low"]) and known(row["high"])]
    return [row for row in there if row["low"] < row["high"]]


# Axes.


def _quantity(field: str, **options: Any) -> Spec:
    return {"field": field, "type": "quantitative", **options}


def _word(field: str, **options: Any) -> Spec:
    return {"field": field, "type": "nominal", **options}


def _ordinal(field: str, **options: Any) -> Spec:
    return {"field": field, "type": "ordinal", **options}


def _tooltip(**titles: str) -> list[Spec]:
    """Return hover texts: fields with words that Python has made, under fixed titles."""
    return [_word(field, title=title) for field, title in titles.items()]


def _measured(
    points: Sequence[Row], column: Column, title: str, *, log: bool, zero: bool
) -> tuple[list[Row], Spec, float]:
    """Return points in the unit of the largest, the axis of their figures, and the unit's size."""
    largest = max(abs(point["y"]) for point in points)
    factor, unit = _unit_of(column.show, largest)
    axis: Spec = {"format": ",~g" if log and not unit else ",~r"}
    axis["title"] = f"{title} ({unit})" if unit else title

    def end(value: float | None) -> float | None:
        drawn = value is not None and known(value) and (value > 0 or not log)
        return value / factor if drawn and value is not None else None

    rows = []
    for point in points:
        value, low, high = point["y"] / factor, end(point["low"]), end(point["high"])
        ends = {"y": value, "low": low, "high": high, "end": max(value, high or value)}
        rows.append(point | ends | {"x": point["x"] if known(point["x"]) else None})
    if not log:
        return rows, _quantity("y", scale={"zero": zero}, axis=axis | {"tickCount": 6}), factor
    # With room for marks and words.
    bottom = 0.7 * min(row["low"] or row["y"] for row in rows)
    ideals = [row["ideal"] / factor for row in rows if known(row["ideal"])]
    top = max(1.4 * max(row["end"] for row in rows), 1.1 * max(ideals, default=0.0))
    # Less than two decades need what lies between the tens, too.
    digits = (1, 2, 5) if top < 100 * bottom else (1,)
    powers = range(math.floor(math.log10(bottom)), 40)
    values = [digit * 10.0**power for power in powers for digit in digits]
    values = [value for value in values if bottom <= value < top]
    axis |= {"values": values} if len(values) > 1 else {"tickCount": 4}
    scale = {"type": "log", "base": 10, "domain": [bottom, top], "nice": False}
    return rows, _quantity("y", scale=scale, axis=axis), factor


def _x_axis(values: Sequence[float], column: Column, title: str, *, log: bool | None) -> Spec:
    if column.show is size:
        axis = {
            "title": title,
            "values": sorted(set(values)),
            "labelExpr": _BINARY_SIZE,
            "labelOverlap": "greedy",
        }
        return _quantity("x", scale={"type": "log", "base": 2, "nice": False}, axis=axis)
    counts = [int(value) for value in values if float(value).is_integer()]
    if len(counts) == len(values) and len(set(counts)) <= _MOST_TICKS:
        log = doubling(counts) if log is None else log and min(counts) > 0
        return _counts_axis(title, counts, log=log)
    scale: Spec = {"type": "log", "base": 2} if log else {"zero": False}
    scale |= {"nice": False, "padding": 8}
    return _quantity("x", scale=scale, axis={"title": title, "tickMinStep": 1})


def _counts_axis(title: str, counts: Sequence[int], *, log: bool) -> Spec:
    """Return an axis whose ticks are the counts that were measured."""
    values = sorted(set(counts))
    low, high = values[0], values[-1]
    if len(values) > _MOST_TICKS:
        values = [value for value in values if value & (value - 1) == 0] or values[::4]
    scale: Spec
    if log:
        # Room for the marks at both ends.
        scale = {"type": "log", "base": 2, "domain": [low * 0.88, high * 1.14], "nice": False}
    else:
        margin = max(0.25, (high - low) * 0.08)
        domain = [max(0.0, low - margin), high + margin]
        scale = {"domain": domain, "nice": False, "zero": False}
    axis = {"title": title, "values": values, "format": "d", "tickMinStep": 1}
    return _quantity("x", scale=scale, axis=axis)


def _square(rows: list[Row], counts: list[int], x_title: str, y_title: str) -> dict[str, Spec]:
    """Return two axes of one scale; an interval that would dwarf all else is cut off."""
    log = doubling(counts)
    x = _counts_axis(x_title, counts, log=log)
    low, high = x["scale"]["domain"]
    least = min(row["y"] for row in rows)
    most = max(row["end"] for row in rows)
    low = max(min(low, 0.8 * least), low / 16) if log else 0.0
    high = max(high, min(1.05 * most, 1.5 * high))
    for row in rows:
        ends = (row["low"], row["high"])
        row |= {"low": max(low, ends[0]), "high": min(high, ends[1])} if None not in ends else {}
    scale = {**x["scale"], "domain": [low, high]}
    axis = {**x["axis"], "title": y_title, "format": "~g"}
    return {"x": x | {"scale": scale}, "y": _quantity("y", scale=scale, axis=axis)}


def _side_by_side(rows: list[Row]) -> list[Row]:
    """Return rows whose marks stand beside each other where several series meet in one point."""
    names = _unique(row["name"] for row in rows)
    places: dict[float, list[float]] = {}
    for row in rows:
        places.setdefault(row["x"], []).append(row["y"])
    meet = any(
        abs(a - b) <= 0.02 * max(abs(a), abs(b))
        for values in places.values()
        for a, b in pairwise(sorted(values))
    )
    if not meet or any(not x for x in places):
        return rows
    middle = (len(names) - 1) / 2
    aside = {name: 1 + 0.012 * (place - middle) for place, name in enumerate(names)}
    return [row | {"x": row["x"] * aside[row["name"]]} for row in rows]


def _category_axis(field: str, *, sort: Any, grid: bool = False, title: str | None = None) -> Spec:
    axis = {"labelLimit": 220, "ticks": False, "domain": False, "grid": grid}
    # Points have no width that could be padded.
    scale = {} if grid else {"scale": {"paddingInner": 0.25, "paddingOuter": 0.1}}
    return _word(field, sort=sort, title=title, axis=axis, **scale)


def _unit_of(show: Callable[[Any], str], largest: float) -> tuple[float, str]:
    """Return the unit of an axis by how its figures are shown; none where they have no unit."""
    if show is seconds:
        return time_scale(largest)
    if show is size:
        units = ((1e9, "GB"), (1e6, "MB"), (1e3, "kB"))
        return next((unit for unit in units if largest >= unit[0]), (1.0, "bytes"))
    if show is rate:
        return 1e9, "GB/s"
    return (0.01, "%") if show is percent else (1.0, "")


def _unitless(title: str) -> str:
    """Return an axis's title without its unit, for a hover text."""
    return title.partition(" (")[0]


# Legends, and layers of lines and bars.


def _by_series(names: Sequence[str], *, legend: bool, room: int = _LEGEND_ROOM) -> dict[str, Any]:
    """Return colour and mark by series, so that grey print can tell them apart."""
    shown = {"title": None, "columns": _legend_columns(names, room)} if legend else None
    domain = {"domain": list(names)}
    return {
        "color": _word("name", scale=domain, legend=shown),
        "shape": _word("name", scale=domain | {"range": SHAPES[: len(names)]}, legend=shown),
    }


def _legend_columns(names: Sequence[str], room: int = _LEGEND_ROOM) -> int:
    """Return how many names of a legend fit side by side."""
    longest = max((len(name) for name in names), default=0)
    return max(1, min(5, len(names), room // (longest + 5)))


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


def _add_lines(
    chart: _Chart,
    rows: list[Row],
    axes: Mapping[str, Spec],
    look: Mapping[str, Any],
    published: Collection[str],
    *,
    hover_title: str,
) -> None:
    """Add lines, intervals and points, hollow ones for series from elsewhere."""
    names = _unique(row["name"] for row in rows)
    colour = look["color"]
    _add_strokes(chart, rows, axes, colour)
    ends = _with_intervals(rows)
    low, high = (axes["y"] | {"field": end} for end in ("low", "high"))
    rule = {"type": "rule", "style": "interval"}
    chart.add(ends, rule, x=axes["x"], y=low, y2={"field": "high"}, color=colour)
    for end in (low, high):
        cap = {"type": "tick", "style": "cap", "orient": "horizontal"}
        chart.add(ends, cap, x=axes["x"], y=end, color=colour)
    hover = _tooltip(name="series", category=hover_title, text="value", note="note")
    hover = hover[0 if len(names) > 1 else 1 : None if any(row["note"] for row in rows) else 3]
    for hollow in (False, True):
        points = [row for row in rows if (row["name"] in published) == hollow]
        mark = {"type": "point", "style": "hollow"} if hollow else {"type": "point"}
        chart.add(points, mark, **axes, color=colour, shape=look["shape"], tooltip=hover)


def _add_strokes(
    chart: _Chart, rows: Sequence[Row], axes: Mapping[str, Spec], colour: Spec
) -> None:
    """Add a line per series, each with its own dashes: as a scale they would join the legend."""
    for name, dash in zip(_unique(row["name"] for row in rows), DASHES, strict=False):
        own = [row for row in rows if row["name"] == name]
        chart.add(own, {"type": "line", "strokeDash": dash}, **axes, color=colour)


def _add_names(
    chart: _Chart,
    rows: list[Row],
    axes: Mapping[str, Spec],
    look: Mapping[str, Any],
    *,
    at_ends: bool,
) -> None:
    """Add names at the ends of lines, or figures at the points of a line alone."""
    word = {"type": "text", "style": "value", "align": "left"}
    last = {row["name"]: row for row in rows}
    if at_ends:
        mark = word | {"baseline": "middle", "dx": 9, "limit": 130}
        chart.add(list(last.values()), mark, **axes, text=_word("name"), color=look["color"])
    elif len(last) == 1 and len(rows) <= _MOST_TICKS:
        # To the right of a point, on the side that the line leaves free.
        along = sorted(rows, key=lambda row: row["x"])
        falls = along[-1]["y"] < along[0]["y"]
        beside = {"baseline": "bottom", "dy": -4} if falls else {"baseline": "top", "dy": 5}
        chart.add(rows, word | {"dx": 7} | beside, **axes, text=_word("short"))


def _ideal_rows(
    rows: Sequence[Row], values: Sequence[float], factor: float, *, straight: bool
) -> list[Row]:
    """Return the points of y = x, or of the ideal that the rows have."""
    if straight:
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


def _add_ideal(chart: _Chart, rows: Sequence[Row], axes: Mapping[str, Spec]) -> None:
    """Add a dashed line per name, with its word at the end."""
    if not rows:
        return
    last = max(rows, key=lambda row: (row["x"], row["y"]))
    rising = last["y"] >= rows[0]["y"]
    chart.add(rows, {"type": "line", "style": "ideal"}, **axes, detail=_word("name"))
    word = {"type": "text", "style": "ideal-label", "align": "right", "dx": -6}
    word["dy"] = -7 if rising else 10
    chart.add([last | {"text": "ideal"}], word, **axes, text=_word("text"))


def _bars(rows: list[Row], axis: Spec, column: Column, *, full: bool, words: bool) -> Spec:
    """Return horizontal bars, or points where a length says nothing."""
    names = _unique(row["name"] for row in rows)
    several = len(names) > 1
    if not several:
        # Two rows of one category would be drawn over each other.
        alone = unlike(row["category"] for row in rows)
        rows = [row | {"category": word} for row, word in zip(rows, alone, strict=True)]
    categories = _unique(row["category"] for row in rows)
    x = axis | {"axis": axis["axis"] | {"grid": True}}
    if full:
        low = min(0.0, *(row["y"] if row["low"] is None else row["low"] for row in rows))
        high = max(0.0, *(row["end"] for row in rows))
        # The longest bar leaves room for the figure beside it.
        x["scale"] = {"domain": [low, high + _ROOM * (high - low)], "nice": False}
    title = None if column.text else column.title
    places = {"y": _category_axis("category", sort=categories, grid=not full, title=title)}
    colour = {}
    if several:
        legend = {"title": None, "columns": _legend_columns(names)}
        places["yOffset"] = _word("name", sort=names)
        scale = {"domain": names, "range": "ordinal"}
        colour = {"color": _word("name", scale=scale, legend=legend)}
    hover = _tooltip(category=_unitless(column.title), name="series", text="value")
    first = [] if several else ["first"]
    mark: Spec = {"type": "bar", "style": ["bar", *first]}
    if not full:
        mark = {"type": "point", "size": 80, "style": first or "point"}
    chart = _Chart()
    chart.add(rows, mark, x=x, **places, **colour, tooltip=hover if several else hover[::2])
    rule = {"type": "rule", "style": ["interval", "over"]}
    ends = {"x": x | {"field": "low"}, "x2": {"field": "high"}}
    chart.add(_with_intervals(rows), rule, **ends, **places)
    text = {"type": "text", "style": "value", "align": "left", "dx": 5 if full else 10}
    field = _word("label" if words else "short")
    chart.add(rows, text, x=x | {"field": "end"}, text=field, **places)
    return chart.spec(height=max(80, 26 * len(rows) + 10 * len(categories)))
