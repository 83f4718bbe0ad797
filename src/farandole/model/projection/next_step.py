"""The cheapest measurement that would narrow a projection."""

from __future__ import annotations

import math
import shlex
from collections.abc import Mapping, Sequence

from farandole.model.measured import count
from farandole.model.projection import intervals
from farandole.model.projection.outlook import Goal, NextStep, Outlook
from farandole.model.projection.records import EpochRow
from farandole.model.projection.rows import Basis

_REPEATS = 3
_IMPORT = "farandole study import TABLE.csv --out NEW"


def choose_next(
    basis: Basis,
    goal: Goal | None,
    epoch_rows: Sequence[EpochRow],
    rows: Sequence[Outlook],
    spec: Mapping[str, object],
    *,
    imported: bool,
    link_unknown: bool,
    decays: bool = False,
    flags: Sequence[str] = (),
) -> NextStep:
    """Return what to measure next: of what makes the interval wide, the cheapest to learn.

    Args:
        basis: what the projection stands on.
        goal: where times end.
        epoch_rows: runs to the goal.
        rows: what was projected.
        spec: of the study.
        imported: whether figures come from a table.
        link_unknown: whether usual links stand in for the user's.
        decays: whether the learning rate did, so that a run tells of its own global batch alone.
        flags: that asked the question, for the command that asks it with a link.
    """
    workers = basis.workers
    counts = [int(value) for value in workers]
    if len(counts) == 1:
        more = sorted({counts[0], 2 * counts[0]})
        return _measure(
            f"Every launch had {count(counts[0], 'worker')}: a second count shows what "
            "communication costs here.",
            {"workers": more},
            imported,
        )
    if link_unknown:
        return NextStep(
            sentence="What connects the hosts makes the largest difference, and costs nothing to "
            "look up: say --link.",
            spec=None,
            command=shlex.join(["farandole", "project", "DIR", *flags, "--link", "25Gbit"]),
        )
    if decays and (untold := [row for row in rows if row.time_s is None]):
        return _measure(*_own_schedule(basis, untold), imported)
    launches = min(sum(row.workers == n for row in basis.rows) for n in workers)
    if launches < _REPEATS:
        return _measure(
            "Some counts were launched fewer than three times: repeats tell noise from scaling.",
            {"repeats": _REPEATS},
            imported,
        )
    if goal is None or goal.metric is None:
        return _measure(
            "How many more epochs a larger global batch needs was not measured, and is taken to "
            "be none: train to the end, with a metric.",
            {"measure": "both"},
            imported,
        )
    if epoch_rows and not decays and len({row.global_batch for row in epoch_rows}) < 2:
        return _measure(
            "Epochs to the goal are known of one global batch only: a batch four times as large "
            "on the same workers shows how they grow.",
            {"measure": "both", "batches": [basis.batch, 4 * basis.batch]},
            imported,
        )
    projected = [row for row in rows if not row.measured and not row.indicative]
    if projected:
        far = max(projected, key=lambda row: row.workers)
        if far.epochs is not None and intervals.width(far.epochs) > intervals.width(far.throughput):
            return _measure(
                f"Most of the interval at {count(far.workers, 'worker')} comes from the epochs: "
                "more seeds narrow it.",
                {"measure": "both", "seeds": 2 * int(_number(spec.get("seeds")) or 3)},
                imported,
            )
    if not imported and 2 * counts[-1] > basis.host_size:
        return NextStep(
            sentence="This host has no room for more workers: what would narrow it most are "
            f"{2 * counts[-1]} workers on two such hosts. Study them there (-H names hosts), or "
            "put a step time that was measured in any way into a table beside this study's rows "
            "(workers, hosts, batch, step_s).",
            spec=None,
            command=_IMPORT,
        )
    return _measure(
        "Most of the interval comes from the distance: twice the largest count that was measured "
        "narrows it most.",
        {"workers": [*counts, 2 * counts[-1]]},
        imported,
    )


def _own_schedule(basis: Basis, untold: Sequence[Outlook]) -> tuple[str, Mapping[str, object]]:
    """Say which runs tell the epochs of the nearest global batch that no run had."""
    why = "The learning rate decays, so that runs tell the epochs of their own global batch alone"
    nearest = min(untold, key=lambda row: row.workers)
    if nearest.global_batch is None:
        return f"{why}: runs at a constant rate tell those of others.", {"measure": "both"}
    most = basis.workers[-1]
    batch = nearest.global_batch
    if basis.scaling == "weak":
        batch = math.ceil(batch / most)
    return (
        f"{why}: {count(most, 'worker')} trained to the end at global batch "
        f"{nearest.global_batch} tell those of {count(nearest.workers, 'worker')}; runs at a "
        "constant rate tell those of any.",
        {"measure": "both", "batches": [basis.batch, batch]},
    )


def _measure(sentence: str, changes: Mapping[str, object], imported: bool) -> NextStep:
    if imported:
        return NextStep(
            sentence=f"{sentence} Add the rows to the table, and import it again.",
            spec=None,
            command=_IMPORT,
        )
    return NextStep(sentence=sentence, spec=changes)


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
