"""Everything that a study says, computed from its records.

None stands for "not measured" and is never to be shown as 0. Times are in seconds, rates per
second, shares between 0 and 1. An Estimate without `low` and `high` comes from one launch only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from farandole.format import fill, plural
from farandole.model.answer import Answer, give_answer
from farandole.model.communication import LinkPoint, calibration
from farandole.model.curves import Curve, SingleProcess, draw_curves
from farandole.model.measured import LaunchRow, Measured, measure, usable_cores
from farandole.model.pace import positive
from farandole.model.rows import CellRow, collect_rows
from farandole.model.statistics import LEAST_SEEDS, SPEED_MARGIN, ratio
from farandole.model.sweeps import BatchSweep, SplitTable, split_cores, sweep_batches
from farandole.model.verdicts import Verdict, find_verdicts
from farandole.model.void import Void, find_voids, repeats_one_batch, why_no_speedup
from farandole.study.records import Study

if TYPE_CHECKING:
    from farandole.model.projection.advice import Projection


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalingInfo:
    """Everything that a study says."""

    label: str
    answer: Answer
    curves: tuple[Curve, ...]
    """The main one first."""
    today: SingleProcess | None
    link: tuple[LinkPoint, ...]
    batch_sweeps: tuple[BatchSweep, ...]
    split_tables: tuple[SplitTable, ...]
    main_metric: str | None
    rows: tuple[CellRow, ...]
    """One per cell, with everything that is known about it."""
    launches: tuple[LaunchRow, ...]
    verdicts: tuple[Verdict, ...]
    voids: tuple[Void, ...]
    notes: tuple[str, ...]
    """What could not be measured or was left out, in sentences."""
    margins: Mapping[str, float]
    """Of the equivalence tests: speed (relative), and the main metric's (absolute)."""
    machine: Mapping[str, object]
    complete: bool
    command: tuple[str, ...] = ()
    """As the user gave it, with its placeholders."""
    spec: Mapping[str, object] = field(default_factory=dict)
    """What was asked for: see docs/reference/study-folder.md."""
    created: str = ""
    """ISO 8601, UTC."""
    projection: Projection | None = None
    """What more workers would give; None where nobody asked."""

    def each(self, part: str) -> list[Any]:
        """Return one part of all cells that have it: `info.each("split")`."""
        found: list[Any] = []
        for row in self.rows:
            value = getattr(row, part)
            if isinstance(value, tuple):
                found += value
            elif value is not None:
                found.append(value)
        return found


def analyse(
    study: Study,
    *,
    price_per_worker_hour: float | None = None,
    target: tuple[str, float] | None = None,
) -> ScalingInfo:
    """Compute everything that a study says.

    Args:
        study: its records; figures without steps (an imported table) will do.
        price_per_worker_hour: what one worker costs in an hour; without it nothing is priced.
        target: a metric and the value to reach.

    Raises:
        UsageError: when the price is not above 0, or the target's metric was not recorded.
    """
    cells, launches = measure(study, rough=True)
    spec = study.spec
    voids = tuple(void for cell in cells for void in find_voids(cell, cells))
    void_cells = frozenset(void.cell for void in voids)
    prefer = spec.get("scaling")
    curves = draw_curves(
        cells,
        {void.cell: why_no_speedup(void.kind) for void in voids},
        prefer if prefer in ("strong", "weak") else None,
    )
    rows, metric = collect_rows(
        study,
        cells,
        curves,
        void_cells,
        price_per_worker_hour=price_per_worker_hour,
        target=target,
    )
    by_cell = {row.cell: row for row in rows}
    verdicts = find_verdicts(
        cells,
        by_cell,
        curves,
        main_metric=metric,
        cores=usable_cores(study.machine),
        spec=spec,
        void=void_cells,
    )
    split_tables = split_cores(cells)
    answer = give_answer(
        split_tables=split_tables,
        cells=cells,
        rows=by_cell,
        curves=curves,
        main_metric=metric,
        voids=voids,
        verdicts=verdicts,
        seeds=int(positive(spec.get("seeds")) or LEAST_SEEDS),
    )
    margin = next((found.margin for row in rows if (found := row.metric(metric))), None)
    return ScalingInfo(
        label=study.label,
        answer=answer,
        curves=curves,
        today=_single_process(cells, curves, answer.workers),
        link=calibration(study.link),
        batch_sweeps=sweep_batches(cells, by_cell),
        split_tables=split_tables,
        main_metric=metric,
        rows=rows,
        launches=launches,
        verdicts=verdicts,
        voids=voids,
        notes=_notes(cells, rows, study),
        margins={"speed": SPEED_MARGIN}
        | ({metric: margin} if metric is not None and margin is not None else {}),
        machine=study.machine,
        complete=study.complete,
        command=study.command,
        spec=spec,
        created=study.created,
    )


def _single_process(
    cells: Sequence[Measured], curves: Sequence[Curve], workers: int | None
) -> SingleProcess | None:
    """Compare the answer with one process that has all cores."""
    today = next((found for found in cells if found.cell.today and found.paces), None)
    if today is None or not curves:
        return None
    point = next((point for point in curves[0].points if point.workers == workers), None)
    unit = curves[0].unit
    throughput = today.throughput(unit)
    if throughput is None:
        return None
    gain = None
    sentence = fill(
        "One process with all cores reaches {rate:number} {unit}.",
        rate=throughput.value,
        unit=unit,
    )
    if point is not None and point.valid:
        chosen = next(found for found in cells if found.cell == point.cell)
        gain = ratio(chosen.rates(unit), today.rates(unit))
        sentence += fill(
            " The answer's {workers:worker}: {gain:interval} of that.",
            workers=point.workers,
            gain=gain,
        )
    return SingleProcess(
        cell=today.cell, throughput=throughput, unit=unit, gain=gain, sentence=sentence
    )


def _notes(cells: Sequence[Measured], rows: Sequence[CellRow], study: Study) -> tuple[str, ...]:
    """Say what could not be measured or was left out."""
    notes: dict[str, None] = dict.fromkeys(study.notes)
    for found in cells:
        for launch in found.launches:
            steps = {len(rank.steps) for rank in launch.ranks}
            if len(steps) > 1:
                notes[
                    f"{launch.id}: ranks recorded between {min(steps)} and {max(steps)} steps; "
                    f"those that all have were used."
                ] = None
            for rank in launch.ranks:
                notes |= dict.fromkeys(rank.notes)
            if launch.cell.workers > 1 and any(repeats_one_batch(r) for r in launch.ranks):
                notes[
                    "Every step trains on the same batch, as synthetic benchmarks do: whether "
                    "workers had different samples cannot be told, and accuracy means nothing."
                ] = None
        if found.void_for_speed:
            notes[f"{found.label}: {found.void_for_speed}."] = None
        if len({rank.host for one in found.launches for rank in one.ranks}) > 1:
            notes[
                "Across hosts, waiting for the slowest worker and the transfer are not told apart."
            ] = None
    for row in rows:
        if row.contention and row.contention.why_not:
            notes[
                f"What {plural(row.cell.workers, 'worker')} cost each other was not measured: "
                f"{row.contention.why_not}."
            ] = None
    if not study.complete:
        notes["Not every planned launch has been made: farandole study --resume DIR."] = None
    return tuple(notes)
