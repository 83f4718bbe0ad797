"""Throughput, speedup and efficiency by workers; and the one figure to paste into a report."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import altair as alt

from farandole.model.info.curve import Curve, CurvePoint
from farandole.model.info.scaling import ScalingInfo
from farandole.model.statistics import Estimate
from farandole.report.charts import marks
from farandole.report.figure import Figure, Missing
from farandole.report.series import MOST_SERIES, Named, curves, left_out, on_several_hosts
from farandole.report.table import Column, Table, shown
from farandole.report.text import known, percent, times, whole

_WORKERS = Column(key="workers", title="workers", show=whole)
_PLACEMENT = Column(key="placement", title="hosts x workers", text=True)
_SERIES = Column(key="series", title="series", text=True)
_BATCH = Column(key="batch_per_worker", title="batch per worker", show=whole)
_GLOBAL = Column(key="global_batch", title="global batch", show=whole)
_LAUNCHES = Column(key="launches", title="launches", show=whole)
_COUNTS = Column(key="counts", title="counts", text=True)
_SPEEDUP = Column(key="speedup", title="speedup", show=times, interval=True)
_EFFICIENCY = Column(key="efficiency", title="efficiency", show=percent, interval=True)

_NEEDED = "Study at least two worker counts: farandole study -np 1,2 -- COMMAND"


def throughput(infos: Sequence[ScalingInfo]) -> Figure | Missing:
    """Draw throughput against workers, beside what each curve's first point promises."""
    found = _countable(infos, lambda point: point.throughput)
    if not found:
        return Missing(title="Throughput", hint=_void_or(infos, _NEEDED))
    unit = found[0].item.unit
    column = Column(key=_key(unit), title=unit, interval=True)
    drawn = found[:MOST_SERIES]
    rows = _rows(drawn, lambda point: point.throughput, column)
    ideal = _ideal_rows(drawn, lambda point: point.ideal_throughput)
    today = [
        info.today.throughput.value
        for info in infos
        if info.today is not None and info.today.unit == unit and len(infos) == 1
    ]
    spec = _against_ideal(
        rows, ideal, title=f"throughput ({unit})", base=10, today=today[0] if today else None
    )
    table = _table(
        "throughput",
        f"Throughput by workers ({unit}), 95 % intervals",
        found,
        [_BATCH, _GLOBAL, column, Column(key=f"ideal_{_key(unit)}", title="ideal"), _LAUNCHES],
        lambda point: [
            point.batch,
            point.global_batch,
            point.throughput,
            point.ideal_throughput,
            point.launches,
        ],
    )
    caption = (
        f"Throughput in {unit}; bars are 95 % intervals over launches, dashed: the first count's "
        "throughput times the workers"
        + ("; dotted: one process with all cores, what you have today." if today else ".")
        + left_out(len(drawn), len(found), "curves")
    )
    return Figure(
        name="throughput",
        title="Throughput",
        caption=caption,
        spec=spec,
        table=table,
        alt=f"Throughput in {unit} against workers, with intervals and ideal.",
    )


def speedup(infos: Sequence[ScalingInfo]) -> Figure | Missing:
    """Draw speedup against workers, beside ideal."""
    found = _countable(infos, lambda point: point.speedup)
    if not found:
        return Missing(title="Speedup", hint=_void_or(infos, _NEEDED))
    drawn = found[:MOST_SERIES]
    rows = _rows(drawn, lambda point: point.speedup, _SPEEDUP)
    ideal = _ideal_rows(drawn, lambda point: point.ideal_speedup)
    return Figure(
        name="speedup",
        title="Speedup",
        caption="Speedup over the smallest worker count, same threads per worker; bars are 95 % "
        f"intervals (Welch's t over launches), dashed: ideal. {drawn[0].item.sentence}"
        + left_out(len(drawn), len(found), "curves"),
        spec=_against_ideal(rows, ideal, title="speedup"),
        table=_table(
            "speedup",
            "Speedup by workers, 95 % intervals",
            found,
            [_BATCH, _SPEEDUP, Column(key="ideal_speedup", title="ideal", show=times), _LAUNCHES],
            lambda point: [point.batch, point.speedup, point.ideal_speedup, point.launches],
        ),
        alt="Speedup against workers, with intervals and the ideal line.",
    )


def efficiency(infos: Sequence[ScalingInfo]) -> Figure | Missing:
    """Draw efficiency against workers."""
    found = _countable(infos, lambda point: point.efficiency)
    if not found:
        return Missing(title="Efficiency", hint=_void_or(infos, _NEEDED))
    drawn = found[:MOST_SERIES]
    rows = _rows(drawn, lambda point: point.efficiency, _EFFICIENCY)
    counts = [row["x"] for row in rows]
    x = marks.counts_axis("workers", counts, log=marks.doubling(counts))
    tops = [row["high"] or row["y"] for row in rows]
    y = marks.value_axis("efficiency", top=max(1.08, 1.05 * max(tops)), format=".0%")
    sheet = marks.Sheet()
    ideal = sheet.chart([{"y": 1.0}]).mark_rule(style="ideal").encode(y=y)
    legend, extra = _naming(sheet, rows, x, y, log=False, above=True)
    layers = [ideal, *_points(sheet, rows, x, y, legend), *extra]
    return Figure(
        name="efficiency",
        title="Efficiency",
        caption="Efficiency: speedup over workers. 100 % means that no worker's time is lost."
        + left_out(len(drawn), len(found), "curves"),
        spec=sheet.finished(*layers),
        table=_table(
            "efficiency",
            "Efficiency by workers, 95 % intervals",
            found,
            [_BATCH, _EFFICIENCY, _LAUNCHES],
            lambda point: [point.batch, point.efficiency, point.launches],
        ),
        alt="Efficiency in percent against workers.",
    )


def scaling(infos: Sequence[ScalingInfo]) -> Figure | Missing:
    """Draw the figure to paste into a report: small, few words, readable in grey."""
    found = _countable(infos, lambda point: point.speedup)
    if not found:
        return Missing(title="Scaling", hint=_void_or(infos, _NEEDED))
    main = [named for named in found if named.item.main] or found[:1]
    drawn = main[:3]
    rows = _rows(drawn, lambda point: point.speedup, _SPEEDUP)
    ideal = _ideal_rows(drawn, lambda point: point.ideal_speedup)
    spec = _against_ideal(rows, ideal, title="speedup", height=200, room=30)
    return Figure(
        name="scaling",
        title="Scaling",
        caption="Speedup against the number of workers; bars are 95 % intervals over launches, "
        "dashed: ideal.",
        spec=spec,
        table=_table(
            "scaling",
            "Speedup and efficiency by workers, 95 % intervals",
            found,
            [
                _BATCH,
                _GLOBAL,
                Column(key=_key(found[0].item.unit), title=found[0].item.unit, interval=True),
                _SPEEDUP,
                _EFFICIENCY,
                _LAUNCHES,
            ],
            lambda point: [
                point.batch,
                point.global_batch,
                point.throughput,
                point.speedup,
                point.efficiency,
                point.launches,
            ],
        ),
        alt="Speedup against workers, with intervals and the ideal line.",
    )


def _against_ideal(
    rows: list[dict[str, Any]],
    ideal: list[dict[str, Any]],
    *,
    title: str,
    height: int = 260,
    base: int = 2,
    room: int = 72,
    today: float | None = None,
) -> dict[str, Any]:
    counts = [row["x"] for row in rows]
    log = marks.doubling(counts)
    x = marks.counts_axis("workers", counts, log=log)
    # Below the first point there is room for its figure.
    bottom = 0.75 * min(row["low"] or row["y"] for row in rows)
    y = marks.value_axis(title, log_base=base if log else None, bottom=bottom)
    sheet = marks.Sheet(room=room)
    dashed = (
        sheet.chart(ideal).mark_line(style="ideal").encode(x=x, y=y, detail=alt.Detail("name:N"))
    )
    top = max(ideal, key=lambda row: (row["x"], row["y"]))
    word = (
        sheet.chart([top | {"text": "ideal"}])
        .mark_text(style="ideal-label", align="right", dx=-6, dy=-7)
        .encode(x=x, y=y, text=alt.Text("text:N"))
    )
    legend, extra = _naming(sheet, rows, x, y, log=log)
    if today is not None:
        extra += _today(sheet, today, x, y, max(counts))
    return sheet.finished(dashed, word, *_points(sheet, rows, x, y, legend), *extra, height=height)


def _today(sheet: marks.Sheet, throughput: float, x: alt.X, y: alt.Y, last: int) -> list[alt.Chart]:
    """Return a level line: what one process with all cores reaches."""
    rule = sheet.chart([{"y": throughput}]).mark_rule(style="today").encode(y=y)
    words = sheet.chart([{"x": last, "y": throughput, "text": "today"}]).mark_text(
        style="ideal-label", align="right", baseline="bottom", dx=-2, dy=-3
    )
    return [rule, words.encode(x=x, y=y, text=alt.Text("text:N"))]


def _points(
    sheet: marks.Sheet, rows: list[dict[str, Any]], x: alt.X, y: alt.Y, legend: bool
) -> list[alt.Chart]:
    hover = marks.tooltip(
        name="series", workers="workers", text="value", launches="launches", batch="batch"
    )
    return marks.lined_points(sheet, rows, x=x, y=y, legend=legend, hover=hover)


def _naming(
    sheet: marks.Sheet,
    rows: list[dict[str, Any]],
    x: alt.X,
    y: alt.Y,
    *,
    log: bool,
    above: bool = False,
) -> tuple[bool, list[alt.Chart]]:
    """Return whether a legend is needed, and what is written beside the points in its place."""
    if len({row["name"] for row in rows}) == 1:
        # On the side that the line does not take.
        layer = sheet.chart(rows)
        if above:
            words = layer.mark_text(style="value", align="left", baseline="bottom", dx=7, dy=-5)
        else:
            words = layer.mark_text(style="value", align="left", baseline="top", dx=7, dy=5)
        return False, [words.encode(x=x, y=y, text=alt.Text("short:N"))]
    if marks.far_apart(rows, log=log):
        return False, [marks.end_labels(sheet, rows, x=x, y=y)]
    return True, []


def _countable(
    infos: Sequence[ScalingInfo], get: Callable[[CurvePoint], Estimate | None]
) -> list[Named[Curve]]:
    """Return curves with at least two counts whose figure may be shown; none of void studies."""
    honest = [info for info in infos if info.answer.void is None]
    return [
        named
        for named in curves(honest)
        if sum(_figure(point, get) is not None for point in named.item.points) > 1
    ]


def _rows(
    found: Sequence[Named[Curve]],
    get: Callable[[CurvePoint], Estimate | None],
    column: Column,
) -> list[dict[str, Any]]:
    several = on_several_hosts(named.item for named in found)
    return [
        {
            "name": named.name,
            "x": point.workers,
            **marks.spread(estimate),
            "workers": str(point.workers) + _placed(point, several),
            "text": shown(column, estimate),
            "short": column.show(estimate.value) + _placed(point, several),
            "launches": str(point.launches),
            "batch": "not known" if point.batch is None else f"{point.batch} per worker",
        }
        for named in found
        for point in named.item.points
        if (estimate := _figure(point, get)) is not None
    ]


def _figure(point: CurvePoint, get: Callable[[CurvePoint], Estimate | None]) -> Estimate | None:
    """Return what may be drawn of a point: a speed above zero that counts."""
    found = get(point) if point.valid else None
    return found if found is not None and known(found.value) and found.value > 0 else None


def _ideal_rows(
    found: Sequence[Named[Curve]], get: Callable[[CurvePoint], float]
) -> list[dict[str, Any]]:
    rows = [
        {"name": named.name, "x": point.workers, "y": get(point)}
        for named in found
        for point in named.item.points
        if point.valid and known(get(point)) and get(point) > 0
    ]
    # Curves with one ideal need one line.
    unique = {(row["x"], row["y"]): row for row in rows}
    if len({x for x, _ in unique}) == len(unique):
        return [row | {"name": ""} for row in unique.values()]
    return rows


def _table(
    name: str,
    title: str,
    found: Sequence[Named[Curve]],
    columns: list[Column],
    cells: Callable[[CurvePoint], list[Any]],
) -> Table:
    several = len(found) > 1
    placed = on_several_hosts(named.item for named in found)
    rows = []
    odd = False
    for named in found:
        for point in named.item.points:
            where = [point.cell.placement] if placed else []
            figures = cells(point) if point.valid else _blank(point, cells)
            row = [point.workers, *where, *figures]
            rows.append([*([named.name] if several else []), *row, point.why or "yes"])
            odd = odd or not point.valid
    kept = slice(None) if odd else slice(None, -1)
    counts = [_WORKERS, *([_PLACEMENT] if placed else [])]
    head = [*([_SERIES] if several else []), *counts, *columns, _COUNTS]
    return Table(
        name=name,
        title=title,
        columns=tuple(head[kept]),
        rows=tuple(tuple(row[kept]) for row in rows),
    )


def _placed(point: CurvePoint, several: bool) -> str:
    """Say where a point's workers were, in studies of several hosts."""
    return f" ({point.cell.placement})" if several else ""


def _blank(point: CurvePoint, cells: Callable[[CurvePoint], list[Any]]) -> list[Any]:
    """Return the row of a point whose speed does not count: no figures of speed."""
    return [None if isinstance(cell, Estimate | float) else cell for cell in cells(point)]


def _void_or(infos: Sequence[ScalingInfo], hint: str) -> str:
    reasons = [info.answer.void for info in infos if info.answer.void]
    return f"Not shown: {reasons[0]}" if reasons else hint


def _key(unit: str) -> str:
    known = {"samples/s", "batches/s", "epochs/s", "jobs/s"}
    return f"throughput_{unit.replace('/', '_per_')}" if unit in known else "throughput"
