"""Points as lines and as bars: the specifications of a lab's charts."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import altair as alt

from farandole.report.charts import marks
from farandole.report.figure import Spec
from farandole.report.series import unlike
from farandole.report.table import Column
from farandole.report.text import known, percent, seconds, size

_MOST_TICKS = 12
# Where doublings get equal room on one axis only, y = x is bent.
_IDEAL_PARTS = 24
# Within this share of an axis, whole percents would repeat.
_NARROW = 0.05
# Of the axis, beyond the longest bar: as much as "11:02 min" takes in half a page.
_ROOM = 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class Columns:
    """The columns of a table that a figure is drawn from, with their places."""

    x: Column
    y: Column
    series: Column | None
    at: tuple[int, int, int | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawing:
    """How the points of one figure are drawn."""

    columns: Columns
    x_title: str
    y_title: str
    x_log: bool | None
    log: bool
    zero: bool

    def lines(self, points: Sequence[Point], *, ideal: bool, published: Collection[str]) -> Spec:
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
            # One line alone needs a name only where it is not this machine's.
            legend=several or points[0].name in published,
            hover=hover if several else hover[1:],
            hollow=published,
        )
        if not several and len(rows) <= _MOST_TICKS:
            # To the right of a point, on the side that the line leaves free.
            along = sorted(rows, key=lambda row: row["x"])
            falls = along[-1]["y"] < along[0]["y"]
            beside: dict[str, Any] = (
                {"baseline": "bottom", "dy": -4} if falls else {"baseline": "top", "dy": 5}
            )
            words = sheet.chart(rows).mark_text(style="value", align="left", dx=7, **beside)
            layers.append(words.encode(x=x, y=y, text=alt.Text("short:N")))
        return sheet.finished(*layers)

    def bars(self, points: Sequence[Point]) -> Spec:
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
            scale=_with_room(rows) if self._full else self._scale(rows),
            axis=alt.Axis(**{"title": title, "grid": True, **self._ticks(rows), **axis}),
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
            layers.append(rule.encode(x=low, x2=alt.X2("high:Q"), **places))
        far = alt.X("end:Q", scale=x["scale"], axis=x["axis"])
        words = sheet.chart(rows).mark_text(style="value", align="left", dx=5 if self._full else 10)
        layers.append(words.encode(x=far, text=alt.Text("short:N"), **places))
        height = max(80, 26 * len(rows) + 10 * len(categories))
        return sheet.finished(*layers, height=height)

    @property
    def _full(self) -> bool:
        """Whether lengths from zero can be drawn."""
        return self.zero and not self.log

    def _rows(self, points: Sequence[Point], factor: float) -> list[dict[str, Any]]:
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

    def _unit(self, points: Sequence[Point]) -> tuple[float, str, dict[str, Any]]:
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
            axis=alt.Axis(**{"title": title, **self._ticks(rows), **axis}),
        )

    def _ticks(self, rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        if not self.log:
            return {"tickCount": 6}
        low, high = _span(rows)
        powers = range(math.floor(math.log10(low)), 40)
        # Less than two decades need what lies between the tens, too.
        digits = (1, 2, 5) if high < 100 * low else (1,)
        values = [digit * 10.0**power for power in powers for digit in digits]
        values = [value for value in values if low <= value < high]
        return {"values": values} if len(values) > 1 else {"tickCount": 4}

    def _scale(self, rows: Sequence[Mapping[str, Any]]) -> alt.Scale:
        if not self.log:
            return alt.Scale(zero=self.zero)
        low, high = _span(rows)
        return alt.Scale(type="log", base=10, domain=[low, high], nice=False)


def _with_room(rows: Sequence[Mapping[str, Any]]) -> alt.Scale:
    """Return a scale from zero on which the longest bar leaves room for the figure beside it."""
    low = min(0.0, *(row["y"] if row["low"] is None else row["low"] for row in rows))
    high = max(0.0, *(row["end"] for row in rows))
    return alt.Scale(domain=[low, high + _ROOM * (high - low)], nice=False)


def _span(rows: Sequence[Mapping[str, Any]]) -> tuple[float, float]:
    """Return the ends of a logarithmic axis, with room for marks and words."""
    low = min(row["low"] or row["y"] for row in rows)
    return 0.7 * low, 1.4 * max(row["end"] for row in rows)


def _ideal(sheet: marks.Sheet, ends: Sequence[float], x: alt.X, y: alt.Y) -> list[alt.Chart]:
    """Return y = x, a line with its word."""
    low, high = ends
    between = [low * (high / low) ** (place / _IDEAL_PARTS) for place in range(1, _IDEAL_PARTS)]
    rows = [{"x": value, "y": value} for value in (low, *between, high)]
    word = sheet.chart([rows[-1] | {"text": "ideal"}]).mark_text(
        style="ideal-label", align="right", dx=-6, dy=-7
    )
    return [
        sheet.chart(rows).mark_line(style="ideal").encode(x=x, y=y),
        word.encode(x=x, y=y, text=alt.Text("text:N")),
    ]


def _plain(title: str) -> str:
    """Return an axis's title without its unit, for a hover text."""
    return title.partition(" (")[0]
