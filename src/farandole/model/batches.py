"""Throughput against batch, and the batch to use."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from farandole.format import plural
from farandole.model.curves import Group, group_labels, group_of
from farandole.model.info.batches import BatchPoint, BatchSweep
from farandole.model.info.utilisation import UtilisationRow
from farandole.model.measured import Measured, common_unit, figure
from farandole.model.statistics import SPEED_MARGIN, speed_relation
from farandole.study.records import Cell


def sweep_batches(
    cells: Sequence[Measured], utilisation: Mapping[Cell, UtilisationRow]
) -> tuple[BatchSweep, ...]:
    """Return one sweep per group and worker count that was measured at several batches."""
    labels = group_labels(found.cell for found in cells)
    rows: dict[tuple[Group, int, int], list[Measured]] = {}
    for found in cells:
        if found.batch is not None and not found.cell.today:
            key = (group_of(found.cell), found.cell.workers, found.cell.hosts)
            rows.setdefault(key, []).append(found)
    sweeps = []
    for (group, workers, _), row in rows.items():
        if len(row) > 1:
            words = [labels[group]] if labels[group] else []
            label = ", ".join([*words, plural(workers, "worker")])
            sweeps.append(_sweep(labels[group], label, workers, row, utilisation))
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
    utilisation: Mapping[Cell, UtilisationRow],
) -> BatchSweep:
    unit = common_unit(row)
    row = sorted(row, key=lambda found: found.batch or 0)
    best = best_batch(row, unit)
    points = []
    for found in row:
        used = utilisation.get(found.cell)
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
        sentence=_sentence(points, best, unit),
    )


def _sentence(points: Sequence[BatchPoint], best: int | None, unit: str) -> str:
    if best is None:
        used = _utilisation(points)
        return used or "No batch was measured to the end."
    known = [point for point in points if point.throughput is not None]
    chosen = next(point for point in known if point.batch == best)
    fastest = max(known, key=lambda point: point.throughput.value if point.throughput else 0.0)
    assert chosen.throughput is not None
    assert fastest.throughput is not None
    number = f"{figure(chosen.throughput.value)} {unit}"
    if len(known) == 1:
        sentence = f"Only batch {best} was measured: {number}."
    elif best == points[-1].batch:
        sentence = f"Throughput still rises at batch {best} ({number}): try a larger one."
    elif chosen is fastest:
        sentence = f"Batch {best} is the fastest: {number}."
    else:
        share = chosen.throughput.value / fastest.throughput.value
        sentence = (
            f"Batch {best} is enough: {number}, {share:.0%} of what batch {fastest.batch} reaches."
        )
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
            return f"{name} utilisation is {low:.0%} at batch {small} and {high:.0%} at {large}."
    return ""


def _rate(found: Measured, unit: str) -> float:
    rates = found.rates(unit)
    return math.exp(sum(map(math.log, rates)) / len(rates))
