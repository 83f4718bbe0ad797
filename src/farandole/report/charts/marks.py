"""What several charts share: axes, series by colour and shape, points with their intervals.

Columns have neutral names (x, y, low, high, name, ...). Strings of users are only ever values of
data or titles, never field names or parts of expressions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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


def data(rows: Sequence[Row]) -> alt.InlineData:
    """Return rows as a chart's data."""
    return alt.InlineData(values=[dict(row) for row in rows])


def chart(rows: Sequence[Row]) -> alt.Chart:
    """Return an empty chart on rows."""
    return alt.Chart(data(rows))


def finished(layers: Any, *, height: int = 260) -> Spec:
    """Return the specification of a chart that fills the width it is given."""
    spec: Spec = layers.properties(height=height).to_dict()
    # The theme decides, and a schema's address would be the only address on the page.
    spec.pop("config", None)
    spec.pop("$schema", None)
    return spec


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


def value_axis(title: str, *, log: bool = False, top: float | None = None, **axis: Any) -> alt.Y:
    """Return the axis of a figure: from zero, or by doublings."""
    if log:
        scale = alt.Scale(type="log", base=2, nice=False)
    elif top is None:
        scale = alt.Scale(zero=True)
    else:
        scale = alt.Scale(domain=[0, top], nice=False)
    return alt.Y("y:Q", scale=scale, axis=alt.Axis(title=title, tickCount=6, **axis))


def by_series(names: Sequence[str], *, legend: bool) -> dict[str, Any]:
    """Return colour, shape and dash by series, so that grey print can tell them apart."""
    domain = list(dict.fromkeys(names))
    shown = alt.Legend(title=None) if legend else None
    return {
        "color": alt.Color("name:N", scale=alt.Scale(domain=domain), legend=shown),
        "shape": alt.Shape(
            "name:N",
            scale=alt.Scale(domain=domain, range=list(SHAPES[: len(domain)])),
            legend=shown,
        ),
        "strokeDash": alt.StrokeDash(
            "name:N",
            scale=alt.Scale(domain=domain, range=[list(dash) for dash in DASHES[: len(domain)]]),
            legend=None,
        ),
    }


def tooltip(**titles: str) -> list[alt.Tooltip]:
    """Return hover texts: fields with words that Python has made, under fixed titles."""
    return [alt.Tooltip(f"{field}:N", title=title) for field, title in titles.items()]


def lined_points(
    rows: Sequence[Row],
    *,
    x: alt.X,
    y: alt.Y,
    legend: bool,
    hover: Sequence[alt.Tooltip],
) -> list[alt.Chart]:
    """Return layers: lines, intervals with caps, and points that answer to the pointer."""
    series = by_series([row["name"] for row in rows], legend=legend)
    colour = series["color"]
    ends = with_intervals(rows)
    layers = [
        chart(rows).mark_line().encode(x=x, y=y, color=colour, strokeDash=series["strokeDash"])
    ]
    if ends:
        layers.append(
            chart(ends)
            .mark_rule(style="interval")
            .encode(x=x, y=_same_axis(y, "low"), y2="high:Q", color=colour)
        )
        layers += [
            chart(ends)
            .mark_tick(style="cap", orient="horizontal")
            .encode(x=x, y=_same_axis(y, end), color=colour)
            for end in ("low", "high")
        ]
    layers.append(
        chart(rows)
        .mark_point()
        .encode(x=x, y=y, color=colour, shape=series["shape"], tooltip=list(hover))
    )
    return layers


def end_labels(rows: Sequence[Row], *, x: alt.X, y: alt.Y) -> alt.Chart:
    """Return each series' name at its last point, in its colour, in place of a legend."""
    last = {row["name"]: row for row in rows}
    series = by_series([row["name"] for row in rows], legend=False)
    return (
        chart(list(last.values()))
        .mark_text(style="value", align="right", baseline="bottom", dx=-8, dy=-6, limit=170)
        .encode(x=x, y=y, text="name:N", color=series["color"])
    )


def far_apart(rows: Sequence[Row], *, log: bool) -> bool:
    """Say whether the ends of at most three series leave room for their names."""
    last = {row["name"]: row for row in rows}
    values = sorted(row["y"] for row in last.values())
    if not 2 <= len(values) <= 3 or len({row["x"] for row in last.values()}) > 1:
        return False
    if log:
        return all(b / a > 1.35 for a, b in pairwise(values))
    room = 0.13 * max(row["y"] for row in rows)
    return all(b - a > room for a, b in pairwise(values))


def with_intervals(rows: Sequence[Row]) -> list[Row]:
    """Return the rows that have an interval of some length."""
    there = [row for row in rows if known(row["low"]) and known(row["high"])]
    return [row for row in there if row["low"] < row["high"]]


def spread(estimate: Estimate | None) -> dict[str, float | None]:
    """Return an estimate as the columns y, low and high."""
    if estimate is None:
        return {"y": None, "low": None, "high": None}
    return {"y": estimate.value, "low": estimate.low, "high": estimate.high}


def _same_axis(y: alt.Y, field: str) -> alt.Y:
    # A second title would be joined to the first one.
    return alt.Y(f"{field}:Q", scale=y["scale"], title=None)
