"""The first screen of a study: what was studied, the answer, four figures, checks, what to do."""

from __future__ import annotations

import shlex

from farandole.format import moment, number, plural, seconds, times
from farandole.model.analyse import ScalingInfo
from farandole.model.curves import CurvePoint
from farandole.model.rows import CellRow
from farandole.model.statistics import Estimate
from farandole.report import words
from farandole.report.document import Figures, Opening, Tile
from farandole.report.table import Column, shown

_FACTOR = Column(key="", title="", show=times, interval=True)


def opening(info: ScalingInfo, figures: Figures | None = None, folder: str = "DIR") -> Opening:
    """Return what a reader sees before anything else; commands name the study's folder."""
    return Opening(
        label=info.label,
        note=", ".join(part for part in _circumstances(info) if part),
        headline=info.answer.headline,
        sentences=words.sentences(info),
        next="" if info.command else f"Next: {info.answer.next}",
        void=info.answer.void is not None,
        tiles=_tiles(info),
        figures=figures,
        checks=info.checks,
        commands=_commands(info, shlex.quote(folder)),
    )


def _circumstances(info: ScalingInfo) -> tuple[str, ...]:
    """Say where and when it was, and whether it may be quoted."""
    cores = info.machine.get("physical_cores") or info.machine.get("cores")
    busy = any(one.kind == "disturbed" for one in info.verdicts)
    return (
        str(info.machine.get("cpu") or ""),
        plural(int(cores), "core") if isinstance(cores, int | float) else "",
        moment(info.created),
        "" if info.complete else "not complete: farandole study --resume goes on with it",
        "not quotable: the machine was busy" if busy else "",
    )


def _tiles(info: ScalingInfo) -> tuple[Tile, ...]:
    """Return throughput, epoch, job and accuracy of the chosen workers beside the fewest."""
    points = [point for point in info.curves[0].points if point.valid] if info.curves else []
    chosen = next((one for one in points if one.workers == info.answer.workers), None)
    if chosen is None or info.answer.void is not None:
        return ()
    rows = {row.cell: row for row in info.rows}
    base = points[0]
    row, before = rows[chosen.cell], rows[base.cell]
    return (
        Tile(
            title=f"Throughput, {plural(chosen.workers, 'worker')}",
            value=f"{number(chosen.throughput.value)} {info.curves[0].unit}",
            change=_speedup(chosen, base),
        ),
        _time("Time per epoch", row, before, "epoch_s"),
        _time("Job time", row, before, "job_s"),
        _accuracy(row, before, info.main_metric),
    )


def _speedup(chosen: CurvePoint, base: CurvePoint) -> str:
    if chosen is base or chosen.speedup is None:
        return ""
    return f"{shown(_FACTOR, chosen.speedup)} of {plural(base.workers, 'worker')}"


def _time(title: str, row: CellRow, before: CellRow, part: str) -> Tile:
    here: Estimate | None = getattr(row.job, part, None)
    there: Estimate | None = getattr(before.job, part, None)
    change = ""
    if here is not None and there is not None and row is not before:
        change = f"{seconds(there.value)} with {plural(before.cell.workers, 'worker')}"
    return Tile(title=title, value=seconds(here.value if here else None), change=change)


def _accuracy(row: CellRow, before: CellRow, metric: str | None) -> Tile:
    here, there = row.metric(metric), before.metric(metric)
    if here is None or here.final is None:
        return Tile(title="Accuracy", value="not measured", change="--measure both measures it")
    change = ""
    if there is not None and there.final is not None and row is not before:
        change = f"{number(there.final.value)} with {plural(before.cell.workers, 'worker')}"
    return Tile(title=here.metric, value=number(here.final.value), change=change)


def _commands(info: ScalingInfo, folder: str) -> tuple[str, ...]:
    """Return at most three commands: use the answer, look further, measure what is missing."""
    answer, command = info.answer, info.command
    if not command or answer.workers is None or answer.void is not None:
        return ()
    most = max(row.cell.workers for row in info.rows)
    found = [f"farandole project {folder} -np {2 * most},{4 * most}"]
    if answer.workers > 1 and not any("{" in word for word in command):
        found.insert(0, f"farandole run -np {answer.workers} {shlex.join(command)}")
    if answer.accuracy == "not_measured":
        found.append("farandole study --measure both --seeds 3 -- " + shlex.join(command))
    return tuple(found[:3])
