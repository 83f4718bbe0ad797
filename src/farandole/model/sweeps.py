"""Throughput against batch, and by processes x threads: what to use of each."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from farandole.format import fill, number, percent, plural
from farandole.model.curves import Group, gain, group_labels, group_of
from farandole.model.measured import Measured, common_unit, factor_words, varying_factors
from farandole.model.rows import CellRow
from farandole.model.statistics import SPEED_MARGIN, Estimate, speed_relation
from farandole.study.records import Cell

Kind = Literal["global batch", "batch"]
Setting = tuple[str, str, tuple[tuple[str, str], ...], int | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchPoint:
    """One batch of a sweep."""

    cell: Cell
    batch: int
    throughput: Estimate | None
    """None when the cell failed."""
    step_s: Estimate | None
    cpu: float | None
    gpu: float | None
    failed: str
    """Why there is no figure; empty when there is one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchSweep:
    """Throughput against batch at a fixed number of workers."""

    group: str
    label: str
    workers: int
    unit: str
    points: tuple[BatchPoint, ...]
    best: int | None
    """The smallest batch that is not clearly slower than the fastest."""
    sentence: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitPoint:
    """One way to share the cores among processes and threads."""

    cell: Cell
    workers: int
    threads: int
    throughput: Estimate
    today: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitTable:
    """Throughput by processes x threads at one global batch, or at one batch of a worker."""

    group: str
    label: str
    unit: str
    points: tuple[SplitPoint, ...]
    best: tuple[int, int] | None
    """(workers, threads)"""
    sentence: str


def sweep_batches(
    cells: Sequence[Measured], rows: Mapping[Cell, CellRow]
) -> tuple[BatchSweep, ...]:
    """Return one sweep per group and worker count that was measured at several batches."""
    labels = group_labels(found.cell for found in cells)
    groups: dict[tuple[Group, int, int], list[Measured]] = {}
    for found in cells:
        if found.batch is not None and not found.cell.today:
            key = (group_of(found.cell), found.cell.workers, found.cell.hosts)
            groups.setdefault(key, []).append(found)
    sweeps = []
    for (group, workers, _), row in groups.items():
        if len(row) > 1:
            words = [labels[group]] if labels[group] else []
            label = ", ".join([*words, plural(workers, "worker")])
            sweeps.append(_sweep(labels[group], label, workers, row, rows))
    return tuple(sweeps)


def best_batch(row: Sequence[Measured], unit: str, margin: float = SPEED_MARGIN) -> int | None:
    """Return the smallest batch that the fastest beats neither clearly nor by the margin."""
    known = [found for found in row if found.rates(unit) and found.batch is not None]
    if not known:
        return None
    fastest = max(known, key=lambda found: _rate(found, unit))
    for found in sorted(known, key=lambda one: one.batch or 0):
        within = _rate(found, unit) * (1 + margin) >= _rate(fastest, unit)
        clear = speed_relation(found.rates(unit), fastest.rates(unit)) == "lower"
        if found is fastest or (within and not clear):
            return found.batch
    return None


def _sweep(
    group: str,
    label: str,
    workers: int,
    row: Sequence[Measured],
    rows: Mapping[Cell, CellRow],
) -> BatchSweep:
    unit = common_unit(row)
    row = sorted(row, key=lambda found: found.batch or 0)
    best = best_batch(row, unit)
    points = []
    for found in row:
        used = rows[found.cell].utilisation
        throughput = found.throughput(unit)
        missing = found.failed or found.void_for_speed or "no launch counts for speed"
        points.append(
            BatchPoint(
                cell=found.cell,
                batch=found.batch or 0,
                throughput=throughput,
                step_s=found.step_s,
                cpu=used.cpu if used else None,
                gpu=used.gpu if used else None,
                failed="" if throughput else missing,
            )
        )
    return BatchSweep(
        group=group,
        label=label,
        workers=workers,
        unit=unit,
        points=tuple(points),
        best=best,
        sentence=_batch_sentence(points, best, unit),
    )


def _batch_sentence(points: Sequence[BatchPoint], best: int | None, unit: str) -> str:
    if best is None:
        used = _utilisation(points)
        return used or "No batch was measured to the end."
    known = [point for point in points if point.throughput is not None]
    chosen = next(point for point in known if point.batch == best)
    fastest = max(known, key=lambda point: point.throughput.value if point.throughput else 0.0)
    assert chosen.throughput is not None
    assert fastest.throughput is not None
    rate = f"{number(chosen.throughput.value)} {unit}"
    if len(known) == 1:
        sentence = f"Only batch {best} was measured: {rate}."
    elif best == points[-1].batch:
        sentence = f"Throughput still rises at batch {best} ({rate}): try a larger one."
    elif chosen is fastest:
        sentence = f"Batch {best} is the fastest: {rate}."
    else:
        share = percent(chosen.throughput.value / fastest.throughput.value)
        sentence = f"Batch {best} is enough: {rate}, {share} of what batch {fastest.batch} reaches."
    failed = [point for point in points if point.failed]
    if failed:
        sentence += f" Batch {failed[0].batch} has no figure ({failed[0].failed})."
    return f"{sentence} {_utilisation(points)}".rstrip()


def _utilisation(points: Sequence[BatchPoint]) -> str:
    """Say how utilisation changes from the smallest batch to the largest."""
    for name, shares in (
        ("GPU", [(point.batch, point.gpu) for point in points if point.gpu is not None]),
        ("CPU", [(point.batch, point.cpu) for point in points if point.cpu is not None]),
    ):
        if len(shares) > 1:
            (small, low), (large, high) = shares[0], shares[-1]
            return (
                f"{name} utilisation is {percent(low)} at batch {small} and {percent(high)} at "
                f"{large}."
            )
    return ""


def _rate(found: Measured, unit: str) -> float:
    rates = found.rates(unit)
    return math.exp(sum(map(math.log, rates)) / len(rates))


def split_cores(cells: Sequence[Measured]) -> tuple[SplitTable, ...]:
    """Return one table per global batch (and other factors) with several numbers of threads.

    Where every worker keeps its batch no two splits have the same global one; then there is one
    table per batch of a worker.
    """
    return _tables(cells, "global batch") or _tables(cells, "batch")


def _tables(cells: Sequence[Measured], kind: Kind) -> tuple[SplitTable, ...]:
    rows: dict[Setting, list[Measured]] = {}
    for found in cells:
        if found.cell.threads is not None and found.paces and found.cell.hosts == 1:
            rows.setdefault(_setting(found, kind), []).append(found)
    tables = []
    for row in rows.values():
        planned = {found.cell.threads for found in row if not found.cell.today}
        if len(planned) > 1:
            everything = [found.cell for other in rows.values() for found in other]
            tables.append(_table(row, everything, kind))
    return tuple(tables)


def _setting(found: Measured, kind: Kind) -> Setting:
    cell = found.cell
    return (cell.transport, cell.device, cell.params, _batch(found, kind))


def _batch(found: Measured, kind: Kind) -> int | None:
    return found.global_batch if kind == "global batch" else found.worker_batch


def _table(row: Sequence[Measured], cells: Sequence[Cell], kind: Kind) -> SplitTable:
    unit = common_unit(row)
    known = [found for found in row if found.rates(unit)]
    varying = varying_factors(cells, ("device", "transport"))
    words = factor_words(row[0].cell, varying)
    batch = _batch(row[0], kind)
    label = ", ".join([*words, *([] if batch is None else [f"{kind} {batch}"])])
    points = []
    for found in known:
        throughput = found.throughput(unit)
        if throughput is not None and found.cell.threads is not None:
            points.append(
                SplitPoint(
                    cell=found.cell,
                    workers=found.cell.workers,
                    threads=found.cell.threads,
                    throughput=throughput,
                    today=found.cell.today,
                )
            )
    best = gain(known)
    return SplitTable(
        group=", ".join(words),
        label=label,
        unit=unit,
        points=tuple(sorted(points, key=lambda point: (point.workers, point.threads))),
        best=(best.cell.workers, best.cell.threads or 1) if best else None,
        sentence=_split_sentence(best, points, unit),
    )


def _split_sentence(best: Measured | None, points: Sequence[SplitPoint], unit: str) -> str:
    if best is None or best.cell.threads is None:
        return "No split was measured to the end."
    chosen = next(point for point in points if point.cell == best.cell)
    worst = min(points, key=lambda point: point.throughput.value)
    return fill(
        "{best.workers:process} x {best.threads:thread} is best: {best.throughput.value:number} "
        "{unit}, {ratio:times} as fast as {worst.workers} x {worst.threads}.",
        best=chosen,
        unit=unit,
        ratio=chosen.throughput.value / worst.throughput.value,
        worst=worst,
    )
