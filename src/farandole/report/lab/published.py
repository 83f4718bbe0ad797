"""The lab's own figures: each published table, and its curve beside this machine's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from farandole.model.info.curve import Curve, CurvePoint
from farandole.model.info.scaling import ScalingInfo
from farandole.report.figure import Figure
from farandole.report.lab.charts import lines
from farandole.report.lab.record import LabReport
from farandole.report.series import MOST_SERIES, unlike
from farandole.report.table import Column, Table
from farandole.report.text import known, number, percent, times, whole
from farandole.study.records import Cell

_FROM_ELSEWHERE = MOST_SERIES // 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Beside:
    """One published study, alone and beside what was measured here."""

    name: str
    """Of its file in labs/published/."""
    table: Table
    figure: Figure | None
    """Its curves and those of this machine; None where either has none."""


def beside(report: LabReport) -> tuple[Beside, ...]:
    """Return all published studies in their order."""
    found = []
    for name, info in report.published.items():
        figure = _figure(name, info, _partners(report, name))
        found.append(Beside(name=name, table=table(name, info), figure=figure))
    return tuple(found)


def table(name: str, info: ScalingInfo) -> Table:
    """Return a published study's figures by cell; columns without a figure are left out."""
    metrics = list(dict.fromkeys(row.metric for row in info.metrics))
    columns = [
        Column(key="cell", title="cell", text=True),
        Column(key="workers", title="workers", show=whole),
        Column(key="batch_per_worker", title="batch per worker", show=whole),
        Column(key="job_s", title="job (s)", show=_published),
        Column(key="epoch_s", title="epoch (s)", show=_published),
        Column(key="throughput", title="throughput", show=_published),
        Column(key="unit", title="unit", text=True),
        Column(key="speedup", title="speedup", show=times),
        Column(key="efficiency", title="efficiency", show=percent),
        Column(key="gpu_utilisation", title="GPU in use", show=percent),
        *(Column(key=f"metric_{metric}", title=metric, show=_published) for metric in metrics),
        Column(key="runs", title="runs", show=whole),
        Column(key="note", title="note", text=True),
    ]
    rows = [_row(info, metrics, row.cell, row.label) for row in info.cells]
    kept = [
        index
        for index in range(len(columns))
        if any(row[index] not in (None, "") for row in rows) or index == 0
    ]
    return Table(
        name=f"published-{name}",
        title=f"Published: {info.label or name}",
        columns=tuple(columns[index] for index in kept),
        rows=tuple(tuple(row[index] for index in kept) for row in rows),
    )


def _row(info: ScalingInfo, metrics: Sequence[str], cell: Cell, label: str) -> list[Any]:
    job = next((one for one in info.job_times if one.cell == cell), None)
    use = next((one for one in info.utilisation if one.cell == cell), None)
    own = next(one for one in info.cells if one.cell == cell)
    final = {row.metric: row.final for row in info.metrics if row.cell == cell}
    curve = next((one for one in info.curves if any(p.cell == cell for p in one.points)), None)
    point = None
    if curve is not None and len(_points(curve)) > 1:
        point = next(one for one in curve.points if one.cell == cell)
    # Epochs or jobs per second are this table's times once more.
    throughput = None if own.unit in ("epochs/s", "jobs/s") else _value(own.throughput)
    runs = own.attempts if own.attempts > 1 else None
    return [
        label,
        cell.workers,
        cell.batch,
        _value(job.job_s) if job else None,
        _value(job.epoch_s) if job else None,
        throughput,
        own.unit if throughput is not None else "",
        _value(point.speedup) if point and point.valid else None,
        _value(point.efficiency) if point and point.valid else None,
        use.gpu if use else None,
        *(_value(final.get(metric)) for metric in metrics),
        runs,
        own.failed or own.void_for_speed,
    ]


def _value(estimate: Any) -> float | None:
    return estimate.value if estimate is not None and known(estimate.value) else None


def _published(value: float | None) -> str:
    """Return a figure with the digits that it was published with."""
    return number(value) if value is None or not known(value) else f"{value:.10g}"


def _partners(report: LabReport, name: str) -> dict[str, ScalingInfo]:
    """Return the studies of this machine that belong beside a published one."""
    if name in report.beside:
        return {key: report.studies[key] for key in report.beside[name] if key in report.studies}
    own = name.removeprefix(report.name).strip("_-")
    alike = {key: info for key, info in report.studies.items() if key == own}
    return alike or dict(report.studies)


def _figure(name: str, info: ScalingInfo, here: Mapping[str, ScalingInfo]) -> Figure | None:
    """Draw speedup by workers of both; None where either has no curve."""
    published = _curves({"": info})
    if not published:
        return None
    # Weak and strong scaling in one figure would compare what is not alike.
    scaling = published[0][1].scaling
    published = [pair for pair in published if pair[1].scaling == scaling][:_FROM_ELSEWHERE]
    measured = [pair for pair in _curves(here) if pair[1].scaling == scaling]
    measured = measured[: MOST_SERIES - len(published)]
    if not measured:
        return None
    there = unlike(f"published{': ' if label else ''}{label}" for label, _ in published)
    ours = unlike(f"here{': ' if label else ''}{label}" for label, _ in measured)
    rows = [
        (series, point.workers, point.speedup, point.efficiency)
        for names, curves in ((there, published), (ours, measured))
        for series, (_, curve) in zip(names, curves, strict=True)
        for point in _points(curve)
    ]
    both = Table(
        name=f"beside-{name}",
        title="Speedup by workers: published, and measured here",
        columns=(
            Column(key="series", title="series", text=True),
            Column(key="workers", title="workers", show=whole),
            Column(key="speedup", title="speedup", show=times, interval=True),
            Column(key="efficiency", title="efficiency", show=percent, interval=True),
        ),
        rows=tuple(rows),
    )
    return lines(
        f"beside-{name}",
        f"Speedup: {info.label or name}, published and here",
        "Speedup over the fewest workers of each series. Hollow marks: published, on the lab's "
        "machines, one run each; filled marks: measured here; bars are 95 % intervals.",
        both,
        x="workers",
        y="speedup",
        series="series",
        ideal=all(curve.baseline_workers == 1 for _, curve in (*published, *measured)),
        published=there,
    )


def _curves(infos: Mapping[str, ScalingInfo]) -> list[tuple[str, Curve]]:
    """Return curves that have a speedup at two counts or more, main ones first."""
    found = [
        (", ".join(part for part in (name, curve.label) if part), curve)
        for name, info in infos.items()
        if info.answer.void is None
        for curve in info.curves
        if len(_points(curve)) > 1
    ]
    return sorted(found, key=lambda pair: not pair[1].main)


def _points(curve: Curve) -> list[CurvePoint]:
    return [
        point
        for point in curve.points
        if point.valid and point.speedup is not None and known(point.speedup.value)
    ]
