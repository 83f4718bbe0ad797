"""What more workers would give: measured points, projected bands, ideal lines; offers; limits."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import altair as alt

from farandole.model.info.scaling import ScalingInfo
from farandole.model.projection.advice import OfferRow, Projection
from farandole.model.projection.intervals import Prediction
from farandole.model.projection.join import ProjectionRow
from farandole.report.charts import bars, marks
from farandole.report.figure import Figure, Spec
from farandole.report.series import Named
from farandole.report.table import Table
from farandole.report.text import number, percent, seconds, whole

_MEASURED = "measured"
_PROJECTED = "projected"
_LIMITS = {
    "compute": "computing",
    "communication": "communication",
    "input": "loading",
    "epochs": "more epochs",
    "fixed_cost": "beside the epochs",
}
Get = Callable[[ProjectionRow], Prediction | None]


def figures(info: ScalingInfo, table: Table, offers: Table | None) -> tuple[Figure, ...]:
    """Draw a study's projection; nothing where there is none.

    Args:
        info: a study with a projection.
        table: of all its rows, which stands under each figure.
        offers: the table of the offers.
    """
    found = info.projection
    if found is None:
        return ()
    drawn = [
        _throughput(found, table),
        _time(found, table),
        _cost(found, table),
        _metric(found, table),
        _limits(info, found, table),
        _offers(found, offers) if offers is not None else None,
    ]
    return tuple(figure for figure in drawn if figure is not None)


def _throughput(found: Projection, table: Table) -> Figure | None:
    base = next((row for row in found.rows if row.measured), None)
    ideal = None
    if base is not None:
        each = base.throughput.value / base.workers
        ideal = lambda workers: each * workers  # noqa: E731
    spec = _by_workers(
        found,
        lambda row: row.throughput,
        title=f"throughput ({found.unit})",
        show=number,
        ideal=ideal,
    )
    return _figure(
        "projected-throughput",
        "Throughput, projected",
        f"Throughput in {found.unit}, measured and projected; dashed: the smallest count's times "
        f"the workers. {_bands(found)}",
        spec,
        table,
    )


def _time(found: Projection, table: Table) -> Figure | None:
    goal = found.goal
    timed = [row.time_s for row in (*found.rows, *found.curve) if row.time_s is not None]
    if goal is None or not timed:
        return None
    base = next((row for row in found.rows if row.measured and row.time_s is not None), None)
    ideal = None
    if base is not None and base.time_s is not None:
        work = base.time_s.value * base.workers
        ideal = lambda workers: work / workers  # noqa: E731
    length_s, unit = marks.time_scale(max(one.value for one in timed))
    spec = _by_workers(
        found,
        lambda row: row.time_s,
        title=f"time ({unit})",
        show=seconds,
        scale=length_s,
        ideal=ideal,
    )
    return _figure(
        "projected-time",
        f"Time {goal.words}",
        f"Time {goal.words}, measured and projected; dashed: the smallest count's time over the "
        f"workers. {_bands(found)}",
        spec,
        table,
    )


def _cost(found: Projection, table: Table) -> Figure | None:
    if found.goal is None or not any(row.cost for row in found.curve):
        return None
    spec = _by_workers(found, lambda row: row.cost, title="cost", show=number)
    return _figure(
        "projected-cost",
        f"Cost {found.goal.words}",
        f"Cost {found.goal.words} at {found.price}, whole hosts billed. {_bands(found)}",
        spec,
        table,
    )


def _metric(found: Projection, table: Table) -> Figure | None:
    if found.metric is None or not any(row.metric for row in found.curve):
        return None
    spec = _by_workers(found, lambda row: row.metric, title=found.metric, show=number, log=False)
    return _figure(
        "projected-metric",
        f"{found.metric} at the same epochs",
        f"{found.metric} after as many epochs as the measured runs had, at the global batch of so "
        f"many workers. {_bands(found)}",
        spec,
        table,
    )


def _limits(info: ScalingInfo, found: Projection, table: Table) -> Figure | None:
    rows = [row for row in found.rows if not row.indicative]
    if not any(not row.measured for row in rows):
        return None
    drawn = [Named(name=_name(row), item=row, info=info) for row in rows][:16]
    spec = bars.stacked(
        drawn,
        lambda row: row.parts,
        _LIMITS,
        show=percent,
        title="share of the time",
        scale=(0.01, "%"),
        weights=list(_LIMITS.values()),
    )
    return _figure(
        "projected-limits",
        "What limits",
        "Where the time goes: computing for the epochs of the smallest measured batch, "
        "communication that training waits for, loading that cannot keep up, epochs that a larger "
        "batch needs on top, and what a job takes beside its epochs.",
        spec,
        table,
        alt="Stacked bars: shares of the time by what limits, one bar per number of workers.",
    )


def _offers(found: Projection, table: Table) -> Figure | None:
    priced = [one for one in found.offers if one.outlook.cost and one.outlook.time_s]
    if not priced or found.goal is None:
        return None
    longest = max(one.outlook.time_s.high for one in priced if one.outlook.time_s)
    length_s, unit = marks.time_scale(longest)
    rows = [_offer_row(one, length_s) for one in priced]
    sheet = marks.Sheet()
    right, top = (1.08 * max(row[end] for row in rows) for end in ("x_high", "high"))
    across_scale = alt.Scale(domain=[0, right], nice=False)
    x = alt.X("x:Q", title=f"time {found.goal.words} ({unit})", scale=across_scale)
    y = alt.Y("y:Q", title="cost", scale=alt.Scale(domain=[0, top], nice=False))
    across = (
        sheet.chart(rows)
        .mark_rule(style="interval")
        .encode(x=alt.X("x_low:Q", title=x["title"], scale=x["scale"]), x2=alt.X2("x_high:Q"), y=y)
    )
    along = (
        sheet.chart(rows)
        .mark_rule(style="interval")
        .encode(x=x, y=alt.Y("low:Q", title=y["title"], scale=y["scale"]), y2=alt.Y2("high:Q"))
    )
    hover = marks.tooltip(name="offer", time="time", text="cost")
    points = sheet.chart(rows).mark_point(style="first", size=80).encode(x=x, y=y, tooltip=hover)
    names = (
        sheet.chart(rows)
        .mark_text(style="value", align="left", baseline="bottom", dx=7, dy=-5, limit=160)
        .encode(x=x, y=y, text=alt.Text("name:N"))
    )
    return _figure(
        "offers",
        "Offers",
        f"Time {found.goal.words} and cost of each offer, with 90 % intervals: the lower left is "
        "best.",
        sheet.finished(across, along, points, names),
        table,
        alt="Cost against time, one point per offer.",
    )


def _offer_row(one: OfferRow, length_s: float) -> dict[str, Any]:
    time, cost = one.outlook.time_s, one.outlook.cost
    assert time is not None
    assert cost is not None
    return {
        "name": one.name,
        "x": time.value / length_s,
        "x_low": time.low / length_s,
        "x_high": time.high / length_s,
        "y": cost.value,
        "low": cost.low,
        "high": cost.high,
        "time": f"{seconds(time.value)} ({seconds(time.low)} to {seconds(time.high)})",
        "text": f"{number(cost.value)} ({number(cost.low)} to {number(cost.high)})",
    }


def _by_workers(
    found: Projection,
    get: Get,
    *,
    title: str,
    show: Callable[[float | None], str],
    scale: float = 1.0,
    ideal: Callable[[int], float] | None = None,
    log: bool = True,
) -> Spec | None:
    """Return a figure against workers: bands and lines by link, measured points over them."""
    measured = _rows([row for row in found.rows if row.measured], get, show, scale)
    projected = _rows(found.curve, get, show, scale, _links(found.curve))
    if not projected:
        return None
    everything = [*measured, *projected]
    counts = [row["x"] for row in everything]
    doubling = marks.doubling(counts)
    x = marks.counts_axis("workers", counts, log=doubling)
    if log and doubling:
        lowest = min(row["low"] for row in everything)
        if ideal is not None:
            lowest = min(lowest, *(ideal(count) / scale for count in counts))
        y = marks.value_axis(title, log_base=10, bottom=0.75 * lowest)
    elif log:
        y = marks.value_axis(title)
    else:
        y = alt.Y("y:Q", title=title, scale=alt.Scale(zero=False), axis=alt.Axis(tickCount=6))
    sheet = marks.Sheet()
    layers: list[Any] = []
    names = list(dict.fromkeys(row["name"] for row in projected))
    legend = len(names) > 1
    look = marks.by_series(names, legend=legend)
    layers.append(
        # One band: those of three links would hide each other.
        sheet.chart([row for row in projected if row["name"] == _foremost(names)])
        .mark_area(opacity=0.18)
        .encode(
            x=x,
            y=alt.Y("low:Q", scale=y["scale"], axis=y["axis"]),
            y2=alt.Y2("high:Q"),
            color=look["color"],
        )
    )
    if ideal is not None:
        layers += _ideal(sheet, sorted(set(counts)), ideal, scale, x, y)
    sure = [row for row in projected if not row["indicative"]]
    hover = marks.tooltip(name="series", workers="workers", text="value")
    if sure:
        line = sheet.chart(sure).mark_line()
        layers.append(line.encode(x=x, y=y, color=look["color"], strokeDash=look["strokeDash"]))
    asked = {(row.workers, row.link) for row in found.rows if not row.measured}
    points = [
        row for row in projected if (row["x"], row["link"]) in asked and not row["indicative"]
    ]
    if points:
        dots = sheet.chart(points).mark_point(style="hollow")
        layers.append(dots.encode(x=x, y=y, color=look["color"], tooltip=hover))
    layers += _measured_points(sheet, measured, x, y, hover)
    return sheet.finished(*layers)


def _measured_points(
    sheet: marks.Sheet,
    rows: list[dict[str, Any]],
    x: alt.X,
    y: alt.Y,
    hover: Sequence[alt.Tooltip],
) -> list[alt.Chart]:
    layers = []
    ends = marks.with_intervals(rows)
    if ends:
        rule = sheet.chart(ends).mark_rule(style=["interval", "over"])
        layers.append(
            rule.encode(
                x=x, y=alt.Y("low:Q", scale=y["scale"], axis=y["axis"]), y2=alt.Y2("high:Q")
            )
        )
    if rows:
        points = sheet.chart(rows).mark_point(style="over", size=60)
        layers.append(points.encode(x=x, y=y, tooltip=list(hover)))
    return layers


def _ideal(
    sheet: marks.Sheet,
    counts: Sequence[int],
    ideal: Callable[[int], float],
    scale: float,
    x: alt.X,
    y: alt.Y,
) -> list[alt.Chart]:
    rows = [{"x": count, "y": ideal(count) / scale} for count in counts]
    line = sheet.chart(rows).mark_line(style="ideal").encode(x=x, y=y)
    rising = rows[-1]["y"] > rows[0]["y"]
    word = sheet.chart([rows[-1] | {"text": "ideal"}]).mark_text(
        style="ideal-label", align="right", dx=-6, dy=-7 if rising else 10
    )
    return [line, word.encode(x=x, y=y, text=alt.Text("text:N"))]


def _links(curve: Sequence[ProjectionRow]) -> list[str]:
    return list(dict.fromkeys(row.link for row in curve if row.link is not None))


def _foremost(names: Sequence[str]) -> str:
    """Return the series whose band is drawn: the middle one of three usual links."""
    return names[len(names) // 2]


def _bands(found: Projection) -> str:
    """Say what the band is."""
    links = _links(found.curve)
    of = f" on {_foremost(links)}; the table has the others" if len(links) > 1 else ""
    return (
        f"The band is the 90 % interval{of}. Beyond 16 times what was measured there are bounds, "
        "and no line."
    )


def _rows(
    outlooks: Sequence[ProjectionRow],
    get: Get,
    show: Callable[[float | None], str],
    scale: float,
    links: Sequence[str] = (),
) -> list[dict[str, Any]]:
    """Return points for drawing; what needs no link belongs to the foremost one.

    Lines of the others begin where it ends.
    """
    rows = []
    within = max((one.workers for one in outlooks if one.link is None), default=0)
    for name in links or (None,):
        for one in outlooks:
            figure = get(one)
            if figure is None or one.link not in (None, name):
                continue
            if one.link is None and links and name != _foremost(links) and one.workers < within:
                continue
            bounds = f"{show(figure.low)} to {show(figure.high)}"
            rows.append(
                {
                    "name": name or (_MEASURED if one.measured else _PROJECTED),
                    "link": one.link,
                    "x": one.workers,
                    "y": figure.value / scale,
                    "low": figure.low / scale,
                    "high": figure.high / scale,
                    "indicative": figure.indicative,
                    "workers": whole(one.workers),
                    "text": bounds if figure.indicative else f"{show(figure.value)} ({bounds})",
                }
            )
    return rows


def _name(row: ProjectionRow) -> str:
    words = f"{row.workers} worker{'s' * (row.workers != 1)}"
    if row.link:
        words += f", {row.link}"
    return f"{words} (measured)" if row.measured else words


def _figure(
    name: str, title: str, caption: str, spec: Spec | None, table: Table, alt: str = ""
) -> Figure | None:
    if spec is None:
        return None
    return Figure(
        name=name,
        title=title,
        caption=caption,
        spec=spec,
        table=table,
        alt=alt or f"{title} against workers: measured points and projected bands.",
    )
