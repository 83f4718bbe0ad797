"""Figures drawn from tables: lines, bars, stacked bars, boxes, panels, bands, scatter.

Every kind takes a name, a title, a caption and a table, whose columns it names by key; a cell that
is an `Estimate` has its interval drawn. A figure without anything to draw has an empty `spec`, and
the report leaves it out.

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
from farandole.model.analyse import unique_labels
from farandole.model.statistics import Estimate
from farandole.report.document import Figure, Spec
from farandole.report.table import Column, Table, shown

Row = dict[str, Any]

MOST_SERIES = 8
"""As many as there are colours, shapes and dashes; more lines cannot be told apart."""
MOST_BARS = 24
SHAPES = ["circle", "square", "triangle-up", "diamond", "cross"]
SHAPES += ["triangle-down", "triangle-left", "triangle-right"]
DASHES = [[1, 0], [6, 3], [2, 2], [8, 3, 2, 3], [4, 2], [1, 3], [10, 4], [6, 2, 2, 2]]
# Beyond this ratio of the largest to the smallest count, doublings get equal room.
_LINEAR_SPAN = 4
_MOST_TICKS = 12
# Beside the points of a line.
_MOST_FIGURES = 6
# Of the largest figure: an interval that reaches further would dwarf all else.
_LONGEST = 3
# Where doublings get equal room on one axis only, y = x is bent.
_IDEAL_PARTS = 24
# Of the axis, beyond the longest bar: as much as "11 min 02 s" takes in half a page.
_ROOM = 0.2
# Letters of a legend that fit side by side.
_LEGEND_ROOM = 72
_PARTS_ROOM = 50
# Letters along the axis of a chart on a phone.
_PHONE_LETTERS = 38
# Letters of a line of boxes side by side.
_BOX_ROOM = 66
# How many of the theme's colours for parts are so strong that figures on them must be light.
_STRONG = 2
# Of boxes, the same on light and dark pages.
_PALE, _INK = "#e6f0f7", "#1c2126"
_NO_ZERO = " Zeros cannot be drawn on this axis; the table has them."
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

    def add(self, rows: Sequence[Row], kind: str, mark: Spec, **encoding: Any) -> None:
        """Add a layer of marks of one kind; none where there are no rows."""
        if rows:
            mark = {"type": kind, **mark}
            self._layers.append({"data": self.data(rows), "mark": mark, "encoding": encoding})

    def words(self, rows: Sequence[Row], text: str, mark: Spec, **encoding: Any) -> None:
        """Add a field of the rows as words."""
        mark = {"style": "value", **mark}
        self.add(rows, "text", mark, **encoding, text=_word(text))

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
    published: Collection[str] = (),
    note: str | None = None,
    height: int = 260,
    room: int = _LEGEND_ROOM,
) -> Figure:
    """Draw a figure against workers, batch or epoch: one line per value of the column `series`.

    `x`, `y`, `series` and `note` are keys of columns; a row without a figure that has a note failed
    and gets a cross. `x_log` gives doublings equal room; None: where the values span more than four
    times. `ideal` is True for y = x, or the key of a column, and gives both axes one scale, so that
    it is the diagonal. `published` series come from elsewhere and get hollow marks.
    `room` is the letters of a legend that fit side by side.
    """
    column, x_column = table.column(y), table.column(x)
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
    caption += left_out(len(chosen), len(names), "lines")
    spec: Spec = {}
    if chosen:
        drawn = [one for one in drawable if one["name"] in chosen]
        rows, y_axis, factor = _measured(drawn, column, y_title, log=log, zero=zero)
        crosses = [row for row in failed if row["name"] in chosen]
        values = [row["x"] for row in (*rows, *crosses)]
        axes = {"x": _x_axis(values, x_column, x_title, log=x_log), "y": y_axis}
        if ideal and all(0 < row["y"] < 4 * max(values) for row in rows):
            axes = _square(rows, [int(value) for value in values], x_title, y_title)
        caption += _cut_note(drawn, rows, factor)
        rows = _side_by_side(rows)
        chart = _Chart()
        if ideal:
            _add_ideal(chart, _ideal_rows(rows, values, factor, straight=ideal is True), axes)
        several = len(chosen) > 1
        # One line alone needs a name only where it is not this machine's.
        look = _by_series(chosen, legend=several or chosen[0] in published, room=room)
        _add_lines(chart, rows, axes, look, published, hover_title=_unitless(x_title))
        chart.add(crosses, "text", {"style": "value", "text": "✕", "dy": -8}, **axes)
        if not several:
            best = [row for row in rows if row["note"] == "best"]
            chart.add(best, "text", {"style": "value", "text": "best", "dy": -14}, **axes)
        if len(chosen) == 1 and len(rows) <= _MOST_FIGURES:
            # To the right of a point, on the side that the line leaves free.
            along = sorted(rows, key=lambda row: row["x"])
            falls = along[-1]["y"] < along[0]["y"]
            beside = {"baseline": "bottom", "dy": -4} if falls else {"baseline": "top", "dy": 5}
            chart.words(rows, "short", {"align": "left", "dx": 7, **beside}, **axes)
        spec = chart.spec(height=height)
    alt = f"{y_title} against {x_title}."
    return Figure(name=name, title=title, caption=caption, spec=spec, table=table, alt=alt)


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

    `x` and `y` are keys of columns; several columns `y` are a series each, under their titles. The
    words of the column `label` are written at the bars in place of the figures.
    """
    columns = {key: table.column(key) for key in ([y] if isinstance(y, str) else y)}
    first, x_column = next(iter(columns.values())), table.column(x)
    y_title = y_title or first.title
    points = [
        point | ({"name": column.title} if len(columns) > 1 else {})
        for key, column in columns.items()
        for point in _points(table, x, key, series, label=label)
    ]
    drawable = [point for point in points if point["y"] > 0 or not log]
    drawn = drawable[:MOST_BARS]
    caption += _NO_ZERO if len(drawable) < len(points) else ""
    caption += left_out(len(drawn), len(drawable), "bars")
    spec: Spec = {}
    if drawn:
        rows, axis, factor = _measured(drawn, first, y_title, log=log, zero=zero)
        caption += _cut_note(drawn, rows, factor)
        spec = _bars(rows, axis, x_column, full=zero and not log, words=label is not None)
    alt, wide = f"{y_title} by {x_column.title}.", len(drawn) > 8
    return Figure(
        name=name, title=title, caption=caption, spec=spec, table=table, alt=alt, wide=wide
    )


def stacked(
    name: str,
    title: str,
    caption: str,
    table: Table,
    *,
    parts: str | Sequence[str],
    axis: str,
    category: str = "cell",
    weights: Sequence[str] | None = None,
) -> Figure:
    """Draw horizontal bars, stacked in the order of the parts, with figures inside.

    `parts` are keys of columns of one unit, or how these keys end; `category` is the key of the
    bars' names. The first of `weights`, the same keys by weight, gets the calmest colour.
    """
    if isinstance(parts, str):
        parts = [column.key for column in table.columns if column.key.endswith(parts)]
    words = {key: table.column(key).title for key in parts}
    show = table.column(parts[0]).show
    drawn = table.records()
    sums = [sum(row[key] for key in parts if known(row[key])) for row in drawn]
    factor, unit = _unit_of(show, max(sums, default=0.0))
    rows: list[Row] = []
    names = unique_labels(_without_common_end([str(row[category]) for row in drawn]))
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
    alt, wide = f"Stacked bars: {axis} by part, one bar per {category}.", len(drawn) > 8
    spec: Spec = {}
    if rows:
        heavy = [words[key] for key in weights or parts]
        heavy = [word for word in heavy if any(row["part"] == word for row in rows)]
        label = f"{axis} ({unit})" if unit else axis
        spec = _stack(rows, [word for word in words.values() if word in heavy], heavy, label)
    return Figure(
        name=name, title=title, caption=caption, spec=spec, table=table, alt=alt, wide=wide
    )


def _stack(rows: list[Row], present: list[str], heavy: list[str], title: str) -> Spec:
    y = _category_axis("name", sort=_BY_ORDER)
    axis = {"title": title, "grid": True, "tickCount": 6}
    x = _quantity("x", scale={"domainMin": 0}, axis=axis)
    # The legend in the order of the stack; colours by weight, so that the main part is the calmest.
    legend = {"title": None, "columns": _legend_columns(present, _PARTS_ROOM), "values": present}
    colour = _word("part", scale={"domain": heavy, "range": "ordinal"}, legend=legend)
    hover = _tooltip(name="cell", part="part", text="value")
    chart, ends = _Chart(), {"x2": {"field": "end"}}
    chart.add(rows, "bar", {"style": "bar"}, y=y, x=x, **ends, color=colour, tooltip=hover)
    # A figure that would not fit its segment on a phone is left to the pointer and the table.
    room = max(row["end"] for row in rows) / _PHONE_LETTERS
    wide = [row for row in rows if row["end"] - row["x"] > room * len(row["text"])]
    for style, inside in (("inside", heavy[:_STRONG]), ("value", heavy[_STRONG:])):
        figures = [row for row in wide if row["part"] in inside]
        chart.words(figures, "text", {"style": style}, y=y, x=x | {"field": "middle"})
    return chart.spec(height=max(70, 34 * len({row["name"] for row in rows})))


def boxes(name: str, title: str, caption: str, table: Table) -> Figure:
    """Draw a table of words as boxes, for designs: the first column names the rows.

    An empty cell has no box.
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
    chart.add(rows, "rect", {"fill": _PALE, "cornerRadius": 3}, **axes)
    mark = {"style": [], "fill": _INK, "lineBreak": "\n", "baseline": "middle"}
    lines_each = max((row["text"].count("\n") + 1 for row in rows), default=1)
    # Vega sets the first line at the middle: moved up by half of what follows it.
    for line in range(1, lines_each + 1):
        some = [row for row in rows if row["text"].count("\n") + 1 == line]
        chart.words(some, "text", mark | {"dy": -6.5 * (line - 1)}, **axes)
    spec = chart.spec(height=(14 * lines_each + 14) * len(table.rows)) if rows else {}
    alt = f"{title}: {', '.join(column.title for column in others)}."
    return Figure(
        name=name, title=title, caption=caption, spec=spec, table=table, alt=alt, wide=True
    )


def panels(name: str, title: str, caption: str, table: Table, *, y: str, y_title: str) -> Figure:
    """Draw a share over time, one panel per cell and one line per rank.

    The table's columns are cell, rank, time_s, memory_bytes and the share.
    """
    cells = _unique(row["cell"] for row in table.records())
    rows = [
        {
            "name": row["cell"],
            "order": cells.index(row["cell"]),
            "rank": str(row["rank"]),
            "x": row["time_s"],
            "y": 100 * row[y],
            "time": seconds(row["time_s"]),
            "text": percent(row[y]),
            "memory": size(row["memory_bytes"]),
        }
        for row in table.records()
    ]
    ranks = sorted({row["rank"] for row in rows}, key=int)
    legend = {"title": "rank", "columns": 8}
    header = {"labelOrient": "top", "labelAnchor": "start", "labelAngle": 0}
    domain = {"domain": ranks}
    dashes = domain | {"range": DASHES[: len(ranks)]}
    chart = _Chart()
    encoding = {
        "x": _quantity("x", title="seconds since the launch began", scale={"zero": True}),
        "y": _quantity("y", scale={"zero": True}, axis={"title": f"{y_title} (%)", "tickCount": 3}),
        "color": _word("rank", scale=domain, legend=legend),
        "strokeDash": _word("rank", scale=dashes, legend=legend),
        "tooltip": _tooltip(name="cell", rank="rank", time="time", text=y_title, memory="memory"),
    }
    mark = {"type": "line", "strokeWidth": 1.6}
    spec = chart.spec(
        data=chart.data(rows),
        facet={"row": _word("name", title=None, sort=_BY_ORDER, header=header)},
        spec={"width": 460, "height": 90, "mark": mark, "encoding": encoding},
    )
    alt = f"{y_title} of each worker over time, one panel per cell."
    return Figure(name=name, title=title, caption=caption, spec=spec, table=table, alt=alt)


def bands(
    name: str,
    title: str,
    caption: str,
    table: Table,
    *,
    y_title: str,
    band: str,
    log: bool = True,
) -> Figure:
    """Draw projected lines over workers by series, the band of one, and measured points over them.

    The table's columns are series, workers, value with its interval, ideal and note: "measured",
    "asked" (a point is drawn), "" or "indicative" (no line is drawn). All bands would hide each
    other; `band` names the series that has one.
    """
    points = _points(table, "workers", "value", "series", ideal="ideal")
    counts = [int(one["x"]) for one in points]
    double = doubling(counts)
    column = table.column("value")
    rows, y_axis, factor = _measured(points, column, y_title, log=log and double, zero=log)
    axes = {"x": _counts_axis("workers", counts, log=double), "y": y_axis}
    between = axes | {"y": y_axis | {"field": "low"}, "y2": {"field": "high"}}
    measured = [row for row in rows if row["note"] == "measured"]
    projected = [row for row in rows if row["note"] != "measured"]
    sure = [row for row in projected if row["note"] != "indicative"]
    names = _unique(row["name"] for row in projected)
    look = _by_series(names, legend=len(names) > 1)
    colour, hover = look["color"], _tooltip(name="series", category="workers", text="value")
    chart = _Chart()
    within = [row for row in projected if row["name"] == band]
    chart.add(within, "area", {"fillOpacity": 0.18}, **between, color=colour)
    _add_ideal(chart, _ideal_rows(rows, counts, factor, straight=False), axes)
    _add_strokes(chart, sure, axes, colour)
    asked = [row for row in sure if row["note"] == "asked"]
    chart.add(asked, "point", {"style": "hollow"}, **axes, **look, tooltip=hover)
    chart.add(_with_intervals(measured), "rule", {"style": ["interval", "over"]}, **between)
    chart.add(measured, "point", {"style": "over", "size": 60}, **axes, tooltip=hover)
    alt = f"{title} against workers: measured points and projected bands."
    return Figure(name=name, title=title, caption=caption, spec=chart.spec(), table=table, alt=alt)


def scatter(name: str, title: str, caption: str, table: Table, *, x: str, y: str) -> Figure:
    """Draw the named rows of a table as points, with intervals on both axes."""
    first, across, up = table.columns[0], table.column(x), table.column(y)
    cells = [(row[first.key], row[x], row[y]) for row in table.records()]
    cells = [one for one in cells if all(end and known(end.value) for end in one[1:])]
    if not cells:
        return Figure(name=name, title=title, caption=caption, spec={}, table=table, alt="")
    factor, unit = _unit_of(across.show, max(cell.high for _, cell, _ in cells))
    rows = [
        {"name": name, "x": a.value / factor, "start": a.low / factor, "end": a.high / factor}
        | {"y": b.value, "low": b.low, "high": b.high}
        | {"category": shown(across, a), "text": shown(up, b)}
        for name, a, b in cells
    ]
    ends = {end: 1.08 * max(row[end] for row in rows) for end in ("end", "high")}
    titles = {"end": f"{across.title} ({unit})", "high": up.title}
    x_axis, y_axis = (
        _quantity(
            field,
            scale={"domain": [0, ends[end]], "nice": False},
            axis={"title": titles[end], "tickCount": 6},
        )
        for field, end in (("x", "end"), ("y", "high"))
    )
    hover = _tooltip(name=first.title, category=across.title, text=up.title)
    word = {"align": "left", "baseline": "bottom", "limit": 160, "dx": 7, "dy": -5}
    rule, chart = {"style": "interval"}, _Chart()
    chart.add(rows, "rule", rule, x=x_axis | {"field": "start"}, x2={"field": "end"}, y=y_axis)
    chart.add(rows, "rule", rule, x=x_axis, y=y_axis | {"field": "low"}, y2={"field": "high"})
    chart.add(rows, "point", {"style": "first", "size": 80}, x=x_axis, y=y_axis, tooltip=hover)
    chart.words(rows, "name", word, x=x_axis, y=y_axis)
    alt = f"{up.title} against {across.title}, one point per {first.title}."
    return Figure(name=name, title=title, caption=caption, spec=chart.spec(), table=table, alt=alt)


def _without_common_end(names: Sequence[str]) -> list[str]:
    """Return the names without what all of them end with: "2 workers" of "2 workers, batch 64"."""
    parts = [name.split(", ") for name in names]
    while len(names) > 1 and all(len(one) > 1 and one[-1] == parts[0][-1] for one in parts):
        parts = [one[:-1] for one in parts]
    return [", ".join(one) for one in parts]


def left_out(drawn: int, there: int, nouns: str) -> str:
    """Return a sentence on what a chart does not show; empty when it shows all."""
    return "" if drawn == there else f" {drawn} of {there} {nouns} are drawn; the table has all."


def _cut_note(points: Sequence[Row], rows: Sequence[Row], factor: float) -> str:
    """Return a sentence where a drawn interval ends before the measured one."""
    pairs = [(a["high"], b["high"]) for a, b in zip(points, rows, strict=True) if b["high"]]
    cut = any(high > 1.001 * factor * end for high, end in pairs)
    return " Intervals beyond the chart are cut off." if cut else ""


def doubling(counts: Sequence[float]) -> bool:
    """Say whether an axis over these counts should give doublings equal room."""
    return bool(counts) and min(counts) > 0 and max(counts) / min(counts) > _LINEAR_SPAN


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
    """Return a series' name: a bare figure would not say what it is of.

    A table of one series need not have its column.
    """
    if series is None or series not in cells:
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
    most = _LONGEST * largest / factor if zero and not log else math.inf
    for point in points:
        value, low, high = point["y"] / factor, end(point["low"]), end(point["high"])
        if high is not None and high > most:
            low, high = max(low or 0.0, -most), most
        ends = {"y": value, "low": low, "high": high, "end": max(value, high or value)}
        rows.append(point | ends | {"x": point["x"] if known(point["x"]) else None})
    if not log:
        return rows, _quantity("y", scale={"zero": zero}, axis=axis | {"tickCount": 6}), factor
    # With room for marks and words.
    ideals = [row["ideal"] / factor for row in rows if known(row["ideal"])]
    bottom = min([0.7 * (row["low"] or row["y"]) for row in rows] + ideals)
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
        ticks = {"values": sorted(set(values)), "labelExpr": _BINARY_SIZE}
        axis = {"title": title, **ticks, "labelOverlap": "greedy"}
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
    # Room for the marks at both ends.
    margin = max(0.25, (high - low) * 0.08)
    domain = [low * 0.88, high * 1.14] if log else [max(0.0, low - margin), high + margin]
    scale: Spec = {"type": "log", "base": 2} if log else {"zero": False}
    scale |= {"domain": domain, "nice": False}
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
    durations = ((600, 60.0, "minutes"), (1.0, 1.0, "s"), (1e-3, 1e-3, "ms"))
    sizes = ((1e9, 1e9, "GB"), (1e6, 1e6, "MB"), (1e3, 1e3, "kB"))
    for kind, units, smallest in (
        (seconds, durations, (1e-6, "us")),
        (size, sizes, (1.0, "bytes")),
    ):
        if show is kind:
            return next(((one, word) for least, one, word in units if largest >= least), smallest)
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
    colour = look["color"]
    _add_strokes(chart, rows, axes, colour)
    ends = _with_intervals(rows)
    low, high = (axes["y"] | {"field": end} for end in ("low", "high"))
    rule = {"style": "interval"}
    chart.add(ends, "rule", rule, x=axes["x"], y=low, y2={"field": "high"}, color=colour)
    for end in (low, high):
        cap = {"style": "cap", "orient": "horizontal"}
        chart.add(ends, "tick", cap, x=axes["x"], y=end, color=colour)
    hover = {"name": "series", "category": hover_title, "text": "value", "note": "note"}
    for field in ("name", "note"):
        if not any(row[field] for row in rows):
            del hover[field]
    for hollow in (False, True):
        points = [row for row in rows if (row["name"] in published) == hollow]
        style = {"style": "hollow"} if hollow else {}
        chart.add(points, "point", style, **axes, **look, tooltip=_tooltip(**hover))


def _add_strokes(
    chart: _Chart, rows: Sequence[Row], axes: Mapping[str, Spec], colour: Spec
) -> None:
    """Add a line per series, each with its own dashes: as a scale they would join the legend."""
    for name, dash in zip(_unique(row["name"] for row in rows), DASHES, strict=False):
        own = [row for row in rows if row["name"] == name]
        chart.add(own, "line", {"strokeDash": dash}, **axes, color=colour)


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
    chart.add(rows, "line", {"style": "ideal"}, **axes, detail=_word("name"))
    word = {"style": "ideal-label", "align": "right", "dx": -6}
    word["dy"] = -7 if last["y"] >= rows[0]["y"] else 10
    chart.words([last | {"text": "ideal"}], "text", word, **axes)


def _bars(rows: list[Row], axis: Spec, column: Column, *, full: bool, words: bool) -> Spec:
    """Return horizontal bars, or points where a length says nothing."""
    names = _unique(row["name"] for row in rows)
    several = len(names) > 1
    if not several:
        # Two rows of one category would be drawn over each other.
        alone = unique_labels(row["category"] for row in rows)
        rows = [row | {"category": word} for row, word in zip(rows, alone, strict=True)]
    categories = _unique(row["category"] for row in rows)
    x = axis | {"axis": axis["axis"] | {"grid": True}}
    if x["scale"].get("type") != "log":
        low = min(row["y"] if row["low"] is None else row["low"] for row in rows)
        high = max(row["end"] for row in rows)
        low, high = (min(0.0, low), max(0.0, high)) if full else (low, high)
        # The longest bar leaves room for the figure beside it.
        room = _ROOM * ((high - low) or abs(high) or 1.0)
        x["scale"] = {"domain": [low if full else low - room / 4, high + room], "nice": False}
    title = None if column.text else column.title
    places = {"y": _category_axis("category", sort=categories, grid=not full, title=title)}
    hover = _tooltip(category=_unitless(column.title), name="series", text="value")
    colour: Spec = {"tooltip": hover if several else hover[::2]}
    if several:
        legend = {"title": None, "columns": _legend_columns(names)}
        places["yOffset"] = _word("name", sort=names)
        scale = {"domain": names, "range": "ordinal"}
        colour["color"] = _word("name", scale=scale, legend=legend)
    first = [] if several else ["first"]
    chart = _Chart()
    if full:
        chart.add(rows, "bar", {"style": ["bar", *first]}, x=x, **places, **colour)
    else:
        chart.add(rows, "point", {"size": 80, "style": first or "point"}, x=x, **places, **colour)
    ends = {"x": x | {"field": "low"}, "x2": {"field": "high"}}
    chart.add(_with_intervals(rows), "rule", {"style": ["interval", "over"]}, **ends, **places)
    word = {"align": "left", "dx": 5 if full else 10}
    x = x | {"field": "end"}
    chart.words(rows, "label" if words else "short", word, x=x, **places)
    return chart.spec(height=max(80, 26 * len(rows) + 10 * len(categories)))
