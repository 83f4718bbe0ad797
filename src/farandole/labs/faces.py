"""The faces lab: processes and threads, batches, weak and strong scaling of three networks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from typing import TYPE_CHECKING, Any

from farandole.errors import FarandoleError
from farandole.format import (
    known,
    listed,
    number,
    optional,
    percent,
    plural,
    seconds,
    size,
    times,
    whole,
)
from farandole.labs.data import describe_faces
from farandole.labs.faces_plan import (
    BATCH,
    LAB_GLOBAL_BATCH,
    LADDER,
    MODELS,
    RECIPE,
    SCALING,
    SPLIT,
    WORKERS,
    grid,
    pilot,
    plan,
)
from farandole.labs.lab import Answered, Correction, Found, Lab
from farandole.labs.questions import Bars, Lines, Question, answer, compare_recipes, sentences
from farandole.labs.rows import HERE, SOURCE, Row, cell_rows, claims_of, limits
from farandole.model.curves import Curve, Law, Scaling, fit_law
from farandole.model.statistics import SPEED_MARGIN, Estimate, scaled
from farandole.report.table import Column, Show
from farandole.study.records import Cell

if TYPE_CHECKING:
    from farandole.model.analyse import ScalingInfo

TITLES = tuple(MODELS.values())
LAB_PARAMETERS = {"InceptionV3": 23_851_784, "ResNet50": 25_636_712, "VGG16": 138_357_544}
"""With 1000 classes, at 224 pixels where that matters. The lab gives VGG16's."""
LAB_COUNTS = (1, 2, 4, 8)
CPU, GPU, PROJECTED = "lab, CPU", "lab, GPU", "projected"
"""Where figures come from, beside HERE."""


# What the studies and the published tables say of each network.


def title_of(cell: Cell) -> str:
    """Return the network of a cell as the lab writes it."""
    name = dict(cell.params).get("model", "")
    return MODELS.get(name, name)


def curves(info: ScalingInfo | None, scaling: Scaling) -> dict[str, Curve]:
    """Return one curve per network: that of most worker counts."""
    found: dict[str, Curve] = {}
    for curve in info.curves if info else ():
        if curve.scaling != scaling or len(curve.points) < 2:
            continue
        title = title_of(curve.points[0].cell)
        if title not in found or len(found[title].points) < len(curve.points):
            found[title] = curve
    return {title: found[title] for title in TITLES if title in found}


def measured(found: Found, scaling: Scaling) -> list[Row]:
    """Return what was measured here, network by network, by workers."""
    return [
        _point(HERE, title, point.workers, point)
        for title, curve in curves(found.studies.get(SCALING), scaling).items()
        for point in curve.points
        if point.valid
    ]


def published(found: Found, scaling: Scaling) -> list[Row]:
    """Return the lab's figures by nodes, CPU before GPU; of strong scaling it has speedups only."""
    info = found.published.get(f"faces_{scaling}")
    if info is None:
        return []
    if scaling == "strong":
        one = Row(speedup=Estimate(value=1.0, low=1.0, high=1.0))  # by definition
        return [
            _point(CPU, title_of(row.cell), count, point)
            for row in info.each("metrics")
            if row.metric == "speedup" and row.final is not None
            for count, point in ((1, one), (row.cell.hosts, Row(speedup=row.final)))
        ]
    return [
        _point(source, title, point.cell.hosts, point)
        for source, device in ((CPU, "cpu"), (GPU, "gpu"))
        for title in TITLES
        for curve in info.curves
        for point in curve.points
        if curve.scaling == "weak"
        if (title_of(point.cell), point.cell.device) == (title, device)
    ]


def projected(found: Found, scaling: Scaling) -> tuple[list[Row], list[str]]:
    """Project to the lab's counts beyond those measured; say of which networks and why not."""
    from farandole.model.projection.advice import project  # imports SciPy
    from farandole.model.projection.question import Question as Projection

    info, record = found.studies.get(SCALING), found.records.get(SCALING)
    rows: list[Row] = []
    failed: dict[str, list[str]] = {}
    for title, curve in curves(info, scaling).items():
        most = max(point.workers for point in curve.points)
        beyond = tuple(n for n in LAB_COUNTS if n > most and _divides(curve, n))
        if not beyond or info is None or record is None:
            continue
        model = dict(curve.points[0].cell.params)["model"]
        # One host of as many cores: no other link than the measured one is needed.
        asked = Projection(workers=beyond, per_host=max(beyond), only=(("model", model),))
        try:
            made = project(record, replace(info, curves=(curve,)), asked).rows
        except FarandoleError as error:
            failed.setdefault(str(error), []).append(title)
            continue
        rows += [_point(PROJECTED, title, row.workers, row) for row in made if not row.measured]
    return rows, [f"Not projected: {listed(titles)}. {why}" for why, titles in failed.items()]


def _divides(curve: Curve, count: int) -> bool:
    """Tell whether so many workers can share the batch, where it is shared."""
    return curve.scaling == "weak" or (curve.batch is not None and curve.batch % count == 0)


def _point(source: str, title: str, count: int, point: Any) -> Row:
    """Return one network on so many workers (here) or nodes (in the lab)."""
    throughput, speedup, step_s = (
        None if one is None else Estimate(value=one.value, low=one.low, high=one.high)
        for one in (point.throughput, point.speedup, point.step_s)
    )
    return Row(
        source=source,
        model=title,
        count=count,
        batch=point.batch,
        throughput=throughput,
        step_s=step_s,
        speedup=speedup,
        efficiency=None if speedup is None else scaled(speedup, 1 / count),
    )


def first(rows: Iterable[Row], source: str = HERE) -> dict[str, Row]:
    """Return each network's row of fewest workers or nodes."""
    own = sorted((row for row in rows if row.source == source), key=lambda row: -row.count)
    found = {row.model: row for row in own}
    return {title: found[title] for title in TITLES if title in found}


def last(rows: Iterable[Row], source: str = HERE) -> dict[str, Row]:
    """Return each network's row of most workers or nodes, where these are several."""
    several = (row for row in rows if row.source == source and row.count > 1)
    found = {row.model: row for row in sorted(several, key=lambda row: row.count)}
    return {title: found[title] for title in TITLES if title in found}


def together(found: Found, *names: str) -> ScalingInfo | None:
    """Return what several studies say as one; None when none of them could be made.

    Their cells were not measured in turns: a drift of the machine between them is not cancelled.
    """
    from farandole.model.analyse import analyse

    records = [(name, found.records[name]) for name in names if name in found.records]
    # Numbers of launches begin anew in each study.
    launches = tuple(
        replace(launch, id=f"{name}/{launch.id}")
        for name, study in records
        for launch in study.launches
    )
    return analyse(replace(records[0][1], launches=launches)) if records else None


def _cells(info: ScalingInfo | None, source: str) -> list[Row]:
    """Return the cells that have a throughput, with their networks as the lab writes them."""
    rows = [row for row in cell_rows(info, source) if row.throughput is not None]
    return [row.but(model=title_of(row.cell)) for row in rows]


def compared(rows: Sequence[Row], source: str = HERE) -> list[Row]:
    """Compare the throughputs of each network that has several rows."""
    found = []
    for title in TITLES:
        own = [row for row in rows if (row.source, row.model) == (source, title)]
        if len(own) > 1:
            worst, *_, best = sorted(own, key=lambda row: row.throughput.value)
            gain = best.throughput.value / worst.throughput.value
            change = own[-1].throughput.value / own[0].throughput.value
            clear = gain > 1 + SPEED_MARGIN
            row = Row(model=title, first=own[0], last=own[-1], best=best, worst=worst)
            found.append(row.but(gain=gain, change=change, clear=clear))
    return found


def _caveats(found: Found, study: str, rows: Iterable[Row]) -> dict[str, str]:
    """Return what weakens a comparison: other programs, and single launches."""
    return {"busy": " ".join(limits(found, study)), "once": ""}


def _here(rows: Sequence[Row]) -> list[Row]:
    return [row for row in rows if row.source == HERE]


# Columns.


def _blank(show: Show) -> Show:
    """Leave a cell empty where there is no figure."""
    return lambda value: show(value) if known(value) else ""


def _two(value: float) -> str:
    return f"{value:.2f}"


def _given(value: float | None) -> str:
    """Show a throughput with the lab's digits where it has more than three."""
    if value is None:
        return "not given"
    return _two(value) if value < 1000 else number(value)


def _text(key: str, title: str = "") -> Column:
    return Column(key=key, title=title or key, text=True)


_COUNT = "workers (here) or nodes (lab)"
MODEL, SETTING = _text("model", "network"), _text("setting")
BATCH_SIZE = Column(key="batch", title="batch", show=whole)
IMAGES = Column(key="images_per_s", title="images/s", show=_two, interval=True, get="throughput")
GIVEN = replace(IMAGES, show=_given)
STEP = Column(key="step_s", title="step", show=_blank(seconds), interval=True)
SPEEDUP = Column(key="speedup", title="speedup", show=times, interval=True)
EFFICIENCY = Column(key="efficiency", title="efficiency", show=percent, interval=True)


# Technologies.

_LAYERS = """
framework | forward, backward, update of one replica | PyTorch, TensorFlow, Keras \
| the same, built with CUDA | TensorFlow
kernels | the arithmetic of a layer, on the threads of one process \
| oneDNN, MKL, on OpenMP threads | cuDNN, cuBLAS | not said
API | who am I; average my gradients; begin with rank 0's weights | Horovod's | Horovod's | Horovod
engine | agrees on which gradients are ready, fuses them, reduces them beside backward \
| Horovod's coordinator, Farandole's engine | the same | Horovod
collectives | all-reduce: moves and adds | MPI, Gloo; shared memory in one host | NCCL \
| MPI (MVAPICH2) on CPUs, NCCL on GPUs
links | carry the bytes | memory; Ethernet, InfiniBand | NVLink, PCIe; InfiniBand | not said
launcher | starts one process per worker, tells it its rank and where to meet \
| mpirun, srun, horovodrun, farandole run | the same | not said
"""


def _layers(found: Found) -> list[Row]:
    """Return the layers with what ran here; nothing where nothing did."""
    machine: Mapping[str, Any] = next((info.machine for info in found.studies.values()), {})
    versions: Mapping[str, str | None] = machine.get("versions") or {}
    farandole = f"Farandole {versions.get('farandole') or ''}".strip()
    frameworks = [f"{name} {versions[name]}" for name in ("keras", "torch") if versions.get(name)]
    gpus = machine.get("gpus") or []
    here = {
        "framework": " on ".join(frameworks) or "Keras on torch",
        "kernels": "cuDNN" if gpus else "oneDNN",
        "API": farandole,
        "engine": farandole,
        "collectives": "NCCL" if gpus else "shared memory",
        "links": f"{len(gpus)} GPUs of one host" if gpus else "the memory of one host",
        "launcher": "farandole run",
    }
    layers = grid("layer does cpu gpu lab", _LAYERS.strip().splitlines())
    return [row.but(here=here[row.layer] if machine else "") for row in layers]


TECHNOLOGIES = Question(
    key="technologies",
    text="Which technologies carry multi-node training on CPUs and GPUs, and how do they fit?",
    title="From the framework down to the links",
    rows=_layers,
    columns=(
        *(_text("layer"), _text("does", "what it does"), _text("cpu", "on CPUs")),
        *(_text("gpu", "on GPUs"), _text("lab", "the lab had"), _text("here")),
    ),
    facts=lambda found, rows: {"ran": {row.layer: row.here for row in rows if row.here}},
    say="""
The framework computes a gradient, Horovod's API hands it to an engine, the engine packs it into \
a bucket, a collective library averages it over all workers, and a link carries the bytes.
CPUs and GPUs differ only below the engine: MPI, Gloo or shared memory on CPUs, NCCL on GPUs.
{% if ran %}
This run used {{ ran.framework }}, {{ ran.API }}, and {{ ran.collectives }} over {{ ran.links }}.
{% endif %}
""",
    notes=("See docs/explanation/technologies.md; `farandole env` says which a machine has.",),
)


# Processes x threads.


def splits(found: Found) -> list[Row]:
    """Return the splits of all cores that share one global batch, and the lab's."""
    strong = curves(found.studies.get(SCALING), "strong")
    batch = next((curve.batch for curve in strong.values() if curve.batch is not None), 0)
    here = [
        row.but(
            memory_bytes=None if row.memory_bytes is None else row.workers * row.memory_bytes,
            global_batch=batch,
        )
        for row in _cells(together(found, BATCH, SPLIT, SCALING), HERE)
        if row.threads is not None
        and row.cell.global_batch == batch
        and row.workers * row.threads == found.asked.cores
    ]
    here.sort(key=lambda row: (TITLES.index(row.model), row.workers))
    rows = [*here, *_cells(found.published.get("faces_split"), CPU)]
    best: dict[tuple[str, str], float] = {}
    for row in rows:
        key = (row.source, row.model)
        best[key] = max(best.get(key, 0.0), row.throughput.value)
    return [
        row.but(
            split=f"{row.workers} x {row.threads}",
            share=row.throughput.value / best[row.source, row.model],
        )
        for row in rows
    ]


def _split_facts(found: Found, rows: Sequence[Row]) -> dict[str, Any]:
    """Say which split of each network is the fastest, and whether it has more processes."""
    wins, ranked = set(), []
    for row in compared(rows):
        fastest = f"either way (within {percent(SPEED_MARGIN)})"
        if row.clear:
            wins.add("processes" if row.best.workers > row.worst.workers else "threads")
            fastest = f"{row.best.split} ({times(row.gain)} the speed of {row.worst.split})"
        ranked.append(row.but(fastest=fastest))
    return {
        "ranked": ranked,
        "wins": wins,
        "lab_ranked": compared(rows, CPU),
        "batch": next((row.global_batch for row in _here(rows)), 0),
        **_caveats(found, BATCH, rows),
    }


_SPLIT_HERE = """
{% if not ranked %}
Fewer than two splits of the cores were measured here, so there is nothing to compare.
{% elif not wins %}
At a global batch of {{ batch }} it does not matter here how the cores are split: \
{{ ranked | each("{model} is as fast {fastest}") }}.
{% else %}
Fastest processes x threads here, at a global batch of {{ batch }}: \
{{ ranked | each("{model} {fastest}") }}.
{% endif %}
"""
SPLITS = Question(
    key="split",
    text="How are a node's cores best shared out between processes and threads?",
    title="Processes x threads at one global batch",
    rows=splits,
    columns=(
        SOURCE,
        MODEL,
        Column(key="processes", title="processes", show=whole, get="workers"),
        Column(key="threads", title="threads each", show=whole),
        IMAGES,
        Column(key="share", title="of the best", show=percent),
        Column(key="memory_bytes", title="memory of all", show=_blank(size)),
    ),
    facts=_split_facts,
    say=_SPLIT_HERE
    + """
{% if wins | list == ["processes"] %}
More processes are faster. Usually that is because each runs its step on its own core, while \
threads split single layers and wait for each other after each. Processes cost memory and \
have to exchange gradients.
{% elif wins | list == ["threads"] %}
More threads are faster. Usually that is because a single process exchanges no gradients and reads \
its weights once, and its layers are large enough to keep all cores busy.
{% endif %}
{{ busy }}
{% for one in lab_ranked %}
The lab calls {{ one.worst.split }} best, but its {{ one.model }} is \
{{ "%.1f" | format(100 * one.gain - 100) }} % faster at {{ one.best.split }} \
({{ one.best.throughput.value | number }} against {{ one.worst.throughput.value | number }} \
images/s); single runs cannot confirm that.
{% endfor %}
{{ once }}
""",
    figures=(
        Bars(
            name="split-throughput",
            title="Images per second by processes x threads",
            caption="All cores of this machine at one global batch.",
            rows=_here,
            columns=(MODEL, _text("split", "processes x threads"), IMAGES),
            options={"x": "model", "y": "images_per_s", "series": "split"},
        ),
    ),
    notes=(
        "The splits come from two or more studies, so they did not all take turns.",
        "The lab publishes its best split, and one more for ResNet50.",
    ),
)


# Throughput by batch.


def batches(found: Found) -> list[Row]:
    """Return one process with all cores here, and one GPU of the lab, by batch."""
    here = _cells(found.studies.get(BATCH), HERE)
    lab = [row.but(step_s=None) for row in _cells(found.published.get("faces_batch"), GPU)]
    rows = [row for row in (*here, *lab) if row.batch is not None]
    return sorted(rows, key=lambda row: (row.source, TITLES.index(row.model), row.batch))


def _batch_facts(found: Found, rows: Sequence[Row]) -> dict[str, Any]:
    """Compare the smallest with the largest batch of each network."""
    info, changes = found.studies.get(BATCH), compared(rows)
    return {
        "changes": changes,
        "rises": any(row.change > 1 + SPEED_MARGIN for row in changes),
        "best": [
            Row(model=title_of(sweep.points[0].cell), batch=sweep.best)
            for sweep in (info.batch_sweeps if info else ())
            if sweep.best is not None
        ],
        "gpu": [row for row in rows if row.source == GPU],
        **_caveats(found, BATCH, rows),
    }


BATCHES = Question(
    key="batch",
    text="How does throughput depend on the batch?",
    title="Throughput by batch: one process with all cores (here), one GPU (lab)",
    rows=batches,
    columns=(SOURCE, MODEL, BATCH_SIZE, IMAGES, STEP),
    facts=_batch_facts,
    say="""
{% if changes %}
Going from batch {{ changes[0].first.batch }} to {{ changes[0].last.batch }} on all cores changes \
throughput by {{ changes | each("{change:times} for {model} ({first.throughput.value:number} to \
{last.throughput.value:number} images/s)") }}.
{% else %}
Fewer than two batches were measured here, so there is nothing to compare.
{% endif %}
{% if rises %}
A step usually has costs that do not depend on its images, such as reading and updating all \
weights and calling every layer. A larger batch spreads them over more images.
{% endif %}
{% if best %}
The smallest batch that is as fast as any: {{ best | each("{batch} for {model}") }}.
{% endif %}
{{ busy }}
On the lab's CPU nodes, throughput rose up to a batch of about 8 and then stayed flat.
{% if gpu %}
At a batch of {{ gpu[0].batch }}, one of the lab's GPUs reached \
{{ gpu | each("{throughput.value:number} images/s with {model}") }}; InceptionV3 was slightly \
faster at 64.
{% endif %}
{{ once }}
""",
    figures=(
        Lines(
            name="batch-throughput",
            title="Images per second by batch",
            caption="One process with all cores. Bars are 95 % intervals.",
            rows=_here,
            columns=(MODEL, BATCH_SIZE, IMAGES),
            options={"x": "batch", "y": "images_per_s", "series": "model", "x_log": True},
        ),
    ),
)


# Weak and strong scaling: measured, projected and published figures in one table.

_HOLLOW = "Hollow marks: the lab's, one run each."
_OVER = "Throughput over that of one worker (here) or one node (lab)."


def _answer_scaling(question: Question, found: Found) -> Answered:
    """Answer by the cells whose workers keep their batch, or by those that share one."""
    scaling: Scaling = "weak" if question.key == "weak" else "strong"
    here, lab = measured(found, scaling), published(found, scaling)
    ahead, why_not = projected(found, scaling)
    rows = [*here, *ahead, *lab]
    cpu, gpu = ([row for row in lab if row.source == source] for source in (CPU, GPU))
    fixed = "a fixed batch per worker" if scaling == "weak" else "a fixed global batch"
    hollow = " Hollow marks: projections, with 90 % intervals." if ahead else ""
    figures = (
        _lines(
            *(f"{scaling}-throughput", f"Images per second with {fixed}", [*here, *ahead], GIVEN),
            caption=f"Bars are 95 % intervals.{hollow}",
        ),
        _lines(
            "weak-lab-throughput",
            "The lab's images per second with a fixed batch per process or GPU",
            *(lab, GIVEN),
            caption=_HOLLOW,
        ),
        _lines(
            *(f"{scaling}-speedup", f"Speedup with {fixed}", [*here, *cpu], SPEEDUP),
            caption=f"{_OVER} CPUs. {_HOLLOW}",
        ),
        _lines(
            *("weak-gpu-speedup", f"Speedup of the lab's GPUs with {fixed}", gpu, SPEEDUP),
            caption=f"{_OVER} The lab's GPUs. {_HOLLOW}",
        ),
    )
    facts = {
        "fixed": fixed,
        "ours": _most(here, HERE),
        "ahead": _most(ahead, PROJECTED),
        "why_not": why_not,
        "theirs": {"CPU": _most(lab, CPU), "GPU": _most(lab, GPU)},
        **_caveats(found, SCALING, here),
    }
    made = replace(
        question,
        build=None,
        rows=lambda found: rows,
        facts=lambda found, rows: facts,
        figures=tuple(figure for figure in figures if figure.name.startswith(scaling)),
        notes=("Projections have 90 % intervals.",) if ahead else (),
    )
    return answer(made, found)


def _most(rows: Iterable[Row], source: str) -> Row | None:
    """Return each network's speedup at the most workers or nodes, and the span of efficiencies."""
    ends = [row for row in last(rows, source).values() if row.speedup is not None]
    if not ends:
        return None
    shares = [row.efficiency.value for row in ends]
    span = dict.fromkeys([percent(min(shares)), percent(max(shares))])
    return Row(count=ends[0].count, rows=ends, efficiency=" to ".join(span))


def _lines(name: str, title: str, rows: Sequence[Row], y: Column, *, caption: str) -> Lines:
    """Draw a figure by workers or nodes, a line per network and source."""
    from farandole.report.charts import doubling  # imports Altair

    drawn = [row for row in rows if y.cell(row) is not None]
    sources = {row.source for row in drawn}

    def series(row: Row) -> str:
        return f"{row.model}" if len(sources) == 1 else f"{row.model}, {row.source}"

    axis = "nodes" if sources <= {CPU, GPU} else _COUNT
    axis = "workers" if sources <= {HERE, PROJECTED} else axis
    return Lines(
        name=name,
        title=title,
        caption=caption,
        rows=lambda rows: drawn,
        columns=(
            replace(_text("series", "network"), get=series),
            Column(key="count", title=axis, show=whole),
            y,
        ),
        options={
            "x": "count",
            "y": y.key,
            "series": "series",
            # Both axes alike, so that what is proportional is a straight line.
            "log": doubling([row.count for row in drawn]),
            "ideal": y is SPEEDUP,
            "published": {series(row) for row in drawn if row.source != HERE},
        },
    )


_SCALING_COLUMNS = (
    *(SOURCE, MODEL, Column(key="count", title=_COUNT, show=whole)),
    Column(key="batch", title="batch per worker", show=optional),
    *(GIVEN, STEP, SPEEDUP, EFFICIENCY),
)
_SCALING_SAY = """
{% if ours %}
With {{ fixed }}, {{ ours.count | count("worker") }} speed up \
{{ ours.rows | each("{model} by {speedup:interval_times}") }}, an efficiency of \
{{ ours.efficiency }}.
{% else %}
No speedup with {{ fixed }} was measured here.
{% endif %}
{{ busy }}
{% if ahead %}
Projected, not measured: {{ ahead.count | count("worker") }} on as many cores like these would \
speed up {{ ahead.rows | each("{model} by {speedup:interval_times}") }}, with 90 % intervals.
{% endif %}
{% for line in why_not %}
{{ line }}
{% endfor %}
{% for device, most in theirs.items() if most %}
The lab's {{ most.count }} {{ device }} nodes speed up \
{{ most.rows | each("{model} by {speedup.value:times}") }}, an efficiency of \
{{ most.efficiency }}.
{% endfor %}
"""
WEAK: Question = Question(
    key="weak",
    text="How do the networks scale when every worker keeps its batch?",
    title="Weak scaling: the batch per worker stays",
    columns=_SCALING_COLUMNS,
    say=_SCALING_SAY + "{{ once }}",
    build=lambda found: _answer_scaling(WEAK, found),
)
STRONG: Question = Question(
    key="strong",
    text="How do they scale when the global batch is shared out?",
    title="Strong scaling: the global batch stays",
    columns=_SCALING_COLUMNS,
    say=_SCALING_SAY
    + """
The lab gives no figures for its GPUs; it says that InceptionV3 scales best and that ResNet50 \
flattens after 4 nodes.
{{ once }}
""",
    build=lambda found: _answer_scaling(STRONG, found),
)


# Why strong scaling falls off: the laws, and what a step loses as workers are added.


def losses(found: Found) -> list[Row]:
    """Return what each network loses at the most workers (here) or nodes (lab), both ways."""
    return [
        row
        for source, points in ((HERE, measured), (CPU, published))
        for title in TITLES
        if (row := _loss(found, source, title, points(found, "weak"), points(found, "strong")))
    ]


def _loss(
    found: Found, source: str, title: str, weak: Sequence[Row], strong: Sequence[Row]
) -> Row | None:
    one, many = (end(weak, source).get(title, Row()) for end in (first, last))
    whole_batch, shared = (end(strong, source).get(title, Row()) for end in (first, last))
    count = many.count or (shared.count if source == HERE else None)
    if count is None:
        return None
    row = Row(
        source=source,
        model=title,
        count=count,
        weak=many.speedup,
        strong=shared.speedup,
        gustafson=_law("gustafson", weak, source, title),
        amdahl=_law("amdahl", strong, source, title),
    )
    if source == CPU:
        # A node's share of weak scaling is the whole batch of strong scaling: one baseline.
        alone_s = LAB_GLOBAL_BATCH / one.throughput.value
        strong_s = alone_s / shared.speedup.value if shared.speedup else None
        return row.but(
            weak_lost_s=many.count * LAB_GLOBAL_BATCH / many.throughput.value - alone_s,
            strong_lost_s=None if strong_s is None else strong_s - alone_s / shared.count,
            gradient_bytes=4 * LAB_PARAMETERS[title],
        )
    info = found.studies[SCALING]
    sizes = (cell.gradient_bytes for cell in info.rows if title_of(cell.cell) == title)
    return row.but(
        weak_lost_s=_lost_s(many, one, 1),
        strong_lost_s=_lost_s(shared, whole_batch, shared.count),
        gradient_bytes=next((nbytes for nbytes in sizes if nbytes), None),
        weak_waited=_waited(info, many),
        strong_waited=_waited(info, shared),
    )


def _law(law: Law, rows: Iterable[Row], source: str, title: str) -> Any:
    own = [row for row in rows if (row.source, row.model) == (source, title) and row.speedup]
    return fit_law(law, [row.count for row in own], [row.speedup for row in own]) or Row()


def _lost_s(many: Row, one: Row, share: int) -> Any:
    """Return what a step takes beyond one worker's step, or beyond its share of it."""
    if many.step_s is None or one.step_s is None:
        return None
    return many.step_s.value - one.step_s.value / share


def _waited(info: ScalingInfo, at: Row) -> float | None:
    """Return the share of a step in which training waits for gradients to be reduced."""
    for split in info.each("split"):
        cell = split.cell
        if (title_of(cell), cell.workers, cell.batch) == (at.model, at.count, at.batch):
            return None if split.exposed_s is None else split.exposed_s / split.step_s
    return None


def _loss_facts(found: Found, rows: Sequence[Row]) -> dict[str, Any]:
    """Compare strong with weak scaling, and find the network whose wait rises most."""
    both = [row for row in rows if row.weak is not None and row.strong is not None]
    ours, cpu = ([row for row in both if row.source == source] for source in (HERE, CPU))
    waits = [row for row in ours if None not in (row.weak_waited, row.strong_waited)]
    laws = []
    for source, where, noun in (
        (HERE, "here", "worker here"),
        (CPU, "on the lab's CPU nodes", "CPU node of the lab"),
    ):
        law = Row(where=where, noun=noun, amdahl=[], gustafson=[])
        for row in (row for row in rows if row.source == source):
            if row.amdahl.law:
                limit = row.amdahl.limit
                words = "no limit" if limit is None else f"at most {times(limit)}"
                law.amdahl.append(row.but(limit=words))
            if row.gustafson.law:
                adds = 1 - row.gustafson.serial_fraction.value
                law.gustafson.append(row.but(adds=adds))
        laws.append(law)
    return {
        "ours": ours,
        "worse": [row for row in ours if row.strong.value < row.weak.value],
        "wait": max(waits, key=lambda row: row.strong_waited - row.weak_waited, default=None),
        "laws": laws,
        "cpu": cpu,
        "better": [row for row in cpu if row.strong.value > row.weak.value],
        "not_better": [row.model for row in cpu if row.strong.value <= row.weak.value],
        "sizes": [row.gradient_bytes for row in cpu],
    }


def _efficiencies(rows: Sequence[Row]) -> list[Row]:
    """Return the efficiency of either scaling, with the setting in words."""
    found = []
    for row in rows:
        where = plural(row.count, "worker" if row.source == HERE else "node")
        setting = f"{row.model}, {row.source}, {where}"
        for scaling, speedup in (("weak", row.weak), ("strong", row.strong)):
            share = speedup and scaled(speedup, 1 / row.count)
            found += [Row(setting=setting, scaling=scaling, efficiency=share)] if share else []
    return found


def _serial(law: str, title: str) -> Column:
    get = f"{law}.serial_fraction"
    return Column(key=law, title=f"serial, {title}", show=percent, interval=True, get=get)


WHY = Question(
    key="why",
    text="Why does strong scaling fall off, and weak scaling not?",
    title="Serial shares, and what a step loses, at the most workers or nodes",
    rows=losses,
    columns=(
        *(SOURCE, MODEL, Column(key="count", title="workers or nodes", show=whole)),
        replace(SPEEDUP, key="weak_speedup", title="weak", get="weak"),
        replace(SPEEDUP, key="strong_speedup", title="strong", get="strong"),
        _serial("gustafson", "Gustafson (weak)"),
        _serial("amdahl", "Amdahl (strong)"),
        Column(key="weak_lost_s", title="lost per step, weak", show=seconds),
        Column(key="strong_lost_s", title="lost per step, strong", show=seconds),
        Column(key="gradient_bytes", title="gradients", show=size),
        Column(key="weak_waited", title="waits for them, weak", show=_blank(percent)),
        Column(key="strong_waited", title="waits for them, strong", show=_blank(percent)),
    ),
    facts=_loss_facts,
    say="""
{% if wait %}
Sharing a batch shortens what a worker computes, but not what it sends: {{ wait.model }} exchanges \
{{ wait.gradient_bytes | size }} of gradients in every step, and on \
{{ wait.count | count("worker") }} waiting for them takes {{ wait.strong_waited | percent }} of a \
step when they share a batch, {{ "against" if wait.strong_waited > wait.weak_waited else
"not more than the" }} {{ wait.weak_waited | percent }} when each keeps its own.
{% endif %}
{% if ours %}
Strong scaling is worse than weak scaling for {{ worse | length }} of \
{{ ours | length | count("network") }} here: \
{{ ours | each("{model} {strong.value:times} against {weak.value:times}") }}.
{% else %}
No network was scaled both ways here, so only the lab's figures can be compared.
{% endif %}
{% for law in laws %}
{% if law.amdahl %}
By Amdahl's law, the serial share {{ law.where }} limits strong scaling: \
{{ law.amdahl | each("{model} {amdahl.serial_fraction.value:percent} ({limit})") }}.
{% endif %}
{% if law.gustafson %}
By Gustafson's law, weak scaling has no such limit: each further {{ law.noun }} adds \
{{ law.gustafson | each("{adds:.2f} ({model})") }} of the throughput of one.
{% endif %}
{% endfor %}
{% if better %}
On the lab's CPU nodes, strong scaling beats weak scaling for \
{{ better | each("{model} ({strong.value:times} against {weak.value:times})") }}\
{{ ", but not for " ~ (not_better | listed) if not_better }}.
{% endif %}
{% if cpu | length > 1 %}
In weak scaling, a step of the lab takes longer on {{ cpu[0].count }} nodes than on one by \
{{ cpu | each("{weak_lost_s:seconds} ({model})") }}: nearly the same for {{ sizes | min | size }} \
of gradients as for {{ sizes | max | size }}, so bandwidth is not the limit. Usually nodes then \
wait for each other or for their input.
In strong scaling, a step of the lab takes longer than its share of one node's by \
{{ cpu | each("{strong_lost_s:seconds} ({model})") }}, most for the network with the most gradients.
{% endif %}
""",
    figures=(
        Bars(
            name="why-efficiency",
            title="Efficiency of weak and strong scaling",
            caption="Speedup over workers (here) or nodes (lab), at the most that were measured.",
            rows=_efficiencies,
            columns=(_text("setting", "network"), _text("scaling"), EFFICIENCY),
            options={"x": "setting", "y": "efficiency", "series": "scaling"},
        ),
    ),
    notes=(
        "Lost, weak: T(N) - T(1), because each worker has as much to do as before. Lost, strong: "
        "T(N) - T(1)/N. The lab's gradients are 4 bytes x the network's parameters at 224 pixels "
        "and 1000 classes.",
    ),
)


# The order of the networks, setting by setting, and where it reverses.


def orders(found: Found) -> list[Row]:
    """Return images per second by setting: one worker or node and the most, here and in the lab."""
    points = [*measured(found, "weak"), *published(found, "weak")]
    settings: dict[tuple[str, str, str], dict[str, float]] = {}
    for source, noun in ((HERE, "worker"), (CPU, "CPU node"), (GPU, "GPU node")):
        for row in (*first(points, source).values(), *last(points, source).values()):
            setting = f"{source}, {plural(row.count, noun.split()[-1])}"
            key = (source, setting, plural(row.count, noun))
            settings.setdefault(key, {})[row.model] = row.throughput.value
    return [
        Row(
            source=source,
            setting=setting,
            place=place,
            speeds=speeds,
            order=" > ".join(sorted(speeds, key=lambda title: -speeds[title])),
            **{model: speeds.get(title) for model, title in MODELS.items()},
        )
        for (source, setting, place), speeds in settings.items()
        if len(speeds) > 1
    ]


def reversals(one: Mapping[str, float], other: Mapping[str, float]) -> list[tuple[str, str]]:
    """Return pairs of networks, the faster one in `one` first, whose order `other` reverses."""
    found = []
    for a, b in combinations([title for title in TITLES if title in one and title in other], 2):
        ahead, behind = (a, b) if one[a] > one[b] else (b, a)
        clear = one[ahead] > (1 + SPEED_MARGIN) * one[behind]
        if clear and other[behind] > (1 + SPEED_MARGIN) * other[ahead]:
            found.append((ahead, behind))
    return found


def _order_facts(found: Found, rows: Sequence[Row]) -> dict[str, Any]:
    """Find every pair of networks that a later setting is the first to reverse."""
    ours, theirs = _here(rows), [row for row in rows if row.source != HERE]
    settings, against = [], []
    for where, own in (("Here", ours), ("In the lab", theirs)):
        passes: dict[tuple[str, str], str] = {}
        for row in own[1:]:
            for pair in reversals(own[0].speeds, row.speeds):
                passes.setdefault(pair, row.place)
        reversed_at = [Row(ahead=a, behind=b, place=place) for (a, b), place in passes.items()]
        settings += [own[0].but(where=where, passes=reversed_at)] if own else []
    if ours and theirs:
        here, lab = ours[0].speeds, theirs[0].speeds
        against = [
            Row(ahead=a, behind=b, here=here[b] / here[a], lab=lab[b] / lab[a])
            for a, b in reversals(lab, here)
        ]
    return {"settings": settings, "against": against, "theirs": theirs}


ORDER = Question(
    key="order",
    text="In which order of speed do the networks come, and where does it reverse?",
    title="Images per second by network and setting, and their order",
    rows=orders,
    columns=(
        SETTING,
        *(Column(key=model, title=title, show=_blank(_two)) for model, title in MODELS.items()),
        _text("order"),
    ),
    facts=_order_facts,
    say="""
{% if not here %}
Fewer than two networks were measured here.
{% endif %}
{% for row in settings %}
{{ row.where }}, the order on {{ row.place }} is {{ row.order }}, \
{{ "but " ~ (row.passes | each("{behind} passes {ahead} on {place}")) if row.passes else
"and no other setting reverses it" }}.
{% endfor %}
{% for row in against %}
Unlike on {{ theirs[0].place }} of the lab, {{ row.behind }} is faster here than {{ row.ahead }}: \
{{ row.here | times }}, against {{ row.lab | times }} there.
{% endfor %}
VGG16 needs about four times as many operations per image as ResNet50, in a few large layers. A \
CPU usually takes longer in proportion; a GPU usually runs a few large layers more efficiently \
than many small ones.
""",
    figures=(
        Bars(
            name="order-relative",
            title="Speed of the networks over ResNet50's",
            caption="Images per second over those of ResNet50 in the same setting.",
            rows=lambda rows: [
                Row(setting=row.setting, model=title, ratio=row.speeds[title] / row.resnet50)
                for row in rows
                if row.resnet50
                for title in TITLES
                if title in row.speeds
            ],
            columns=(SETTING, MODEL, Column(key="ratio", title="over ResNet50", show=times)),
            options={"x": "setting", "y": "ratio", "series": "model"},
        ),
    ),
)


# Accuracy of a small network.


ACCURACY = compare_recipes(
    "accuracy",
    "What do more workers do to the accuracy of ages?",
    (WORKERS, RECIPE),
    more="""
This is a small network of four convolutions, because the lab's three would need hours on a few \
cores. The lab measures throughput and gives no accuracy.
Guessing gives 0.1111, one of 9 groups.
""",
)


# What the lab got wrong or left unexplained.


def baselines(found: Found) -> list[Row]:
    """Return each network's speedup on GPUs as the lab gives it, beside its own figures."""
    points = published(found, "weak")
    cpu, gpu, gpus = first(points, CPU), first(points, GPU), last(points, GPU)
    gains = {row.model: row.gain for row in compared(batches(found))}
    rows = []
    for claim in claims_of("faces"):
        title = claim.what.split(",")[0]
        if "GPU" not in claim.what or title not in gpus:
            continue
        claimed, nodes = float(claim.claimed), gpus[title].count
        one, most = gpu[title].throughput.value, gpus[title].throughput.value
        row = Row(model=title, nodes=nodes, claimed=claimed, one=one, most=most, each=most / nodes)
        # Implied: what one GPU must have reached. On CPU and GPU: how long an image takes over
        # ResNet50's time.
        rows.append(
            row.but(
                implied=most / claimed,
                off=100 * (most / claimed / one - 1),
                speedup=most / one,
                needed=most / one / nodes,
                on_cpu=cpu["ResNet50"].throughput.value / cpu[title].throughput.value,
                on_gpu=gpu["ResNet50"].throughput.value / one,
                gain=gains.get(title),
            )
        )
    return rows


def _both(weak: Mapping[str, Row], strong: Mapping[str, Row]) -> list[Row]:
    """Return each network's speedups of both kinds at the same count."""
    return [
        Row(model=title, count=row.count, weak=one, strong=other, change=100 * (other / one - 1))
        for title, row in weak.items()
        if title in strong and strong[title].count == row.count
        if row.speedup and strong[title].speedup
        for one, other in [(row.speedup.value, strong[title].speedup.value)]
    ]


def _correction_facts(found: Found) -> dict[str, Any]:
    """Return the arithmetic on the lab's own figures, and what was measured here."""
    here, lab = measured(found, "weak"), published(found, "weak")
    claims, rows, again = baselines(found), splits(found), first(lab, CPU)
    above = [row for row in claims if row.claimed > row.nodes]
    ends = [row for row in last(here).values() if row.speedup is not None]
    more = [row for row in ends if (row.speedup.low or row.speedup.value) > row.count]
    pairs = _both(last(lab, CPU), last(published(found, "strong"), CPU))
    on_lab = [row for row in rows if row.source == CPU]

    def fastest_first(some: Iterable[Row]) -> list[Row]:
        return sorted(some, key=lambda row: -row.throughput.value)

    return {
        "claims": claims,
        "above": above,
        "gone": [row for row in above if row.speedup <= row.nodes],
        "still": [row for row in above if row.speedup > row.nodes],
        "ends": ends,
        "superlinear": [row.model for row in more],
        "single": any(row.speedup.low is None for row in more),
        "ones": list(first(here).values()),
        "by_speed": fastest_first(ends),
        "one_gpu": fastest_first(first(lab, GPU).values()),
        "all_gpus": fastest_first(last(lab, GPU).values()),
        "pairs": pairs,
        "falls": [row.model for row in pairs if row.strong < row.weak],
        "stays": [row.model for row in pairs if row.strong >= row.weak],
        "worst": min(pairs, key=lambda row: row.change, default=Row(model="none")).model,
        "pairs_here": _both(last(here), last(measured(found, "strong"))),
        "faster": [row for row in on_lab if row.workers == 2],
        "twice": [
            row.but(once=once, again=other, off=abs(100 * (once / other - 1)))
            for row in on_lab
            if row.workers == 4 and row.model in again
            for once, other in [(row.throughput.value, again[row.model].throughput.value)]
        ],
        **_split_facts(found, rows),
    }


# What the lab says, what is right, what shows it.
_CORRECTIONS = (
    (
        """8 GPU nodes are {{ above | each("{claimed:g} times ({model})") }} as fast as one.""",
        """
{% for row in gone %}
{{ row.model }}'s speedup is {{ row.speedup | times }} by the lab's own figure for one GPU, less \
than linear.
{% endfor %}
{% for row in still %}
{{ row.model }}'s stays at {{ row.speedup | times }}, {{ (row.needed - 1) | percent }} more than \
linear: do not quote it. Averaging gradients cannot make a GPU faster than it is alone, so \
something else held the single GPU back.
{% endfor %}
""",
        """
{% for row in still %}
{{ row.model }}: {{ row.one | number }} images/s on one GPU, {{ row.each | number }} on each of \
{{ row.nodes }}.
An image takes {{ row.model }} {{ row.on_cpu | times }} as long as ResNet50 on a CPU node, but \
{{ row.on_gpu | times }} on one GPU, as if both waited for the same thing there. Usually that is \
input read for the first time, or a batch of 128 that barely fits the memory.
{% if row.gain %}
A poorly chosen batch {{ "could" if row.gain > row.needed else "alone would not" }} explain it: \
here the best batch makes {{ row.model }} {{ row.gain | times }} as fast as the worst, and \
{{ row.needed | times }} needs explaining.
{% endif %}
{% endfor %}
{% if ends %}
Here, on {{ ends[0].count | count("worker") }}: \
{{ ends | each("{model} {speedup:interval_times}") }}; \
{{ "more than linear for " ~ (superlinear | listed) if superlinear else
"none is more than linear" }}.
{% else %}
No speedup was measured here.
{% endif %}
{{ "These are single launches: this may be noise, or something slowed down the launch of one \
worker." if single }}
""",
    ),
    (
        """Speedups on 8 GPU nodes: {{ claims | each("{model} {claimed:g}") }}.""",
        """
By the lab's own figures for one GPU at the same batch they are \
{{ claims | each("{model} {speedup:times}") }}: the lab divided by other baselines, which it does \
not publish.
""",
        """
The baselines that its speedups imply: {{ claims | each("{most:g} / {claimed:g} = \
{implied:number} images/s for {model}, where the batch sweep has {one:g} ({off:+.1f} %)") }}.
{% if ones %}
Here every speedup is over one worker of the same study and batch: \
{{ ones | each("{model} {throughput:interval}") }} images/s.
{% endif %}
""",
    ),
    (
        "VGG16 is last on CPUs and first on GPUs.",
        """
It is first on 8 GPUs only, by the figure that is more than linear; on one GPU, \
{{ one_gpu[0].model }} is faster.
""",
        """
Images/s on one GPU: {{ one_gpu | each("{model} {throughput.value:number}") }}; on 8: \
{{ all_gpus | each("{model} {throughput.value:number}") }}.
{% if by_speed %}
Here, on {{ by_speed[0].count | count("worker") }} on CPU cores: \
{{ by_speed | each("{model} {throughput:interval}") }}.
{% endif %}
""",
    ),
    (
        "Strong scaling falls off and weak scaling does not.",
        """
On the lab's CPU nodes this holds for {{ falls | listed or "none" }}, not for \
{{ stays | listed or "none" }}, and clearly only for {{ worst }}. Amdahl's limit usually shows \
once a step is short compared with its gradient exchange, and {{ worst }} has the most gradients.
""",
        """
Speedup on 8 CPU nodes: \
{{ pairs | each("{model} {weak:times} weak, {strong:times} strong ({change:+.0f} %)") }}.
{% if pairs_here %}
Here, on {{ pairs_here[0].count | count("worker") }}: \
{{ pairs_here | each("{model} {weak:times} weak, {strong:times} strong") }}.
{% endif %}
""",
    ),
    (
        "4 processes x 7 threads are best.",
        """
{{ faster | each("{model} reaches {throughput.value:g} images/s at {split}, more than at 4 x 7") }}.
Single runs differ by more than such gains, so they cannot tell which split is best.
""",
        """
The lab measured one CPU node with 4 x 7 at a global batch of 128 twice, for the splits and for \
weak scaling: {{ twice | each("{model} {once:g} and {again:g} images/s ({off:.1f} %)") }}.
"""
        + _SPLIT_HERE,
    ),
)


def corrections(found: Found) -> tuple[Correction, ...]:
    """Say what the original got wrong, with the arithmetic on its own figures."""
    facts = _correction_facts(found)
    texts = [[" ".join(sentences(one, **facts)) for one in each] for each in _CORRECTIONS]
    return tuple(Correction(said=said, right=right, shown_by=by) for said, right, by in texts)


QUESTIONS = (TECHNOLOGIES, SPLITS, BATCHES, WEAK, STRONG, WHY, ORDER, ACCURACY)
LAB = Lab(
    name="faces",
    title="faces: three CNNs, weak and strong scaling",
    line="processes x threads, batches, weak and strong scaling of ResNet50, InceptionV3, VGG16",
    questions=QUESTIONS,
    published=("faces_weak", "faces_strong", "faces_split", "faces_batch"),
    leading=("weak", "strong", "why"),
    # Its own figures have these curves, by nodes; here they would be by processes.
    beside={"faces_weak": ()},
    efforts=len(LADDER),
    data=describe_faces,
    pilot=pilot,
    plan=plan,
    corrections=corrections,
)
