"""Metrics by epoch and by time, at the end of training, and the epochs to stability."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import altair as alt

from farandole.model.info.metric import MetricCurve, MetricRow
from farandole.model.info.scaling import ScalingInfo
from farandole.report.charts import marks
from farandole.report.figure import Figure, Missing
from farandole.report.series import MOST_SERIES, Named, foremost, labelled, left_out, unlike
from farandole.report.table import Column, Table, shown
from farandole.report.text import brief, known, seconds, whole

_VALUE = Column(key="value", title="value", interval=True)
_MOST_OTHERS = 3
_HINT = (
    "Measure accuracy, too: farandole study --measure both -- COMMAND, with "
    "farandole.record(epoch=..., val_accuracy=...) in the script."
)


def main_metric(infos: Sequence[ScalingInfo]) -> str | None:
    """Return the metric that the studies' answers speak of."""
    return next((info.main_metric for info in infos if info.main_metric is not None), None)


def by_epoch(infos: Sequence[ScalingInfo]) -> Figure | Missing:
    """Draw the main metric by epoch."""
    metric = main_metric(infos)
    found = _curves(infos, metric)
    if metric is None or not found:
        return Missing(title="Accuracy by epoch", hint=_HINT)
    return _curve_figure(found, metric, name="accuracy-by-epoch", title=f"{metric} by epoch")


def others_by_epoch(infos: Sequence[ScalingInfo]) -> list[Figure]:
    """Draw further metrics by epoch: training accuracy, losses."""
    main = main_metric(infos)
    names = dict.fromkeys(
        curve.metric for info in infos for curve in info.metric_curves if curve.metric != main
    )
    figures = []
    for number_, metric in enumerate(list(names)[:_MOST_OTHERS], start=2):
        found = _curves(infos, metric)
        if found:
            figures.append(
                _curve_figure(
                    found, metric, name=f"metric-{number_}-by-epoch", title=f"{metric} by epoch"
                )
            )
    return figures


def by_time(infos: Sequence[ScalingInfo]) -> Figure | Missing:
    """Draw the main metric by the time since the launch began."""
    metric = main_metric(infos)
    found = [
        named
        for named in _curves(infos, metric)
        if any(known(point.time_s) for point in named.item.points)
    ]
    if metric is None or not found:
        return Missing(title="Accuracy by time", hint=_HINT)
    return _curve_figure(
        found, metric, name="accuracy-by-time", title=f"{metric} by time", timed=True
    )


def final(infos: Sequence[ScalingInfo]) -> Figure | Missing:
    """Draw the main metric at the end of training against workers."""
    metric = main_metric(infos)
    rows_of = [n for n in labelled(infos, lambda info: info.metrics) if n.item.metric == metric]
    shown_rows = [n for n in rows_of if n.item.final is not None and known(n.item.final.value)]
    if metric is None or not shown_rows:
        return Missing(title="Accuracy at the end", hint=_HINT)
    drawn = foremost(shown_rows, 16)
    names = unlike(named.name for named in drawn)
    rows = [
        {
            "name": name,
            "order": order,
            **marks.spread(named.item.final),
            "text": shown(_VALUE, named.item.final),
            "seeds": str(named.item.seeds),
            "verdict": _verdict(named.item),
        }
        for order, (name, named) in enumerate(zip(names, drawn, strict=True))
    ]
    y = alt.Y(
        "name:N",
        sort=alt.EncodingSortField(field="order", op="min", order="ascending"),
        title=None,
        axis=alt.Axis(labelLimit=220, ticks=False, domain=False, grid=True),
    )
    x = alt.X("y:Q", title=metric, scale=alt.Scale(zero=False))
    sheet = marks.Sheet()
    ends = marks.with_intervals(rows)
    layers = []
    if ends:
        layers.append(
            sheet.chart(ends)
            .mark_rule(style=["interval", "first"])
            .encode(
                x=alt.X("low:Q", scale=alt.Scale(zero=False), title=metric),
                x2=alt.X2("high:Q"),
                y=y,
            )
        )
    layers += [
        sheet.chart(rows)
        .mark_point(size=80, style="first")
        .encode(
            x=x,
            y=y,
            tooltip=marks.tooltip(name="cell", text="value", seeds="seeds", verdict="verdict"),
        ),
        sheet.chart(rows)
        .mark_text(style="value", dy=-12)
        .encode(x=x, y=y, text=alt.Text("verdict:N")),
    ]
    return Figure(
        name="accuracy-at-end",
        title=f"{metric} at the end",
        caption="Mean over seeds of the last value; bars are 95 % intervals. The word says how it "
        "compares with the fewest workers." + left_out(len(drawn), len(shown_rows), "cells"),
        spec=sheet.finished(*layers, height=max(80, 44 * len(drawn))),
        table=metric_table(infos),
        alt="The main metric at the end of training, by cell.",
    )


def stability(infos: Sequence[ScalingInfo]) -> Figure | Missing:
    """Draw the epochs until the main metric was stable."""
    metric = main_metric(infos)
    found = [n for n in labelled(infos, lambda info: info.metrics) if n.item.metric == metric]
    there = [n for n in found if known(n.item.stable_epoch)]
    if metric is None or not there:
        return Missing(title="Epochs to stability", hint=_HINT)
    drawn = foremost(there, 16)
    names = unlike(named.name for named in drawn)
    rows = [
        {
            "name": name,
            "order": order,
            "x": named.item.stable_epoch,
            "text": brief(named.item.stable_epoch),
            "time": seconds(named.item.stable_s),
            "censored": f"{named.item.censored} of {named.item.seeds} seeds never",
        }
        for order, (name, named) in enumerate(zip(names, drawn, strict=True))
    ]
    y = alt.Y(
        "name:N",
        sort=alt.EncodingSortField(field="order", op="min", order="ascending"),
        title=None,
        axis=alt.Axis(labelLimit=220, ticks=False, domain=False),
        scale=alt.Scale(paddingInner=0.3),
    )
    x = alt.X("x:Q", title="epochs", scale=alt.Scale(zero=True), axis=alt.Axis(grid=True))
    sheet = marks.Sheet()
    base = sheet.chart(rows)
    bars = base.mark_bar(style=["bar", "first"]).encode(
        x=x,
        y=y,
        tooltip=marks.tooltip(name="cell", text="epochs", time="time", censored="not stable"),
    )
    words = base.mark_text(style="value", align="left", dx=4).encode(
        x=x, y=y, text=alt.Text("text:N")
    )
    return Figure(
        name="epochs-to-stability",
        title=f"Epochs to stable {metric}",
        caption="Median over seeds of the first epoch from which on the metric stays within its "
        "noise." + left_out(len(drawn), len(there), "cells"),
        spec=sheet.finished(bars, words, height=max(70, 36 * len(drawn))),
        table=_stability_table(found),
        alt="Epochs until the main metric was stable, by cell.",
    )


def metric_table(infos: Sequence[ScalingInfo]) -> Table:
    """Return every metric at the end of training, compared with the fewest workers."""
    columns = (
        Column(key="cell", title="cell", text=True),
        Column(key="metric", title="metric", text=True),
        Column(key="final", title="at the end", interval=True),
        Column(key="difference", title="difference", interval=True),
        Column(key="margin", title='margin of "same"', show=brief),
        Column(key="verdict", title="verdict", text=True),
        Column(key="seeds", title="seeds", show=whole),
        Column(key="diverged", title="diverged", show=whole),
        Column(key="target", title="target", show=brief),
        Column(key="target_epoch", title="epochs to target", show=brief),
        Column(key="target_s", title="time to target", show=seconds),
    )
    rows = [
        (
            named.name,
            row.metric,
            row.final,
            row.difference,
            row.margin,
            _verdict(row),
            row.seeds,
            row.diverged,
            row.target,
            row.target_epoch,
            row.target_s,
        )
        for named in labelled(infos, lambda info: info.metrics)
        for row in (named.item,)
    ]
    return Table(
        name="metrics", title="Metrics at the end of training", columns=columns, rows=tuple(rows)
    )


def _stability_table(found: Sequence[Named[MetricRow]]) -> Table:
    columns = (
        Column(key="cell", title="cell", text=True),
        Column(key="stable_epoch", title="epochs to stability", show=brief),
        Column(key="stable_s", title="time to stability", show=seconds),
        Column(key="seeds", title="seeds", show=whole),
        Column(key="never_stable", title="never stable", show=whole),
    )
    return Table(
        name="epochs-to-stability",
        title="Epochs and time to stability, medians over seeds",
        columns=columns,
        rows=tuple(
            (n.name, n.item.stable_epoch, n.item.stable_s, n.item.seeds, n.item.censored)
            for n in found
        ),
    )


def _curves(infos: Sequence[ScalingInfo], metric: str | None) -> list[Named[MetricCurve]]:
    return [
        named
        for named in labelled(infos, lambda info: info.metric_curves)
        if named.item.metric == metric and any(known(p.value.value) for p in named.item.points)
    ]


def _curve_figure(
    found: Sequence[Named[MetricCurve]],
    metric: str,
    *,
    name: str,
    title: str,
    timed: bool = False,
) -> Figure:
    drawn = foremost(found, MOST_SERIES)
    names = unlike(named.name for named in drawn)
    rows: list[dict[str, Any]] = [
        {
            "name": series,
            "x": point.time_s if timed else point.epoch,
            **marks.spread(point.value),
            "text": shown(_VALUE, point.value),
            "epoch": brief(point.epoch),
            "time": seconds(point.time_s),
            "seeds": str(point.seeds),
        }
        for series, named in zip(names, drawn, strict=True)
        for point in named.item.points
        if known(point.value.value) and (known(point.time_s) or not timed)
    ]
    x = alt.X(
        "x:Q",
        title="seconds since the launch began" if timed else "epoch",
        scale=alt.Scale(zero=timed, nice=False, padding=8),
        axis=alt.Axis(tickMinStep=1),
    )
    y = alt.Y("y:Q", title=metric, scale=alt.Scale(zero=False), axis=alt.Axis(tickCount=6))
    hover = marks.tooltip(name="cell", epoch="epoch", time="time", text="value", seeds="seeds")
    sheet = marks.Sheet()
    layers = marks.lined_points(sheet, rows, x=x, y=y, legend=len(drawn) > 1, hover=hover)
    return Figure(
        name=name,
        title=title,
        caption="Mean over seeds; bars are 95 % intervals."
        + left_out(len(drawn), len(found), "cells"),
        spec=sheet.finished(*layers),
        table=_curve_table(found, metric, name),
        alt="A metric during training, one line per cell.",
    )


def _curve_table(found: Sequence[Named[MetricCurve]], metric: str, name: str) -> Table:
    columns = (
        Column(key="cell", title="cell", text=True),
        Column(key="epoch", title="epoch", show=brief),
        Column(key="time_s", title="time", show=seconds),
        Column(key="value", title=metric, interval=True),
        Column(key="seeds", title="seeds", show=whole),
    )
    rows = tuple(
        (named.name, point.epoch, point.time_s, point.value, point.seeds)
        for named in found
        for point in named.item.points
    )
    return Table(name=name, title=f"{metric} during training", columns=columns, rows=rows)


def _verdict(row: MetricRow) -> str:
    return "baseline" if row.verdict is None else row.verdict.replace("_", " ")
