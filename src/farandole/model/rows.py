"""One row per cell of a study, with everything that is known about the cell."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from farandole.model.accuracy import (
    MetricCurve,
    MetricRow,
    choose_metric,
    collect_metrics,
    metric_curves,
    metric_rows,
)
from farandole.model.communication import (
    Communication,
    Contention,
    communicate,
    measure_contention,
)
from farandole.model.curves import Curve, CurvePoint
from farandole.model.jobs import Cost, JobTime, price
from farandole.model.measured import Measured
from farandole.model.noise import NoiseRow, cell_noise
from farandole.model.split import StepSplit, split_step
from farandole.model.statistics import Estimate
from farandole.model.utilisation import (
    UtilisationRow,
    UtilisationSeries,
    utilisation_series,
    utilise,
)
from farandole.study.records import Cell, Study


@dataclass(frozen=True, slots=True, kw_only=True)
class CellRow:
    """One cell; a part that was not measured is None, or empty."""

    cell: Cell
    label: str
    launches: int
    """That count for speed."""
    attempts: int
    step_s: Estimate | None
    throughput: Estimate | None
    unit: str
    failed: str
    """Why no launch of it ended well; empty when one did."""
    void_for_speed: str
    """E.g. more ranks than cores; empty when its speed counts."""
    gradient_bytes: int | None
    parameters: int | None
    steps_per_epoch: int | None
    measured: Measured
    """Its launches, and which of them count."""
    point: CurvePoint | None = None
    """On the first curve that it is part of."""
    split: StepSplit | None = None
    communication: Communication | None = None
    contention: Contention | None = None
    utilisation: UtilisationRow | None = None
    utilisation_series: tuple[UtilisationSeries, ...] = ()
    job: JobTime | None = None
    metrics: tuple[MetricRow, ...] = ()
    """At the end of training, by name."""
    metric_curves: tuple[MetricCurve, ...] = ()
    cost: Cost | None = None
    noise: NoiseRow | None = None
    """Of 2 workers or more, or of several batches in an update."""

    def metric(self, name: str | None) -> MetricRow | None:
        """Return a metric at the end of training; None when it was not recorded."""
        return next((row for row in self.metrics if row.metric == name), None)


def collect_rows(
    study: Study,
    cells: Sequence[Measured],
    curves: Sequence[Curve],
    jobs: Mapping[Cell, JobTime],
    void: frozenset[Cell],
    price_per_worker_hour: float | None,
    target: tuple[str, float] | None,
) -> tuple[tuple[CellRow, ...], str | None]:
    """Return a row per cell, and the metric that stands for accuracy; the main curve comes first.

    Nothing is derived from the cells in `void`, and nothing is priced without a price.
    """
    metrics = collect_metrics(cells)
    main = choose_metric(metrics, target)
    points = {point.cell: point for curve in reversed(curves) for point in curve.points}
    alone = {one.cell: one for one in study.apart}
    rows = []
    for found in cells:
        cell, unit = found.cell, found.unit
        split, job = split_step(found), jobs.get(cell)
        contention = measure_contention(alone[cell], found) if cell in alone else None
        # Workers that did not train together have nothing to derive from.
        others, shared = ((), None) if cell in void else (cells, contention)
        ranks = [rank for launch in found.ended_well for rank in launch.ranks]
        row = CellRow(
            cell=cell,
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
            measured=found,
            point=points.get(cell),
            split=split,
            communication=communicate(found, others, split, study.link, study.spec, shared),
            contention=contention,
            utilisation=utilise(found),
            utilisation_series=utilisation_series(found),
            job=job,
            metrics=metric_rows(found, cells, metrics, target, job),
            metric_curves=metric_curves(found, metrics),
            noise=None if cell in void else cell_noise(found),
        )
        if price_per_worker_hour is not None:
            row = replace(row, cost=price(found, job, row.metric(main), price_per_worker_hour))
        rows.append(row)
    return tuple(rows), main
