"""Why strong scaling falls off: the laws, and what a step loses as workers are added."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from farandole.format import known, listed, percent, seconds, size, times, whole
from farandole.labs.faces.effort import LAB_GLOBAL_BATCH
from farandole.labs.faces.plan import SCALING
from farandole.labs.faces.points import (
    CPU,
    HERE,
    Point,
    first,
    last,
    measured,
    published_strong,
    published_weak,
    title_of,
)
from farandole.labs.faces.questions import LAB_PARAMETERS, MODELS, WHY
from farandole.labs.lab import Answered, Found
from farandole.model.curves import scaled
from farandole.model.info.curve import LawFit
from farandole.model.info.scaling import ScalingInfo
from farandole.model.laws import fit_amdahl, fit_gustafson
from farandole.model.statistics import Estimate
from farandole.report.charts import bars
from farandole.report.document import Figure
from farandole.report.table import Column, Table


@dataclass(frozen=True, slots=True, kw_only=True)
class Loss:
    """One network at the most workers (here) or nodes (lab), scaled in both ways."""

    source: str
    model: str
    count: int
    weak: Estimate | None
    """Speedup with a fixed batch per worker."""
    strong: Estimate | None
    """Speedup with a fixed global batch."""
    amdahl: LawFit | None
    gustafson: LawFit | None
    weak_lost_s: float | None
    """What a step takes beyond that of one worker with the same batch."""
    strong_lost_s: float | None
    """What a step takes beyond its share of one worker's step."""
    gradient_bytes: int | None
    weak_waited: float | None
    """Share of a step that training waits for gradients, with a fixed batch per worker."""
    strong_waited: float | None


def losses(found: Found) -> list[Loss]:
    """Return what is lost here and on the lab's CPU nodes, network by network."""
    return [*_here(found), *_lab(found)]


def answer_why(found: Found) -> Answered:
    """Answer by Amdahl's and Gustafson's laws, and by what is lost in a step."""
    rows = losses(found)
    table = Table(
        name="why",
        title="Serial shares, and what a step loses, at the most workers or nodes",
        columns=(
            Column(key="source", title="measured", text=True),
            Column(key="model", title="network", text=True),
            Column(key="count", title="workers or nodes", show=whole),
            Column(key="weak_speedup", title="weak", show=times, interval=True),
            Column(key="strong_speedup", title="strong", show=times, interval=True),
            Column(key="gustafson", title="serial, Gustafson (weak)", show=percent, interval=True),
            Column(key="amdahl", title="serial, Amdahl (strong)", show=percent, interval=True),
            Column(key="weak_lost_s", title="lost per step, weak", show=seconds),
            Column(key="strong_lost_s", title="lost per step, strong", show=seconds),
            Column(key="gradient_bytes", title="gradients", show=size),
            Column(key="weak_waited", title="waits for them, weak", show=_share),
            Column(key="strong_waited", title="waits for them, strong", show=_share),
        ),
        rows=tuple(_cells(row) for row in rows),
        notes=(
            "Lost, weak: T(N) - T(1), each worker having as much to do as before. Lost, strong: "
            "T(N) - T(1)/N. The lab's gradients are 4 bytes x the network's parameters at 224 "
            "pixels and 1000 classes.",
        ),
    )
    return Answered(
        question=WHY,
        sentences=(*_here_words(rows), *_law_words(rows), *_lab_words(rows)),
        tables=(table,),
        figures=(_figure(rows),),
    )


def _cells(row: Loss) -> tuple[Any, ...]:
    return (
        *(row.source, row.model, row.count, row.weak, row.strong),
        row.gustafson.serial_fraction if row.gustafson else None,
        row.amdahl.serial_fraction if row.amdahl else None,
        *(row.weak_lost_s, row.strong_lost_s, row.gradient_bytes),
        *(row.weak_waited, row.strong_waited),
    )


def _share(value: float | None) -> str:
    return percent(value) if known(value) else ""


def _here(found: Found) -> list[Loss]:
    weak, strong = measured(found, "weak"), measured(found, "strong")
    info = found.studies.get(SCALING)
    rows = []
    for title in MODELS.values():
        one, many = first(weak, title), last(weak, title)
        whole_batch, shared = first(strong, title), last(strong, title)
        end = many or shared
        if end is None:
            continue
        rows.append(
            Loss(
                source=HERE,
                model=title,
                count=end.count,
                weak=many.speedup if many else None,
                strong=shared.speedup if shared else None,
                amdahl=_law(fit_amdahl, strong, title),
                gustafson=_law(fit_gustafson, weak, title),
                weak_lost_s=_lost_s(many, one, 1),
                strong_lost_s=_lost_s(shared, whole_batch, shared.count if shared else 1),
                gradient_bytes=_gradient_bytes(info, title),
                weak_waited=_waited(info, title, many),
                strong_waited=_waited(info, title, shared),
            )
        )
    return rows


def _lab(found: Found) -> list[Loss]:
    weak, strong = published_weak(found), published_strong(found)
    rows = []
    for title in MODELS.values():
        one, many = first(weak, title, CPU), last(weak, title, CPU)
        shared = last(strong, title, CPU)
        if one is None or many is None or one.throughput is None or many.throughput is None:
            continue
        alone_s = LAB_GLOBAL_BATCH / one.throughput.value
        together_s = many.count * LAB_GLOBAL_BATCH / many.throughput.value
        strong_lost_s = None
        if shared is not None and shared.speedup is not None:
            # A node's share of weak scaling is the whole batch of strong scaling: one baseline.
            strong_lost_s = alone_s / shared.speedup.value - alone_s / shared.count
        rows.append(
            Loss(
                source=CPU,
                model=title,
                count=many.count,
                weak=many.speedup,
                strong=shared.speedup if shared else None,
                amdahl=_law(fit_amdahl, strong, title, CPU),
                gustafson=_law(fit_gustafson, weak, title, CPU),
                weak_lost_s=together_s - alone_s,
                strong_lost_s=strong_lost_s,
                gradient_bytes=4 * LAB_PARAMETERS[title],
                weak_waited=None,
                strong_waited=None,
            )
        )
    return rows


def _law(law: Any, points: Sequence[Point], title: str, source: str = HERE) -> LawFit | None:
    own = [
        (point.count, point.speedup)
        for point in points
        if (point.source, point.model) == (source, title) and point.speedup is not None
    ]
    fitted: LawFit | None = law([count for count, _ in own], [speedup for _, speedup in own])
    return fitted


def _lost_s(many: Point | None, one: Point | None, share: int) -> float | None:
    if many is None or one is None or many.step_s is None or one.step_s is None:
        return None
    return many.step_s.value - one.step_s.value / share


def _gradient_bytes(info: ScalingInfo | None, title: str) -> int | None:
    sizes = (
        row.gradient_bytes for row in (info.cells if info else ()) if title_of(row.cell) == title
    )
    return next((nbytes for nbytes in sizes if nbytes), None)


def _waited(info: ScalingInfo | None, title: str, at: Point | None) -> float | None:
    """Return the share of a step in which training waits for gradients to be reduced."""
    for split in info.splits if info and at else ():
        assert at is not None
        cell = split.cell
        if (title_of(cell), cell.workers, cell.batch) == (title, at.count, at.batch):
            return None if split.exposed_s is None else split.exposed_s / split.step_s
    return None


def _here_words(rows: Sequence[Loss]) -> list[str]:
    own = [row for row in rows if row.source == HERE]
    both = [row for row in own if row.weak is not None and row.strong is not None]
    if not both:
        return ["No network was scaled in both ways here: only the lab's figures can be compared."]
    falls = [row for row in both if row.strong and row.weak and row.strong.value < row.weak.value]
    waits = [
        (row, row.weak_waited, row.strong_waited)
        for row in both
        if row.weak_waited is not None and row.strong_waited is not None
    ]
    said = []
    if waits:
        row, weak, strong = max(waits, key=lambda one: one[2] - one[1])
        share = f"{percent(strong)} on {row.count} workers when they share one batch"
        wait = f"rises from {percent(weak)} of a step to {share}"
        if strong <= weak:
            wait = f"did not rise here: {percent(weak)} of a step, and {share}"
        said.append(
            f"Sharing out a batch shortens what a worker computes, but not what it sends: "
            f"{row.model} exchanges {size(row.gradient_bytes)} of gradients in every step, and the "
            f"wait for them {wait}."
        )
    parts = [
        f"{row.model} {times(row.strong.value)} and {times(row.weak.value)}"
        for row in both
        if row.strong and row.weak
    ]
    said.append(
        f"Strong and weak scaling here: {listed(parts)}; strong scaling is the worse one for "
        f"{len(falls)} of {len(both)} networks."
    )
    return said


def _law_words(rows: Sequence[Loss]) -> list[str]:
    said = []
    for source, where in ((HERE, "Here"), (CPU, "On the lab's CPU nodes")):
        own = [row for row in rows if row.source == source]
        amdahl = [f"{row.model} {_limit(row.amdahl)}" for row in own if row.amdahl is not None]
        gustafson = [
            f"{row.model} {1 - row.gustafson.serial_fraction.value:.2f}"
            for row in own
            if row.gustafson is not None
        ]
        if amdahl:
            said.append(
                f"{where}, by Amdahl's law, what is not shared out bounds strong scaling: "
                f"{listed(amdahl)}."
            )
        if gustafson:
            said.append(
                f"{where}, by Gustafson's law, weak scaling has no such bound: each further one "
                f"adds {listed(gustafson)} of a worker or node."
            )
    return said


def _limit(fit: LawFit) -> str:
    share = fit.serial_fraction.value
    if fit.limit is None:
        return "has no such part"
    return f"has {percent(share)}, at most {times(fit.limit)}"


def _lab_words(rows: Sequence[Loss]) -> list[str]:
    own = [row for row in rows if row.source == CPU and row.weak and row.strong]
    better = [row for row in own if row.strong and row.weak and row.strong.value > row.weak.value]
    said = []
    if better:
        parts = [
            f"{row.model} {times(row.strong.value)} and {times(row.weak.value)}"
            for row in better
            if row.strong and row.weak
        ]
        rest = [row.model for row in own if row not in better]
        said.append(
            f"On the lab's CPU nodes strong scaling does not fall off for all: {listed(parts)} "
            f"(strong and weak); it does for {listed(rest) or 'none'}."
        )
    lost = [row for row in own if row.weak_lost_s is not None and row.gradient_bytes]
    if len(lost) > 1:
        weak = [f"{row.weak_lost_s:.2f}" for row in lost]
        strong = [f"{row.strong_lost_s:.2f}" for row in lost if row.strong_lost_s is not None]
        nbytes = [row.gradient_bytes or 0 for row in lost]
        said.append(
            f"Its steps lose {listed(weak)} s in weak scaling ({listed([r.model for r in lost])}): "
            f"nearly the same for {size(min(nbytes))} of gradients as for {size(max(nbytes))}, so "
            "that it is not the network's bandwidth that they wait for, rather each other or "
            f"their input. In strong scaling they lose {listed(strong)} s, most where there are "
            "most gradients."
        )
    return said


def _figure(rows: Sequence[Loss]) -> Figure:
    table = Table(
        name="why-efficiency",
        title="Efficiency of weak and strong scaling",
        columns=(
            Column(key="setting", title="network", text=True),
            Column(key="scaling", title="scaling", text=True),
            Column(key="efficiency", title="efficiency", show=percent, interval=True),
        ),
        rows=tuple(
            (_named(row), kind, scaled(speedup, 1 / row.count))
            for row in rows
            for kind, speedup in (("weak", row.weak), ("strong", row.strong))
            if speedup is not None
        ),
    )
    return bars(
        "why-efficiency",
        "Efficiency of weak and strong scaling",
        "Speedup over workers (here) or nodes (lab), at the most that were measured.",
        table,
        x="setting",
        y="efficiency",
        series="scaling",
    )


def _named(row: Loss) -> str:
    noun = "workers" if row.source == HERE else "nodes"
    return f"{row.model}, {row.source}, {row.count} {noun}"
