"""Tables of a study that stand without a figure: cells, launches, cost, the answer's curve."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from farandole.format import brief, optional, percent, seconds, size, times, whole
from farandole.model.analyse import Comparison, ScalingInfo
from farandole.model.curves import Curve
from farandole.report.figures import (
    CELL_WORKERS,
    LAUNCHES,
    METRICS,
    NAME,
    PLACEMENT,
    SPEEDUP,
    SPLITS,
    THROUGHPUT,
    WORKERS,
    Entry,
    Infos,
    best_batch,
    entries,
    item,
    points_of,
    several_hosts,
    speed,
    text,
)
from farandole.report.table import Column, Table, tabulate

_CELLS = (
    NAME,
    CELL_WORKERS,
    item("hosts", "hosts", whole, path="cell.hosts"),
    item("threads", "threads", whole, path="cell.threads"),
    item("batch_per_worker", "batch", whole, path="cell.batch"),
    item("throughput", "throughput", interval=True),
    item("unit", "unit", text=True),
    item("step_s", "step", seconds, interval=True),
    LAUNCHES,
    item("attempts", "of", whole),
    item("steps_per_epoch", "steps per epoch", whole),
    item("parameters", "parameters", whole),
    item("gradient_bytes", "gradients", size),
    text("note", "note", lambda entry: entry.item.failed or entry.item.void_for_speed),
)
_LAUNCHES = (
    item("launch", "launch", path="id", text=True),
    NAME,
    item("purpose", "for", text=True),
    text("outcome", "outcome", lambda entry: entry.item.outcome.replace("_", " ")),
    item("repeat", "repeat", whole),
    item("seed", "seed", optional),
    text("kept", "counts", lambda entry: _counts(entry)),
    text("why", "why", lambda entry: entry.item.why or _FLAGGED * entry.item.outlier),
    item("steps", "steps", whole),
    item("warmup_steps", "warm-up", whole),
    item("step_s", "step", seconds),
    item("throughput", "throughput"),
    item("unit", "unit", text=True),
    item("wall_s", "wall time", seconds),
    item("started", "started", text=True),
)
_COSTS = (
    NAME,
    item("price_per_worker_hour", "per worker and hour", brief),
    item("per_epoch", "an epoch"),
    item("job", "the job"),
    item("to_target", "to the target"),
    item("per_million_samples", "a million samples"),
)
_NOISE = (
    NAME,
    item("noise_scale_samples", "noise scale", path="noise.value"),
    item("low", "from", path="noise.low"),
    item("high", "to", path="noise.high"),
    item("trace", "tr(Sigma)", path="noise.trace"),
    item("squared_norm", "|G|^2", path="noise.squared_norm"),
    item("global_batch", "global batch", brief),
    item("steps", "steps", whole, path="noise.measurements"),
    LAUNCHES,
)
_CONTENTION = (
    NAME,
    item("computing_alone_s", "computing, alone", seconds),
    item("computing_together_s", "computing, all at once", seconds),
    item("update_alone_s", "update, alone", seconds),
    item("update_together_s", "update, all at once", seconds),
    item("slowdown", "as long", times),
    item("loaded_alone_per_s", "loaded, alone"),
    item("loaded_together_per_s", "loaded, all at once"),
    item("trained_per_s", "trained on"),
)
_CURVE = (
    WORKERS,
    PLACEMENT,
    item("batch_per_worker", "batch", whole, path="batch"),
    item("accumulation", "accumulation", whole),
    item("global_batch", "global batch", whole),
    speed("throughput", "{unit}", interval=True),
    SPEEDUP,
    Column(key="efficiency", title="efficiency", show=percent, get=lambda one: _efficiency(one)),
    LAUNCHES,
    item("note", "", text=True, path="why"),
)
_BATCHES = (
    CELL_WORKERS,
    item("batch_per_worker", "batch", whole, path="batch"),
    THROUGHPUT,
    text("note", "", best_batch),
)
_FLAGGED = "outlier, kept"


def _counts(entry: Entry) -> str:
    if not entry.item.kept:
        return "no"
    return "yes, outlier" if entry.item.outlier else "yes"


def _efficiency(entry: Entry) -> float | None:
    point = entry.item
    return point.efficiency.value if point.valid and point.efficiency else None


def cells(infos: Infos) -> Table:
    """Return every cell with its interval."""
    found = entries(infos, "rows")
    title = "Every cell: medians over launches with 95 % intervals"
    table = tabulate("cells", title, found, _CELLS)
    return table if several_hosts(found) else table.without({"hosts"})


def launches(infos: Infos) -> Table:
    """Return every launch, for files."""
    return tabulate("launches", "Every launch", entries(infos, "launches"), _LAUNCHES)


def launches_left_out(infos: Infos) -> Table | None:
    """Return the launches whose speed was left out, or that were flagged, with the reason."""
    found = [one for one in entries(infos, "launches") if _counts(one) != "yes"]
    title = "Launches left out of the speed figures, and flagged ones"
    table = tabulate("launches-left-out", title, found, _LAUNCHES)
    # Why is what a reader looks for; figures of launches that do not count are in the file of all.
    return table.without({"step_s", "throughput", "unit", "warmup_steps"}) if found else None


def costs(infos: Infos) -> Table | None:
    """Return what cells cost at the price that was given; None without a price."""
    found = entries(infos, "cost")
    return tabulate("cost", "Cost, in the currency of the price", found, _COSTS) if found else None


def metrics(infos: Infos) -> Table:
    """Return every metric at the end of training, compared with the fewest workers."""
    title = "Metrics at the end of training"
    return tabulate("metrics", title, entries(infos, "metrics"), METRICS)


def noise(infos: Infos) -> Table:
    """Return the gradient noise scale of each cell, for files."""
    title = "Gradient noise scale, in samples, with 90 % intervals"
    return tabulate("noise", title, entries(infos, "noise"), _NOISE)


def contention(infos: Infos) -> Table | None:
    """Return what workers of a host cost each other; None where it was not measured."""
    found = [
        one
        for one in entries(infos, "contention")
        if one.item.slowdown is not None or one.item.loaded_alone_per_s is not None
    ]
    title = "Contention between workers of a host: copies of the script that send nothing"
    notes = ("Loaded and trained on: samples per second of one worker.",)
    return tabulate("apart", title, found, _CONTENTION, notes=notes) if found else None


def comparison(found: Comparison) -> tuple[Table, ...]:
    """Return all studies side by side, and their ratios unless they were refused."""
    columns = (
        Column(key="study", title="study", text=True),
        Column(key="cell", title="cell", text=True, get="label"),
        Column(key="workers", title="workers", show=whole, get="cell.workers"),
        Column(key="throughput", title="throughput", interval=True),
        Column(key="unit", title="unit", text=True),
        Column(key="speedup", title="speedup", show=times, interval=True),
        Column(key="final_metric", title=found.metric or "metric", interval=True),
    )
    ratios = (
        Column(key="study", title="study", text=True),
        Column(key="other", title="over", text=True),
        Column(key="cell", title="cell", text=True),
        Column(key="ratio", title="ratio", show=times, interval=True),
    )
    notes = (found.refused,) if found.refused else ()
    side = tabulate("side-by-side", "Side by side", found.rows, columns, notes)
    title = "Throughput relative to another study"
    over = Table(name="ratios", title=title, columns=ratios, rows=tuple(found.ratios))
    return (side, over) if found.ratios else (side,)


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
            return _answer(info, "splits", best, SPLITS).without({"group"})
        if sweeps:
            sweep = max(sweeps, key=lambda sweep: len(sweep.points))
            return _answer(info, "batches", sweep, _BATCHES)
    main = [curve for curve in info.curves if curve.main] or list(info.curves[:1])
    return _curve(info, main[0]) if main else None


def _curve(info: ScalingInfo, curve: Curve) -> Table:
    dropped = set()
    if info.answer.void is not None:
        dropped |= {"speedup", "efficiency"}
    if all(point.cell.hosts == 1 for point in curve.points):
        dropped |= {"placement"}
    if all(point.accumulation <= 1 for point in curve.points):
        dropped |= {"accumulation", "global_batch"}
    # Columns without a single figure only take room on a terminal.
    return _answer(info, "curve", curve, _CURVE).without(dropped).without_empty()


def _answer(info: ScalingInfo, what: str, group: Any, columns: Sequence[Column]) -> Table:
    """Return the points of a curve, of splits or of batches."""
    points = points_of([Entry(name="", item=group, info=info)])
    titled = [replace(one, title=one.title.replace("{unit}", group.unit)) for one in columns]
    return tabulate("answer", f"The answer's {what}", points, titled)
