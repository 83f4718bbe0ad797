"""Bottlenecks: what every worker used, what a step consists of, who waits for whom."""

from __future__ import annotations

from typing import Any

from farandole.format import percent, plural, seconds, size, whole
from farandole.labs.disturbed import disturbed
from farandole.labs.evidence import only
from farandole.labs.lab import Answered, Found
from farandole.labs.mnist.questions import BOTTLENECKS
from farandole.labs.usage import split_words, use_words
from farandole.model.info.scaling import ScalingInfo
from farandole.model.info.utilisation import UtilisationRow
from farandole.report.charts import bars
from farandole.report.table import Column, Table

_UNEVEN = ("uneven_utilisation", "uneven_memory", "straggler", "contention")
_BOUND = ("communication_bound", "input_bound", "compute_bound")
_SHARE_COLUMNS = (
    Column(key="setting", title="setting", text=True),
    Column(key="rank", title="rank", show=whole),
    Column(key="cpu", title="CPU utilisation", show=percent),
)


def answer_bottlenecks(found: Found) -> Answered:
    """Answer by utilisation, memory and computing time of every worker."""
    info = found.studies.get("workers")
    used = [row for row in info.utilisation if not row.cell.today] if info else []
    table = Table(
        name="bottlenecks",
        title="Utilisation, memory and computing time by worker",
        columns=(
            *_SHARE_COLUMNS,
            Column(key="memory_bytes", title="memory", show=size),
            Column(key="compute_s", title="computing per step", show=seconds),
        ),
        rows=tuple(row for one in used if info for row in _rows(info, one)),
        notes=("Utilisation is of the cores that a worker may use, from its first step on.",),
    )
    return Answered(
        question=BOTTLENECKS,
        sentences=(*_said(info, used), *disturbed(found, "workers")),
        tables=(table,),
        figures=(
            bars(
                "utilisation-by-rank",
                "Utilisation by worker",
                "Share of its cores that each worker kept busy; unequal bars are an imbalance.",
                _shares(table),
                x="setting",
                y="cpu",
                series="rank",
            ),
        ),
    )


def _shares(table: Table) -> Table:
    """Return the part of the table that is drawn."""
    return Table(
        name="utilisation-by-rank",
        title="Utilisation by worker",
        columns=_SHARE_COLUMNS,
        rows=tuple(row[: len(_SHARE_COLUMNS)] for row in table.rows),
    )


def _rows(info: ScalingInfo, used: UtilisationRow) -> list[tuple[Any, ...]]:
    workers = used.cell.workers
    split = only(info.splits, workers=workers)
    compute = dict(split.compute_by_rank_s) if split else {}
    return [
        (plural(workers, "worker"), rank, cpu, memory, compute.get(rank))
        for rank, cpu, _, memory in used.by_rank
    ]


def _said(info: ScalingInfo | None, used: list[UtilisationRow]) -> list[str]:
    if info is None or not used:
        return ["Utilisation was not measured: no launch ended well."]
    several = [row for row in used if row.cell.workers > 1]
    said = [use_words(row) for row in (several or used)]
    uneven = [verdict for verdict in info.verdicts if verdict.kind in _UNEVEN]
    said += [f"{verdict.sentence} {verdict.action}" for verdict in uneven]
    if several and not uneven:
        said.append("No worker has a fifth more or less utilisation or memory than another.")
    said += [split_words(split) for split in info.splits if split.cell.workers > 1]
    said += [verdict.sentence for verdict in info.verdicts if verdict.kind in _BOUND]
    return said
