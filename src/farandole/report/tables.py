"""Tables of a study that stand without a figure: cells, launches, cost, the answer's curve."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from farandole.format import brief, optional, percent, seconds, size, times, whole
from farandole.model.analyse import ScalingInfo
from farandole.model.compare import Comparison
from farandole.model.curves import Curve
from farandole.model.measured import LaunchRow
from farandole.report.figures import (
    NAME,
    SPEEDUP,
    WORKERS,
    Named,
    item,
    labelled,
    several_hosts,
    split_table,
)
from farandole.report.table import Column, Table, tabulate


def cells(infos: Sequence[ScalingInfo]) -> Table:
    """Return every cell with its interval."""
    found = labelled(infos, lambda info: info.rows)
    table = tabulate(
        "cells",
        "Every cell: medians over launches with 95 % intervals",
        found,
        (
            NAME,
            item("workers", "workers", whole, path="cell.workers"),
            item("hosts", "hosts", whole, path="cell.hosts"),
            item("threads", "threads", whole, path="cell.threads"),
            item("batch_per_worker", "batch", whole, path="cell.batch"),
            item("throughput", "throughput", interval=True),
            item("unit", "unit", text=True),
            item("step_s", "step", seconds, interval=True),
            item("launches", "launches", whole),
            item("attempts", "of", whole),
            item("steps_per_epoch", "steps per epoch", whole),
            item("parameters", "parameters", whole),
            item("gradient_bytes", "gradients", size),
            Column(
                key="note",
                title="note",
                text=True,
                get=lambda named: named.item.failed or named.item.void_for_speed,
            ),
        ),
    )
    return table if any(named.item.cell.hosts > 1 for named in found) else table.without({"hosts"})


def launches(infos: Sequence[ScalingInfo]) -> Table:
    """Return every launch, for files."""

    def why(named: Named[LaunchRow]) -> str:
        return named.item.why or ("far from the others, and kept" if named.item.outlier else "")

    def counts(named: Named[LaunchRow]) -> str:
        if not named.item.kept:
            return "no"
        return "yes, outlier" if named.item.outlier else "yes"

    return tabulate(
        "launches",
        "Every launch",
        labelled(infos, lambda info: info.launches),
        (
            item("launch", "launch", path="id", text=True),
            NAME,
            item("purpose", "for", text=True),
            Column(
                key="outcome",
                title="outcome",
                text=True,
                get=lambda named: named.item.outcome.replace("_", " "),
            ),
            item("repeat", "repeat", whole),
            item("seed", "seed", optional),
            Column(key="kept", title="counts", text=True, get=counts),
            Column(key="why", title="why", text=True, get=why),
            item("steps", "steps", whole),
            item("warmup_steps", "warm-up", whole),
            item("step_s", "step", seconds),
            item("throughput", "throughput"),
            item("unit", "unit", text=True),
            item("wall_s", "wall time", seconds),
            item("started", "started", text=True),
        ),
    )


def launches_left_out(infos: Sequence[ScalingInfo]) -> Table | None:
    """Return the launches whose speed was left out, or that were flagged, with the reason."""
    table = launches(infos)
    at = table.index("kept")
    rows = tuple(row for row in table.rows if row[at] != "yes")
    if not rows:
        return None
    # Why is what a reader looks for; figures of launches that do not count are in the file of all.
    return replace(
        table,
        name="launches-left-out",
        title="Launches left out of the speed figures, and flagged ones",
        rows=rows,
    ).without({"step_s", "throughput", "unit", "warmup_steps"})


def costs(infos: Sequence[ScalingInfo]) -> Table | None:
    """Return what cells cost at the price that was given; None without a price."""
    found = labelled(infos, lambda info: info.each("cost"))
    columns = (
        NAME,
        item("price_per_worker_hour", "per worker and hour", brief),
        item("per_epoch", "an epoch"),
        item("job", "the job"),
        item("to_target", "to the target"),
        item("per_million_samples", "a million samples"),
    )
    return tabulate("cost", "Cost, in the currency of the price", found, columns) if found else None


def noise(infos: Sequence[ScalingInfo]) -> Table:
    """Return the gradient noise scale of each cell, for files."""
    return tabulate(
        "noise",
        "Gradient noise scale, in samples, with 90 % intervals",
        labelled(infos, lambda info: info.each("noise")),
        (
            NAME,
            item("noise_scale_samples", "noise scale", path="noise.value"),
            item("low", "from", path="noise.low"),
            item("high", "to", path="noise.high"),
            item("trace", "tr(Sigma)", path="noise.trace"),
            item("squared_norm", "|G|^2", path="noise.squared_norm"),
            item("global_batch", "global batch", brief),
            item("steps", "steps", whole, path="noise.measurements"),
            item("launches", "launches", whole),
        ),
    )


def contention(infos: Sequence[ScalingInfo]) -> Table | None:
    """Return what workers of a host cost each other; None where it was not measured."""
    found = [
        named
        for named in labelled(infos, lambda info: info.each("contention"))
        if named.item.slowdown is not None or named.item.loaded_alone_per_s is not None
    ]
    if not found:
        return None
    return tabulate(
        "apart",
        "What workers of a host cost each other: copies of the script that send nothing",
        found,
        (
            NAME,
            item("computing_alone_s", "computing, alone", seconds),
            item("computing_together_s", "computing, all at once", seconds),
            item("update_alone_s", "update, alone", seconds),
            item("update_together_s", "update, all at once", seconds),
            item("slowdown", "as long", times),
            item("loaded_alone_per_s", "loaded, alone"),
            item("loaded_together_per_s", "loaded, all at once"),
            item("trained_per_s", "trained on"),
        ),
        notes=("Loaded and trained on: samples per second of one worker.",),
    )


def comparison_rows(comparison: Comparison) -> Table:
    """Return all studies side by side."""
    return tabulate(
        "side-by-side",
        "Side by side",
        comparison.rows,
        (
            Column(key="study", title="study", text=True),
            Column(key="cell", title="cell", text=True, get="label"),
            Column(key="workers", title="workers", show=whole, get="cell.workers"),
            Column(key="throughput", title="throughput", interval=True),
            Column(key="unit", title="unit", text=True),
            SPEEDUP,
            Column(key="final_metric", title=comparison.metric or "metric", interval=True),
        ),
        notes=(comparison.refused,) if comparison.refused else (),
    )


def comparison_ratios(comparison: Comparison) -> Table | None:
    """Return throughput of one study over another's; None when that was refused."""
    if not comparison.ratios:
        return None
    return Table(
        name="ratios",
        title="Throughput over another study's",
        columns=(
            Column(key="study", title="study", text=True),
            Column(key="other", title="over", text=True),
            Column(key="cell", title="cell", text=True),
            Column(key="ratio", title="ratio", show=times, interval=True),
        ),
        rows=tuple(comparison.ratios),
    )


def answer_curve(info: ScalingInfo) -> Table | None:
    """Return the curve that the answer speaks of; figures of speed only where they count.

    Where no count of workers has another to be compared with, that is the splits of the cores or
    the batches that were tried.
    """
    lone = bool(info.curves) and all(len(curve.points) == 1 for curve in info.curves)
    if lone and info.answer.void is None:
        splits = [split for split in info.split_tables if len(split.points) > 1]
        sweeps = [sweep for sweep in info.batch_sweeps if len(sweep.points) > 1]
        if splits:
            best = max(splits, key=lambda split: (split.best is not None, len(split.points)))
            table = split_table([Named(name="", item=best, info=info)])
            return replace(table, name="answer", title="The answer's splits").without({"group"})
        if sweeps:
            sweep = max(sweeps, key=lambda sweep: len(sweep.points))
            return tabulate(
                "answer",
                "The answer's batches",
                sweep.points,
                (
                    Column(key="workers", title="workers", show=whole, get="cell.workers"),
                    Column(key="batch_per_worker", title="batch", show=whole, get="batch"),
                    Column(key="throughput", title=sweep.unit, interval=True),
                    Column(
                        key="note",
                        title="",
                        text=True,
                        get=lambda point: (
                            point.failed or ("best" if point.batch == sweep.best else "")
                        ),
                    ),
                ),
            )
    main = [curve for curve in info.curves if curve.main] or list(info.curves[:1])
    return _curve(info, main[0]) if main else None


def _curve(info: ScalingInfo, curve: Curve) -> Table:
    void = info.answer.void is not None
    placed = several_hosts(curve.points)
    accumulates = any(point.accumulation > 1 for point in curve.points)
    table = tabulate(
        "answer",
        "The answer's curve",
        curve.points,
        (
            WORKERS,
            Column(
                key="placement",
                title="hosts x workers",
                text=True,
                get=lambda point: point.cell.placement if placed else None,
            ),
            Column(key="batch_per_worker", title="batch", show=whole, get="batch"),
            Column(key="accumulation", title="accumulation", show=whole),
            Column(key="global_batch", title="global batch", show=whole),
            Column(
                key="throughput",
                title=curve.unit,
                interval=True,
                get=lambda point: point.throughput if point.valid else None,
            ),
            replace(SPEEDUP, get=lambda point: point.speedup if point.valid else None),
            Column(
                key="efficiency",
                title="efficiency",
                show=percent,
                get=lambda point: (
                    point.efficiency.value if point.valid and point.efficiency else None
                ),
            ),
            Column(key="launches", title="launches", show=whole),
            Column(key="note", title="", text=True, get="why"),
        ),
    )
    table = table.without({"speedup", "efficiency"}) if void else table
    table = table if accumulates else table.without({"accumulation", "global_batch"})
    # Columns without a single figure only take room on a terminal.
    return table.without_empty()
