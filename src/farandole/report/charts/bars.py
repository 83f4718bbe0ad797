"""Stacked bars: where a step's time goes, what its bytes are, where a job's time goes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import altair as alt

from farandole.model.info.communication import Communication
from farandole.model.info.job import JobTime
from farandole.model.info.scaling import ScalingInfo
from farandole.model.info.step import StepSplit
from farandole.report.charts import marks
from farandole.report.figure import Figure, Missing, Spec
from farandole.report.series import Named, foremost, labelled, left_out, unlike
from farandole.report.table import Column, Table
from farandole.report.text import brief, known, percent, seconds, size, whole
from farandole.study.records import BYTE_KINDS

_MOST_BARS = 16
# How many of the theme's colours for parts are so strong that figures on them must be light.
_STRONG = 2
_CELL = Column(key="cell", title="cell", text=True)
# The order in which they are stacked, with the words of the legend.
_PARTS = {
    "data": "data wait",
    "compute": "compute",
    "transfer": "communication",
    "waiting": "waiting for peers",
    "optimizer": "optimizer",
}
_JOB_PARTS = {
    "startup": "start-up",
    "epochs": "epochs",
    "between": "between epochs",
}


def step_split(infos: Sequence[ScalingInfo]) -> Figure | Missing:
    """Draw where a typical step of each cell goes."""
    found = [n for n in labelled(infos, lambda info: info.splits) if _measured(n.item.parts())]
    if not found:
        return Missing(
            title="Where a step goes",
            hint="Needs recorded steps: farandole study records them for scripts that train with "
            "farandole.torch, Keras, DDP, Accelerate or Lightning.",
        )
    drawn = foremost(found, _MOST_BARS)
    spec = stacked(
        drawn,
        lambda split: split.parts(),
        _PARTS,
        show=seconds,
        title="time per step",
        scale=marks.time_scale(max(n.item.step_s for n in drawn)),
        weights=[_PARTS[key] for key in ("compute", "transfer", "data", "waiting", "optimizer")],
    )
    columns = (
        _CELL,
        Column(key="step_s", title="step", show=seconds),
        *(Column(key=f"{key}_s", title=word, show=seconds) for key, word in _PARTS.items()),
        Column(key="hidden_communication_s", title="hidden communication", show=seconds),
        Column(key="slowest_rank", title="slowest rank", show=whole),
        Column(key="slowest_share", title="in steps", show=percent),
    )
    table = Table(
        name="step-split",
        title="Where a typical step goes: medians, on the rank that took longest",
        columns=columns,
        rows=tuple(_split_row(named) for named in found),
    )
    return Figure(
        name="step-split",
        title="Where a step goes",
        caption="A typical step by its parts. Communication is what training waited for; what ran "
        "beside computing is in the table as hidden." + left_out(len(drawn), len(found), "cells"),
        spec=spec,
        table=table,
        alt="Stacked bars: time per step by part, one bar per cell.",
        wide=len(drawn) > 6,
    )


def bytes_by_kind(infos: Sequence[ScalingInfo]) -> Figure | Missing:
    """Draw what crosses between the workers in a step, by kind."""
    found = [
        named
        for named in labelled(infos, lambda info: info.communication)
        if sum(named.item.bytes_by_kind.values()) > 0
    ]
    if not found:
        return Missing(
            title="Bytes by kind",
            hint="Needs at least two workers whose communication Farandole or DDP carries.",
        )
    drawn = foremost(found, _MOST_BARS)
    kinds = list(BYTE_KINDS)
    kinds += sorted({kind for n in found for kind in n.item.bytes_by_kind} - set(kinds))
    present = [kind for kind in kinds if any(n.item.bytes_by_kind.get(kind) for n in found)]
    largest = max(sum(n.item.bytes_by_kind.values()) for n in drawn)
    spec = stacked(
        drawn,
        lambda one: {kind: one.bytes_by_kind.get(kind) for kind in present},
        {kind: kind for kind in present},
        show=size,
        title="payload per step",
        scale=marks.byte_scale(largest),
        weights=present,
    )
    columns = (
        _CELL,
        *(Column(key=f"{kind}_bytes_per_step", title=kind, show=size) for kind in present),
        Column(key="gradient_bytes_per_rank", title="gradients per worker", show=size),
        Column(key="total_bytes", title="whole launch", show=size),
    )
    return Figure(
        name="bytes",
        title="Bytes by kind",
        caption="Payload per step over all workers, by kind, before the transport multiplies it "
        "by 2(N-1)/N." + left_out(len(drawn), len(found), "cells"),
        spec=spec,
        table=Table(
            name="bytes",
            title="Payload per step over all workers, by kind",
            columns=columns,
            rows=tuple(_bytes_row(named, present) for named in found),
        ),
        alt="Stacked bars: bytes per step by kind, one bar per cell.",
    )


def job_times(infos: Sequence[ScalingInfo]) -> Figure | Missing:
    """Draw where a whole job's time goes."""
    found = labelled(infos, lambda info: info.job_times)
    drawable = [named for named in found if _measured(_job_parts(named.item))]
    if not drawable:
        return Missing(
            title="Job time",
            hint="Needs one launch per worker count that runs a whole epoch: leave out --steps.",
        )
    drawn = foremost(drawable, _MOST_BARS)
    largest = max(sum(filter(known, _job_parts(n.item).values())) for n in drawn)  # type: ignore[arg-type]
    spec = stacked(
        drawn,
        _job_parts,
        _JOB_PARTS,
        show=seconds,
        title="time",
        scale=marks.time_scale(largest),
        weights=[_JOB_PARTS[key] for key in ("epochs", "between", "startup")],
    )
    columns = (
        _CELL,
        Column(key="job_s", title="job", show=seconds, interval=True),
        Column(key="epochs", title="epochs", show=brief),
        Column(key="epoch_s", title="epoch", show=seconds, interval=True),
        Column(key="epoch_measured", title="epoch is", text=True),
        Column(key="steps_per_epoch", title="steps per epoch", show=whole),
        Column(key="startup_s", title="start-up", show=seconds),
        Column(key="between_s", title="between epochs", show=seconds),
        Column(key="fixed_s", title="fixed", show=seconds),
        Column(key="fixed_share", title="fixed share", show=percent),
    )
    return Figure(
        name="job-time",
        title="Job time",
        caption="Where a whole job's time goes: start-up until the first step, passes over the "
        "training data, and what lies between and after them (validation, checkpoints)."
        + left_out(len(drawn), len(found), "cells"),
        spec=spec,
        table=Table(
            name="job-time",
            title="Job, epoch and fixed time",
            columns=columns,
            rows=tuple(_job_row(named) for named in found),
        ),
        alt="Stacked bars: job time by part, one bar per cell.",
    )


def stacked(
    drawn: Sequence[Named[Any]],
    parts: Callable[[Any], Mapping[str, float | None]],
    words: Mapping[str, str],
    *,
    show: Callable[[float | None], str],
    title: str,
    scale: tuple[float, str],
    weights: Sequence[str],
) -> Spec:
    """Return horizontal bars, stacked in the order of the words, with figures inside."""
    factor, unit = scale
    names = unlike(named.name for named in drawn)
    rows: list[dict[str, Any]] = []
    for order, (name, named) in enumerate(zip(names, drawn, strict=True)):
        begin = 0.0
        for key, word in words.items():
            value = parts(named.item).get(key)
            if not known(value) or not value:
                continue
            end = begin + value / factor
            rows.append(
                {
                    "name": name,
                    "order": order,
                    "part": word,
                    "x": begin,
                    "end": end,
                    "middle": (begin + end) / 2,
                    "text": show(value),
                }
            )
            begin = end
    longest = max(row["end"] for row in rows)
    present = [word for word in words.values() if any(row["part"] == word for row in rows)]
    y = alt.Y(
        "name:N",
        sort=alt.EncodingSortField(field="order", op="min", order="ascending"),
        title=None,
        axis=alt.Axis(labelLimit=220, ticks=False, domain=False),
        scale=alt.Scale(paddingInner=0.25, paddingOuter=0.1),
    )
    axis = alt.Axis(title=f"{title} ({unit})", grid=True, tickCount=6)
    x = alt.X("x:Q", scale=alt.Scale(domainMin=0), axis=axis)
    # The legend in the order of the stack; colours by weight, so that the main part is the calmest.
    heavy = [word for word in weights if word in present]
    fitting = marks.legend_columns(present, marks.room_beside(row["name"] for row in rows))
    legend = alt.Legend(title=None, columns=fitting, values=present)
    colour = alt.Color("part:N", scale=alt.Scale(domain=heavy, range="ordinal"), legend=legend)
    sheet = marks.Sheet()
    bars = (
        sheet.chart(rows)
        .mark_bar(style="bar")
        .encode(
            y=y,
            x=x,
            x2=alt.X2("end:Q"),
            color=colour,
            tooltip=marks.tooltip(name="cell", part="part", text="value"),
        )
    )
    # A figure that would not fit its segment is left to the pointer and the table.
    wide = [row for row in rows if row["end"] - row["x"] > 0.13 * longest]
    middle = alt.X("middle:Q", scale=x["scale"], axis=x["axis"])
    layers: list[Any] = [bars]
    for style, parts_in_it in (("inside", heavy[:_STRONG]), ("value", heavy[_STRONG:])):
        figures = [row for row in wide if row["part"] in parts_in_it]
        if figures:
            layer = sheet.chart(figures).mark_text(style=style)
            layers.append(layer.encode(y=y, x=middle, text=alt.Text("text:N")))
    return sheet.finished(*layers, height=max(70, 34 * len(drawn)))


def _split_row(named: Named[StepSplit]) -> tuple[Any, ...]:
    split = named.item
    parts = split.parts()
    return (
        named.name,
        split.step_s,
        *(parts[key] for key in _PARTS),
        split.hidden_s,
        split.slowest_rank,
        split.slowest_share,
    )


def _bytes_row(named: Named[Communication], kinds: Sequence[str]) -> tuple[Any, ...]:
    one = named.item
    total = sum(one.total_bytes_by_kind.values()) if one.total_bytes_by_kind else None
    return (
        named.name,
        *(one.bytes_by_kind.get(kind) for kind in kinds),
        one.gradient_bytes,
        total,
    )


def _job_parts(job: JobTime) -> dict[str, float | None]:
    whole_job = None
    if job.epoch_s is not None and known(job.epochs) and job.epochs is not None:
        whole_job = job.epoch_s.value * job.epochs
    return {"startup": job.startup_s, "epochs": whole_job, "between": job.between_s}


def _job_row(named: Named[JobTime]) -> tuple[Any, ...]:
    job = named.item
    return (
        named.name,
        job.job_s,
        job.epochs,
        job.epoch_s,
        "measured" if job.epoch_measured else "from steps",
        job.steps_per_epoch,
        job.startup_s,
        job.between_s,
        job.fixed_s,
        job.fixed_share,
    )


def _measured(parts: Mapping[str, float | None]) -> bool:
    return any(known(value) and value for value in parts.values())
