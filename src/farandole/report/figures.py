"""The figures of a study, each drawn from the table that stands under it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, Protocol, TypeVar

from farandole.format import (
    brief,
    known,
    number,
    percent,
    plural,
    rate,
    seconds,
    size,
    times,
    whole,
)
from farandole.model.accuracy import MetricRow
from farandole.model.analyse import ScalingInfo
from farandole.model.compare import Comparison
from farandole.model.curves import Curve, CurvePoint
from farandole.model.jobs import JobTime
from farandole.model.statistics import Estimate
from farandole.model.utilisation import UtilisationSeries
from farandole.report import charts
from farandole.report.charts import MOST_SERIES, doubling, left_out
from farandole.report.document import Figure, unlike
from farandole.report.table import Column, Table, tabulate
from farandole.study.records import BYTE_KINDS, Cell

MOST_CELLS = 16
_MOST_METRICS = 3
_MOST_PANELS = 4
_MOST_RANKS = 8

NAME = Column(key="cell", title="cell", text=True, get="name")
"""The name of a cell, of `Named` rows."""
WORKERS = Column(key="workers", title="workers", show=whole)
SPEEDUP = Column(key="speedup", title="speedup", show=times, interval=True)

_TWO_COUNTS = "Study at least two worker counts: farandole study -np 1,2 -- COMMAND"
_ACCURACY = (
    "Measure accuracy, too: farandole study --measure both -- COMMAND, with "
    "farandole.record(epoch=..., val_accuracy=...) in the script."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Missing:
    """A figure that has no data, and what would give them."""

    title: str
    hint: str


class Labelled(Protocol):
    """Whatever has a name for people."""

    @property
    def label(self) -> str: ...


class OfCell(Protocol):
    """Whatever was measured of one cell."""

    @property
    def cell(self) -> Cell: ...


T = TypeVar("T")
L = TypeVar("L", bound=Labelled)
C = TypeVar("C", bound=OfCell)


@dataclass(frozen=True, slots=True, kw_only=True)
class Named(Generic[T]):
    """One thing to draw or tabulate, with the name that the reader sees."""

    name: str
    item: T
    info: ScalingInfo


def item(key: str, title: str, show: Any = number, *, path: str = "", **how: Any) -> Column:
    """Return a column of `Named` rows: an attribute of the item, called like the key."""
    return Column(key=key, title=title, show=show, get=f"item.{path or key}", **how)


def studies(found: ScalingInfo | Comparison) -> tuple[ScalingInfo, ...]:
    """Return the studies of a report, under labels that differ."""
    if isinstance(found, ScalingInfo):
        return (found,)
    labels = unlike([info.label or "study" for info in found.infos])
    return tuple(
        replace(info, label=label) for info, label in zip(found.infos, labels, strict=True)
    )


def labelled(
    infos: Sequence[ScalingInfo], items: Callable[[ScalingInfo], Sequence[L]]
) -> list[Named[L]]:
    """Return items of all studies, each under its own label and, if there are several, theirs."""
    pairs = [(info, one) for info in infos for one in items(info)]
    return [
        Named(name=prefixed(infos, info, one.label), item=one, info=info) for info, one in pairs
    ]


def prefixed(infos: Sequence[ScalingInfo], info: ScalingInfo, label: str) -> str:
    """Return a label with its study's before it where there are several studies."""
    return f"{info.label}: {label}" if len(infos) > 1 else label


def several_hosts(points: Iterable[CurvePoint]) -> bool:
    """Say whether points are on more than one host, so that each says where it is."""
    return any(point.cell.hosts > 1 for point in points)


def sections(infos: Sequence[ScalingInfo]) -> list[tuple[str, list[Figure | Missing]]]:
    """Return all figures of a report by section."""
    metric = main_metric(infos)
    planned: list[tuple[str, list[Figure | Missing]]] = [
        ("Speed", [throughput(infos), speedup(infos), efficiency(infos)]),
        ("Where the time goes", [step_split(infos), job_times(infos)]),
        ("Communication", [bandwidth(infos), bytes_by_kind(infos)]),
        ("Use of the machine", [utilisation(infos), calibration(infos)]),
        ("Batches and splits", [batch_sweep(infos), split_heat_map(infos)]),
        (
            "Accuracy",
            [
                metric_by(infos, metric, "Accuracy by epoch", "accuracy-by-epoch"),
                metric_by(infos, metric, "Accuracy by time", "accuracy-by-time", timed=True),
                metric_at_end(infos),
                stability(infos),
                *_further_metrics(infos),
            ],
        ),
    ]
    launches = [launch for info in infos for launch in info.launches]
    if launches and not any(launch.kept for launch in launches):
        # What each figure would need otherwise is not what is missing here.
        hint = "No launch counts for speed; the first lines say why."
        for title, parts in planned:
            if title not in ("Use of the machine", "Accuracy"):
                parts[:] = [
                    replace(one, hint=hint) if isinstance(one, Missing) else one for one in parts
                ]
    return planned


def throughput(infos: Sequence[ScalingInfo]) -> Figure | Missing:
    """Draw throughput against workers, beside what each curve's first point promises."""
    found = _curves(infos, "throughput")
    if not found:
        return Missing(title="Throughput", hint=_void_or(infos, _TWO_COUNTS))
    unit = found[0].item.unit
    key = _throughput_key(unit)
    today = [
        info.today.throughput.value
        for info in infos
        if info.today is not None and info.today.unit == unit and len(infos) == 1
    ]
    table = _curve_table(
        "throughput",
        f"Throughput by workers ({unit}), 95 % intervals",
        found,
        Column(key="batch_per_worker", title="batch per worker", show=whole, get="batch"),
        Column(key="global_batch", title="global batch", show=whole),
        Column(key=key, title=unit, interval=True, get="throughput"),
        Column(key=f"ideal_{key}", title="ideal", get="ideal_throughput"),
    )
    return _against_workers(
        "throughput",
        "Throughput",
        f"Throughput in {unit}; bars are 95 % intervals over launches, dashed: the first count's "
        "throughput times the workers"
        + ("; dotted: one process with all cores, what you have today." if today else "."),
        table,
        found,
        y=key,
        y_title=f"throughput ({unit})",
        ideal=f"ideal_{key}",
        level=(today[0], "today") if today else None,
    )


def speedup(infos: Sequence[ScalingInfo]) -> Figure | Missing:
    """Draw speedup against workers, beside ideal."""
    found = _curves(infos, "speedup")
    if not found:
        return Missing(title="Speedup", hint=_void_or(infos, _TWO_COUNTS))
    table = _curve_table(
        "speedup",
        "Speedup by workers, 95 % intervals",
        found,
        Column(key="batch_per_worker", title="batch per worker", show=whole, get="batch"),
        SPEEDUP,
        Column(key="ideal_speedup", title="ideal", show=times),
    )
    return _against_workers(
        "speedup",
        "Speedup",
        "Speedup over the smallest worker count, same threads per worker; bars are 95 % "
        f"intervals (Welch's t over launches), dashed: ideal. {found[0].item.sentence}",
        table,
        found,
        y="speedup",
        ideal="ideal_speedup",
        log=2,
    )


def efficiency(infos: Sequence[ScalingInfo]) -> Figure | Missing:
    """Draw efficiency against workers."""
    found = _curves(infos, "efficiency")
    if not found:
        return Missing(title="Efficiency", hint=_void_or(infos, _TWO_COUNTS))
    table = _curve_table(
        "efficiency",
        "Efficiency by workers, 95 % intervals",
        found,
        Column(key="batch_per_worker", title="batch per worker", show=whole, get="batch"),
        Column(key="efficiency", title="efficiency", show=percent, interval=True),
    )
    return _against_workers(
        "efficiency",
        "Efficiency",
        "Efficiency: speedup over workers. 100 % means that no worker's time is lost.",
        table,
        found,
        y="efficiency",
        log=False,
        level=(1.0, "ideal"),
    )


def scaling(infos: Sequence[ScalingInfo]) -> Figure | None:
    """Draw the figure to paste into a report: small, few words, readable in grey."""
    found = _curves(infos, "speedup")
    if not found:
        return None
    main = [named for named in found if named.item.main] or found[:1]
    unit = found[0].item.unit
    table = _curve_table(
        "scaling",
        "Speedup and efficiency by workers, 95 % intervals",
        found,
        Column(key="batch_per_worker", title="batch per worker", show=whole, get="batch"),
        Column(key="global_batch", title="global batch", show=whole),
        Column(key=_throughput_key(unit), title=unit, interval=True, get="throughput"),
        SPEEDUP,
        Column(key="efficiency", title="efficiency", show=percent, interval=True),
        Column(key="ideal_speedup", title="ideal", show=times),
    )
    figure = _against_workers(
        "scaling",
        "Scaling",
        "Speedup against the number of workers; bars are 95 % intervals over launches, dashed: "
        "ideal.",
        table,
        main[:3],
        y="speedup",
        ideal="ideal_speedup",
        log=2,
        height=200,
        room=30,
    )
    return replace(figure, table=table.without({"ideal_speedup"}))


def step_split(infos: Sequence[ScalingInfo]) -> Figure | Missing:
    """Draw where a typical step of each cell goes."""
    words = {
        "data": "data wait",
        "compute": "compute",
        "transfer": "communication",
        "waiting": "waiting for peers",
        "optimizer": "optimizer",
    }
    found = [
        named
        for named in labelled(infos, lambda info: info.each("split"))
        if any(known(value) and value for value in named.item.parts().values())
    ]
    if not found:
        return Missing(
            title="Where a step goes",
            hint="Needs recorded steps: farandole study records them for scripts that train with "
            "farandole.torch, Keras, DDP, Accelerate or Lightning.",
        )

    def part(key: str) -> Callable[[Any], Any]:
        return lambda named: named.item.parts()[key]

    table = tabulate(
        "step-split",
        "Where a typical step goes: medians, on the rank that took longest",
        found,
        (
            NAME,
            item("step_s", "step", seconds),
            *(
                Column(key=f"{key}_s", title=word, show=seconds, get=part(key))
                for key, word in words.items()
            ),
            item("hidden_communication_s", "hidden communication", seconds, path="hidden_s"),
            item("slowest_rank", "slowest rank", whole),
            item("slowest_share", "in steps", percent),
        ),
    )
    return _stacked(
        "step-split",
        "Where a step goes",
        "A typical step by its parts. Communication is what training waited for; what ran beside "
        "computing is in the table as hidden.",
        table,
        found,
        parts=[f"{key}_s" for key in words],
        weights=["compute_s", "transfer_s", "data_s", "waiting_s", "optimizer_s"],
        axis="time per step",
    )


def job_times(infos: Sequence[ScalingInfo]) -> Figure | Missing:
    """Draw where a whole job's time goes."""
    found = labelled(infos, lambda info: info.each("job"))
    drawable = [
        named
        for named in found
        if any(
            known(value) and value
            for value in (named.item.startup_s, named.item.between_s, _epochs_s(named.item))
        )
    ]
    if not drawable:
        return Missing(
            title="Job time",
            hint="Needs one launch per worker count that runs a whole epoch: leave out --steps.",
        )
    measured = {True: "measured", False: "from steps"}
    table = tabulate(
        "job-time",
        "Job, epoch and fixed time",
        found,
        (
            NAME,
            item("job_s", "job", seconds, interval=True),
            item("epochs", "epochs", brief),
            item("epoch_s", "epoch", seconds, interval=True),
            Column(
                key="epoch_measured",
                title="epoch is",
                text=True,
                get=lambda named: measured[named.item.epoch_measured],
            ),
            item("steps_per_epoch", "steps per epoch", whole),
            item("startup_s", "start-up", seconds),
            Column(
                key="epochs_s",
                title="all epochs",
                show=seconds,
                get=lambda named: _epochs_s(named.item),
            ),
            item("between_s", "between epochs", seconds),
            item("fixed_s", "fixed", seconds),
            item("fixed_share", "fixed share", percent),
        ),
    )
    return _stacked(
        "job-time",
        "Job time",
        "Where a whole job's time goes: start-up until the first step, passes over the training "
        "data, and what lies between and after them (validation, checkpoints).",
        table,
        drawable,
        parts=["startup_s", "epochs_s", "between_s"],
        weights=["epochs_s", "between_s", "startup_s"],
        axis="time",
    )


def bytes_by_kind(infos: Sequence[ScalingInfo]) -> Figure | Missing:
    """Draw what crosses between the workers in a step, by kind."""
    found = [
        named
        for named in labelled(infos, lambda info: info.each("communication"))
        if sum(named.item.bytes_by_kind.values()) > 0
    ]
    if not found:
        return Missing(
            title="Bytes by kind",
            hint="Needs at least two workers whose communication Farandole or DDP carries.",
        )
    kinds = list(BYTE_KINDS)
    kinds += sorted({kind for named in found for kind in named.item.bytes_by_kind} - set(kinds))
    present = [kind for kind in kinds if any(named.item.bytes_by_kind.get(kind) for named in found)]

    def payload(kind: str) -> Callable[[Any], Any]:
        return lambda named: named.item.bytes_by_kind.get(kind)

    def total(named: Named[Any]) -> float | None:
        return sum(named.item.total_bytes_by_kind.values()) or None

    keys = {kind: f"{kind}_bytes_per_step" for kind in present}
    table = tabulate(
        "bytes",
        "Payload per step over all workers, by kind",
        found,
        (
            NAME,
            *(Column(key=keys[kind], title=kind, show=size, get=payload(kind)) for kind in present),
            item("gradient_bytes_per_rank", "gradients per worker", size, path="gradient_bytes"),
            Column(key="total_bytes", title="whole launch", show=size, get=total),
        ),
    )
    return _stacked(
        "bytes",
        "Bytes by kind",
        "Payload per step over all workers, by kind, before the transport multiplies it by "
        "2(N-1)/N.",
        table,
        found,
        parts=list(keys.values()),
        axis="payload per step",
    )


def bandwidth(infos: Sequence[ScalingInfo]) -> Figure | Missing:
    """Draw the bus bandwidth that the gradients of each cell reached."""
    found = labelled(infos, lambda info: info.each("communication"))
    drawable = [
        named
        for named in found
        if known(named.item.bus_bytes_per_s) or known(named.item.derived_bus_bytes_per_s)
    ]
    if not drawable:
        return Missing(
            title="Bandwidth",
            hint="Needs at least two workers and gradients whose communication was measured.",
        )
    table = tabulate(
        "bandwidth",
        "Communication per step, measured and derived",
        found,
        (
            NAME,
            item("workers", "workers", whole, path="cell.workers"),
            item("gradient_bytes", "gradients per worker", size),
            item("measured_s", "communication", seconds),
            item("exposed_s", "training waited", seconds),
            item("derived_s", "T(N) - T(1)", seconds),
            item("contention_s", "of it contention", seconds),
            item("derived_epoch_s", "per epoch, derived", seconds),
            item("bus_bytes_per_s", "measured", rate),
            item("derived_bus_bytes_per_s", "derived", rate),
            item("peak_bytes_per_s", "peak of the link", rate),
            item("of_peak", "of the peak", percent, path="utilisation"),
        ),
    )
    drawn = _foremost(drawable, MOST_CELLS)
    return charts.bars(
        "bandwidth",
        "Bandwidth",
        "Bus bandwidth of the gradients' all-reduce, 2(N-1)/N x bytes / time. Derived: from "
        "T(N) - T(1), as without a recorder. Contention, in the table: what N copies of the "
        "script that send nothing take longer at once than one alone.",
        table,
        x="cell",
        y=("bus_bytes_per_s", "derived_bus_bytes_per_s", "peak_bytes_per_s"),
        y_title="bus bandwidth",
        draw={named.name for named in drawn},
        nouns="figures",
        alt_text="Bus bandwidth by cell: measured, derived and the link's peak.",
    )


def calibration(infos: Sequence[ScalingInfo]) -> Figure | Missing:
    """Draw what all-reduces of a short calibration reached, by size."""
    points = [
        Named(
            name=prefixed(infos, info, plural(point.workers, "worker")),
            item=point,
            info=info,
        )
        for info in infos
        for point in sorted(info.link, key=lambda point: (point.workers, point.bytes))
        if known(point.bus_bytes_per_s)
    ]
    if not points:
        return Missing(
            title="Calibration of the link",
            hint="A study calibrates the link once when it has at least two workers.",
        )
    table = tabulate(
        "calibration",
        "All-reduces of the calibration, medians",
        points,
        (
            Column(key="series", title="series", text=True, get="name"),
            item("bytes", "bytes", size),
            item("time_s", "time", seconds, path="seconds"),
            item("bus_bytes_per_s", "bus bandwidth", rate),
            item("of_peak", "of the peak", percent, path="utilisation"),
        ),
    )
    return charts.lines(
        "calibration",
        "Calibration of the link",
        "Bus bandwidth of single all-reduces by size, measured apart from training.",
        table,
        x="bytes",
        y="bus_bytes_per_s",
        series="series",
        x_title="size of the all-reduce",
        nouns="series",
        alt_text="Bus bandwidth against the size of an all-reduce.",
    )


def batch_sweep(infos: Sequence[ScalingInfo]) -> Figure | Missing:
    """Draw throughput against batch; batches that failed stand at the bottom."""
    found = [
        named
        for named in labelled(infos, lambda info: info.batch_sweeps)
        if any(point.throughput and known(point.throughput.value) for point in named.item.points)
    ]
    found = [named for named in found if named.item.unit == found[0].item.unit]
    if not found:
        return Missing(
            title="Batch sweep",
            hint="Study several batches: farandole study -L batch=32,64,128 -- COMMAND "
            "--batch-size '{batch}'",
        )
    names = unlike([named.name for named in found])
    rows = [
        (name, named.item, point)
        for name, named in zip(names, found, strict=True)
        for point in named.item.points
    ]
    table = tabulate(
        "batch-sweep",
        "Throughput by batch",
        rows,
        (
            Column(key="sweep", title="sweep", text=True, get=lambda row: row[0]),
            Column(key="workers", title="workers", show=whole, get=lambda row: row[1].workers),
            Column(key="batch_per_worker", title="batch", show=whole, get=lambda row: row[2].batch),
            Column(
                key="throughput",
                title=found[0].item.unit,
                interval=True,
                get=lambda row: row[2].throughput,
            ),
            Column(
                key="step_s",
                title="step",
                show=seconds,
                interval=True,
                get=lambda row: row[2].step_s,
            ),
            Column(key="cpu", title="CPU", show=percent, get=lambda row: row[2].cpu),
            Column(key="gpu", title="GPU", show=percent, get=lambda row: row[2].gpu),
            Column(
                key="note",
                title="note",
                text=True,
                get=lambda row: row[2].failed or ("best" if row[2].batch == row[1].best else ""),
            ),
        ),
    )
    failed = any(point.failed for named in found for point in named.item.points)
    return charts.lines(
        "batch-sweep",
        "Batch sweep",
        " ".join(named.item.sentence for named in found[:2] if named.item.sentence)
        + (" A cross marks a batch that failed." if failed else ""),
        table,
        x="batch_per_worker",
        y="throughput",
        series="sweep",
        x_title="batch per worker",
        y_title=f"throughput ({found[0].item.unit})",
        note="note",
        nouns="sweeps",
        alt_text="Throughput against batch per worker.",
    )


def split_heat_map(infos: Sequence[ScalingInfo]) -> Figure | Missing:
    """Draw throughput by processes and threads as a heat map."""
    found = [
        named
        for named in labelled(infos, lambda info: info.split_tables)
        if any(known(point.throughput.value) for point in named.item.points)
    ]
    if not found:
        return Missing(
            title="Processes x threads",
            hint="Study the splits of the cores: farandole study --split all -- COMMAND",
        )
    first = found[0].item
    table = split_table(found)
    drawn = replace(table, rows=table.rows[: len(first.points)])
    return Figure(
        name="processes-threads",
        title="Processes x threads",
        caption=f"Throughput ({first.unit}); the frame marks the best split. "
        + first.sentence
        + left_out(1, len(found), "groups"),
        spec=charts.heat_map(drawn, x="threads", y="processes", value="throughput", note="note"),
        table=table,
        alt="Heat map of throughput by processes and threads per process.",
    )


def split_table(found: Sequence[Named[Any]]) -> Table:
    """Return throughput by processes and threads of every group."""

    def note(row: Any) -> str:
        group, point = row
        best = group.item.best == (point.workers, point.threads)
        return ", ".join(["best"] * best + ["today"] * point.today)

    return tabulate(
        "processes-threads",
        "Throughput by processes x threads",
        [(named, point) for named in found for point in named.item.points],
        (
            Column(key="group", title="group", text=True, get=lambda row: row[0].name),
            Column(key="processes", title="processes", show=whole, get=lambda row: row[1].workers),
            Column(
                key="threads",
                title="threads per process",
                show=whole,
                get=lambda row: row[1].threads,
            ),
            Column(
                key="throughput",
                title=found[0].item.unit,
                interval=True,
                get=lambda row: row[1].throughput,
            ),
            Column(key="note", title="note", text=True, get=note),
        ),
    )


def utilisation(infos: Sequence[ScalingInfo]) -> Figure | Missing:
    """Draw each worker's utilisation over time, one panel per cell; the GPU's if there is one."""
    every = labelled(infos, lambda info: info.each("utilisation_series"))
    cells = {named.name: named for named in reversed(every)}
    names = list(dict.fromkeys(named.name for named in every))
    shown = [named.name for named in _foremost([cells[name] for name in names], _MOST_PANELS)]
    gpu = any(known(value) for named in every for value in named.item.gpu)
    rows = [
        {
            "name": panel,
            "order": order,
            "rank": str(series.rank),
            "x": time_s,
            "y": share,
            "time": seconds(time_s),
            "text": percent(share),
            "memory": size(memory),
        }
        for order, panel in enumerate(shown)
        for series in _longest_launch([n.item for n in every if n.name == panel])
        for time_s, cpu, gpu_share, memory in _points_of(series)
        if known(share := gpu_share if gpu else cpu)
    ]
    if not rows:
        return Missing(
            title="Utilisation over time",
            hint="Needs launches of more than a few seconds; imported tables have none.",
        )
    what = "GPU busy" if gpu else "CPU busy"
    whose = "each worker's GPU was busy" if gpu else "each worker's threads were busy"
    return Figure(
        name="utilisation",
        title="Utilisation over time",
        caption=f"Share of time that {whose}, in one launch per cell."
        + left_out(len(shown), len(names), "cells"),
        spec=charts.panels(rows, y_title=what),
        table=_utilisation_means(labelled(infos, lambda info: info.each("utilisation"))),
        alt=f"{what} of each worker over time, one panel per cell.",
    )


def utilisation_over_time(infos: Sequence[ScalingInfo]) -> Table:
    """Return every point of every worker, for files only: it is long."""
    return Table(
        name="utilisation-over-time",
        title="Utilisation over time",
        columns=(
            NAME,
            Column(key="launch", title="launch", text=True),
            Column(key="rank", title="rank", show=whole),
            Column(key="time_s", title="time", show=seconds),
            Column(key="cpu", title="CPU", show=percent),
            Column(key="gpu", title="GPU", show=percent),
            Column(key="memory_bytes", title="memory", show=size),
        ),
        rows=tuple(
            (named.name, named.item.launch, named.item.rank, *values)
            for named in labelled(infos, lambda info: info.each("utilisation_series"))
            for values in _points_of(named.item)
        ),
    )


def main_metric(infos: Sequence[ScalingInfo]) -> str | None:
    """Return the metric that the studies' answers speak of."""
    return next((info.main_metric for info in infos if info.main_metric is not None), None)


def metric_by(
    infos: Sequence[ScalingInfo],
    metric: str | None,
    missing: str,
    name: str,
    *,
    timed: bool = False,
) -> Figure | Missing:
    """Draw a metric by epoch, or by the time since the launch began."""
    found = [
        named
        for named in labelled(infos, lambda info: info.each("metric_curves"))
        if named.item.metric == metric
        and any(
            known(point.value.value) and (known(point.time_s) or not timed)
            for point in named.item.points
        )
    ]
    if metric is None or not found:
        return Missing(title=missing, hint=_ACCURACY)
    names = unlike([named.name for named in found])
    table = Table(
        name=name,
        title=f"{metric} during training",
        columns=(
            NAME,
            Column(key="epoch", title="epoch", show=brief),
            Column(key="time_s", title="time", show=seconds),
            Column(key="value", title=metric, interval=True),
            Column(key="seeds", title="seeds", show=whole),
        ),
        rows=tuple(
            (series, point.epoch, point.time_s, point.value, point.seeds)
            for series, named in zip(names, found, strict=True)
            for point in named.item.points
        ),
    )
    kept = _foremost(found, MOST_SERIES)
    drawn = {series for series, named in zip(names, found, strict=True) if named in kept}
    return charts.lines(
        name,
        f"{metric} by {'time' if timed else 'epoch'}",
        "Mean over seeds; bars are 95 % intervals.",
        table,
        x="time_s" if timed else "epoch",
        y="value",
        series="cell",
        x_title="seconds since the launch began" if timed else "epoch",
        x_log=False,
        zero=False,
        draw=drawn,
        nouns="cells",
        alt_text="A metric during training, one line per cell.",
    )


def _further_metrics(infos: Sequence[ScalingInfo]) -> list[Figure | Missing]:
    """Draw further metrics by epoch: training accuracy, losses."""
    main = main_metric(infos)
    names = dict.fromkeys(
        curve.metric
        for info in infos
        for curve in info.each("metric_curves")
        if curve.metric != main
    )
    figures = [
        metric_by(infos, metric, "", f"metric-{number}-by-epoch")
        for number, metric in enumerate(list(names)[:_MOST_METRICS], start=2)
    ]
    return [figure for figure in figures if isinstance(figure, Figure)]


def metric_at_end(infos: Sequence[ScalingInfo]) -> Figure | Missing:
    """Draw the main metric at the end of training, by cell."""
    metric = main_metric(infos)
    found = [
        named
        for named in labelled(infos, lambda info: info.each("metrics"))
        if named.item.metric == metric and named.item.final and known(named.item.final.value)
    ]
    if metric is None or not found:
        return Missing(title="Accuracy at the end", hint=_ACCURACY)
    drawn = _foremost(found, MOST_CELLS)
    table = metric_table(infos)
    at = table.index("metric")
    figure = charts.bars(
        "accuracy-at-end",
        f"{metric} at the end",
        "Mean over seeds of the last value; bars are 95 % intervals. The word says how it compares "
        "with the fewest workers.",
        replace(table, rows=tuple(row for row in table.rows if row[at] == metric)),
        x="cell",
        y="final",
        y_title=metric,
        zero=False,
        label="verdict",
        draw={named.name for named in drawn},
        nouns="cells",
        alt_text="The main metric at the end of training, by cell.",
    )
    return replace(figure, table=table)


def metric_table(infos: Sequence[ScalingInfo]) -> Table:
    """Return every metric at the end of training, compared with the fewest workers."""
    return tabulate(
        "metrics",
        "Metrics at the end of training",
        labelled(infos, lambda info: info.each("metrics")),
        (
            NAME,
            item("metric", "metric", text=True),
            item("final", "at the end", interval=True),
            item("difference", "difference", interval=True),
            item("margin", 'margin of "same"', brief),
            Column(
                key="verdict", title="verdict", text=True, get=lambda named: _verdict(named.item)
            ),
            item("seeds", "seeds", whole),
            item("diverged", "diverged", whole),
            item("target", "target", brief),
            item("target_epoch", "epochs to target", brief),
            item("target_s", "time to target", seconds),
        ),
    )


def stability(infos: Sequence[ScalingInfo]) -> Figure | Missing:
    """Draw the epochs until the main metric was stable."""
    metric = main_metric(infos)
    found = [
        named
        for named in labelled(infos, lambda info: info.each("metrics"))
        if named.item.metric == metric
    ]
    there = [named for named in found if known(named.item.stable_epoch)]
    if metric is None or not there:
        return Missing(title="Epochs to stability", hint=_ACCURACY)
    table = tabulate(
        "epochs-to-stability",
        "Epochs and time to stability, medians over seeds",
        found,
        (
            NAME,
            item("stable_epoch", "epochs to stability", brief),
            item("stable_s", "time to stability", seconds),
            item("seeds", "seeds", whole),
            item("never_stable", "never stable", whole, path="censored"),
        ),
    )
    return charts.bars(
        "epochs-to-stability",
        f"Epochs to stable {metric}",
        "Median over seeds of the first epoch from which on the metric stays within its noise.",
        table,
        x="cell",
        y="stable_epoch",
        y_title="epochs",
        draw={named.name for named in _foremost(there, MOST_CELLS)},
        nouns="cells",
        alt_text="Epochs until the main metric was stable, by cell.",
    )


def _curves(infos: Sequence[ScalingInfo], quantity: str) -> list[Named[Curve]]:
    """Return curves of the main one's unit with at least two counts of a quantity.

    The main curves come first; void studies have none.
    """
    found = [(info, curve) for info in infos if not info.answer.void for curve in info.curves]
    alike = [(info, curve) for info, curve in found if curve.unit == found[0][1].unit]
    alike.sort(key=lambda pair: not pair[1].main)
    both = len({curve.scaling for _, curve in alike}) > 1
    names = [
        ", ".join(
            part
            for part in (
                info.label if len(infos) > 1 else "",
                f"{curve.scaling} scaling" if both else "",
                curve.label,
            )
            if part
        )
        or "measured"
        for info, curve in alike
    ]
    named = [
        Named(name=name, item=curve, info=info)
        for name, (info, curve) in zip(unlike(names), alike, strict=True)
    ]
    return [one for one in named if sum(_drawable(p, quantity) for p in one.item.points) > 1]


def _drawable(point: CurvePoint, quantity: str) -> bool:
    """Say whether a quantity of a point may be drawn: a speed above zero that counts."""
    estimate = getattr(point, quantity)
    return bool(point.valid and estimate and known(estimate.value) and estimate.value > 0)


def _curve_table(name: str, title: str, found: Sequence[Named[Curve]], *columns: Column) -> Table:
    """Return one row per point; a point whose speed does not count has no figures of speed."""
    points = [(named, point) for named in found for point in named.item.points]
    placed = several_hosts(point for _, point in points)
    head = [
        *([Column(key="series", title="series", text=True)] if len(found) > 1 else []),
        WORKERS,
        *([Column(key="placement", title="hosts x workers", text=True)] if placed else []),
    ]
    tail = [
        Column(key="launches", title="launches", show=whole),
        *(
            [Column(key="counts", title="counts", text=True)]
            if any(not point.valid for _, point in points)
            else []
        ),
    ]
    rows = []
    for named, point in points:
        cells = [column.cell(point) for column in columns]
        if not point.valid:
            cells = [None if isinstance(cell, Estimate | float) else cell for cell in cells]
        extra = {
            "series": named.name,
            "workers": point.workers,
            "placement": point.cell.placement,
            "launches": point.launches,
            "counts": point.why or "yes",
        }
        rows.append(
            (
                *(extra[column.key] for column in head),
                *cells,
                *(extra[column.key] for column in tail),
            )
        )
    return Table(name=name, title=title, columns=(*head, *columns, *tail), rows=tuple(rows))


def _against_workers(
    name: str,
    title: str,
    caption: str,
    table: Table,
    found: Sequence[Named[Curve]],
    *,
    y: str,
    log: bool | int = True,
    **how: Any,
) -> Figure:
    """Draw a column of a curve table, logarithmic where counts double."""
    counts = [row[table.index("workers")] for row in table.rows]
    several = any(column.key == "series" for column in table.columns)
    return charts.lines(
        *(name, title, caption, table),
        x="workers",
        y=y,
        series="series" if several else None,
        log=log if doubling(counts) else False,
        draw=[named.name for named in found] if several else None,
        nouns="curves",
        alt_text=f"{title} against workers, with intervals and ideal.",
        **how,
    )


def _stacked(
    name: str,
    title: str,
    caption: str,
    table: Table,
    found: Sequence[Named[Any]],
    *,
    parts: Sequence[str],
    axis: str,
    weights: Sequence[str] | None = None,
) -> Figure:
    drawn = _foremost(found, MOST_CELLS)
    return Figure(
        name=name,
        title=title,
        caption=caption + left_out(len(drawn), len(table.rows), "cells"),
        spec=charts.stacked(
            table,
            category="cell",
            parts=parts,
            title=axis,
            weights=weights,
            draw={named.name for named in drawn},
        ),
        table=table,
        alt=f"Stacked bars: {axis} by part, one bar per cell.",
        wide=len(drawn) > 6,
    )


def _foremost(items: Sequence[Named[C]], limit: int) -> list[Named[C]]:
    """Return as many as can be drawn, those of cells on main curves before all others."""

    def beside(named: Named[C]) -> bool:
        main = [curve for curve in named.info.curves if curve.main]
        return named.item.cell not in {point.cell for curve in main for point in curve.points}

    kept = sorted(items, key=beside)[:limit]
    return [named for named in items if any(named is other for other in kept)]


def _epochs_s(job: JobTime) -> float | None:
    if job.epoch_s is None or not known(job.epochs):
        return None
    return job.epoch_s.value * (job.epochs or 0.0)


def _utilisation_means(found: Sequence[Named[Any]]) -> Table:
    def by_rank(named: Named[Any]) -> str:
        return ", ".join(f"{rank}: {percent(cpu)}" for rank, cpu, _, _ in named.item.by_rank)

    return tabulate(
        "utilisation",
        "Utilisation by cell",
        found,
        (
            NAME,
            item("cpu", "CPU, of its threads", percent),
            item("gpu", "GPU", percent),
            item("memory_bytes", "memory at most", size),
            item("gpu_memory_bytes", "GPU memory", size),
            item("energy_j", "energy (J)"),
            Column(key="cpu_by_rank", title="CPU by rank", text=True, get=by_rank),
        ),
    )


def _longest_launch(series: Sequence[UtilisationSeries]) -> list[UtilisationSeries]:
    """Return the ranks of a cell's longest launch; all launches in one panel would be a tangle."""
    there = [one for one in series if one.time_s]
    if not there:
        return []
    launch = max(there, key=lambda one: one.time_s[-1]).launch
    ranks = [one for one in there if one.launch == launch]
    return sorted(ranks, key=lambda one: one.rank)[:_MOST_RANKS]


def _points_of(
    series: UtilisationSeries,
) -> list[tuple[float, float | None, float | None, float | None]]:
    return list(zip(series.time_s, series.cpu, series.gpu, series.memory_bytes, strict=True))


def _verdict(row: MetricRow) -> str:
    return "baseline" if row.verdict is None else row.verdict.replace("_", " ")


def _void_or(infos: Sequence[ScalingInfo], hint: str) -> str:
    reasons = [info.answer.void for info in infos if info.answer.void]
    return f"Not shown: {reasons[0]}" if reasons else hint


def _throughput_key(unit: str) -> str:
    units = {"samples/s", "batches/s", "epochs/s", "jobs/s"}
    return f"throughput_{unit.replace('/', '_per_')}" if unit in units else "throughput"
