"""The figures of a study, each drawn from the table that stands under it.

Each is data: a `FigureSpec` has words, the rows and columns of the table, and how these are drawn.
`sections` lists them in the order of the page.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeGuard

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
from farandole.model.accuracy import MetricCurve
from farandole.model.analyse import Comparison, ScalingInfo, unique_labels
from farandole.model.curves import Curve, CurvePoint
from farandole.model.statistics import Estimate
from farandole.report import charts
from farandole.report.charts import MOST_SERIES, left_out
from farandole.report.document import Figure
from farandole.report.table import Column, Table, tabulate
from farandole.study.records import BYTE_KINDS

MOST_CELLS = 16
_MOST_METRICS = 3
_MOST_PANELS = 4
_MOST_RANKS = 8
# Per step, worth a chart.
_LEAST_BYTES = 1000
_STEP_PARTS = {
    "data": "data wait",
    "compute": "compute",
    "transfer": "communication",
    "waiting": "waiting for peers",
    "optimizer": "optimizer",
}
_UNITS = {"samples/s", "batches/s", "epochs/s", "jobs/s"}

_TWO_COUNTS = "Study at least two worker counts: farandole study -np 1,2 -- COMMAND"
_ACCURACY = (
    "Measure accuracy, too: farandole study --measure both -- COMMAND, with "
    "farandole.record(epoch=..., val_accuracy=...) in the script."
)

Infos = Sequence[ScalingInfo]
Columns = tuple[Column, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Missing:
    """A figure that has no data, and what would give them."""

    title: str
    hint: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One row of a table, under the name that the reader sees."""

    name: str
    item: Any
    info: ScalingInfo
    of: Any = None
    """The curve, sweep or table of splits that a point belongs to."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FigureSpec:
    """A figure as data.

    Its texts may have {unit}, {throughput} (a column's key with the unit) and {metric} in them.
    """

    name: str
    title: str
    caption: str | Callable[[Sequence[Entry]], str]
    rows: Callable[[Infos], list[Entry]]
    columns: Columns | Callable[[Sequence[Entry]], Columns]
    heading: str
    """Title of the table."""
    draw: Callable[..., Figure] = charts.bars
    options: Mapping[str, Any] = field(default_factory=dict)
    """Of `draw`."""
    points: Callable[[Infos], list[Entry]] | None = None
    """What is drawn in place of the table's rows, and `point_columns` in place of its columns."""
    point_columns: Columns = ()
    drawable: Callable[[Entry], bool] = lambda entry: True
    most: int = MOST_SERIES
    """How many series or bars are drawn."""
    nouns: str = "cells"
    """What they are, for "8 of 12 curves are drawn"."""
    hint: str = ""
    """What would give its data where there are none."""
    absent: str = ""
    """Its title where there are none; like the title if empty."""
    undrawn: bool = False
    """Whether the table is shown where nothing of it is worth drawing."""
    table: str = ""
    """Name of the table; like the figure's if empty."""


# Rows.


def studies(found: ScalingInfo | Comparison) -> tuple[ScalingInfo, ...]:
    """Return the studies of a report, under labels that differ."""
    if isinstance(found, ScalingInfo):
        return (found,)
    labels = unique_labels(info.label or "study" for info in found.infos)
    return tuple(
        replace(info, label=label) for info, label in zip(found.infos, labels, strict=True)
    )


def entries(infos: Infos, part: str) -> list[Entry]:
    """Return a part of all cells ("split"), or a list of all studies ("launches")."""
    return [
        Entry(name=_prefixed(infos, info, one.label), item=one, info=info)
        for info in infos
        for one in (getattr(info, part) if hasattr(info, part) else info.each(part))
    ]


def _prefixed(infos: Infos, info: ScalingInfo, label: str) -> str:
    return f"{info.label}: {label}" if len(infos) > 1 else label


def points_of(groups: Sequence[Entry]) -> list[Entry]:
    """Return the points of curves, sweeps or splits, under names that differ."""
    names = unique_labels(group.name for group in groups)
    return [
        Entry(name=name, item=point, info=group.info, of=group.item)
        for name, group in zip(names, groups, strict=True)
        for point in group.item.points
    ]


def main_metric(infos: Infos) -> str | None:
    """Return the metric that the studies' answers speak of."""
    return next((info.main_metric for info in infos if info.main_metric is not None), None)


def curves(infos: Infos) -> list[Entry]:
    """Return curves of the main one's unit with a speedup at two counts or more.

    The main curves come first; void studies have none.
    """
    found = [(info, curve) for info in infos if not info.answer.void for curve in info.curves]
    alike = [(info, curve) for info, curve in found if curve.unit == found[0][1].unit]
    alike.sort(key=lambda pair: not pair[1].main)
    both = len({curve.scaling for _, curve in alike}) > 1

    def name(info: ScalingInfo, curve: Curve) -> str:
        study, kind = info.label * (len(infos) > 1), f"{curve.scaling} scaling" * both
        return ", ".join(part for part in (study, kind, curve.label) if part) or "measured"

    names = unique_labels(name(info, curve) for info, curve in alike)
    named = zip(names, alike, strict=True)
    return [
        Entry(name=name, item=curve, info=info)
        for name, (info, curve) in named
        if sum(_gains(point) for point in curve.points) > 1
    ]


def _gains(point: CurvePoint) -> bool:
    return point.valid and _is_known(point.speedup) and point.speedup.value > 0


def _rows_of(
    part: str, keep: Callable[[Any], bool] = lambda item: True
) -> Callable[[Infos], list[Entry]]:
    return lambda infos: [one for one in entries(infos, part) if keep(one.item)]


def _tried(part: str) -> Callable[[Infos], list[Entry]]:
    """Return the points of sweeps or splits that have a throughput, in the first one's unit."""

    def rows(infos: Infos) -> list[Entry]:
        found = [
            one
            for one in entries(infos, part)
            if any(point.throughput and known(point.throughput.value) for point in one.item.points)
        ]
        return points_of([one for one in found if one.item.unit == found[0].item.unit])

    return rows


def _link_points(infos: Infos) -> list[Entry]:
    return [
        Entry(name=_prefixed(infos, info, plural(point.workers, "worker")), item=point, info=info)
        for info in infos
        for point in sorted(info.link, key=lambda point: (point.workers, point.bytes))
        if known(point.bus_bytes_per_s)
    ]


def foremost(found: Sequence[Entry], most: int) -> set[str]:
    """Return as many names as can be drawn, those of cells on main curves before all others."""

    def beside(entry: Entry) -> bool:
        cell = getattr(entry.of or entry.item, "cell", None)
        main = [curve for curve in entry.info.curves if curve.main]
        return all(point.cell != cell for curve in main for point in curve.points)

    first = {entry.name: entry for entry in reversed(found)}
    named = [first[name] for name in dict.fromkeys(entry.name for entry in found)]
    return {entry.name for entry in sorted(named, key=beside)[:most]}


# Columns.


def item(key: str, title: str, show: Any = number, *, path: str = "", **how: Any) -> Column:
    """Return a column: an attribute of the entry's item, called like the key."""
    return Column(key=key, title=title, show=show, get=f"item.{path or key}", **how)


def speed(key: str, title: str, show: Any = number, *, path: str = "", **how: Any) -> Column:
    """Return a column of a curve's points; empty where a point's speed does not count."""

    def get(entry: Entry) -> Any:
        return getattr(entry.item, path or key) if entry.item.valid else None

    return Column(key=key, title=title, show=show, get=get, **how)


def text(key: str, title: str, get: str | Callable[[Entry], Any]) -> Column:
    """Return a column of words."""
    return Column(key=key, title=title, text=True, get=get)


def best_batch(entry: Entry) -> str:
    """Say of a batch that it failed, or is the best."""
    best: bool = entry.item.batch == entry.of.best
    return entry.item.failed or "best" * best


def _best_split(entry: Entry) -> str:
    best = entry.of.best == (entry.item.workers, entry.item.threads)
    return ", ".join(["best"] * best + ["today"] * entry.item.today)


def _split_words(entry: Entry) -> str:
    words = f"{entry.item.workers} x {entry.item.threads}"
    return ", ".join(filter(None, [words, _best_split(entry)]))


def _sweep_caption(found: Sequence[Entry]) -> str:
    sweeps = {id(one.of): one.of for one in found}.values()
    said = " ".join(sweep.sentence for sweep in list(sweeps)[:2] if sweep.sentence)
    failed = any(one.item.failed for one in found)
    return said + " A cross marks a batch that failed." * failed


def _how_epochs_are_known(entry: Entry) -> str:
    return "measured" if entry.item.epoch_measured else "from steps"


def _is_known(estimate: Estimate | None) -> TypeGuard[Estimate]:
    return estimate is not None and known(estimate.value)


def _epochs_s(entry: Entry) -> float | None:
    job = entry.item
    return None if job.epoch_s is None or not known(job.epochs) else job.epoch_s.value * job.epochs


def _part_of_step(key: str) -> Callable[[Entry], Any]:
    return lambda entry: entry.item.parts()[key]


def _has_parts(split: Any) -> bool:
    return any(known(part) and part for part in split.parts().values())


def _ranks_of_splits(infos: Infos) -> list[Entry]:
    """Return one entry per rank where ranks are known and few enough, else one per cell.

    Cells beside the main curve are in the table only, but for what the user has today.
    """
    cells = _rows_of("split", _has_parts)(infos)
    mains = {
        point.cell for info in infos for one in info.curves if one.main for point in one.points
    }
    main = [one for one in cells if one.item.cell in mains or one.item.cell.today]
    ranks = [
        replace(one, item=part, of=rank)
        for one in main or cells
        for rank, part in (one.item.by_rank[1:] and one.item.by_rank) or [(None, one.item)]
    ]
    return ranks if len(ranks) <= MOST_CELLS else main or cells


def _rank_words(entry: Entry) -> str:
    """Name a cell's rank: "2 workers, rank 0, batch 32"."""
    head, comma, tail = entry.name.partition(", ")
    return entry.name if entry.of is None else f"{head}, rank {entry.of}{comma}{tail}"


def _bytes_of(kind: str) -> Callable[[Entry], Any]:
    return lambda entry: entry.item.bytes_by_kind.get(kind)


def _byte_kinds(found: Sequence[Entry]) -> list[str]:
    """Return the kinds of bytes that there are, the usual ones first."""
    there = {kind for one in found for kind, count in one.item.bytes_by_kind.items() if count}
    return [kind for kind in BYTE_KINDS if kind in there] + sorted(there - set(BYTE_KINDS))


def _curve_columns(*columns: Column) -> Callable[[Sequence[Entry]], Columns]:
    """Return the columns of a table with one row per point of a curve."""

    def needed(found: Sequence[Entry]) -> Columns:
        return (
            *([_SERIES] if len({entry.name for entry in found}) > 1 else []),
            WORKERS,
            *([PLACEMENT] if several_hosts(found) else []),
            *columns,
            LAUNCHES,
            *([_COUNTS] if not all(entry.item.valid for entry in found) else []),
        )

    return needed


def several_hosts(found: Sequence[Entry]) -> bool:
    """Say whether entries are on more than one host, so that each says where it is."""
    return any(entry.item.cell.hosts > 1 for entry in found)


def _byte_columns(found: Sequence[Entry]) -> Columns:
    return (
        NAME,
        *(
            Column(key=f"{kind}_bytes_per_step", title=kind, show=size, get=_bytes_of(kind))
            for kind in _byte_kinds(found)
        ),
        item("gradient_bytes_per_rank", "gradients per worker", size, path="gradient_bytes"),
        Column(
            key="total_bytes",
            title="whole launch",
            show=size,
            get=lambda entry: sum(entry.item.total_bytes_by_kind.values()) or None,
        ),
    )


NAME = text("cell", "cell", "name")
_STEP_COLUMNS = tuple(
    Column(key=f"{key}_s", title=title, show=seconds, get=_part_of_step(key))
    for key, title in _STEP_PARTS.items()
)
WORKERS = item("workers", "workers", whole)
CELL_WORKERS = item("workers", "workers", whole, path="cell.workers")
PLACEMENT = text("placement", "hosts x workers", "item.cell.placement")
LAUNCHES = item("launches", "launches", whole)
THROUGHPUT = item("throughput", "{unit}", interval=True)
_SERIES = text("series", "series", "name")
_BATCH = item("batch_per_worker", "batch per worker", whole, path="batch")
_GLOBAL_BATCH = item("global_batch", "global batch", whole)
_RATE = speed("{throughput}", "{unit}", path="throughput", interval=True)
SPEEDUP = speed("speedup", "speedup", times, interval=True)
_IDEAL_SPEEDUP = speed("ideal_speedup", "ideal", times)
_EFFICIENCY = speed("efficiency", "efficiency", percent, interval=True)
_COUNTS = text("counts", "counts", lambda entry: entry.item.why or "yes")
SPLITS = (
    text("group", "group", "name"),
    item("processes", "processes", whole, path="workers"),
    item("threads", "threads per process", whole),
    THROUGHPUT,
    text("note", "note", _best_split),
)
METRICS = (
    NAME,
    item("metric", "metric", text=True),
    item("final", "at the end", interval=True),
    item("difference", "difference", interval=True),
    item("margin", 'margin of "same"', brief),
    text("verdict", "verdict", lambda one: (one.item.verdict or "baseline").replace("_", " ")),
    item("seeds", "seeds", whole),
    item("diverged", "diverged", whole),
    item("target", "target", brief),
    item("target_epoch", "epochs to target", brief),
    item("target_s", "time to target", seconds),
)


# Drawing.


def figure(spec: FigureSpec, infos: Infos) -> Figure | Missing:
    """Draw a figure of studies, or say what would give its data."""
    found = spec.rows(infos)
    there = [entry for entry in (spec.points or spec.rows)(infos) if spec.drawable(entry)]
    if not found or not (there or spec.undrawn):
        void = [info.answer.void for info in infos if info.answer.void]
        hint = f"Not shown: {void[0]}" if void and spec.hint is _TWO_COUNTS else spec.hint
        return Missing(title=spec.absent or spec.title, hint=hint)
    unit = getattr(found[0].of, "unit", "")
    key = f"throughput_{unit.replace('/', '_per_')}" if unit in _UNITS else "throughput"
    metric = getattr(found[0].of, "metric", main_metric(infos) or "")

    def filled(text: Any) -> Any:
        # Not str.format: names of users may have braces in them.
        for name, value in (("{unit}", unit), ("{throughput}", key), ("{metric}", metric)):
            text = text.replace(name, value) if isinstance(text, str) else text
        return text

    columns = spec.columns(found) if callable(spec.columns) else spec.columns
    columns = tuple(replace(one, key=filled(one.key), title=filled(one.title)) for one in columns)
    table = tabulate(spec.table or spec.name, filled(spec.heading), found, columns)
    caption = spec.caption(found) if callable(spec.caption) else filled(spec.caption)
    if not there:
        title = filled(spec.title)
        return Figure(name=spec.name, title=title, caption=caption, spec={}, table=table, alt="")
    names = foremost(there, spec.most)
    caption += left_out(len(names), len({entry.name for entry in found}), spec.nouns)
    options = {
        name: option(found) if callable(option) else filled(option)
        for name, option in spec.options.items()
    }
    rows = [entry for entry in there if entry.name in names]
    drawn = tabulate(table.name, table.title, rows, spec.point_columns or columns)
    return replace(spec.draw(spec.name, filled(spec.title), caption, drawn, **options), table=table)


# The figures.

_SPEEDUPS = FigureSpec(
    name="speedup",
    title="Speedup",
    caption="Relative to the fewest workers, same threads per worker. Bars are 95 % intervals.",
    rows=lambda infos: points_of(curves(infos)),
    table="scaling",
    heading="Throughput, speedup and efficiency by workers, 95 % intervals",
    columns=_curve_columns(_BATCH, _GLOBAL_BATCH, _RATE, SPEEDUP, _EFFICIENCY, _IDEAL_SPEEDUP),
    draw=charts.lines,
    options={
        "x": "workers",
        "y": "speedup",
        "series": "series",
        "ideal": "ideal_speedup",
        "height": 200,
    },
    nouns="curves",
    hint=_TWO_COUNTS,
)
_STEP_SPLIT = FigureSpec(
    name="step-split",
    title="Where a step goes",
    caption="A typical step. Communication counts only what training waited for.",
    rows=_rows_of("split", _has_parts),
    points=_ranks_of_splits,
    heading="Where a typical step goes: medians, on the rank that took longest",
    columns=(
        NAME,
        item("step_s", "step", seconds),
        *_STEP_COLUMNS,
        item("hidden_communication_s", "hidden communication", seconds, path="hidden_s"),
        item("slowest_rank", "slowest rank", whole),
        item("slowest_share", "in steps", percent),
    ),
    point_columns=(
        text("cell", "cell", _rank_words),
        *_STEP_COLUMNS,
    ),
    draw=charts.stacked,
    options={
        "parts": [f"{key}_s" for key in _STEP_PARTS],
        "weights": ["compute_s", "transfer_s", "data_s", "waiting_s", "optimizer_s"],
        "axis": "time per step",
    },
    most=MOST_CELLS,
    hint="Needs recorded steps: farandole study records them for scripts that train with "
    "farandole.torch, Keras, DDP, Accelerate or Lightning.",
)
_JOB_TIME = FigureSpec(
    name="job-time",
    title="Job time",
    caption="Where a whole job's time goes: start-up until the first step, passes over the "
    "training data, and what lies between and after them (validation, checkpoints).",
    rows=_rows_of("job"),
    drawable=lambda one: any(
        known(value) and value for value in (one.item.startup_s, one.item.between_s, _epochs_s(one))
    ),
    heading="Job, epoch and fixed time",
    columns=(
        NAME,
        item("job_s", "job", seconds, interval=True),
        item("epochs", "epochs", brief),
        item("epoch_s", "epoch", seconds, interval=True),
        text("epoch_measured", "epoch is", _how_epochs_are_known),
        item("steps_per_epoch", "steps per epoch", whole),
        item("startup_s", "start-up", seconds),
        Column(key="epochs_s", title="all epochs", show=seconds, get=_epochs_s),
        item("between_s", "between epochs", seconds),
        item("fixed_s", "fixed", seconds),
        item("fixed_share", "fixed share", percent),
    ),
    draw=charts.stacked,
    options={
        "parts": ["startup_s", "epochs_s", "between_s"],
        "weights": ["epochs_s", "between_s", "startup_s"],
        "axis": "time",
    },
    most=MOST_CELLS,
    hint="Needs one launch per worker count that runs a whole epoch: leave out --steps.",
)
_BYTES = FigureSpec(
    name="bytes",
    title="Bytes by kind",
    caption="Payload per step over all workers, by kind, before the transport multiplies it by "
    "2(N-1)/N.",
    rows=_rows_of("communication", lambda one: sum(one.bytes_by_kind.values()) > 0),
    drawable=lambda one: sum(one.item.bytes_by_kind.values()) >= _LEAST_BYTES,
    undrawn=True,
    heading="Payload per step over all workers, by kind",
    columns=_byte_columns,
    draw=charts.stacked,
    options={"parts": "_bytes_per_step", "axis": "payload per step"},
    most=MOST_CELLS,
    hint="Needs at least two workers whose communication Farandole or DDP carries.",
)
_BANDWIDTH = FigureSpec(
    name="bandwidth",
    title="Bandwidth",
    caption="Bus bandwidth of the gradients' all-reduce, 2(N-1)/N x bytes / time. Derived: from "
    "T(N) - T(1) alone. Contention (in the table): how much longer N copies of the script take "
    "at once than one alone, sending nothing.",
    rows=_rows_of("communication"),
    drawable=lambda one: known(one.item.bus_bytes_per_s) or known(one.item.derived_bus_bytes_per_s),
    heading="Communication per step, measured and derived",
    columns=(
        NAME,
        CELL_WORKERS,
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
    options={
        "x": "cell",
        "y": ("bus_bytes_per_s", "derived_bus_bytes_per_s", "peak_bytes_per_s"),
        "y_title": "bus bandwidth",
    },
    most=MOST_CELLS,
    hint="Needs at least two workers and gradients whose communication was measured.",
)
_CALIBRATION = FigureSpec(
    name="calibration",
    title="Calibration of the link",
    caption="Bus bandwidth of single all-reduces by size, measured apart from training.",
    rows=_link_points,
    heading="All-reduces of the calibration, medians",
    columns=(
        _SERIES,
        item("bytes", "bytes", size),
        item("time_s", "time", seconds, path="seconds"),
        item("bus_bytes_per_s", "bus bandwidth", rate),
        item("of_peak", "of the peak", percent, path="utilisation"),
    ),
    draw=charts.lines,
    options={
        "x": "bytes",
        "y": "bus_bytes_per_s",
        "series": "series",
        "x_title": "size of the all-reduce",
    },
    nouns="series",
    hint="A study calibrates the link once when it has at least two workers.",
)
_BATCH_SWEEP = FigureSpec(
    name="batch-sweep",
    title="Batch sweep",
    caption=_sweep_caption,
    rows=_tried("batch_sweeps"),
    heading="Throughput by batch",
    columns=(
        text("sweep", "sweep", "name"),
        Column(key="workers", title="workers", show=whole, get="of.workers"),
        item("batch_per_worker", "batch", whole, path="batch"),
        THROUGHPUT,
        item("step_s", "step", seconds, interval=True),
        item("cpu", "CPU", percent),
        item("gpu", "GPU", percent),
        text("note", "note", best_batch),
    ),
    draw=charts.lines,
    options={
        "x": "batch_per_worker",
        "y": "throughput",
        "series": "sweep",
        "x_title": "batch per worker",
        "y_title": "throughput ({unit})",
        "note": "note",
    },
    nouns="sweeps",
    hint="Study several batches: farandole study -L batch=32,64,128 -- COMMAND --batch-size "
    "'{batch}'",
)
_PROCESSES = FigureSpec(
    name="processes-threads",
    title="Processes x threads",
    caption=lambda found: (
        f"Throughput ({found[0].of.unit}), bars are 95 % intervals. {found[0].of.sentence}"
    ),
    rows=_tried("split_tables"),
    heading="Throughput by processes x threads",
    columns=SPLITS,
    point_columns=(text("split", "processes x threads", _split_words), THROUGHPUT),
    options={"x": "split", "y": "throughput", "y_title": "throughput"},
    most=1,
    nouns="groups",
    hint="Study the splits of the cores: farandole study --split all -- COMMAND",
)


@dataclass(frozen=True, slots=True)
class _Sample:
    """What one worker used at one time of a launch."""

    launch: str
    rank: int
    time_s: float
    cpu: float | None
    gpu: float | None
    memory_bytes: float | None

    @property
    def busy(self) -> float | None:
        """The GPU's share where there is one."""
        return self.cpu if self.gpu is None else self.gpu


def _samples(series: Sequence[Entry]) -> list[Entry]:
    return [
        replace(one, item=_Sample(one.item.launch, one.item.rank, *sample))
        for one in series
        for sample in zip(
            *(getattr(one.item, key) for key in ("time_s", "cpu", "gpu", "memory_bytes")),
            strict=True,
        )
    ]


def _longest_launches(infos: Infos) -> list[Entry]:
    """Return samples of each cell's longest launch; all launches in one panel would be a tangle."""
    cells: dict[str, list[Entry]] = {}
    for one in entries(infos, "utilisation_series"):
        if one.item.time_s:
            cells.setdefault(one.name, []).append(one)
    chosen: list[Entry] = []
    for series in cells.values():
        longest = max(series, key=lambda one: one.item.time_s[-1]).item.launch
        ranks = [one for one in series if one.item.launch == longest]
        chosen += sorted(ranks, key=lambda one: one.item.rank)[:_MOST_RANKS]
    return _samples(chosen)


def _cpu_by_rank(entry: Entry) -> str:
    return ", ".join(f"{rank}: {percent(cpu)}" for rank, cpu, _, _ in entry.item.by_rank)


_SAMPLE_COLUMNS = (
    NAME,
    item("launch", "launch", text=True),
    item("rank", "rank", whole),
    item("time_s", "time", seconds),
    item("cpu", "CPU", percent),
    item("gpu", "GPU", percent),
    item("memory_bytes", "memory", size),
)
_UTILISATION = FigureSpec(
    name="utilisation",
    title="Utilisation over time",
    caption="Share of time that each worker's threads, or its GPU where it has one, were busy, in "
    "one launch per cell.",
    rows=_rows_of("utilisation"),
    points=_longest_launches,
    point_columns=(*_SAMPLE_COLUMNS, item("busy", "busy", percent)),
    drawable=lambda one: known(one.item.busy),
    heading="Utilisation by cell",
    columns=(
        NAME,
        item("cpu", "CPU, of its threads", percent),
        item("gpu", "GPU", percent),
        item("memory_bytes", "memory at most", size),
        item("gpu_memory_bytes", "GPU memory", size),
        item("energy_j", "energy (J)"),
        text("cpu_by_rank", "CPU by rank", _cpu_by_rank),
    ),
    draw=charts.panels,
    options={"y": "busy", "y_title": "busy"},
    most=_MOST_PANELS,
    hint="Needs launches of more than a few seconds; imported tables have none.",
)


def _accuracy(infos: Infos) -> list[FigureSpec]:
    """Return the figures of accuracy: the main metric by time if known, then others by epoch."""
    main = main_metric(infos)
    drawn = [one for info in infos for one in info.each("metric_curves")]
    more = [metric for metric in dict.fromkeys(one.metric for one in drawn) if metric != main]
    points = [point for one in drawn if one.metric == main for point in one.points]
    by = "time" if any(known(point.time_s) for point in points) else "epoch"
    by_cell: dict[str, Any] = {"most": MOST_CELLS, "hint": _ACCURACY}
    return [
        _training(f"accuracy-by-{by}", main, "Accuracy during training", timed=by == "time"),
        FigureSpec(
            name="accuracy-at-end",
            title="{metric} at the end",
            absent="Accuracy at the end",
            caption="Mean over seeds of the last value, compared with the fewest workers. Bars are "
            "95 % intervals.",
            rows=_rows_of("metrics"),
            drawable=lambda one: one.item.metric == main and _is_known(one.item.final),
            table="metrics",
            heading="Metrics at the end of training",
            columns=METRICS,
            options={
                "x": "cell",
                "y": "final",
                "y_title": "{metric}",
                "zero": False,
                "label": "verdict",
            },
            **by_cell,
        ),
        FigureSpec(
            name="epochs-to-stability",
            title="Epochs to stable {metric}",
            absent="Epochs to stability",
            caption="The epoch after which the metric stays within its noise; median over seeds.",
            rows=_rows_of("metrics", lambda row: row.metric == main),
            drawable=lambda one: known(one.item.stable_epoch),
            heading="Epochs and time to stability, medians over seeds",
            columns=(
                NAME,
                item("stable_epoch", "epochs to stability", brief),
                item("stable_s", "time to stability", seconds),
                item("seeds", "seeds", whole),
                item("never_stable", "never stable", whole, path="censored"),
            ),
            options={"x": "cell", "y": "stable_epoch", "y_title": "epochs"},
            **by_cell,
        ),
        *(
            _training(f"metric-{place}-by-epoch", one)
            for place, one in enumerate(more[:_MOST_METRICS], start=2)
        ),
    ]


def _training(
    name: str, metric: str | None, absent: str = "", *, timed: bool = False
) -> FigureSpec:
    """Return the figure of a metric by epoch, or by the time since the launch began."""

    def there(curve: MetricCurve) -> bool:
        points = [one for one in curve.points if known(one.time_s) or not timed]
        return curve.metric == metric and any(_is_known(one.value) for one in points)

    found = _rows_of("metric_curves", there)
    axis = {"x": "time_s", "x_title": "seconds since the launch began"} if timed else {"x": "epoch"}
    return FigureSpec(
        name=name,
        title="{metric} by time" if timed else "{metric} by epoch",
        absent=absent,
        caption="Mean over seeds. Bars are 95 % intervals.",
        rows=lambda infos: points_of(found(infos)),
        heading="{metric} during training",
        columns=(
            NAME,
            item("epoch", "epoch", brief),
            item("time_s", "time", seconds),
            item("value", "{metric}", interval=True),
            item("seeds", "seeds", whole),
        ),
        draw=charts.lines,
        options=axis | {"y": "value", "series": "cell", "x_log": False, "zero": False},
        hint=_ACCURACY,
    )


def sections(infos: Infos) -> list[tuple[str, list[Figure | Missing]]]:
    """Return all figures of a report by section."""
    planned: dict[str, Sequence[FigureSpec]] = {
        "Speed": (_SPEEDUPS,),
        "Where the time goes": (_STEP_SPLIT, _JOB_TIME),
        "Communication": (_BANDWIDTH, _BYTES),
        "Use of the machine": (_UTILISATION, _CALIBRATION),
        "Batches and splits": (_BATCH_SWEEP, _PROCESSES),
        "Accuracy": _accuracy(infos),
    }
    drawn = {title: [figure(spec, infos) for spec in specs] for title, specs in planned.items()}
    launches = [launch for info in infos for launch in info.launches]
    if launches and not any(launch.kept for launch in launches):
        # What each figure would need otherwise is not what is missing here.
        hint = "No launch counts for speed; the top of the page says why."
        for title in drawn.keys() - {"Use of the machine", "Accuracy"}:
            drawn[title] = [
                replace(one, hint=hint) if isinstance(one, Missing) else one for one in drawn[title]
            ]
    return list(drawn.items())


def scaling(infos: Infos) -> Figure | None:
    """Draw the figure to paste into a report: small, few words, readable in grey."""
    found = curves(infos)
    main = [one.name for one in found if one.item.main] or [one.name for one in found[:1]]
    small = {**_SPEEDUPS.options, "room": 30}
    spec = replace(_SPEEDUPS, name="scaling", title="Scaling", caption="", options=small)
    drawn = figure(replace(spec, drawable=lambda one: one.name in main[:3]), infos)
    return None if isinstance(drawn, Missing) else drawn


def utilisation_over_time(infos: Infos) -> Table:
    """Return every point of every worker, for files only: it is long."""
    name, title = "utilisation-over-time", "Utilisation over time"
    return tabulate(name, title, _samples(entries(infos, "utilisation_series")), _SAMPLE_COLUMNS)
