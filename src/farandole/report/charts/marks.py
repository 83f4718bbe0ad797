"""What several charts share: axes, series by colour and shape, points with their intervals.

Columns have neutral names (x, y, low, high, name, ...). Strings of users are only ever values of
data or titles, never field names or parts of expressions. Encodings are given as Altair's classes:
to find the class of a plain string takes it 10 ms each time.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any

import altair as alt

from farandole.model.statistics import Estimate
from farandole.report.figure import Spec
from farandole.report.text import known
from farandole.report.theme import DASHES, SHAPES

Row = Mapping[str, Any]

# Beyond this ratio of the largest to the smallest count, doublings get equal room.
_LINEAR_SPAN = 4
_SHORT_NAME = 16


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
        """Return the specification of panels side by side, without theme or width."""
        spec: Spec = chart.to_dict(validate=False)
        # The theme decides, and a schema's address would be the only address on the page.
        spec.pop("config", None)
        spec.pop("$schema", None)
        return spec | {"datasets": dict(self._datasets)}


def doubling(counts: Sequence[float]) -> bool:
    """Say whether an axis over these counts should give doublings equal room."""
    return bool(counts) and min(counts) > 0 and max(counts) / min(counts) > _LINEAR_SPAN


def counts_axis(title: str, counts: Sequence[int], *, log: bool) -> alt.X:
    """Return an axis whose ticks are the counts that were measured."""
    values = sorted(set(counts))
    if len(values) > 12:
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


def value_axis(
    title: str,
    *,
    log_base: int | None = None,
    bottom: float = 0.0,
    top: float | None = None,
    **axis: Any,
) -> alt.Y:
    """Return the axis of a figure: from zero, or logarithmic from a bottom above it."""
    if log_base is not None:
        scale = alt.Scale(type="log", base=log_base, domainMin=bottom, nice=False)
    elif top is None:
        scale = alt.Scale(zero=True)
    else:
        scale = alt.Scale(domain=[0, top], nice=False)
    return alt.Y(
        "y:Q",
        scale=scale,
        axis=alt.Axis(**{"title": title, "tickCount": 6, "format": ",~r", **axis}),
    )


def by_series(names: Sequence[str], *, legend: bool, room: int = 72) -> dict[str, Any]:
    """Return colour, shape and dash by series, so that grey print can tell them apart.

    The legend shows colours and dashes; shapes need rows that `with_symbols` gives.
    """
    domain = list(dict.fromkeys(names))
    shown = None
    if legend:
        shown = alt.Legend(
            title=None,
            columns=legend_columns(domain, room),
            symbolType="stroke",
            symbolSize=260,
            symbolOpacity=1,
        )
    return {
        "color": alt.Color("name:N", scale=alt.Scale(domain=domain), legend=shown),
        # As a value of data: a scale would join the legend and tear its dashes.
        "shape": alt.Shape("symbol:N", scale=None),
        "strokeDash": alt.StrokeDash(
            "name:N",
            scale=alt.Scale(domain=domain, range=[list(dash) for dash in DASHES[: len(domain)]]),
            legend=shown,
        ),
    }


def legend_columns(names: Sequence[str], room: int = 72) -> int:
    """Return how many names of a legend fit side by side."""
    longest = max((len(name) for name in names), default=0)
    return max(1, min(5, len(names), room // (longest + 5)))


def room_beside(labels: Iterable[str]) -> int:
    """Return the letters of a legend that fit behind an axis of words, on half a page of paper."""
    return 66 - min(34, max((len(label) for label in labels), default=0))


def tooltip(**titles: str) -> list[alt.Tooltip]:
    """Return hover texts: fields with words that Python has made, under fixed titles."""
    return [alt.Tooltip(f"{field}:N", title=title) for field, title in titles.items()]


def lined_points(
    sheet: Sheet,
    rows: Sequence[Row],
    *,
    x: alt.X,
    y: alt.Y,
    legend: bool,
    hover: Sequence[alt.Tooltip],
    hollow: Collection[str] = (),
) -> list[alt.Chart]:
    """Return layers: lines, intervals with caps, and points that answer to the pointer.

    Args:
        sheet: Where the rows go.
        rows: Points with name, x, y, low and high.
        x: The axis of x.
        y: The axis of y.
        legend: Whether the series need one.
        hover: What the pointer shows.
        hollow: Series whose points are only outlined, being of another origin.
    """
    rows = with_symbols(rows)
    series = by_series([row["name"] for row in rows], legend=legend, room=sheet.room)
    colour = series["color"]
    ends = with_intervals(rows)
    layers = [
        sheet.chart(rows)
        .mark_line()
        .encode(x=x, y=y, color=colour, strokeDash=series["strokeDash"])
    ]
    if ends:
        layers.append(
            sheet.chart(ends)
            .mark_rule(style="interval")
            .encode(x=x, y=_same_axis(y, "low"), y2=alt.Y2("high:Q"), color=colour)
        )
        layers += [
            sheet.chart(ends)
            .mark_tick(style="cap", orient="horizontal")
            .encode(x=x, y=_same_axis(y, end), color=colour)
            for end in ("low", "high")
        ]
    for outlined in (False, True):
        points = [row for row in rows if (row["name"] in hollow) == outlined]
        if points:
            layer = sheet.chart(points)
            marked = layer.mark_point(style="hollow") if outlined else layer.mark_point()
            layers.append(
                marked.encode(x=x, y=y, color=colour, shape=series["shape"], tooltip=list(hover))
            )
    return layers


def end_labels(sheet: Sheet, rows: Sequence[Row], *, x: alt.X, y: alt.Y) -> alt.Chart:
    """Return each series' name at its last point, in its colour, in place of a legend."""
    last = {row["name"]: row for row in rows}
    series = by_series([row["name"] for row in rows], legend=False)
    words = sheet.chart(list(last.values())).mark_text(
        style="value", align="left", baseline="middle", dx=9, limit=130
    )
    return words.encode(x=x, y=y, text=alt.Text("name:N"), color=series["color"])  # type: ignore[no-any-return]


def far_apart(rows: Sequence[Row], *, log: bool) -> bool:
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


def with_symbols(rows: Sequence[Row]) -> list[Row]:
    """Return the rows with one shape per series."""
    names = list(dict.fromkeys(row["name"] for row in rows))
    shapes = {name: SHAPES[index % len(SHAPES)] for index, name in enumerate(names)}
    return [{**row, "symbol": shapes[row["name"]]} for row in rows]


def with_intervals(rows: Sequence[Row]) -> list[Row]:
    """Return the rows that have an interval of some length."""
    there = [row for row in rows if known(row["low"]) and known(row["high"])]
    return [row for row in there if row["low"] < row["high"]]


def spread(estimate: Estimate | None) -> dict[str, float | None]:
    """Return an estimate as the columns y, low and high."""
    if estimate is None:
        return {"y": None, "low": None, "high": None}
    return {"y": estimate.value, "low": estimate.low, "high": estimate.high}


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


def _same_axis(y: alt.Y, field: str) -> alt.Y:
    # Layers share an axis only if all say the same of it.
    return alt.Y(f"{field}:Q", scale=y["scale"], axis=y["axis"])
