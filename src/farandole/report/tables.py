"""Tables that stand without a figure: cells, launches left out, cost, the answer's curve."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from farandole.model.info.comparison import Comparison
from farandole.model.info.curve import Curve
from farandole.model.info.scaling import ScalingInfo
from farandole.report.series import labelled, on_several_hosts, prefixed
from farandole.report.table import Column, Table
from farandole.report.text import brief, number, optional, percent, seconds, size, times, whole

_CELL = Column(key="cell", title="cell", text=True)


def cells(infos: Sequence[ScalingInfo]) -> Table:
    """Return every cell with its interval."""
    found = labelled(infos, lambda info: info.cells)
    several = any(named.item.cell.hosts > 1 for named in found)
    columns = (
        _CELL,
        Column(key="workers", title="workers", show=whole),
        *((Column(key="hosts", title="hosts", show=whole),) if several else ()),
        Column(key="threads", title="threads", show=whole),
        Column(key="batch_per_worker", title="batch", show=whole),
        Column(key="throughput", title="throughput", interval=True),
        Column(key="unit", title="unit", text=True),
        Column(key="step_s", title="step", show=seconds, interval=True),
        Column(key="launches", title="launches", show=whole),
        Column(key="attempts", title="of", show=whole),
        Column(key="steps_per_epoch", title="steps per epoch", show=whole),
        Column(key="parameters", title="parameters", show=whole),
        Column(key="gradient_bytes", title="gradients", show=size),
        Column(key="note", title="note", text=True),
    )
    rows = tuple(
        (
            named.name,
            named.item.cell.workers,
            *((named.item.cell.hosts,) if several else ()),
            named.item.cell.threads,
            named.item.cell.batch,
            named.item.throughput,
            named.item.unit,
            named.item.step_s,
            named.item.launches,
            named.item.attempts,
            named.item.steps_per_epoch,
            named.item.parameters,
            named.item.gradient_bytes,
            named.item.failed or named.item.void_for_speed,
        )
        for named in found
    )
    return Table(
        name="cells",
        title="Every cell: medians over launches with 95 % intervals",
        columns=columns,
        rows=rows,
    )


def launches(infos: Sequence[ScalingInfo]) -> Table:
    """Return every launch, for files."""
    return _launches(infos, name="launches", title="Every launch", all_of_them=True)


def left_out(infos: Sequence[ScalingInfo]) -> Table | None:
    """Return the launches whose speed was left out, or that were flagged, with the reason."""
    table = _launches(
        infos,
        name="launches-left-out",
        title="Launches left out of the speed figures, and flagged ones",
        all_of_them=False,
    )
    return table if table.rows else None


def costs(infos: Sequence[ScalingInfo]) -> Table | None:
    """Return what cells cost at the price that was given; None without a price."""
    found = labelled(infos, lambda info: info.costs)
    if not found:
        return None
    columns = (
        _CELL,
        Column(key="price_per_worker_hour", title="per worker and hour", show=brief),
        Column(key="per_epoch", title="an epoch"),
        Column(key="job", title="the job"),
        Column(key="to_target", title="to the target"),
        Column(key="per_million_samples", title="a million samples"),
    )
    return Table(
        name="cost",
        title="Cost, in the currency of the price",
        columns=columns,
        rows=tuple(
            (
                named.name,
                named.item.price_per_worker_hour,
                named.item.per_epoch,
                named.item.job,
                named.item.to_target,
                named.item.per_million_samples,
            )
            for named in found
        ),
    )


def noise(infos: Sequence[ScalingInfo]) -> Table:
    """Return the gradient noise scale of each cell, for files."""
    columns = (
        _CELL,
        Column(key="noise_scale_samples", title="noise scale"),
        Column(key="low", title="from"),
        Column(key="high", title="to"),
        Column(key="trace", title="tr(Sigma)"),
        Column(key="squared_norm", title="|G|^2"),
        Column(key="global_batch", title="global batch", show=brief),
        Column(key="steps", title="steps", show=whole),
        Column(key="launches", title="launches", show=whole),
    )
    return Table(
        name="noise",
        title="Gradient noise scale, in samples, with 90 % intervals",
        columns=columns,
        rows=tuple(
            (
                named.name,
                named.item.noise.value,
                named.item.noise.low,
                named.item.noise.high,
                named.item.noise.trace,
                named.item.noise.squared_norm,
                named.item.global_batch,
                named.item.noise.measurements,
                named.item.launches,
            )
            for named in labelled(infos, lambda info: info.noise)
        ),
    )


def apart(infos: Sequence[ScalingInfo]) -> Table | None:
    """Return what workers of a host cost each other; None where it was not measured."""
    found = [
        named
        for named in labelled(infos, lambda info: info.apart)
        if named.item.slowdown is not None or named.item.loaded_alone_per_s is not None
    ]
    if not found:
        return None
    columns = (
        _CELL,
        Column(key="computing_alone_s", title="computing, alone", show=seconds),
        Column(key="computing_together_s", title="computing, all at once", show=seconds),
        Column(key="update_alone_s", title="update, alone", show=seconds),
        Column(key="update_together_s", title="update, all at once", show=seconds),
        Column(key="slowdown", title="as long", show=times),
        Column(key="loaded_alone_per_s", title="loaded, alone", show=number),
        Column(key="loaded_together_per_s", title="loaded, all at once", show=number),
        Column(key="trained_per_s", title="trained on", show=number),
    )
    return Table(
        name="apart",
        title="What workers of a host cost each other: copies of the script that send nothing",
        columns=columns,
        rows=tuple(
            (
                named.name,
                named.item.computing_alone_s,
                named.item.computing_together_s,
                named.item.update_alone_s,
                named.item.update_together_s,
                named.item.slowdown,
                named.item.loaded_alone_per_s,
                named.item.loaded_together_per_s,
                named.item.trained_per_s,
            )
            for named in found
        ),
        notes=("Loaded and trained on: samples per second of one worker.",),
    )


def comparison_rows(comparison: Comparison) -> Table:
    """Return all studies side by side."""
    columns = (
        Column(key="study", title="study", text=True),
        _CELL,
        Column(key="workers", title="workers", show=whole),
        Column(key="throughput", title="throughput", interval=True),
        Column(key="unit", title="unit", text=True),
        Column(key="speedup", title="speedup", show=times, interval=True),
        Column(key="final_metric", title=comparison.metric or "metric", interval=True),
    )
    rows = tuple(
        (
            row.study,
            row.label,
            row.cell.workers,
            row.throughput,
            row.unit,
            row.speedup,
            row.final_metric,
        )
        for row in comparison.rows
    )
    notes = (comparison.refused,) if comparison.refused else ()
    return Table(name="side-by-side", title="Side by side", columns=columns, rows=rows, notes=notes)


def comparison_ratios(comparison: Comparison) -> Table | None:
    """Return throughput of one study over another's; None when that was refused."""
    if not comparison.ratios:
        return None
    columns = (
        Column(key="study", title="study", text=True),
        Column(key="other", title="over", text=True),
        _CELL,
        Column(key="ratio", title="ratio", show=times, interval=True),
    )
    return Table(
        name="ratios",
        title="Throughput over another study's",
        columns=columns,
        rows=tuple(comparison.ratios),
    )


def answer_curve(info: ScalingInfo) -> Table | None:
    """Return the curve that the answer speaks of; figures of speed only where they count.

    Where no count of workers has another to be compared with, that is the splits of the cores or
    the batches that were tried.
    """
    lone = bool(info.curves) and all(len(curve.points) == 1 for curve in info.curves)
    if lone and info.answer.void is None:
        if any(len(split.points) > 1 for split in info.split_tables):
            return _splits(info)
        if any(len(sweep.points) > 1 for sweep in info.batch_sweeps):
            return _sweep(info)
    curve = next((curve for curve in info.curves if curve.main), None)
    if curve is None and info.curves:
        curve = info.curves[0]
    return None if curve is None else _curve(info, curve)


def _splits(info: ScalingInfo) -> Table:
    split = max(info.split_tables, key=lambda split: (split.best is not None, len(split.points)))
    columns = (
        Column(key="processes", title="processes", show=whole),
        Column(key="threads", title="threads", show=whole),
        Column(key="throughput", title=split.unit, interval=True),
        Column(key="note", title="", text=True),
    )
    rows = tuple(
        (
            point.workers,
            point.threads,
            point.throughput,
            "best" if split.best == (point.workers, point.threads) else "",
        )
        for point in split.points
    )
    return Table(name="answer", title="The answer's splits", columns=columns, rows=rows)


def _sweep(info: ScalingInfo) -> Table:
    sweep = max(info.batch_sweeps, key=lambda sweep: len(sweep.points))
    columns = (
        Column(key="workers", title="workers", show=whole),
        Column(key="batch_per_worker", title="batch", show=whole),
        Column(key="throughput", title=sweep.unit, interval=True),
        Column(key="note", title="", text=True),
    )
    rows = tuple(
        (
            sweep.workers,
            point.batch,
            point.throughput,
            point.failed or ("best" if point.batch == sweep.best else ""),
        )
        for point in sweep.points
    )
    return Table(name="answer", title="The answer's batches", columns=columns, rows=rows)


def _curve(info: ScalingInfo, curve: Curve) -> Table:
    void = info.answer.void is not None
    columns = [
        Column(key="workers", title="workers", show=whole),
        Column(key="placement", title="hosts x workers", text=True),
        Column(key="batch_per_worker", title="batch", show=whole),
        Column(key="throughput", title=curve.unit, interval=True),
        Column(key="speedup", title="speedup", show=times, interval=True),
        Column(key="efficiency", title="efficiency", show=percent),
        Column(key="launches", title="launches", show=whole),
        Column(key="note", title="", text=True),
    ]
    rows: list[list[Any]] = []
    placed = on_several_hosts([curve])
    for point in curve.points:
        efficiency = None if point.efficiency is None else point.efficiency.value
        counts = point.valid and not void
        rows.append(
            [
                point.workers,
                point.cell.placement if placed else None,
                point.batch,
                point.throughput if point.valid else None,
                point.speedup if counts else None,
                efficiency if counts else None,
                point.launches,
                point.why,
            ]
        )
    # Columns without a single figure only take room on a terminal.
    kept = [
        index
        for index in range(len(columns))
        if any(row[index] not in (None, "") for row in rows)
        and not (void and columns[index].key in ("speedup", "efficiency"))
    ]
    return Table(
        name="answer",
        title="The answer's curve",
        columns=tuple(columns[index] for index in kept),
        rows=tuple(tuple(row[index] for index in kept) for row in rows),
    )


def _launches(infos: Sequence[ScalingInfo], *, name: str, title: str, all_of_them: bool) -> Table:
    columns = (
        Column(key="launch", title="launch", text=True),
        _CELL,
        Column(key="purpose", title="for", text=True),
        Column(key="outcome", title="outcome", text=True),
        Column(key="repeat", title="repeat", show=whole),
        Column(key="seed", title="seed", show=optional),
        Column(key="kept", title="counts", text=True),
        Column(key="why", title="why", text=True),
        Column(key="steps", title="steps", show=whole),
        Column(key="warmup_steps", title="warm-up", show=whole),
        Column(key="step_s", title="step", show=seconds),
        Column(key="throughput", title="throughput", show=number),
        Column(key="unit", title="unit", text=True),
        Column(key="wall_s", title="wall time", show=seconds),
        Column(key="started", title="started", text=True),
    )
    rows = [
        (
            launch.id,
            prefixed(infos, info, launch.label),
            launch.purpose,
            launch.outcome.replace("_", " "),
            launch.repeat,
            launch.seed,
            ("yes, outlier" if launch.outlier else "yes") if launch.kept else "no",
            launch.why or ("far from the others, and kept" if launch.outlier else ""),
            launch.steps,
            launch.warmup_steps,
            launch.step_s,
            launch.throughput,
            launch.unit,
            launch.wall_s,
            launch.started,
        )
        for info in infos
        for launch in info.launches
        if all_of_them or launch.outlier or not launch.kept
    ]
    # Why is what a reader looks for; figures of launches that do not count are in the file of all.
    kept = [
        index
        for index, column in enumerate(columns)
        if all_of_them or column.key not in ("step_s", "throughput", "unit", "warmup_steps")
    ]
    return Table(
        name=name,
        title=title,
        columns=tuple(columns[index] for index in kept),
        rows=tuple(tuple(row[index] for index in kept) for row in rows),
    )
