"""All verdicts of a study: every rule, on every cell, curve and metric that it speaks of."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from farandole.format import plural
from farandole.model import training_verdicts as on_training
from farandole.model import verdicts as on_speed
from farandole.model.communication import Communication
from farandole.model.curves import Curve, group_of
from farandole.model.jobs import JobTime
from farandole.model.measured import Measured, common_unit
from farandole.model.metrics import held_out, training_partner
from farandole.model.pace import dataset_size
from farandole.model.rows import CellRow
from farandole.model.split import StepSplit
from farandole.model.statistics import Estimate
from farandole.model.verdicts import Verdict
from farandole.study.records import Cell

_OF_A_KIND = 3
"""Verdicts of one kind that are worth reading; a study of 200 cells would give 200."""
_ORDER = {"void": 0, "warn": 1, "note": 2, "good": 3}


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """What rules look at."""

    cells: Sequence[Measured]
    rows: Mapping[Cell, CellRow]
    curves: Sequence[Curve]
    main_metric: str | None
    cores: float | None
    spec: Mapping[str, object]
    void: frozenset[Cell] = frozenset()


def find_verdicts(found: Findings) -> tuple[Verdict, ...]:
    """Return every verdict, warnings first, each sentence once.

    Cells whose workers did not train together are left out of everything about speed.
    """
    verdicts = [
        *_of_steps(found),
        *_of_curves(found),
        *_of_jobs(found),
        *_of_metrics(found),
        *_of_groups(found),
        *_of_failures(found),
        on_speed.disturbed(
            [
                (cell.label, cell.disturbance)
                for cell in found.cells
                if cell.disturbance is not None and cell.cell not in found.void
            ]
        ),
    ]
    unique = {verdict.sentence: verdict for verdict in verdicts if verdict is not None}
    return tuple(sorted(condense(unique.values()), key=lambda found: _ORDER[found.severity]))


def condense(verdicts: Iterable[Verdict]) -> list[Verdict]:
    """Keep the first few verdicts of a kind, and say how many more there are."""
    by_kind: dict[str, list[Verdict]] = {}
    for verdict in verdicts:
        by_kind.setdefault(verdict.kind, []).append(verdict)
    kept = []
    for alike in by_kind.values():
        *first, last = alike[:_OF_A_KIND]
        more = len(alike) - _OF_A_KIND
        if more > 0:
            last = replace(last, sentence=f"{last.sentence} (And {more} more like this.)")
        kept += [*first, last]
    return kept


def step_verdicts(split: StepSplit, communication: Communication | None) -> list[Verdict | None]:
    """Apply the rules on one cell's step."""
    return [
        on_speed.communication_bound(split, communication),
        on_speed.input_bound(split),
        on_speed.straggler(split),
        on_speed.compute_bound(split),
    ]


def _of_steps(found: Findings) -> list[Verdict | None]:
    verdicts: list[Verdict | None] = []
    # One worker count per group tells it: the largest, where waiting is worst.
    splits = {
        cell: row.split
        for cell, row in found.rows.items()
        if row.split is not None and not cell.today
    }
    largest: dict[object, Measured] = {}
    for cell in found.cells:
        if cell.cell in splits and cell.cell not in found.void:
            largest[(group_of(cell.cell), cell.worker_batch)] = cell
    for cell in largest.values():
        split = splits[cell.cell]
        verdicts += step_verdicts(split, found.rows[cell.cell].communication)
        one = next(
            (
                splits[other.cell]
                for other in found.cells
                if other.cell in splits
                and group_of(other.cell) == group_of(cell.cell)
                and other.worker_batch == cell.worker_batch
                and other.cell.workers < cell.cell.workers
            ),
            None,
        )
        if one is not None:
            verdicts.append(on_speed.contention(one, split))
    for cell in found.cells:
        if not cell.imported and not cell.cell.today:
            verdicts.append(on_speed.oversubscription(cell.cell, cell.label, found.cores))
    return verdicts


def _of_curves(found: Findings) -> list[Verdict | None]:
    verdicts: list[Verdict | None] = []
    by_cell = {cell.cell: cell for cell in found.cells}
    imported = all(cell.imported for cell in found.cells)
    flag = "--seeds" if found.spec.get("measure") == "accuracy" else "--repeats"
    verdicts.append(on_speed.single_launches(found.curves, imported=imported, flag=flag))
    for curve in found.curves:
        verdicts += [
            on_speed.leaves_linear(curve),
            on_speed.more_than_linear(curve),
            on_speed.too_noisy(curve, flag),
        ]
        good = [by_cell[point.cell] for point in curve.points if point.valid]
        for few, many in pairwise(good):
            verdicts.append(
                on_speed.no_gain(
                    few.rates(curve.unit), many.rates(curve.unit), few.label, many.label
                )
            )
    return verdicts


def _of_jobs(found: Findings) -> list[Verdict | None]:
    verdicts: list[Verdict | None] = []
    flat: dict[object, list[JobTime]] = {}
    for cell in found.cells:
        job = found.rows[cell.cell].job
        if job is not None and cell.cell not in found.void:
            verdicts += [on_speed.fixed_cost(job), on_speed.contradicting_times(job)]
            # Where a rate is known, jobs of equal length may have done unequal work.
            if not any(set(pace.rates) - {"jobs/s"} for pace in cell.paces):
                key = (cell.cell.params, cell.cell.transport, cell.batch)
                flat.setdefault(key, []).append(job)
        used = found.rows[cell.cell].utilisation
        # Beside other programs utilisation is uneven by chance.
        if used is not None and cell.paces:
            verdicts += [on_speed.uneven_utilisation(used), on_speed.uneven_memory(used)]
        sizes = [size for one in cell.launches if (size := dataset_size(one, found.spec))]
        if sizes and not cell.cell.today:
            verdicts.append(
                on_speed.data_too_small(sizes[0], cell.global_batch, cell.cell.workers, cell.label)
            )
    verdicts += [on_speed.flat_jobs(jobs) for jobs in flat.values()]
    return verdicts


def _of_metrics(found: Findings) -> list[Verdict | None]:
    verdicts: list[Verdict | None] = []
    every = [one for row in found.rows.values() for one in row.metrics]
    names = {one.metric for one in every}
    for one in every:
        row = found.rows[one.cell]
        curve = next((curve for curve in row.metric_curves if curve.metric == one.metric), None)
        verdicts.append(on_training.diverged(one))
        if one.metric == found.main_metric:
            verdicts += [
                on_training.changed(one),
                on_training.seeds_without_effect(one),
            ]
            if curve is not None:
                verdicts.append(
                    on_training.instability(curve, higher=one.higher_is_better, margin=one.margin)
                )
        if held_out(one.metric):
            training = row.metric(training_partner(one.metric, names))
            if training is not None:
                verdicts.append(on_training.overfitting(one, training, curve))
    main = [one for one in every if one.metric == found.main_metric]
    verdicts.append(on_training.soonest(main))
    if found.main_metric is not None:
        trained = [
            cell
            for cell in found.cells
            if any(
                one.outcome == "ok" and one.purpose in ("accuracy", "imported")
                for one in cell.launches
            )
        ]
        known = {row.cell for row in main}
        verdicts.append(
            on_training.missing(
                found.main_metric,
                having=[cell.label for cell in trained if cell.cell in known],
                lacking=[cell.label for cell in trained if cell.cell not in known],
            )
        )
    return verdicts


def _of_groups(found: Findings) -> list[Verdict | None]:
    verdicts: list[Verdict | None] = []
    counted = [
        cell
        for cell in found.cells
        if cell.paces and not cell.cell.today and cell.cell not in found.void
    ]
    unit = common_unit(counted)
    by_device: dict[object, dict[str, Estimate]] = {}
    words: dict[object, str] = {}
    for cell in counted:
        key = (cell.cell.workers, cell.batch, cell.cell.params)
        speed = cell.throughput(unit)
        if speed is not None:
            by_device.setdefault(key, {})[cell.cell.device] = speed
            others = [f"{name}={value}" for name, value in cell.cell.params]
            words[key] = ", ".join([plural(cell.cell.workers, "worker"), *others])
    for setting, speeds in by_device.items():
        verdicts.append(on_speed.faster_device_gains_nothing(speeds, words[setting], unit))
    for factor in dict.fromkeys(name for cell in counted for name, _ in cell.cell.params):
        settings: dict[str, dict[str, Estimate]] = {}
        for cell in counted:
            params = dict(cell.cell.params)
            speed = cell.throughput(unit)
            value = params.pop(factor, None)
            if value is None or speed is None:
                continue
            where = [cell.cell.device, plural(cell.cell.workers, "worker")]
            where += [] if cell.batch is None else [f"batch {cell.batch}"]
            where += [f"{name}={other}" for name, other in params.items()]
            settings.setdefault(", ".join(where), {})[value] = speed
        if any(len(found) > 1 for found in settings.values()):
            verdicts.append(on_speed.order_reverses(settings, factor, unit))
    return verdicts


def _of_failures(found: Findings) -> list[Verdict | None]:
    return [
        Verdict(
            kind="cell_failed",
            severity="warn",
            sentence=f"{cell.label}: no launch ended well ({cell.failed}).",
            action=""
            if cell.imported
            else f"Its last output is in launches/{cell.launches[-1].id}/output.txt.",
            evidence={"launches": float(len(cell.launches)), "reason": cell.failed},
            labels=(cell.label,),
        )
        for cell in found.cells
        if cell.failed
    ]
