"""Weak and strong scaling: throughput and speedup of each network, here and in the lab."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from farandole.format import listed, number, percent, plural, seconds, times, whole
from farandole.labs.disturbed import disturbed
from farandole.labs.evidence import NO_INTERVALS, interval_words, without_intervals
from farandole.labs.faces.plan import SCALING
from farandole.labs.faces.points import (
    CPU,
    GPU,
    HERE,
    LAB_SOURCES,
    PROJECTED,
    Point,
    last,
    measured,
    published_strong,
    published_weak,
)
from farandole.labs.faces.projected import projected
from farandole.labs.faces.questions import MODELS, STRONG, WEAK
from farandole.labs.lab import Answered, Found, Question
from farandole.model.info.curve import Scaling
from farandole.report.charts import doubling, lines
from farandole.report.document import Figure
from farandole.report.table import Column, Table

_COUNT = "workers (here) or nodes (lab)"
_HOLLOW = "Hollow marks: the lab's, one run each."
_AHEAD = " Hollow marks: projections, with 90 % intervals."


def answer_weak(found: Found) -> Answered:
    """Answer by the cells whose workers keep their batch."""
    here, lab = measured(found, "weak"), published_weak(found)
    ahead = projected(found, "weak")
    points = [*here, *ahead.points, *lab]
    return Answered(
        question=WEAK,
        sentences=(
            *_here_words(here, "weak"),
            *disturbed(found, SCALING),
            *_ahead_words(ahead.points),
            *ahead.why_not,
            *_lab_words(lab, CPU),
            *_lab_words(lab, GPU),
            *_without(here),
        ),
        tables=(_table(WEAK, "Weak scaling: the batch per worker stays", points),),
        figures=(
            _throughput(
                "weak", [*here, *ahead.points], "Images per second with a fixed batch per worker"
            ),
            _throughput(
                "weak-lab", lab, "The lab's images per second with a fixed batch per process or GPU"
            ),
            _speedup("weak", [*here, *_of(lab, CPU)], f"CPUs. {_HOLLOW}"),
            _speedup("weak-gpu", _of(lab, GPU), f"The lab's GPUs. {_HOLLOW}"),
        ),
    )


def answer_strong(found: Found) -> Answered:
    """Answer by the cells that share one global batch."""
    here, lab = measured(found, "strong"), published_strong(found)
    ahead = projected(found, "strong")
    points = [*here, *ahead.points, *lab]
    return Answered(
        question=STRONG,
        sentences=(
            *_here_words(here, "strong"),
            *disturbed(found, SCALING),
            *_ahead_words(ahead.points),
            *ahead.why_not,
            *_lab_words(lab, CPU),
            "Of its GPUs the lab gives no figures: InceptionV3 scales best there, ResNet50 "
            "flattens after 4 nodes.",
            *_without(here),
        ),
        tables=(_table(STRONG, "Strong scaling: the global batch stays", points),),
        figures=(
            _throughput(
                "strong", [*here, *ahead.points], "Images per second with a fixed global batch"
            ),
            _speedup("strong", [*here, *lab], f"CPUs. {_HOLLOW}"),
        ),
    )


def _table(question: Question, title: str, points: Sequence[Point]) -> Table:
    return Table(
        name=question.key,
        title=title,
        columns=(
            Column(key="source", title="measured", text=True),
            Column(key="model", title="network", text=True),
            Column(key="count", title=_COUNT, show=whole),
            Column(key="batch", title="batch per worker", show=_optional),
            Column(key="images_per_s", title="images/s", interval=True, show=_given),
            Column(key="step_s", title="step", show=_step, interval=True),
            Column(key="speedup", title="speedup", show=times, interval=True),
            Column(key="efficiency", title="efficiency", show=percent, interval=True),
        ),
        rows=tuple(_row(point) for point in points),
        notes=("Intervals of projections are of 90 %.",)
        if any(point.source == PROJECTED for point in points)
        else (),
    )


def _row(point: Point) -> tuple[Any, ...]:
    return (
        *(point.source, point.model, point.count, point.batch, point.throughput),
        *(point.step_s, point.speedup, point.efficiency),
    )


def _given(value: float | None) -> str:
    """Show a throughput with the lab's digits where it has more than three."""
    if value is None:
        return "not given"
    return f"{value:.2f}" if value < 1000 else number(value)


def _step(value: float | None) -> str:
    return "" if value is None else seconds(value)


def _optional(value: float | None) -> str:
    return "" if value is None else whole(value)


def _throughput(name: str, points: Sequence[Point], title: str) -> Figure:
    shown = [point for point in points if point.throughput is not None]
    table = Table(
        name=f"{name}-throughput",
        title=title,
        columns=(
            Column(key="series", title="network", text=True),
            Column(key="count", title=_axis(shown), show=whole),
            Column(key="images_per_s", title="images/s", interval=True, show=_given),
        ),
        rows=tuple((_series(point, shown), point.count, point.throughput) for point in shown),
    )
    lab = any(point.source in LAB_SOURCES for point in shown)
    ahead = any(point.source == PROJECTED for point in shown)
    return lines(
        table.name,
        title,
        _HOLLOW if lab else f"Bars are 95 % intervals.{_AHEAD if ahead else ''}",
        table,
        x="count",
        y="images_per_s",
        series="series",
        # Both axes alike, so that what is proportional is a straight line.
        log=_wide(shown),
        published=_not_measured(shown),
    )


def _speedup(name: str, points: Sequence[Point], caption: str) -> Figure:
    shown = [point for point in points if point.speedup is not None]
    words = "a fixed batch per worker" if name.startswith("weak") else "a fixed global batch"
    whose = " of the lab's GPUs" if {point.source for point in shown} == {GPU} else ""
    table = Table(
        name=f"{name}-speedup",
        title=f"Speedup{whose} with {words}",
        columns=(
            Column(key="series", title="network", text=True),
            Column(key="count", title=_axis(shown), show=whole),
            Column(key="speedup", title="speedup", show=times, interval=True),
        ),
        rows=tuple((_series(point, shown), point.count, point.speedup) for point in shown),
    )
    return lines(
        table.name,
        table.title,
        f"Throughput over that of one worker (here) or one node (lab). {caption}",
        table,
        x="count",
        y="speedup",
        series="series",
        log=_wide(shown),
        ideal=True,
        published=_not_measured(shown),
    )


def _wide(points: Sequence[Point]) -> bool:
    """Tell whether doublings of the count get equal room."""
    return doubling([point.count for point in points])


def _axis(points: Sequence[Point]) -> str:
    sources = {point.source for point in points}
    if sources <= {HERE, PROJECTED}:
        return "workers"
    return "nodes" if sources <= set(LAB_SOURCES) else _COUNT


def _series(point: Point, points: Sequence[Point]) -> str:
    alone = len({one.source for one in points}) == 1
    return point.model if alone else f"{point.model}, {point.source}"


def _not_measured(points: Sequence[Point]) -> set[str]:
    return {_series(point, points) for point in points if point.source != HERE}


def _of(points: Sequence[Point], source: str) -> list[Point]:
    return [point for point in points if point.source == source]


def _here_words(points: Sequence[Point], scaling: Scaling) -> list[str]:
    ends = [end for title in MODELS.values() if (end := last(points, title)) is not None]
    kept = "each keeps its batch" if scaling == "weak" else "they share one batch"
    parts = [
        f"{end.model} {interval_words(end.speedup)} times"
        for end in ends
        if end.speedup is not None
    ]
    if not parts:
        return [f"No speedup of workers was measured here when {kept}."]
    shares = [end.efficiency.value for end in ends if end.efficiency is not None]
    return [
        f"{plural(ends[0].count, 'worker')} against one, when {kept}: {listed(parts)}, an "
        f"efficiency of {_span(shares)}."
    ]


def _ahead_words(points: Sequence[Point]) -> list[str]:
    ends = [end for t in MODELS.values() if (end := last(points, t, PROJECTED)) is not None]
    parts = [
        f"{end.model} {times(end.speedup.value)} ({times(end.speedup.low)} to "
        f"{times(end.speedup.high)})"
        for end in ends
        if end.speedup is not None
    ]
    if not parts:
        return []
    return [
        f"Projected, not measured: {plural(ends[0].count, 'worker')} on as many cores of this kind "
        f"would give {listed(parts)}, with 90 % intervals."
    ]


def _lab_words(points: Sequence[Point], source: str) -> list[str]:
    ends = [end for title in MODELS.values() if (end := last(points, title, source)) is not None]
    parts = [f"{end.model} {times(end.speedup.value)}" for end in ends if end.speedup is not None]
    if not parts:
        return []
    shares = [end.efficiency.value for end in ends if end.efficiency is not None]
    device = source.removeprefix("lab, ")
    return [
        f"The lab's {ends[0].count} {device} nodes against one: {listed(parts)}, an efficiency of "
        f"{_span(shares)}."
    ]


def _span(shares: Sequence[float]) -> str:
    low, high = percent(min(shares)), percent(max(shares))
    return low if low == high else f"{low} to {high}"


def _without(points: Sequence[Point]) -> list[str]:
    found = [point.throughput for point in points]
    return [NO_INTERVALS] if without_intervals(found) else []
