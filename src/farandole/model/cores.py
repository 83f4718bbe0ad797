"""Processes x threads: the best way to share a host's cores."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from farandole.format import plural
from farandole.model.curves import gain
from farandole.model.info.cores import SplitPoint, SplitTable
from farandole.model.measured import Measured, common_unit, factor_words, figure
from farandole.study.records import Cell

Kind = Literal["global batch", "batch"]
Setting = tuple[str, str, tuple[tuple[str, str], ...], int | None]


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
    varying = {n for n in ("device", "transport") if len({getattr(c, n) for c in cells}) > 1}
    names = {name for cell in cells for name, _ in cell.params}
    varying |= {n for n in names if len({dict(cell.params).get(n) for cell in cells}) > 1}
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
        sentence=_sentence(best, points, unit),
    )


def _sentence(best: Measured | None, points: Sequence[SplitPoint], unit: str) -> str:
    if best is None or best.cell.threads is None:
        return "No split was measured to the end."
    chosen = next(point for point in points if point.cell == best.cell)
    worst = min(points, key=lambda point: point.throughput.value)
    return (
        f"{plural(chosen.workers, 'process')} x "
        f"{plural(chosen.threads, 'thread')} is best: {figure(chosen.throughput.value)} {unit}, "
        f"{chosen.throughput.value / worst.throughput.value:.2f} times {worst.workers} x "
        f"{worst.threads}."
    )
