"""Everything that a study says, computed from its records, and several studies side by side.

None stands for "not measured" and is never to be shown as 0. Times are in seconds, rates per
second, shares between 0 and 1. An Estimate without `low` and `high` comes from one launch only.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from farandole.errors import UsageError
from farandole.format import interval, number, plural
from farandole.model.answer import Answer, give_answer
from farandole.model.communication import LinkPoint, calibration
from farandole.model.curves import (
    BatchSweep,
    Curve,
    Prefer,
    SingleProcess,
    SplitTable,
    draw_curves,
    split_cores,
    sweep_batches,
)
from farandole.model.jobs import time_job
from farandole.model.measured import (
    TOO_BUSY,
    LaunchRow,
    Measured,
    compare_speed,
    dataset_size,
    measure,
    positive,
    usable_cores,
)
from farandole.model.rows import CellRow, collect_rows
from farandole.model.statistics import LEAST_SEEDS, SPEED_MARGIN, Estimate, ratio
from farandole.model.verdicts import (
    Check,
    Verdict,
    Void,
    check_together,
    faster_device_gains_nothing,
    find_verdicts,
    find_voids,
    repeats_one_batch,
)
from farandole.study.records import Cell, Study

if TYPE_CHECKING:
    from farandole.model.projection.advice import Projection

_SAME = ("cpu", "physical_cores", "cores", "memory_bytes", "gpus")
"""What must be equal for two machines to be alike."""


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
    checks: tuple[Check, ...] = ()
    """Whether the workers trained together."""

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
    prefer: Prefer = "balance",
) -> ScalingInfo:
    """Compute everything that a study says; figures without steps (an imported table) will do.

    Args:
        study: its records.
        price_per_worker_hour: without it nothing is priced.
        target: a metric and the value to reach.
        prefer: what the number of workers is recommended by.

    Raises:
        UsageError: when the price is not above 0, or the target's metric was not recorded.
    """
    cells, launches = measure(study)
    spec = study.spec
    voids = tuple(void for cell in cells for void in find_voids(cell, cells))
    void_cells = frozenset(void.cell for void in voids)
    jobs = {found.cell: job for found in cells if (job := time_job(found, spec))}
    epoch_s = {
        cell: job.epoch_s for cell, job in jobs.items() if job.epoch_measured and job.epoch_s
    }
    why_void = {void.cell: void.why for void in voids}
    curves = draw_curves(cells, why_void, spec.get("scaling"), epoch_s=epoch_s, prefer=prefer)
    rows, metric = collect_rows(
        study, cells, curves, jobs, void_cells, price_per_worker_hour, target
    )
    verdicts = find_verdicts(
        rows,
        curves,
        main_metric=metric,
        cores=usable_cores(study.machine),
        spec=spec,
        command=study.command,
        void=void_cells,
    )
    split_tables = split_cores(cells)
    answer = give_answer(
        rows,
        curves,
        main_metric=metric,
        voids=voids,
        verdicts=verdicts,
        seeds=int(positive(spec.get("seeds")) or LEAST_SEEDS),
        prefer=prefer,
        split_tables=split_tables,
    )
    margins = {"speed": SPEED_MARGIN}
    if metric is not None and (judged := [one for row in rows if (one := row.metric(metric))]):
        margins[metric] = judged[0].margin
    return ScalingInfo(
        label=study.label,
        answer=answer,
        curves=curves,
        today=_single_process(cells, curves, answer.workers),
        link=calibration(study.link),
        batch_sweeps=sweep_batches(cells, {r.cell: r.utilisation for r in rows if r.utilisation}),
        split_tables=split_tables,
        main_metric=metric,
        rows=rows,
        launches=launches,
        verdicts=verdicts,
        voids=voids,
        notes=_notes(rows, study),
        margins=margins,
        machine=study.machine,
        complete=study.complete,
        command=study.command,
        spec=spec,
        created=study.created,
        checks=check_together(rows, voids),
    )


def _single_process(
    cells: Sequence[Measured], curves: Sequence[Curve], workers: int | None
) -> SingleProcess | None:
    """Compare the answer with one process that has all cores."""
    single = next((found for found in cells if found.cell.today), None)
    if single is None or not curves:
        return None
    unit = curves[0].unit if single.rates(curves[0].unit) else single.unit
    throughput = single.throughput(unit)
    if throughput is None:
        return None
    gain = None
    sentence = f"One process with all cores reaches {number(throughput.value)} {unit}."
    chosen = next((one.cell for one in curves[0].points if one.workers == workers and one.valid), 0)
    best = next((found for found in cells if found.cell == chosen and found.rates(unit)), None)
    if best and workers:
        gain, _ = compare_speed(best, single, unit)
        sentence += f" With the recommended {plural(workers, 'worker')}: {interval(gain)} as much."
    return SingleProcess(
        cell=single.cell, throughput=throughput, unit=unit, gain=gain, sentence=sentence
    )


def _notes(rows: Sequence[CellRow], study: Study) -> tuple[str, ...]:
    """Say what could not be measured or was left out."""
    notes = list(study.notes)
    launches = [launch for row in rows for launch in row.measured.launches]
    samples = next((row.measured.samples for row in rows if row.measured.samples), None)
    if samples and not any(dataset_size(launch, study.spec) for launch in launches):
        notes.append(
            f"Assumed {samples:,} samples per epoch: its time multiplied by the throughput."
        )
    for row in rows:
        for launch in row.measured.launches:
            steps = {len(rank.steps) for rank in launch.ranks}
            if len(steps) > 1:
                notes.append(
                    f"{launch.id}: ranks recorded between {min(steps)} and {max(steps)} steps; "
                    f"only the first {min(steps)} of each were used."
                )
            notes += [note for rank in launch.ranks for note in rank.notes]
            if launch.cell.workers > 1 and any(repeats_one_batch(r) for r in launch.ranks):
                notes.append(
                    "Every step trains on the same batch, as synthetic benchmarks do: accuracy "
                    "means nothing, and nobody can tell whether workers had different samples."
                )
        if row.void_for_speed:
            notes.append(f"{row.label}: {row.void_for_speed}.")
        if len({rank.host for one in row.measured.launches for rank in one.ranks}) > 1:
            notes.append(
                "Across hosts, waiting for the slowest worker is part of the transfer time."
            )
    notes += [
        f"Contention between {plural(row.cell.workers, 'worker')} was not measured: "
        f"{row.contention.why_not}."
        for row in rows
        if row.contention and row.contention.why_not
    ]
    if not study.complete:
        notes.append(
            "Some planned launches are missing: continue with farandole study --resume DIR."
        )
    return tuple(dict.fromkeys(notes))


# Several studies


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparisonRow:
    """One group and worker count of one study, beside others."""

    study: str
    label: str
    """The cell in words."""
    cell: Cell
    throughput: Estimate | None
    unit: str
    speedup: Estimate | None
    """Within its own study."""
    final_metric: Estimate | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Several studies side by side, by label."""

    infos: tuple[ScalingInfo, ...]
    rows: tuple[ComparisonRow, ...]
    ratios: tuple[tuple[str, str, str, Estimate], ...]
    """(study, other study, cell label, throughput over the other's); empty when refused."""
    refused: str | None
    """Why ratios between studies are not given; None when they are."""
    metric: str | None
    verdicts: tuple[Verdict, ...]


def compare(
    studies: Sequence[Study],
    *,
    price_per_worker_hour: float | None = None,
    target: tuple[str, float] | None = None,
    prefer: Prefer = "balance",
) -> Comparison:
    """Put studies side by side by label.

    Ratios of throughputs between studies are given only where the machines are alike: across
    unlike ones they would mix what the machine does with what the workers do.

    Raises:
        UsageError: when there are no studies.
    """
    if not studies:
        raise UsageError("There is no study to compare. Name at least one folder.")
    labels = unique_labels(study.label or "study" for study in studies)
    infos = [
        analyse(study, price_per_worker_hour=price_per_worker_hour, target=target, prefer=prefer)
        for study in studies
    ]
    by_label = dict(zip(labels, infos, strict=True))
    refused = unlike_machines({name: info.machine for name, info in by_label.items()})
    metric = next((info.main_metric for info in infos if info.main_metric), None)
    rows = [
        ComparisonRow(
            study=name,
            label=row.label,
            cell=row.cell,
            throughput=row.throughput,
            unit=row.unit,
            speedup=row.point.speedup if row.point else None,
            final_metric=final.final if (final := row.metric(metric)) else None,
        )
        for name, info in by_label.items()
        for row in info.rows
    ]
    ratios = []
    first, *others = (_quotable(study, info) for study, info in zip(studies, infos, strict=True))
    for name, cells in zip(labels[1:], others, strict=True):
        for cell in (cell for cell in cells if cell in first and refused is None):
            ours, theirs = cells[cell], first[cell]
            units = [u for u in (ours.unit, theirs.unit) if ours.rates(u) and theirs.rates(u)]
            if units:
                # Of two studies no launches took turns.
                found = ratio(ours.rates(units[0]), theirs.rates(units[0]))
                ratios.append((name, labels[0], ours.label, found))
    return Comparison(
        infos=tuple(infos),
        rows=tuple(rows),
        ratios=tuple(ratios),
        refused=refused,
        metric=metric,
        verdicts=_device_verdicts(by_label),
    )


def _quotable(study: Study, info: ScalingInfo) -> dict[Cell, Measured]:
    """Return the cells whose speeds may be divided by another study's."""
    void = {found.cell for found in info.voids}
    return {
        found.cell: found
        for found in measure(study)[0]
        if found.cell not in void and (found.disturbance or 0.0) <= TOO_BUSY
    }


def unlike_machines(machines: Mapping[str, Mapping[str, object]]) -> str | None:
    """Say why speeds may not be divided by each other; None when the machines are alike."""
    (first, reference), *others = machines.items()
    for name, machine in others:
        why = "one of them does not say which machine it was measured on"
        if reference and machine:
            pairs = ((key, reference.get(key), machine.get(key)) for key in _SAME)
            unlike = next((one for one in pairs if not _alike(*one)), None)
            if unlike is None:
                continue
            why = "their machines differ ({}: {} and {})".format(*unlike)
        return f"No ratios between {first} and {name}: {why}. Compare the speedups within each."
    return None


def unique_labels(labels: Iterable[str]) -> list[str]:
    """Number labels that occur more than once."""
    found: list[str] = []
    for label in labels:
        name, number = label, 2
        while name in found:
            name, number = f"{label} ({number})", number + 1
        found.append(name)
    return found


def _alike(key: str, here: object, there: object) -> bool:
    """Tell whether two machines have the same, memory but for what firmware keeps."""
    sizes = [one for one in (here, there) if isinstance(one, (int, float))]
    if key != "memory_bytes" or len(sizes) < 2:
        return here == there
    return max(sizes) - min(sizes) <= 0.02 * max(sizes)


def _device_verdicts(infos: Mapping[str, ScalingInfo]) -> tuple[Verdict, ...]:
    """Look for a faster device that gains nothing, at equal workers, batch and parameters."""
    speeds: dict[tuple[str, str, object], dict[str, Estimate]] = {}
    for name, info in infos.items():
        gpus = info.machine.get("gpus")
        void = {found.cell for found in info.voids}
        for row in info.rows:
            if row.throughput is None or row.cell.today or row.cell in void:
                continue
            device = row.cell.device
            if device not in ("cpu", "unknown") and isinstance(gpus, (list, tuple)) and gpus:
                device = str(gpus[0])
            equal = (row.cell.batch, row.cell.params)
            key = (plural(row.cell.workers, "worker"), row.unit, equal)
            speeds.setdefault(key, {})[f"{device} ({name})"] = row.throughput
    return tuple(
        verdict
        for (workers, unit, _), found in speeds.items()
        for verdict in faster_device_gains_nothing(found, workers, unit)
    )
