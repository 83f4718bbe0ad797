"""The cifar10 lab: where the time of a training step goes.

ResNet-18 is timed by batch and workers. A small network is trained to the end on one and on several
workers, by recipe, by batch norm and by the order of samples.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from farandole.format import brief, number, optional, percent, plural, seconds, size, times, whole
from farandole.labs.cifar10_plan import (
    ACCURACY,
    IMAGES,
    LAB_BATCHES,
    LAB_SAMPLES,
    LADDER,
    REPLICAS,
    TIME,
    TRAINED,
    pilot,
    plan,
)
from farandole.labs.data import describe_cifar10
from farandole.labs.lab import Correction, Found, Lab
from farandole.labs.questions import Bars, Lines, Question, sentences
from farandole.labs.rows import (
    WORKERS,
    Row,
    cell_rows,
    claims_of,
    estimate,
    final_mean,
    four,
    limits,
    points,
    steps_made,
    without_intervals,
)
from farandole.model.communication import bus_bandwidth, derived_communication_s, steps_per_epoch
from farandole.model.metrics import Gap, finals_by_seed, paired_gap, smallest_difference
from farandole.model.statistics import SPEED_MARGIN, Estimate
from farandole.recipes import RECIPES
from farandole.report.table import Column, Table, tabulate
from farandole.study.records import BYTE_KINDS, Launch

if TYPE_CHECKING:
    from farandole.model.analyse import ScalingInfo

METRIC = "val_accuracy"
GB = 1e9

# What the answers share: rows of timed cells, and rows of runs to the end.


def _blank(show: Callable[[Any], str]) -> Callable[[Any], str]:
    """Show nothing where the lab or this machine has no such figure."""
    return lambda value: "" if value is None else show(value)


_FIGURE, _FACTOR, _FOUR, _SIZE = _blank(number), _blank(times), _blank(four), _blank(size)
_PUBLISHED = _blank(lambda value: f"{value:.10g}")
_SIGNED = _blank(lambda value: f"{value:+.4f}")


def _column(key: str, title: str, show: Any = _FIGURE, get: Any = None) -> Column:
    return Column(key=key, title=title, show=show, get=get)


def _range(key: str, title: str, show: Any = _FIGURE, get: Any = None) -> Column:
    return Column(key=key, title=title, show=show, get=get, interval=True)


def _text(key: str, title: str, get: Any = None) -> Column:
    return Column(key=key, title=title, text=True, get=get)


def _axes(x: str, y: str, series: str | None = None, **options: Any) -> dict[str, Any]:
    return {"x": x, "y": y, "series": series, **options}


BATCH = _column("batch", "batch per worker", whole)
RECIPE = _text("recipe", "recipe", "name")
TEST_ACCURACY = _range(METRIC, "test accuracy", _FOUR, "accuracy")
STATISTICS = _text("norm", "statistics", "statistics")
SEEDS = _column("seeds", "seeds", optional)
_LAB_LINES = tuple(f"batch {batch}, lab" for batch in LAB_BATCHES)
PAIRED = "Difference: of runs with the same seed, 90 % interval by Student's t."


def _why(found: Found, study: str) -> str:
    """Say why a study has no speed to show."""
    info = found.studies.get(study)
    if info is None:
        return "its study could not be made"
    whys = [row.why for row in info.launches if row.why and row.outcome in ("ok", "stopped")]
    return whys[0] if whys else "no launch of it counts"


def _worker_counts(info: ScalingInfo) -> list[int]:
    return sorted({row.cell.workers for row in info.rows if not row.cell.today})


def _seconds_for(samples: float, throughput: Estimate | None) -> Estimate | None:
    """Return how long so many samples take at a throughput per second; a slow one takes long."""
    if throughput is None:
        return None
    low, high = throughput.low, throughput.high
    return Estimate(
        value=samples / throughput.value,
        low=None if high is None else samples / high,
        high=None if low is None else samples / low,
    )


def _scaled(value: float | None, factor: float) -> float | None:
    return None if value is None else value * factor


def _by_place(info: ScalingInfo | None) -> dict[tuple[int, int], Row]:
    """Return the cells of a study by batch and workers, with speedups at a fixed batch per worker.

    Two cells may have the same global batch as well: their speedup is another one.
    """
    weak = {
        point.cell: point
        for curve in (info.curves if info else ())
        if curve.scaling == "weak" and curve.baseline_workers == 1
        for point in curve.points
        if point.valid and point.speedup is not None
    }
    rows = {}
    for row in cell_rows(info):
        point, (outcome, _, reason) = weak.get(row.cell), row.failed.partition(": ")
        speed = (point.speedup, point.efficiency) if point else (None, None)
        if row.batch is not None and not row.today:
            row = row.but(speedup=speed[0], efficiency=speed[1])
            rows[row.batch, row.workers] = row.but(outcome=outcome or "ran", reason=reason)
    return rows


def _timings(found: Found, lab: str) -> list[Row]:
    """Return every batch and number of workers that was timed here or in the lab."""
    here, there = _by_place(found.studies.get(TIME)), _by_place(found.published[lab])
    rows = []
    for place in sorted({*here, *there}):
        row, published = here.get(place, Row(outcome="")), there.get(place, Row(outcome=""))
        rows.append(
            row.but(
                batch=place[0],
                workers=place[1],
                epoch_s=_seconds_for(LAB_SAMPLES, row.throughput),
                memory_gb=row.memory_bytes / GB if row.memory_bytes else None,
                lab_epoch_s=published.epoch_s.value if published.epoch_s else None,
                lab_speedup=published.speedup.value if published.speedup else None,
                lab_outcome=published.outcome,
                lab_communication=published.communication,
            )
        )
    return rows


def _both(key: str, here: str, lab: str) -> Callable[[Sequence[Row]], list[Row]]:
    """Return how to draw a figure from here beside the lab's, each under its name by batch."""

    def rows(timings: Sequence[Row]) -> list[Row]:
        own = [row.but(where=here.format(row.batch)) for row in timings if getattr(row, key)]
        theirs = [(row, value) for row in timings if (value := getattr(row, f"lab_{key}"))]
        return own + [r.but(where=lab.format(r.batch), **{key: estimate(v)}) for r, v in theirs]

    return rows


def _unrepeated(rows: Sequence[Row]) -> tuple[str, ...]:
    single = without_intervals(row.step_s for row in rows)
    return ("One launch per cell: no intervals.",) if single else ()


def _runs(found: Found) -> list[Row]:
    """Return every way of training with its launches that ended well, one worker first.

    What a launch was told stands in its command, so that it does not matter which study made it.
    """
    runs: dict[tuple[Any, ...], Row] = {}
    for study in TRAINED:
        ways: dict[tuple[Any, ...], list[Launch]] = {}
        for launch in found.records[study].launches if study in found.records else ():
            if launch.outcome == "ok":
                told = (launch.params.get(name) for name in ("recipe", "norm", "order"))
                ways.setdefault((launch.cell.workers, *told), []).append(launch)
        for way, launches in ways.items():
            if way not in runs:
                runs[way] = _run(found.studies[study], launches, *way[1:])
    return sorted(runs.values(), key=lambda run: bool(run.workers > 1))


def _run(info: ScalingInfo, launches: list[Launch], name: str, norm: str, order: str) -> Row:
    cell, epochs = launches[0].cell, launches[0].params.get("epochs")
    measured = next((row for row in cell_rows(info) if row.cell == cell), Row())
    sent, by_seed = measured.communication, finals_by_seed(launches, METRIC)
    by_step = {
        kind: sent.bytes_by_kind.get(kind, 0.0) / cell.workers
        for kind in (BYTE_KINDS if sent and sent.bytes_by_kind else ())
        if kind not in AT_START
    }
    how = RECIPES.get(name)
    return measured.but(
        workers=cell.workers,
        batch=cell.batch,
        global_batch=cell.batch * cell.workers if cell.batch else None,
        recipe=name,
        norm=norm,
        order=order,
        name=f"{name} + SyncBatchNorm" if norm == "sync" else name,
        statistics=STATISTICS_WORDS.get(norm),
        records=launches,
        by_seed=by_seed,
        seeds=len(by_seed),
        accuracy=final_mean(launches, METRIC),
        steps=steps_made(launches),
        epochs=(how.epochs(epochs) if how else epochs) if epochs else None,
        longer=how is not None and how.longer != 1.0,
        curve=next((c for c in measured.metric_curves or () if c.metric == METRIC), None),
        step_bytes=by_step,
        beside_bytes=sum(by_step[k] for k in by_step if k != "gradients") if by_step else None,
        total_bytes=sent.total_bytes_by_kind if sent else {},
    )


def _find(
    runs: list[Row], workers: int, name: str = "fixed", norm: str = "local", order: str = "epoch"
) -> Row | None:
    wanted = (workers, name, norm, order)
    same = (run for run in runs if (run.workers, run.recipe, run.norm, run.order) == wanted)
    return next(same, None)


def _gap(run: Row | None, base: Row | None) -> Gap | None:
    """Return how far a run's accuracy lies above another's, seed by seed; None for itself."""
    if run is None or base is None or run is base:
        return None
    return paired_gap(run.by_seed, base.by_seed)


def _difference(run: Row, base: Row | None) -> Estimate | None:
    gap = _gap(run, base)
    return gap.difference if gap else None


def _remedies(runs: Sequence[Row]) -> list[Row]:
    """Return one worker, and whatever is meant to keep accuracy on several."""
    return [run for run in runs if run.order == "epoch" and run.norm != "broadcast"]


def _pair(found: Found, runs: Sequence[Row]) -> tuple[int, str]:
    """Return the workers and the recipe that were used where something else was varied."""
    study = found.records.get(ACCURACY)
    names = [launch.params.get("recipe") for launch in study.launches] if study else []
    counts = [run.workers for run in _remedies(runs) if run.workers > 1]
    return min(counts, default=0), next((name for name in names if name), "fixed")


# Question 1: seconds per epoch of one worker by batch, until memory runs out.

EPOCH_TIME = Question(
    key="batch",
    text="How long does an epoch take on one worker, by batch?",
    title=f"One worker by batch: an epoch of {IMAGES}, without data loading",
    rows=lambda found: [row for row in _timings(found, "cifar10_batch") if row.workers == 1],
    columns=(
        BATCH,
        _range("epoch_s", "epoch here (s)"),
        _range("images_per_s", "images/s here", get="throughput"),
        _range("step_s", "step here (s)"),
        _column("memory_gb", "memory here (GB)"),
        _text("outcome", "here"),
        _column("lab_epoch_s", "epoch in the lab (s, K80)", _PUBLISHED),
        _text("lab_outcome", "in the lab"),
    ),
    notes=_unrepeated,
    facts=lambda found, rows: {"why": _why(found, TIME), "margin": SPEED_MARGIN},
    say="""
{% set timed = rows|selectattr("throughput")|list %}
{% set lab = rows|selectattr("lab_epoch_s")|list %}
{% set failed = rows|selectattr("failed")|list %}
{% if not timed %}
No valid time for one worker: {{ why }}.
{% elif timed|length == 1 %}
Only batch {{ timed[0].batch }} has a time: {{ timed[0].epoch_s.value|seconds }} for an epoch of \
50,000 images.
{% else %}
{% set gain = timed[-1].throughput.value / timed[0].throughput.value %}
{% set lab_gain = lab[0].lab_epoch_s / lab[-1].lab_epoch_s %}
One worker takes {{ timed[0].epoch_s.value|seconds }} for an epoch of 50,000 images at batch \
{{ timed[0].batch }} and {{ timed[-1].epoch_s.value|seconds }} at batch {{ timed[-1].batch }} \
({{ gain|times }} as fast): \
{% if gain > 1 + margin %}a larger batch usually spreads the fixed cost of a step, mainly the \
weight update, over more images\
{% elif gain < 1 - margin %}the larger batch is slower here, usually because its layers outgrow \
the caches\
{% else %}the batch hardly matters here{% endif %}.
The lab's GPU is {{ lab_gain|times }} as fast at batch {{ lab[-1].batch }} as at batch \
{{ lab[0].batch }}{% if lab_gain > gain %}: a small batch usually leaves most of a GPU idle, but \
keeps a CPU core busy{% endif %}.
{% endif %}
{% for row in failed %}
Batch {{ row.batch }} failed ({{ row.outcome }}){{ ": " + row.reason if row.reason }}.
{% endfor %}
{% if failed|selectattr("outcome", "eq", "out of memory")|list %}
The lab's GPU ran out of memory at batch 2,048.
{% endif %}
""",
    figures=(
        Lines(
            name="batch-epoch",
            title=f"Seconds per epoch of {IMAGES}, by batch",
            caption="One worker here beside the lab's one GPU; both axes are logarithmic.",
            rows=_both("epoch_s", "here", "lab, 1 K80"),
            columns=(BATCH, _text("where", "where"), _range("epoch_s", "epoch", seconds)),
            options=_axes(
                "batch", "epoch_s", "where", log=True, x_log=True, published=("lab, 1 K80",)
            ),
        ),
    ),
)


# Question 2: speedup by batch and workers.


def _most(rows: Sequence[Row], key: str) -> list[Row]:
    """Return the rows of the largest number of workers that has a speedup, by batch."""
    several = [row for row in rows if row.workers > 1 and getattr(row, key)]
    most = max((row.workers for row in several), default=0)
    return [row for row in several if row.workers == most]


def _step_and_epoch(found: Found) -> Row | None:
    """Return step times and steps of one and of most workers, at the largest batch that has both.

    They tell weak scaling of the step from strong scaling of the epoch.
    """
    rows = _timings(found, "cifar10_speedup")
    alone = {row.batch: row.step_s for row in rows if row.workers == 1}
    for row in reversed(_most(rows, "speedup")):
        if row.step_s and alone.get(row.batch):
            many, one = (steps_per_epoch(LAB_SAMPLES, row.batch, n) for n in (row.workers, 1))
            row = row.but(steps=math.ceil(many), one_steps=math.ceil(one))
            return row.but(one_s=alone[row.batch])
    return None


SAY_STEP_AND_EPOCH = """
{% if pair %}
At batch {{ pair.batch }} per worker, a step takes {{ pair.one_s.value|seconds }} on one worker \
and {{ pair.step_s.value|seconds }} on {{ pair.workers }} (weak scaling: the work per worker \
stays the same), and an epoch takes {{ pair.steps|whole }} steps instead of \
{{ pair.one_steps|whole }} (strong scaling: the images stay the same).
{% endif %}
"""


def _speedup_facts(found: Found, rows: Sequence[Row]) -> dict[str, Any]:
    info, lab = found.studies.get(TIME), found.published["cifar10_speedup"]
    counts, cores = _worker_counts(info) if info else (), found.asked.cores
    timings = _timings(found, "cifar10_speedup")
    return {
        "why": _why(found, TIME),
        "most": _most(timings, "speedup"),
        "lab_most": _most(timings, "lab_speedup"),
        "pair": _step_and_epoch(found),
        "beyond": [str(n) for n in _worker_counts(lab) if n > cores and n not in counts],
        "cores": cores,
        "disturbed": limits(found, TIME),
    }


SPEEDUPS = Question(
    key="speedup",
    text="What is the speedup, by batch and workers?",
    title=f"Speedup by batch per worker and workers; an epoch is {IMAGES}",
    rows=lambda found: [row for row in _timings(found, "cifar10_speedup") if not row.failed],
    columns=(
        BATCH,
        WORKERS,
        _range("step_s", "step here (s)"),
        _range("epoch_s", "epoch here (s)"),
        _range("speedup", "speedup here", _FACTOR),
        _range("efficiency", "efficiency here"),
        _column("lab_epoch_s", "epoch in the lab (s, K80)", _PUBLISHED),
        _column("lab_speedup", "speedup in the lab", _FACTOR),
    ),
    notes=_unrepeated,
    facts=_speedup_facts,
    say="""
{% macro by_batch(rows, key) %}
{% for row in rows %}{{ row[key]|interval_times }} at batch {{ row.batch }}\
{{ ", " if loop.revindex > 2 else " and " if not loop.last }}{% endfor %}
{% endmacro %}
{% if not most %}
Speedup was not measured: {{ why }}.
{% else %}
{% set small, large = most[0], most[-1] %}
{{ small.workers }} workers reach a speedup of {{ by_batch(most, "speedup") }}.
{% if most|length == 1 %}
{% elif small.speedup.low is none or large.speedup.low is none %}
One launch per setting: batch {{ large.batch }} scales \
{{ "better" if large.speedup.value > small.speedup.value else "no better" }} than batch \
{{ small.batch }}, but the difference may be noise.
{% elif large.speedup.low > small.speedup.high %}
Batch {{ large.batch }} scales better than batch {{ small.batch }}, usually because the same \
gradients are sent for more images.
{% elif large.speedup.high < small.speedup.low %}
Batch {{ large.batch }} scales worse than batch {{ small.batch }}.
{% else %}
The intervals overlap: these runs cannot show whether batch {{ large.batch }} scales better than \
batch {{ small.batch }}.
{% endif %}
"""
    + SAY_STEP_AND_EPOCH
    + """
{% endif %}
{% if beyond %}
The lab's {{ beyond|listed }} workers would share {{ cores|count("core") }} here, so their speed \
is not measured.
{% endif %}
{% if lab_most %}
The lab's {{ lab_most[0].workers }} GPUs reach {{ by_batch(lab_most, "lab_speedup") }}.
{% endif %}
{{ disturbed|join(" ") }}
""",
    figures=(
        Lines(
            name="speedup-workers",
            title="Speedup by workers",
            caption="Throughput over that of one worker at the same batch per worker; hollow: the "
            "lab's GPUs.",
            rows=_both("speedup", "batch {}, here", "batch {}, lab"),
            columns=(
                WORKERS,
                _text("where", "batch per worker"),
                _range("speedup", "speedup", times),
            ),
            options=_axes("workers", "speedup", "where", ideal=True, published=_LAB_LINES),
        ),
    ),
)


# Question 3: communication measured and derived, and the bandwidth that follows from each.


def _communication_rows(found: Found) -> list[Row]:
    rows = []
    for row in _timings(found, "cifar10_communication"):
        if row.workers == 1 or not (row.communication or row.lab_communication):
            continue
        here, lab = row.communication or Row(), row.lab_communication or Row()
        transfer_s = here.measured_s or None
        steps = steps_per_epoch(LAB_SAMPLES, row.batch, row.workers)
        rows.append(
            row.but(
                gradient_bytes=here.gradient_bytes,
                transfer_step_s=transfer_s,
                waiting_step_s=row.split.waiting_s if transfer_s and row.split else None,
                derived_step_s=here.derived_s,
                transfer_epoch_s=_scaled(transfer_s, steps),
                derived_epoch_s=_scaled(here.derived_s, steps),
                bus_gb_per_s=_scaled(here.bus_bytes_per_s, 1 / GB),
                peak_gb_per_s=_scaled(here.peak_bytes_per_s, 1 / GB),
                derived_gb_per_s=_scaled(here.derived_bus_bytes_per_s, 1 / GB),
                lab_derived_epoch_s=lab.derived_epoch_s,
                lab_derived_gb_per_s=_scaled(lab.derived_bus_bytes_per_s, 1 / GB),
            )
        )
    return rows


def _largest_transfer(rows: Sequence[Row]) -> Row | None:
    """Return what was measured with most workers, and there at the largest batch."""
    measured = [row for row in rows if row.transfer_step_s]
    return max(measured, key=lambda row: (row.workers, row.batch), default=None)


# Figures within a quarter of each other are called about the same.
SAY_TRANSFER = """
{% if moved %}
{% set derived, transfer = moved.derived_step_s, moved.transfer_step_s %}
At batch {{ moved.batch }}, {{ moved.workers }} workers take {{ transfer|seconds }} of a step to \
move {{ moved.gradient_bytes|size }} of gradients\
{% if moved.bus_gb_per_s %} ({{ moved.bus_gb_per_s|number }} GB/s){% endif %}; \
{% if derived is none %}T(N) - T(1)/N needs the time of one worker, which is missing\
{% elif derived <= 0 %}T(N) - T(1)/N gives {{ derived|seconds }}, not above zero, so it \
cannot be the time of communication\
{% elif derived > 1.25 * transfer %}T(N) - T(1)/N gives {{ derived|seconds }}, \
{{ (derived / transfer)|times }} as much, because it includes waiting for the slower worker\
{% if moved.waiting_step_s %} ({{ moved.waiting_step_s|seconds }}){% endif %} and usually what \
workers lose by sharing memory and caches\
{% elif derived < 0.8 * transfer %}T(N) - T(1)/N gives {{ derived|seconds }}, less than the \
transfer, usually because part of it runs during the backward pass\
{% else %}T(N) - T(1)/N gives {{ derived|seconds }}, about the same{% endif %}.
{% endif %}
"""


def _communication_bars(rows: Sequence[Row]) -> list[Row]:
    kinds = {
        "transfer, measured": "transfer_epoch_s",
        "T(N) - T(1)/N": "derived_epoch_s",
        "lab: T(N) - T(1)/N": "lab_derived_epoch_s",
    }
    return [
        Row(cell=f"batch {row.batch}, {plural(row.workers, 'worker')}", kind=kind, epoch_s=value)
        for row in rows
        for kind, key in kinds.items()
        # What is not above zero has no place on a logarithmic axis; the table has it.
        if (value := getattr(row, key)) is not None and value > 0
    ]


TRANSFERS = Question(
    key="communication",
    text="How much of it is communication, and at which bandwidth?",
    title=f"Communication: measured, and derived as T(N) - T(1)/N; an epoch is {IMAGES}",
    rows=_communication_rows,
    columns=(
        BATCH,
        WORKERS,
        _column("transfer_step_s", "transfer per step (s)"),
        _column("waiting_step_s", "waiting for the slower, per step (s)"),
        _column("derived_step_s", "derived per step (s)"),
        _column("transfer_epoch_s", "transfer per epoch (s)"),
        _column("derived_epoch_s", "derived per epoch (s)"),
        _column("bus_gb_per_s", "measured (GB/s)"),
        _column("peak_gb_per_s", "link's peak (GB/s)"),
        _column("derived_gb_per_s", "derived (GB/s)"),
        _column("lab_derived_epoch_s", "lab: derived per epoch (s)", _PUBLISHED),
        _column("lab_derived_gb_per_s", "lab: derived (GB/s)", _blank(lambda v: f"{v:.5f}")),
    ),
    notes=(
        "GB = 10^9 bytes. Bus bandwidth: 2(N-1)/N x bytes of gradients / seconds. Transfer: "
        "moving the gradients, during the backward pass or after it, without waiting for the "
        "slower worker.",
    ),
    facts=lambda found, rows: {"why": _why(found, TIME), "moved": _largest_transfer(rows)},
    say="""
{% if not moved %}
No communication was measured: {{ why }}.
{% endif %}
"""
    + SAY_TRANSFER
    + """
{% set rates = rows|map(attribute="lab_derived_gb_per_s")|select|list %}
{% if rates %}
The lab could only derive it: {{ rates|min|number }} to {{ rates|max|number }} GB/s for the same \
gradients on the same links.
{% endif %}
""",
    figures=(
        Bars(
            name="communication-epoch",
            title=f"Communication in an epoch of {IMAGES}",
            caption="Measured here, by the lab's formula here, and by its formula in the lab.",
            rows=_communication_bars,
            columns=(
                _text("cell", "cell"),
                _text("kind", "kind"),
                _column("epoch_s", "communication per epoch", seconds),
            ),
            options=_axes("cell", "epoch_s", "kind", log=True),
        ),
    ),
)


# Question 4: what a large global batch does to accuracy, and what helps.


def _accuracy_rows(found: Found) -> list[Row]:
    """Compare every way of training with one worker, seed by seed."""
    runs, tests, rows = _remedies(_runs(found)), _tested_on(found), []
    for run in runs:
        gap, limit = _gap(run, runs[0] if runs[0].workers == 1 else None), None
        if gap and run.accuracy and 0 <= run.accuracy.value <= 1:
            limit = smallest_difference(tests, run.accuracy.value, gap.seeds)
        row = run.but(difference=gap.difference if gap else None, resolvable=limit)
        rows.append(row.but(verdict=_verdict(gap, limit), speed="void" if run.note else "counts"))
    return rows


def _verdict(gap: Gap | None, limit: float | None) -> str:
    if gap is None:
        return ""
    difference = gap.difference
    if gap.diverged:
        return "diverged in some runs"
    if difference.low is None or difference.high is None:
        return "one seed: no interval"
    if limit is not None and abs(difference.value) < limit:
        return "not resolved"
    if difference.high < 0:
        return "loses"
    return "gains" if difference.low > 0 else "no difference shown"


def _tested_on(found: Found) -> int:
    """Return how many samples accuracies are a share of."""
    studies = [found.records[name] for name in TRAINED if name in found.records]
    given = (one.params.get("test_samples") for study in studies for one in study.launches)
    return next(filter(None, given), found.data.test)


def _accuracy_facts(found: Found, rows: Sequence[Row]) -> dict[str, Any]:
    most = max((row.workers for row in rows), default=0)
    at_most = [row for row in rows if row.workers == most]
    known = [row for row in at_most if row.accuracy]
    equal = [row for row in known if not row.longer]
    theirs = [
        row.but(accuracy=row.metrics["accuracy"].final.value, loss=row.metrics["loss"].final.value)
        for row in cell_rows(found.published.get("cifar10_accuracy"))
    ]
    ends = [row.accuracy for row in theirs]
    return {
        "one": next((row for row in rows if row.workers == 1), None),
        "most": most,
        "plain": next((row for row in at_most if row.name == "fixed"), None),
        "best": max(equal or known, key=lambda row: float(row.accuracy.value), default=None),
        "longer": next((row for row in at_most if row.longer), None),
        "limit": max((row.resolvable for row in rows if row.resolvable is not None), default=None),
        "tests": _tested_on(found),
        "points": points,
        "theirs": theirs,
        "their_limit": smallest_difference(10_000, min(ends) / 100, 1) if ends else None,
    }


def _accuracy_notes(rows: Sequence[Row]) -> list[str]:
    single = all(row.difference is None or row.difference.low is None for row in rows)
    return [
        f"Accuracy: mean and 95 % interval over seeds. {PAIRED}",
        *(["One seed each: no intervals."] if single else []),
        *dict.fromkeys(f"Speed: {row.note}." for row in rows if row.note),
    ]


def _accuracy_points(rows: Sequence[Row]) -> list[Row]:
    """Return a line per recipe; on one worker all are the same, except for more epochs."""
    one, drawn = [row for row in rows if row.workers == 1][:1], []
    several = [row for row in rows if row.workers > 1]
    for name in dict.fromkeys(row.name for row in several):
        line = [row for row in several if row.name == name]
        drawn += [row.but(name=name) for row in one if not line[0].longer] + line
    return [row for row in drawn if row.accuracy]


def _epoch_points(rows: Sequence[Row]) -> list[Row]:
    most = max((row.workers for row in rows), default=0)
    return [
        row.but(series=f"{row.name}, {plural(row.workers, 'worker')}", point=point)
        for row in rows
        if row.workers in (1, most) and row.curve
        for point in row.curve.points
    ]


REMEDIES = Question(
    key="accuracy",
    text="What does a large global batch do to accuracy, and what helps?",
    title="Accuracy by recipe and workers, and the difference to one worker",
    rows=_accuracy_rows,
    columns=(
        RECIPE,
        WORKERS,
        _column("global_batch", "global batch", whole),
        _column("epochs", "epochs", whole),
        _column("steps", "steps made", whole),
        TEST_ACCURACY,
        _range("difference", "difference to 1 worker", _SIGNED),
        _column("resolvable", "smallest resolved", _FOUR),
        SEEDS,
        _text("verdict", "verdict"),
        _text("speed", "speed"),
    ),
    notes=_accuracy_notes,
    facts=_accuracy_facts,
    say="""
{% if not one or not one.accuracy %}
Accuracy was not measured: the runs with one worker are missing.
{% elif most < 2 %}
Only one worker was trained (accuracy {{ one.accuracy.value|four }}): use -np 1,2 to compare.
{% else %}
{% if plain and plain.difference %}
With the learning rate of one worker, {{ most }} workers change accuracy by \
{{ points(plain.difference) }} from {{ one.accuracy.value|four }}\
{% if plain.steps and one.steps %}; a run makes {{ plain.steps|whole }} updates instead of \
{{ one.steps|whole }}{% endif %}.
{% endif %}
{% if best and best is sameas plain %}
No other recipe with as many epochs does better.
{% elif best and best.difference %}
The best recipe for {{ most }} workers with equal epochs is {{ best.name }}: \
{{ points(best.difference) }}.
{% endif %}
{% if longer and longer.difference %}
Training for {{ longer.epochs }} epochs instead of {{ one.epochs }} at that rate: \
{{ points(longer.difference) }}.
{% endif %}
{% if limit is not none %}
With {{ tests|count("test image") }} and {{ one.seeds|count("seed") }}, only differences above \
{{ (100 * limit)|number }} points are detectable.
{% endif %}
{% endif %}
{% if theirs %}
{% set ends = theirs|map(attribute="accuracy")|list %}
The lab's runs at batch {{ theirs[0].batch }} on {{ theirs[0].workers }} GPUs end at \
{% for run in theirs %}{{ run.accuracy|number }} % (loss {{ run.loss|number }}, \
{{ run.attempt }}){{ " and " if not loop.last }}{% endfor %}, {{ (ends|max - ends|min)|number }} \
points apart; with 10,000 test images, single runs can show only differences above \
{{ (100 * their_limit)|number }} points.
The lab has no run on one GPU to compare with.
{% endif %}
""",
    figures=(
        Lines(
            name="accuracy-workers",
            title="Test accuracy by workers and recipe",
            caption="Equal epochs, except for the recipe longer; on one worker the others are the "
            "same.",
            rows=_accuracy_points,
            columns=(RECIPE, WORKERS, TEST_ACCURACY),
            options=_axes("workers", METRIC, "recipe", zero=False),
        ),
        Lines(
            name="accuracy-epochs",
            title="Test accuracy by epoch: one worker, and the recipes on the most workers",
            caption="Mean over seeds.",
            rows=_epoch_points,
            columns=(
                _text("series", "run"),
                _column("epoch", "epoch", brief, "point.epoch"),
                _range("value", METRIC, number, "point.value"),
                _column("seeds", "seeds", whole, "point.seeds"),
            ),
            options=_axes(
                "epoch", "value", "series", y_title="test accuracy", x_log=False, zero=False
            ),
        ),
    ),
)


# Question 5: replicas as threads of one process or as processes, and the order of samples.


def _replica_rows(found: Found) -> list[Row]:
    """Return one process, then threads, then processes, as far as they were run."""
    runs = _runs(found)
    one, (count, name) = _find(runs, 1), _pair(found, runs)
    many = _find(runs, count, name)
    rows = [one.but(arrangement="1 process")] if one else []
    rows += [
        row.but(arrangement=f"{row.replicas} threads of 1 process", kind="threads")
        for row in cell_rows(found.studies.get(REPLICAS))
    ]
    rows += [many.but(arrangement=f"{count} processes", kind="processes")] if many else []
    base = next((row.throughput.value for row in rows if row.throughput), None)
    return [
        row.but(
            batch=one.batch if one else None,
            ratio=row.throughput.value / base if row.throughput and base else None,
            note=row.note or ("" if row.throughput else "does not count"),
        )
        for row in rows
    ]


def _order_rows(found: Found) -> list[Row]:
    """Return runs of one worker whose order of samples does and does not depend on the epoch."""
    runs = _runs(found)
    words = {"epoch": "epoch in the seed", "fixed": "the same in every epoch"}
    orders = [run for order in words if (run := _find(runs, 1, order=order))]
    orders = [run.but(difference=_difference(run, _find(runs, 1))) for run in orders]
    return [run.but(words=words[run.order], repeats=_repeats(run)) for run in orders]


def _repeats(run: Row) -> float | None:
    """Return the share of later epochs that begin with the same sample as the first epoch."""
    same: list[bool] = []
    for launch in run.records:
        recorded = [one for one in launch.ranks[0].metrics if one.name == "first_sample"]
        firsts = [one.value for one in sorted(recorded, key=lambda one: one.epoch or 0)]
        same += [first == firsts[0] for first in firsts[1:]]
    return sum(same) / len(same) if same else None


def _replica_facts(found: Found, rows: Sequence[Row]) -> dict[str, Any]:
    speeds = {row.kind: row for row in rows if row.kind and row.throughput}
    orders = {row.order: row for row in _order_rows(found)}
    return {
        "why": _why(found, REPLICAS),
        "margin": SPEED_MARGIN,
        "points": points,
        "threads": speeds.get("threads"),
        "processes": speeds.get("processes"),
        "anew": orders.get("epoch"),
        "same": orders.get("fixed"),
        "disturbed": limits(found, REPLICAS),
    }


def _order_table(found: Found, rows: Sequence[Row]) -> tuple[Table]:
    columns = (
        _text("order", "order", "words"),
        _column("repeats", "later epochs that begin as the first", percent),
        TEST_ACCURACY,
        _range("difference", "difference", _SIGNED),
        SEEDS,
    )
    title = "The order of samples with and without the epoch in the seed, one worker"
    return (tabulate("order", title, _order_rows(found), columns),)


ARRANGEMENTS = Question(
    key="replicas",
    text="Replicas as threads of one process, or processes? And does the order of samples matter?",
    title="Replicas as threads of one process, and as processes",
    rows=_replica_rows,
    columns=(
        _text("arrangement", "arrangement"),
        _column("batch", "batch per replica", whole),
        _range("throughput", "images/s", number),
        _range("step_s", "step", seconds),
        _column("ratio", "over one process", times),
        _text("note", "note"),
    ),
    notes=lambda rows: (
        ("Single launches: no intervals.",) if rows and all(r.launches < 2 for r in rows) else ()
    ),
    facts=_replica_facts,
    say="""
{% macro speeds(first, second) %}
({{ first.throughput.value|number }} images/s against {{ second.throughput.value|number }}\
{{ ", no interval" if first.throughput.low is none or second.throughput.low is none }})\
{% endmacro %}
{% if not threads or not processes %}
Threads and processes cannot be compared: {{ why }}.
{% else %}
{% set ratio = processes.throughput.value / threads.throughput.value %}
{% if ratio > 1 + margin %}
{{ processes.arrangement }} are {{ ratio|times }} as fast as {{ threads.arrangement }} \
{{ speeds(processes, threads) }}: threads usually wait for Python's lock, and one of them alone \
adds up the gradients.
{% elif ratio < 1 - margin %}
{{ threads.arrangement }} are {{ (1 / ratio)|times }} as fast as {{ processes.arrangement }} \
{{ speeds(threads, processes) }}.
{% else %}
{{ threads.arrangement }} and {{ processes.arrangement }} are about equally fast \
{{ speeds(threads, processes) }}.
{% endif %}
{% endif %}
{% if not anew or not same %}
The order of samples was not compared: its runs are missing.
{% else %}
{% if anew.repeats is not none and same.repeats is not none %}
Without the epoch in the sampler's seed, {{ same.repeats|percent }} of the later epochs begin \
with the same sample as the first; with it, {{ anew.repeats|percent }}.
{% endif %}
{% set effect = same.difference %}
{% if effect %}
The same order in every epoch changes accuracy by {{ points(effect) }}\
{% if effect.low is none or effect.low <= 0 <= effect.high %}, which these runs cannot tell from \
zero{% endif %}.
{% endif %}
{% endif %}
{{ disturbed|join(" ") }}
""",
    tables=_order_table,
    figures=(
        Bars(
            name="replicas-throughput",
            title="Images per second by arrangement",
            caption="The same network and batch per replica, one thread each.",
            options=_axes("arrangement", "throughput"),
        ),
    ),
)


# Questions 6 and 7: what crosses the network besides gradients, and whether it has to.

STATISTICS_WORDS = {
    "local": "left alone",
    "broadcast": "broadcast from rank 0",
    "sync": "synchronised",
}
"""What is done with batch norm's statistics."""
AT_START = ("parameters", "objects")
"""Kinds that cross once, whatever the number of steps."""
PURPOSES = {
    "gradients": "averaged in every step",
    "buffers": "batch norm's statistics, for every test also where they are left alone",
    "parameters": "weights of rank 0, once at the start",
    "objects": "states of the optimizer and the like, once at the start",
    "other": "collectives of the script: losses, right answers",
    "control": "messages by which workers agree",
}


def _norm_rows(found: Found) -> list[Row]:
    """Return each way to treat the statistics, at the fewest workers above one."""
    runs = _runs(found)
    count, name = _pair(found, runs)
    ways = [run for norm in STATISTICS_WORDS if (run := _find(runs, count, name, norm))]
    return [run.but(difference=_difference(run, _find(runs, count, name))) for run in ways]


def _wire_rows(found: Found) -> list[Row]:
    return [
        Row(
            statistics=run.statistics,
            kind=kind,
            total_bytes=run.total_bytes[kind],
            step_bytes=run.step_bytes.get(kind),
            share=run.total_bytes[kind] / sum(run.total_bytes.values()),
            what=PURPOSES[kind],
        )
        for run in _norm_rows(found)
        for kind in BYTE_KINDS
        if run.total_bytes.get(kind)
    ]


PAYLOAD = Question(
    key="wire",
    text="What crosses the network besides gradients?",
    title="Payload by kind and by what is done with batch norm's statistics",
    rows=_wire_rows,
    columns=(
        STATISTICS,
        _text("kind", "kind"),
        _column("total_bytes", "whole run, all workers", size),
        _column("step_bytes", "per step and worker", _SIZE),
        _column("share", "share of the run's bytes", percent),
        _text("what", "what it is"),
    ),
    notes=("Payload, before a transport multiplies it by 2(N-1)/N.",),
    facts=lambda found, rows: {"runs": _norm_rows(found)},
    say="""
{% if not runs %}
With one worker nothing crosses the network: use -np 1,2 to see what does.
{% elif not runs|selectattr("step_bytes")|list %}
Bytes by kind were not recorded.
{% endif %}
{% for run in runs if run.step_bytes %}
{% set total, by_step = run.total_bytes, run.step_bytes %}
With statistics {{ run.statistics }}, each worker sends {{ by_step.gradients|size }} of gradients \
per step, plus \
{% for kind, part in by_step.items() if part and kind != "gradients" %}{{ kind }} {{ part|size }}\
{{ ", " if not loop.last }}{% else %}nothing{% endfor %}\
{% if by_step.gradients %} ({{ (run.beside_bytes / by_step.gradients)|percent }}){% endif %}, and \
{{ ((total.get("parameters", 0) + total.get("objects", 0)) / run.workers)|size }} once at the start.
{% endfor %}
""",
    figures=(
        Bars(
            name="wire-kinds",
            title="Payload per step and worker, by kind",
            caption="On a logarithmic axis; without what crosses once, at the start.",
            rows=lambda rows: [row for row in rows if row.step_bytes is not None],
            columns=(
                STATISTICS,
                _text("kind", "kind"),
                _column("step_bytes", "bytes per step and worker", size),
            ),
            options=_axes("kind", "step_bytes", "norm", log=True),
        ),
    ),
)
NORMS = Question(
    key="batch_norm",
    text="Would gradients alone do?",
    title="Batch norm's statistics left alone, broadcast and synchronised",
    rows=_norm_rows,
    columns=(
        STATISTICS,
        _column("workers", "workers", optional),
        TEST_ACCURACY,
        _range("difference", "difference to left alone", _SIGNED),
        _column("beside_bytes", "beside gradients, per step and worker", size),
        _range("step_s", "step", seconds),
        SEEDS,
    ),
    notes=(PAIRED,),
    facts=lambda found, rows: {
        "local": next((row for row in rows if row.norm == "local"), None),
        "points": points,
    },
    # Running statistics are not used in training: rank 0's are the same, sent around or not.
    say="""
{% set others = rows|selectattr("difference")|list %}
{% set better = others|selectattr("difference.low")|selectattr("difference.low", "gt", 0)|list %}
{% set worse = others|selectattr("difference.high")|selectattr("difference.high", "lt", 0)|list %}
{% if not local or not local.accuracy %}
Batch norm was not compared: it takes 2 workers or more (-np 1,2).
{% elif not others %}
The runs that broadcast or synchronise statistics are missing.
{% else %}
{% if better %}
Gradients alone train the network, but accuracy is higher with statistics \
{{ better|map(attribute="statistics")|list|listed }}.
{% elif not others|rejectattr("difference.low", "none")|list %}
Gradients alone train the network; one seed cannot show a difference.
{% elif worse|length == others|length %}
Gradients alone are enough, and accuracy is higher with them alone.
{% else %}
Gradients alone are enough, as far as these runs can show.
{% endif %}
On {{ local.workers }} workers, accuracy is {{ local.accuracy.value|four }} with statistics left \
alone{% for row in others %}; {{ row.statistics }}: {% if row.difference.value == 0 and not \
row.difference.high %}identical{% else %}{{ points(row.difference) }}{% endif %}{% endfor %}.
The lab answered yes: its statistics stay on each GPU, and it keeps those of the first.
{% endif %}
""",
    figures=(
        Bars(
            name="batch-norm-accuracy",
            title="Test accuracy by what is done with batch norm's statistics",
            caption="Mean over seeds.",
            options=_axes("norm", METRIC, zero=False),
        ),
    ),
)


# What the original got wrong: said, right, and what shows it, as templates.

CORRECTIONS = (
    (
        "A fixed batch per worker is called strong scaling in one place and weak in another.",
        "It is weak scaling of the step (the work per worker stays, the global batch grows) and "
        "strong scaling of the epoch (the images stay the same).",
        """
The lab's 2 GPUs at batch 32 take {{ two_s|number }} s for an epoch instead of \
{{ second_s|number }} s, in half as many steps of {{ (two_s / steps)|seconds }} instead of \
{{ (second_s / (2 * steps))|seconds }}.
{{ "No pair of step times was measured here." if not pair }}
"""
        + SAY_STEP_AND_EPOCH,
    ),
    (
        "One GPU at batch 32 takes {{ first_s|number }} s in one table and {{ second_s|number }} s "
        "in another, and communication is derived from the first.",
        "Two measurements of one setting have to agree, or nothing derived from them holds: "
        "measure communication instead of deriving it.",
        """
T(2) - T(1)/2 at batch 32 is {{ derived[0]|number }} s ({{ rates[0]|number }} GB/s) with the \
first time and {{ derived[1]|number }} s ({{ rates[1]|number }} GB/s) with the other.
{{ "No transfer was measured here." if not moved }}
"""
        + SAY_TRANSFER,
    ),
    (
        "A GB is 2^30 bytes.",
        "The lab's own figures use 10^9 bytes, and so do all of ours.",
        """
2 GPUs at batch 32 move {{ "%.6g" % rate }} bytes/s: {{ "%.5f" % (rate / 1e9) }} GB/s, as \
published, but {{ "%.5f" % (rate / 2**30) }} in units of 2^30.
{% if moved and moved.bus_gb_per_s %}
Here, {{ moved.bus_gb_per_s|number }} GB/s was measured; in units of 2^30 that is \
{{ (moved.bus_gb_per_s * 1e9 / 2**30)|number }}.
{% endif %}
""",
    ),
    (
        "The lab's {{ slips|listed }}.",
        "{{ wrong|map(attribute='value')|map('four')|list|listed }}, by the lab's own times.",
        """
{{ wrong|map(attribute="sentence")|join(" ") }}
{% if reached %}
Here, {{ reached.workers }} workers at batch {{ reached.batch }} reach \
{{ reached.speedup|interval_times }} by the same formula.
{% else %}
No speedup was measured here.
{% endif %}
""",
    ),
    (
        "A large batch loses accuracy because fewer parameters are updated.",
        "Every update changes every parameter, whatever the batch. A large batch makes fewer "
        "updates in the same epochs; a higher learning rate or more epochs make up for that.",
        """
{% if not many %}
No runs of one and of several workers at the same learning rate were made here.
{% else %}
At the same learning rate and epochs, one worker makes {{ one.steps|whole }} updates and \
{{ many.workers }} workers make {{ many.steps|whole }}, \
{% if not one.parameters or not many.parameters %}of all parameters each\
{% elif one.parameters == many.parameters %}of all {{ one.parameters|whole }} parameters each\
{% else %}of {{ one.parameters|whole }} and {{ many.parameters|whole }} parameters{% endif %}\
{{ "; accuracy changes by " + points(effect) if effect }}.
{% endif %}
""",
    ),
)


def corrections(found: Found) -> tuple[Correction, ...]:
    """Say what the original got wrong, with the arithmetic on its own figures."""
    published = [
        _by_place(found.published[f"cifar10_{name}"])
        for name in ("batch", "speedup", "communication")
    ]
    first_s, second_s = (cells[32, 1].epoch_s.value for cells in published[:2])
    sent, steps = published[2][32, 2].communication, steps_per_epoch(LAB_SAMPLES, 32, 2)
    derived = [
        derived_communication_s(published[2][32, 2].epoch_s.value, one, 2)
        for one in (first_s, second_s)
    ]
    runs = [run for run in _remedies(_runs(found)) if run.name == "fixed" and run.steps]
    one, many = _find(runs, 1), max(runs, key=lambda run: int(run.workers), default=None)
    wrong = [claim for claim in claims_of("cifar10") if not claim.agrees]
    facts = {
        "steps": steps,
        "first_s": first_s,
        "second_s": second_s,
        "two_s": published[1][32, 2].epoch_s.value,
        "pair": _step_and_epoch(found),
        "derived": derived,
        "rates": [bus_bandwidth(sent.gradient_bytes * steps, s, 2) / GB for s in derived],
        "moved": _largest_transfer(_communication_rows(found)),
        "rate": sent.derived_bus_bytes_per_s,
        "wrong": wrong,
        "slips": [f"{claim.what}: {claim.claimed}" for claim in wrong],
        "reached": next(iter(reversed(_most(_timings(found, "cifar10_speedup"), "speedup"))), None),
        "one": one,
        "many": many if one and many is not one else None,
        "effect": _difference(many, one) if many else None,
        "points": points,
    }
    fields = ("said", "right", "shown_by")
    told = [[" ".join(sentences(one, **facts)) for one in templates] for templates in CORRECTIONS]
    return tuple(Correction(**dict(zip(fields, texts, strict=True))) for texts in told)


QUESTIONS = (EPOCH_TIME, SPEEDUPS, TRANSFERS, REMEDIES, ARRANGEMENTS, PAYLOAD, NORMS)
LAB = Lab(
    name="cifar10",
    title="cifar10: where the time goes",
    line="ResNet-18 by batch and workers, communication measured, large batches, batch norm",
    questions=QUESTIONS,
    published=("cifar10_batch", "cifar10_speedup", "cifar10_communication", "cifar10_accuracy"),
    leading=("speedup", "communication", "accuracy"),
    efforts=len(LADDER),
    data=describe_cifar10,
    pilot=pilot,
    plan=plan,
    corrections=corrections,
)
