"""Everything that a study says, computed from its records.

None stands for "not measured" and is never to be shown as 0. Times are in seconds, rates per
second, shares between 0 and 1. An Estimate without `low` and `high` comes from one launch only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from farandole.format import plural
from farandole.model.accuracy import (
    MetricCurve,
    MetricRow,
    choose_metric,
    collect_metrics,
    metric_curves,
    metric_rows,
    with_times,
)
from farandole.model.answer import Answer, give_answer
from farandole.model.communication import (
    ApartRow,
    Communication,
    LinkPoint,
    apart_rows,
    calibration,
    communicate,
)
from farandole.model.curves import Curve, Today, draw_curves
from farandole.model.findings import Findings, find_verdicts
from farandole.model.jobs import Cost, JobTime, price, time_job
from farandole.model.measured import CellRow, LaunchRow, Measured, figure, measure, usable_cores
from farandole.model.noise import NoiseRow, cell_noise
from farandole.model.pace import positive
from farandole.model.split import StepSplit, split_step
from farandole.model.statistics import LEAST_SEEDS, SPEED_MARGIN, ratio
from farandole.model.sweeps import BatchSweep, SplitTable, split_cores, sweep_batches
from farandole.model.utilisation import (
    UtilisationRow,
    UtilisationSeries,
    utilisation_series,
    utilise,
)
from farandole.model.verdicts import Verdict, interval
from farandole.model.void import Void, find_voids, repeats_one_batch, why_no_speedup
from farandole.study.records import Cell, Study

if TYPE_CHECKING:
    from farandole.model.projection.advice import Projection


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalingInfo:
    """Everything that a study says."""

    label: str
    answer: Answer
    curves: tuple[Curve, ...]
    """The main one first."""
    today: Today | None
    splits: tuple[StepSplit, ...]
    communication: tuple[Communication, ...]
    link: tuple[LinkPoint, ...]
    utilisation: tuple[UtilisationRow, ...]
    utilisation_series: tuple[UtilisationSeries, ...]
    batch_sweeps: tuple[BatchSweep, ...]
    split_tables: tuple[SplitTable, ...]
    job_times: tuple[JobTime, ...]
    metric_curves: tuple[MetricCurve, ...]
    metrics: tuple[MetricRow, ...]
    main_metric: str | None
    costs: tuple[Cost, ...]
    cells: tuple[CellRow, ...]
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
    """What was asked for: see docs/study-folder.md."""
    created: str = ""
    """ISO 8601, UTC."""
    apart: tuple[ApartRow, ...] = ()
    """What workers of a host cost each other, one for each number of them that was measured."""
    noise: tuple[NoiseRow, ...] = ()
    """Of cells with 2 workers or more, or with several batches in an update."""
    projection: Projection | None = None
    """What more workers would give; None where nobody asked."""


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
    cells, launches = measure(study)
    spec = study.spec
    metrics = collect_metrics(cells)
    metric = choose_metric(metrics, target)
    voids = tuple(void for cell in cells for void in find_voids(cell, cells))
    void_cells = frozenset(void.cell for void in voids)
    prefer = spec.get("scaling")
    curves = draw_curves(
        cells,
        {void.cell: why_no_speedup(void.kind) for void in voids},
        prefer if prefer in ("strong", "weak") else None,
    )
    splits = {c.cell: split for c in cells if (split := split_step(c)) is not None}
    communication = {
        c.cell: found
        for c in cells
        if (found := communicate(c, cells, splits.get(c.cell), study.link, spec, study.apart))
        is not None
    }
    for cell in void_cells & communication.keys():
        # Workers that did not train together have nothing to derive from.
        communication[cell] = replace(
            communication[cell],
            derived_s=None,
            contention_s=None,
            derived_epoch_s=None,
            derived_bus_bytes_per_s=None,
        )
    utilisation = {c.cell: row for c in cells if (row := utilise(c)) is not None}
    jobs = {c.cell: job for c in cells if (job := time_job(c, spec)) is not None}
    rows = tuple(with_times(row, jobs.get(row.cell)) for row in metric_rows(cells, metrics, target))
    by_epoch = tuple(metric_curves(cells, metrics))
    main_rows = {row.cell: row for row in rows if row.metric == metric}
    costs: dict[Cell, Cost] = {}
    if price_per_worker_hour is not None:
        for c in cells:
            cost = price(c, jobs.get(c.cell), main_rows.get(c.cell), price_per_worker_hour)
            if cost is not None:
                costs[c.cell] = cost
    verdicts = find_verdicts(
        Findings(
            cells=cells,
            curves=curves,
            splits=splits,
            communication=communication,
            utilisation=utilisation,
            jobs=jobs,
            metric_curves=by_epoch,
            metrics=rows,
            main_metric=metric,
            cores=usable_cores(study.machine),
            spec=spec,
            void=void_cells,
        )
    )
    split_tables = split_cores(cells)
    answer = give_answer(
        split_tables=split_tables,
        cells=cells,
        curves=curves,
        splits=splits,
        jobs=jobs,
        metrics=rows,
        main_metric=metric,
        voids=voids,
        verdicts=verdicts,
        costs=costs,
        seeds=int(positive(spec.get("seeds")) or LEAST_SEEDS),
    )
    main_row = next((row for row in rows if row.metric == metric), None)
    return ScalingInfo(
        label=study.label,
        answer=answer,
        curves=curves,
        today=_today(cells, curves, answer.workers),
        splits=tuple(splits.values()),
        communication=tuple(communication.values()),
        link=calibration(study.link),
        utilisation=tuple(utilisation.values()),
        utilisation_series=tuple(line for c in cells for line in utilisation_series(c)),
        batch_sweeps=sweep_batches(cells, utilisation),
        split_tables=split_tables,
        job_times=tuple(jobs.values()),
        metric_curves=by_epoch,
        metrics=rows,
        main_metric=metric,
        costs=tuple(costs.values()),
        cells=tuple(_cell_row(c, jobs) for c in cells),
        launches=launches,
        verdicts=verdicts,
        voids=voids,
        notes=_notes(cells, study),
        margins={"speed": SPEED_MARGIN}
        | ({metric: main_row.margin} if metric and main_row else {}),
        machine=study.machine,
        complete=study.complete,
        command=study.command,
        spec=spec,
        created=study.created,
        apart=apart_rows(study.apart, cells),
        noise=tuple(
            said for c in cells if c.cell not in void_cells and (said := cell_noise(c)) is not None
        ),
    )


def _cell_row(found: Measured, jobs: Mapping[Cell, JobTime]) -> CellRow:
    ranks = [rank for launch in found.ended_well for rank in launch.ranks]
    unit = found.unit
    job = jobs.get(found.cell)
    return CellRow(
        cell=found.cell,
        label=found.label,
        launches=len(found.paces),
        attempts=len(found.launches),
        step_s=found.step_s,
        throughput=found.throughput(unit) if unit else None,
        unit=unit,
        failed=found.failed,
        void_for_speed=found.void_for_speed,
        gradient_bytes=max((r.gradient_bytes_per_step or 0 for r in ranks), default=0) or None,
        parameters=max((rank.parameters or 0 for rank in ranks), default=0) or None,
        steps_per_epoch=job.steps_per_epoch if job else None,
    )


def _today(cells: Sequence[Measured], curves: Sequence[Curve], workers: int | None) -> Today | None:
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
    sentence = f"Today, with one process and all cores: {figure(throughput.value)} {unit}."
    if point is not None and point.valid:
        chosen = next(found for found in cells if found.cell == point.cell)
        gain = ratio(chosen.rates(unit), today.rates(unit))
        chosen_words = plural(point.workers, "worker")
        sentence += f" The answer's {chosen_words}: {gain.value:.2f}x that{interval(gain)}."
    return Today(cell=today.cell, throughput=throughput, unit=unit, gain=gain, sentence=sentence)


def _notes(cells: Sequence[Measured], study: Study) -> tuple[str, ...]:
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
    for one in apart_rows(study.apart, cells):
        if one.why_not:
            notes[
                f"What {plural(one.cell.workers, 'worker')} cost each other was not measured: "
                f"{one.why_not}."
            ] = None
    if not study.complete:
        notes["Not every planned launch has been made: farandole study --resume DIR."] = None
    return tuple(notes)
