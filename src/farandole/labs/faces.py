"""The faces lab: processes and threads, batches, weak and strong scaling of three networks."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from farandole.format import listed, number, percent, plural, seconds, size, times, whole
from farandole.labs import plan as plans
from farandole.labs import rows as shared
from farandole.labs.data import describe_faces
from farandole.labs.lab import Asked, Choice, Correction, DataFacts, Found, Lab, Plan, Planned, Rate
from farandole.labs.plan import EIGHT, FOUR, TWO, Training, Workload, launch_s, steps_s
from farandole.labs.questions import Chart, Question, bars, boxes, compare_recipes, correct, lines
from farandole.labs.rows import HERE, Row, column, columns, having, measure, table_rows, text
from farandole.model.curves import Law, Scaling, fit_law
from farandole.model.statistics import Estimate, scaled, speed_relation
from farandole.report.table import Column

if TYPE_CHECKING:
    from farandole.model.analyse import ScalingInfo

MODELS = {"inceptionv3": "InceptionV3", "resnet50": "ResNet50", "vgg16": "VGG16"}
"""Names for the script, with those for people, in the lab's order."""
TITLES = tuple(MODELS.values())
NETWORKS = table_rows(
    "model parameters trainable layers tensors multiply_adds",
    ("InceptionV3", 23_851_784, 23_817_352, 95, 190, 2_837_921_120),
    ("ResNet50", 25_636_712, 25_583_592, 54, 214, 3_857_973_248),
    ("VGG16", 138_357_544, 138_357_544, 16, 32, 15_470_264_320),
)
"""As Keras has them, at 224 pixels and 1000 classes: layers with weights, tensors of gradients,
and what convolutions and dense layers multiply and add for one image."""
NODES = (1, 2, 4, 8)
CPU, GPU, PROJECTED = "lab, CPU", "lab, GPU", "projected"
"""Where figures come from, beside HERE."""


# The plan: which studies are made at which size. No two of them run the same cell.

LAB_PIXELS, LAB_BATCH, LAB_GLOBAL_BATCH = 224, 32, 128
LAB_SPLITS = (2, 4)
"""Processes of a node beside one: 2 x 14 and 4 x 7 threads of 28 cores."""

SCALING, BATCH, SPLIT, WORKERS, RECIPE = "scaling", "batch", "split", "workers", "recipes"
"""Names of the studies."""

PILOT_PIXELS = 75
"""What InceptionV3 takes at least, and what rates are measured at."""
_PILOT_STEPS, _PILOT_BATCH = 4, 8
RECIPES = ("linear", "fixed", "warmup", "longer")
SMALL = Workload(
    name="small",
    script="faces.py",
    batch=16,
    learning_rate=0.002,
    guess=Rate(samples_per_s=350.0, startup_s=7.0),
    few_test_samples=32,
    arguments=("--model", "small", "--image-size", "64"),
)
# Of one core of a virtual machine at PILOT_PIXELS, where no pilot has measured.
_GUESS = {
    "inceptionv3": Rate(samples_per_s=10.0, startup_s=7.5),
    "resnet50": Rate(samples_per_s=8.0, startup_s=7.5),
    "vgg16": Rate(samples_per_s=4.0, startup_s=7.5),
}
_FEW, _MORE, _MANY = (1, 4), (1, 4, 8), (1, 2, 4, 8, 16)

# Quick, by budget, full. `batch` is per worker, for weak scaling; `global_batch` is for strong
# scaling and for splits of the cores; `sweep` are batches of one process with all cores, beside the
# global one. Steps and repeats are of launches for speed. Workers beyond the cores count for
# accuracy only, which has so many recipes, epochs and seeds.
EFFORTS = table_rows(
    "pixels batch global_batch sweep steps repeats workers recipes epochs seeds",
    (75, 6, 6, (2,), 3, 1, TWO, 1, 2, 1),
    (75, 8, 8, (2,), 5, 1, TWO, 1, 4, 1),
    (75, 8, 8, (2,), 6, 2, TWO, 1, 4, 1),
    (75, 8, 8, (2,), 6, 3, TWO, 1, 8, 1),
    (75, 8, 8, _FEW, 6, 3, FOUR, 1, 8, 1),
    (75, 16, 16, _FEW, 6, 3, FOUR, 1, 8, 2),
    (75, 16, 16, _FEW, 8, 3, FOUR, 2, 10, 3),
    (75, 16, 16, _MORE, 8, 3, FOUR, 2, 10, 3),
    (75, 16, 16, _MORE, 8, 5, FOUR, 2, 15, 3),
    (96, 32, 32, _MANY, 8, 5, EIGHT, 3, 20, 5),
    (128, 32, 32, _MANY, 8, 5, EIGHT, 4, 20, 5),
    (LAB_PIXELS, 32, 32, _MANY, 8, 5, EIGHT, 4, 20, 5),
    (LAB_PIXELS, LAB_BATCH, LAB_GLOBAL_BATCH, (*_MANY, 32, 64), 20, 1, EIGHT, 1, 20, 1),
)


def pilot(asked: Asked) -> tuple[Planned, ...]:
    """Return the studies that measure what one worker does in a second, for each network."""
    here = Row(pixels=PILOT_PIXELS, steps=_PILOT_STEPS, images=4 * _PILOT_BATCH)
    options = {"workers": 1, "threads": 1, "params": {"batch": _PILOT_BATCH}}
    made = []
    for model, title in MODELS.items():
        title = f"How fast one worker trains {title}"
        once_s = steps_s(_GUESS[model], threads=1, batches=(_PILOT_BATCH,), steps=_PILOT_STEPS)
        made.append(_speed_study(asked, here, model, title, once_s, options, model=model))
    return (*made, SMALL.pilot(asked))


def plan(asked: Asked, data: DataFacts, rates: Mapping[str, Rate], effort: int) -> Plan:
    """Return the studies of a size."""
    here = sized(asked, data, plans.chosen(asked, EFFORTS, effort))
    cores, steps = asked.cores, here.steps
    shared, batches = here.shared, tuple(sorted({*here.sweep, here.shared}))
    # Convolutions cost as many operations as there are pixels.
    slower = (here.pixels / PILOT_PIXELS) ** 2
    by_model = [rates.get(model, guess) for model, guess in _GUESS.items()]
    by_model = [replace(rate, samples_per_s=rate.samples_per_s / slower) for rate in by_model]
    cells = {(count, batch) for count in here.counts for batch in (here.batch, shared // count)}
    scaling_s = sum(
        launch_s(rate, workers=n, cores=cores, samples=steps * batch * n, epochs=1)
        for rate in by_model
        for n, batch in cells
    )
    sweep_s = sum(steps_s(rate, threads=cores, batches=batches, steps=steps) for rate in by_model)
    each_s = [rate.startup_s + steps * shared / (rate.samples_per_s * cores) for rate in by_model]
    split_s, repeats = len(here.splits) * sum(each_s), here.repeats
    both, threads = {"batch": here.batch, "global_batch": shared}, {"workers": 1, "threads": cores}
    study = partial(_speed_study, asked, here)
    # What a sweep compares differs more than what scales does: one repeat less.
    titles = (
        "Weak and strong scaling of the three networks",
        "One process with all cores, by batch",
    )
    counts = {"workers": here.counts, "threads": 1}
    studies = [
        study(SCALING, titles[0], scaling_s, counts, both, repeats),
        study(BATCH, titles[1], sweep_s, threads, {"batch": batches}, max(1, repeats - 1)),
    ]
    if here.splits:
        title = "Processes x threads between one process and one thread each"
        split = {"workers": here.splits, "split": "all"}
        studies.append(study(SPLIT, title, split_s, split, {"global_batch": shared}, repeats))
    everything = here.but(samples=0, test_samples=0)
    training = Training(SMALL, asked, data, rates.get(SMALL.name, SMALL.guess), everything)
    workers = plans.counts(asked, here.workers)
    names = plans.recipes(asked, RECIPES[: here.recipes])
    studies += training.by_workers("Accuracy", names, workers)
    return Plan(studies=tuple(studies), choices=_choices(asked, data, here, names))


def sized(asked: Asked, data: DataFacts, here: Row) -> Row:
    """Return an effort with what this machine makes of it.

    `counts` are numbers of workers whose speed counts, `splits` the processes of the lab's splits
    that no other study runs, `shared` is the global batch, which all of them can share.
    """
    cores, chosen = asked.cores, plans.counts(asked, here.workers)
    counts = tuple(sorted({1, *(count for count in chosen if count <= cores)}))
    # One process with all cores is in the sweep of batches, one thread each in the scaling.
    once = {cores} & {*counts}
    splits = tuple(count for count in LAB_SPLITS if cores % count == 0 and count not in once)
    divisor = math.lcm(*counts, *splits)
    shared = math.ceil(here.global_batch / divisor) * divisor
    images = min(data.train, 4 * max(shared, *here.sweep, here.batch * counts[-1]))
    return here.but(counts=counts, splits=splits, shared=shared, images=images)


def _speed_study(
    asked: Asked,
    here: Row,
    name: str,
    title: str,
    once_s: float,
    options: Mapping[str, Any],
    params: Mapping[str, Any] | None = None,
    repeats: int = 1,
    *,
    model: str = "{model}",
) -> Planned:
    """Return a study of steps: its job has no end and goes round few images.

    `once_s` is what one launch of each cell takes; with `params`, all networks are run.
    """
    options = {**options, "params": {**params, "model": MODELS}} if params else options
    # At full size a step is minutes long on a CPU.
    patience = {"launch_timeout": "24h"} if asked.size == "full" else plans.busy_options(asked)
    flags = {"model": model, "image-size": here.pixels, "loop": here.images}
    flags |= {"epochs": 1000, "batch-size": "{batch}", "recipe": "fixed"}
    options = {**options, "steps": here.steps, **plans.speed_options(repeats), **patience}
    seconds = repeats * once_s
    return plans.script_study(
        asked, name, title, SMALL.script, flags, options=options, seconds=seconds
    )


def _choices(
    asked: Asked, data: DataFacts, here: Row, recipes: tuple[str, ...]
) -> tuple[Choice, ...]:
    """Say where a run differs from the original, and why."""
    cores, workers = plural(asked.cores, "core"), plans.counts(asked, here.workers)
    splits = [count for count in sorted({1, 2, 4, asked.cores}) if asked.cores % count == 0]
    full, fit = here.pixels == LAB_PIXELS, "to fit the time"
    smaller = f"{fit}; InceptionV3 takes no less than 75, and VGG16's dense layers shrink with it"
    said = f"""
software | TensorFlow on Horovod, over MPI (MVAPICH2) and NCCL \
| Keras on PyTorch and Farandole, over shared memory
device | CPU nodes of 28 cores; GPUs | {cores} of one host
nodes | 1, 2, 4 and 8; 4 processes of 7 threads a CPU node \
| {plans.words(here.counts)} workers with a thread each | a core stands for a node
images of a run for speed | not said | {whole(here.images)}, again and again \
| a step costs the same whatever it sees
size of an image, speed | not said; VGG16's parameters are those at 224 pixels \
| {here.pixels} pixels | {"" if full else smaller}
batch per worker, weak scaling | 32 per process, 128 per GPU | {here.batch} \
| {"" if here.batch == LAB_BATCH else fit}
global batch, strong scaling and splits | 128 | {here.shared} \
| {"" if here.global_batch == LAB_GLOBAL_BATCH else fit}
splits of a node | 1 x 28, 2 x 14 and 4 x 7 \
| {listed([f"{count} x {asked.cores // count}" for count in splits])}
steps of a launch for speed | not said | {here.steps}
accuracy | not measured | a small network on nine groups of age: {whole(data.train)} images, \
{plans.words(workers)} workers, batch {SMALL.batch} each, {here.epochs} epochs, \
recipe {", ".join(recipes)} \
| {plans.beyond(workers, asked.cores) or "the three networks would need hours to learn"}
"""
    rows = [[cell.strip() for cell in line.split("|")] for line in said.strip().splitlines()]
    return plans.choices(*rows)


# Rows: each network by workers (here) or nodes (the lab).


def cells(info: ScalingInfo | None, source: str = HERE) -> list[Row]:
    """Return a study's cells, with the networks as the lab writes them."""
    rows = shared.cell_rows(info, source)
    return [row.but(model=MODELS.get(row.model, row.model), count=row.workers) for row in rows]


def by_network(rows: Iterable[Row], source: str = HERE) -> dict[str, list[Row]]:
    """Return the rows of a source by network, in the lab's order."""
    own = having(rows, source=source)
    return {title: found for title in TITLES if (found := having(own, model=title))}


def last(rows: Iterable[Row], source: str = HERE) -> list[Row]:
    """Return each network's speedup on the most workers or nodes."""
    ends = [own[-1] for own in by_network(rows, source).values()]
    return [row for row in having(ends, "speedup") if row.count > 1]


def measured(found: Found, scaling: Scaling) -> list[Row]:
    """Return what was measured here, each network by its curve of most worker counts."""
    info = found.studies.get(SCALING)
    rows = {row.cell: row for row in cells(info)}
    curves = [one for one in (info.curves if info else ()) if one.scaling == scaling]
    longest = {
        rows[curve.points[0].cell].model: curve
        for curve in sorted(curves, key=lambda curve: len(curve.points))
        if len(curve.points) > 1
    }
    return [
        rows[point.cell].but(speedup=point.speedup, efficiency=point.efficiency, curve=curve)
        for _, curve in sorted(longest.items(), key=lambda item: TITLES.index(item[0]))
        for point in curve.points
        if point.valid
    ]


def published(found: Found, scaling: Scaling) -> list[Row]:
    """Return the lab's figures by nodes; of strong scaling it has speedups on CPUs only."""
    rows = []
    for row in cells(found.published.get(f"faces_{scaling}"), CPU):
        row = row.but(source=GPU if row.device == "gpu" else CPU, count=row.hosts, step_s=None)
        if "speedup" in row.metrics:
            one = Estimate(value=1.0, low=1.0, high=1.0)  # by definition
            row.speedup = one if row.count == 1 else row.metrics["speedup"].final
            row.efficiency = scaled(row.speedup, 1 / row.count)
        rows.append(row)
    return sorted(rows, key=lambda row: (row.source, TITLES.index(row.model), row.count))


def projected(found: Found, here: Sequence[Row]) -> list[Row]:
    """Project each network to the lab's counts beyond those measured, where there is enough."""
    rows = []
    for title, own in by_network(here).items():
        curve, most, info = own[0].curve, own[-1], found.studies[SCALING]
        able = [n for n in NODES if curve.scaling == "weak" or curve.batch % n == 0]
        beyond = tuple(count for count in able if count > most.count)
        only = (("model", dict(most.cell.params)["model"]),)
        study, info = found.records[SCALING], replace(info, curves=(curve,))
        # One host of as many cores: no other link than the measured one is needed.
        asked = {"workers": beyond, "per_host": NODES[-1], "only": only}
        made = shared.project_rows(study, info, **asked) if beyond else []
        ahead = having(made, kind="projected")
        rows += [row.but(source=PROJECTED, model=title, count=row.workers) for row in ahead]
    return rows


# What launches resolve.


def ranked(rows: Iterable[Row]) -> list[Row]:
    """Compare the rows of each network that has several, the fastest with all others."""
    found = []
    for title, own in by_network(rows).items():
        fast, *others = sorted(own, key=lambda row: -float(row.throughput.value))
        if others:
            row = Row(model=title, rows=own, fast=fast, slow=others[-1])
            row.gain = fast.throughput.value / row.slow.throughput.value
            row.clear = all(resolved((fast, one)) for one in others)
            found.append(row)
    return found


def resolved(rows: Iterable[Row]) -> bool:
    """Tell whether launches show that each of these rows is faster than the next."""
    return all(speed_relation(one.rates, other.rates) == "higher" for one, other in pairwise(rows))


def verdicts(rows: Iterable[Row], what: str = "", whether: str = "") -> str:
    """Say what launches show of which rows, and what would settle those that are open."""
    named: dict[str, list[str]] = {}
    for row in rows:
        shown = f"repeats show {what}" if row.clear else f"cannot tell {whether or what}"
        named.setdefault(row.verdict or shown, []).append(row.model or row.setting)
    several = len(named) > 1
    said = "; ".join(f"{one}{f' ({listed(names)})' * several}" for one, names in named.items())
    more = " More runs of each setting (a larger --budget) would tell."
    return f"{said[:1].upper()}{said[1:]}.{more * ('annot tell' in said)}" if said else ""


# Columns.

_COUNT = "workers (here) or nodes (lab)"
_here = partial(having, source=HERE)
_two = partial(number, decimals=2)
MODEL, SETTING, _ORDER = map(text, ("model", "setting", "order"), ("network", "setting", "order"))
IMAGES = measure("images_per_s", "images/s", _two, "throughput")
BATCH_SIZE, (SPEEDUP,) = column("batch", "batch", whole), columns("speedup")


# The questions.

LAYERS = """
framework | forward, backward, update of one replica | PyTorch, TensorFlow, Keras \
| the same, built with CUDA | TensorFlow | {framework}
kernels | the arithmetic of a layer, on the threads of one process \
| oneDNN, MKL (OpenMP) | cuDNN, cuBLAS | not said | oneDNN
API | who am I; average my gradients; begin with rank 0's weights | Horovod's | Horovod's \
| Horovod | {farandole}
engine | agrees on which gradients are ready, fuses them, reduces them beside backward \
| Horovod's coordinator, Farandole's engine | the same | Horovod | {farandole}
collectives | all-reduce: moves and adds | MPI, Gloo; shared memory in one host | NCCL \
| MPI (MVAPICH2) on CPUs, NCCL on GPUs | shared memory
links | carry the bytes | memory; Ethernet, InfiniBand | NVLink, PCIe; InfiniBand | not said \
| the memory of one host
launcher | starts one process per worker, tells it its rank and where to meet \
| mpirun, srun, horovodrun, farandole run | the same | not said | farandole run
storage | feeds all workers with images | parallel file system, local disks | the same \
| the parallel file system of OSC's Owens cluster | a few images, kept in memory
"""


def layers(found: Found) -> list[Row]:
    """Return the layers with what ran here; nothing where nothing did."""
    machine: Mapping[str, Any] = next((info.machine for info in found.studies.values()), {})
    versions, gpus = machine.get("versions") or {}, machine.get("gpus") or []
    names = [f"{name} {versions[name]}" for name in ("keras", "torch") if versions.get(name)]
    farandole = f"Farandole {versions.get('farandole') or ''}".strip()
    filled = LAYERS.format(framework=" on ".join(names) or "Keras on torch", farandole=farandole)
    parts = [line.split(" | ") for line in filled.strip().splitlines()]
    on_gpus = {"kernels": "cuDNN", "collectives": "NCCL", "links": f"{len(gpus)} GPUs of one host"}
    own = on_gpus if gpus else {}
    rows = table_rows("layer does cpu gpu lab here", *parts)
    return [row.but(here=own.get(row.layer, row.here) if machine else "") for row in rows]


TECHNOLOGIES = Question(
    key="technologies",
    text="Which technologies carry multi-node training on CPUs and GPUs, and how do they fit?",
    title="From the framework down to the links",
    rows=layers,
    columns=(
        *(text("layer", "layer"), text("does", "what it does"), text("cpu", "on CPUs")),
        *(text("gpu", "on GPUs"), text("lab", "the lab had"), text("here", "here")),
    ),
    say="""
The framework computes gradients, Horovod's API hands them to an engine that packs them into \
buckets, a collective library averages them over all workers, and links carry the bytes.
CPUs and GPUs differ below the engine: MPI, Gloo or shared memory on CPUs, NCCL on GPUs.
A parallel file system feeds all nodes; where it is slow, they wait for input, which looks like \
bad scaling.
""",
    figures=(
        boxes(
            "technologies-stack",
            "The stack that a gradient passes",
            "From the framework down to the links; a launcher starts it, storage feeds it.",
            "layer cpu gpu lab",
            rows=list,
        ),
    ),
    notes=("See docs/explanation/technologies.md; `farandole env` says which a machine has.",),
)


def splits(found: Found) -> list[Row]:
    """Return the splits of all cores that share one global batch, and the lab's."""
    batch = next((row.curve.batch for row in measured(found, "strong")), 0)
    rows = [
        row.but(memory_bytes=row.memory_bytes and row.workers * row.memory_bytes)
        for study in (BATCH, SPLIT, SCALING)
        for row in having(cells(found.studies.get(study)), "throughput", "threads")
        if row.cell.global_batch == batch and row.workers * row.threads == found.asked.cores
    ]
    rows.sort(key=lambda row: (TITLES.index(row.model), row.workers))
    rows += cells(found.published.get("faces_split"), CPU)
    for row in rows:
        own = having(rows, source=row.source, model=row.model)
        row.split = f"{row.workers} x {row.threads}"
        row.share = row.throughput.value / max(one.throughput.value for one in own)
    return rows


SPLITS = Question(
    key="split",
    text="How should a node's cores be split between processes and threads?",
    title="Processes x threads at one global batch",
    rows=splits,
    columns=(
        *columns("source", MODEL, column("processes", "processes", whole, "workers")),
        *(column("threads", "threads each", whole), IMAGES, column("share", "of best", percent)),
        column("memory_bytes", "memory of all", size),
    ),
    facts=lambda found, rows: {
        "ranked": (own := ranked(rows)),
        "verdict": verdicts(own, "which split is best"),
    },
    say="""
Highest throughput here, all at one global batch: \
{{ ranked | each("{model} with {fast.split} ({gain:times} that of {slow.split})") }}.
{{ verdict }}
""",
    why="Threads usually wait for each other after every layer. Processes do not, but they cost "
    "memory and an exchange of gradients.",
    study=BATCH,
    figures=(
        bars(
            "split-throughput",
            "Images per second by processes x threads",
            "All cores of this machine at one global batch.",
            *(text("split", "processes x threads"), "model images_per_s"),
            rows=_here,
        ),
    ),
    notes=("The lab publishes its best split, and one more for ResNet50.",),
)


def batches(found: Found) -> list[Row]:
    """Return one process with all cores here, and one GPU of the lab, by batch."""
    lab = [row.but(step_s=None) for row in cells(found.published.get("faces_batch"), GPU)]
    rows = having([*cells(found.studies.get(BATCH)), *lab], "throughput", "batch")
    return sorted(rows, key=lambda row: (row.source, TITLES.index(row.model), row.batch))


def knee(network: Row) -> str:
    """Say where throughput stops rising with the batch, as far as launches resolve it."""
    *smaller, end = network.rows
    if resolved((end, smaller[-1])):
        return f"it still rises at batch {end.batch}, the largest tried"
    flat = [row for row in smaller if speed_relation(end.rates, row.rates) in ("same", "lower")]
    found = f"it stops rising at batch {flat[0].batch}" if flat else ""
    return found or "cannot tell where it stops rising"


BATCHES = Question(
    key="batch",
    text="How does throughput depend on the batch?",
    title="Throughput by batch: one process with all cores (here), one GPU (lab)",
    rows=batches,
    columns=columns("source", MODEL, BATCH_SIZE, IMAGES, "step_s"),
    facts=lambda found, rows: {
        "ranked": (own := ranked(rows)),
        "verdict": verdicts(row.but(verdict=knee(row)) for row in own),
    },
    say="""
Throughput on all cores by batch: \
{{ ranked | each("{model} {gain:times} (batch {fast.batch} over {slow.batch})") }}.
{{ verdict }}
On the lab's CPU nodes throughput rose until a batch of about 8 and then stayed flat. One GPU at \
batch 128 reached {{ rows | having(source="lab, GPU") | each("{throughput.value} ({model})") }} \
images/s, InceptionV3 slightly more at 64.
""",
    why="A larger batch usually spreads the fixed cost of a step over more images: calling every "
    "layer, reading and updating all weights.",
    study=BATCH,
    figures=(
        lines(
            "batch-throughput",
            "Images per second by batch",
            "One process with all cores. Bars are 95 % intervals.",
            "model batch images_per_s",
            rows=_here,
            x_log=True,
        ),
    ),
)


def _by_count(name: str, title: str, y: Column, *sources: str, axis: str = _COUNT) -> Chart:
    """Draw a figure by workers or nodes, a line per network and source."""

    def series(row: Row) -> str:
        return f"{row.model}, {row.source}" if len(sources) > 1 else str(row.model)

    return lines(
        name,
        title,
        "Bars are 95 % intervals. Hollow marks: the lab's, one run each, and projections, with 90 "
        "% intervals.",
        *(text("series", "network", series), column("count", axis, whole), y),
        rows=lambda rows: [row for row in rows if row.source in sources],
        # Both axes alike, so that what is proportional is a straight line.
        log=len(sources) > 1 or HERE not in sources,
        ideal=y is SPEEDUP,
    )


def _scaling(key: Scaling, ask: str, fixed: str, more: str = "", *charts: Chart) -> Question:
    """Ask how the networks scale with a fixed batch per worker, or a fixed global batch."""
    return Question(
        key=key,
        text=ask,
        title=f"{key.capitalize()} scaling: {fixed}",
        rows=lambda found: [
            *(here := measured(found, key)),
            *projected(found, here),
            *published(found, key),
        ],
        columns=columns(
            *("source", MODEL, column("count", _COUNT, whole), "batch", IMAGES),
            "step_s speedup efficiency",
        ),
        facts=lambda found, rows: {
            "fixed": fixed,
            "networks": demands(rows),
            "ours": last(rows),
            "ahead": last(rows, PROJECTED),
            "cpu": last(rows, CPU),
            "gpu": last(rows, GPU),
        },
        say=_SCALING + more,
        study=SCALING,
        figures=(
            _by_count(
                *(f"{key}-throughput", f"Images per second with {fixed}", IMAGES, HERE, PROJECTED),
                axis="workers",
            ),
            _by_count(f"{key}-speedup", f"Speedup with {fixed}", SPEEDUP, HERE, CPU),
            *charts,
        ),
    )


_SCALING = """
Speedup of {{ ours[0].count if ours else "several" }} workers with {{ fixed }}: \
{{ ours | each("{model} {speedup:interval_times} ({efficiency.value:percent} of ideal)") }}.
The lab's 8 CPU nodes reach {{ cpu | each("{speedup.value:times} ({model})") }}\
{{ ", its 8 GPUs %s by its own figures for one" | format(
   gpu | each("{speedup.value:times}")) if gpu }}.
{{ "Projected, not measured, for %s workers: %s, with 90 %% intervals." | format(
   ahead[0].count, ahead | each("{model} {speedup:interval_times}")) if ahead }}
"""
WEAK = _scaling(
    "weak",
    "How do the networks scale when every worker keeps its batch?",
    "a fixed batch per worker",
    "",
    _by_count(
        *("weak-lab-throughput", "The lab's images per second", IMAGES, CPU, GPU), axis="nodes"
    ),
    _by_count("weak-gpu-speedup", "Speedup of the lab's GPUs", SPEEDUP, GPU, axis="nodes"),
)


def demands(rows: Iterable[Row]) -> list[Row]:
    """Return what a share of the lab's batch of 128 asks of each of 8 GPUs, by network."""
    found, gpus = [], NODES[-1]
    for network, (one, *_) in zip(NETWORKS, by_network(rows, GPU).values(), strict=True):
        share, sent = one.batch // gpus, 2 * (gpus - 1) / gpus * 4 * network.trainable
        row = network.but(share=share, compute_s=share / one.throughput.value)
        found.append(row.but(gradients=4 * network.trainable, bytes_per_s=sent / row.compute_s))
    return found


STRONG = _scaling(
    "strong",
    "How do they scale when all workers share one global batch?",
    "a fixed global batch",
    """
The lab chose 128 because 8 nodes of 4 processes still get whole batches: 32, 16, 8 and 4 per \
process on 1, 2, 4 and 8 nodes. For GPUs it gives no figures: InceptionV3 scales best, ResNet50 \
flattens after 4 nodes.
{% set inception, resnet, vgg = networks %}
It explains that by ResNet50's depth, which the counts do not support: InceptionV3 has more layers \
with weights ({{ inception.layers }} against {{ resnet.layers }}) and nearly the same gradients \
({{ inception.gradients | size }} against {{ resnet.gradients | size }}). But at the speed of one \
GPU, {{ resnet.share }} images take ResNet50 {{ resnet.compute_s | seconds }} and InceptionV3 \
{{ inception.compute_s | seconds }}: any other cost of a step weighs more in the shorter one.
""",
    bars(
        "strong-gpus",
        "What strong scaling asks of the lab's 8 GPUs",
        "What each GPU has to exchange per second so that an all-reduce hides behind its "
        "computing: 2 x 7/8 x gradients over the time of 16 images. VGG16's 138,357,544 parameters "
        "are 553 MB in units of 1000, the lab's 528 MB in units of 1024.",
        *(MODEL, column("parameters", "parameters", whole), column("layers", "layers", whole)),
        column("tensors", "gradient tensors", whole),
        column("gradient_bytes", "gradients", size, "gradients"),
        column("multiply_adds", "multiply-adds per image", whole),
        column("compute_s", "computing 16 images", seconds),
        column("bytes_per_s", "exchange per second", size),
        rows=demands,
        x="model",
        series=None,
    ),
)


PARTS = {
    "fixed_s": "fixed cost of computing",
    "slower_s": "slower computing",
    "update_s": "update of weights",
    "waiting_s": "waiting for the slowest",
    "exchange_s": "exchange of gradients",
    "input_s": "input",
}


def losses(found: Found) -> list[Row]:
    """Return what a step of each network loses at the most workers (here) or nodes (lab)."""
    rows = []
    for source, points in ((HERE, measured), (CPU, published)):
        kinds = [by_network(points(found, kind), source) for kind in ("weak", "strong")]
        for network in NETWORKS:
            own = [kind.get(network.model, []) for kind in kinds]
            if any(len(one) > 1 for one in own):
                row = Row(source=source, model=network.model, **_lost("weak", "gustafson", own[0]))
                row = row.but(**_lost("strong", "amdahl", own[1]))
                row.gradient_bytes = row.sent if source == HERE else 4 * network.trainable
                row.parts = loss_parts(*own) if all(len(one) > 1 for one in own) else {}
                if row.parts and row.strong_lost_s > 0:
                    lost, main = row.strong_lost_s, max(row.parts, key=row.parts.__getitem__)
                    row.main, row.main_share = PARTS[main], row.parts[main] / lost
                    row.sent_share = (row.parts["waiting_s"] + row.parts["exchange_s"]) / lost
                rows.append(row)
    return rows


def _lost(kind: Scaling, law: Law, own: Sequence[Row]) -> dict[str, Any]:
    """Return what the last of these rows loses against the first, and the law through them."""
    if len(own) < 2:
        return {law: Row()}
    one, many = own[0], own[-1]
    rate = many.throughput or scaled(many.speedup, one.throughput.value)
    share = many.count if kind == "strong" else 1
    alone_s = one.workers * one.batch / one.throughput.value / share
    waited = many.split and many.split.exposed_s
    fitted = fit_law(law, [row.count for row in own], [row.speedup for row in own])
    return {
        "count": many.count,
        "sent": many.gradient_bytes,
        kind: many.speedup,
        law: fitted or Row(),
        f"{kind}_lost_s": many.workers * many.batch / rate.value - alone_s,
        f"{kind}_waited": None if waited is None else waited / many.split.step_s,
    }


def loss_parts(weak: Sequence[Row], strong: Sequence[Row]) -> dict[str, float]:
    """Split what a shared step loses against its share of one worker's step."""
    alone, shared, beside = strong[0], strong[-1], weak[-1]
    images, count = beside.batch - shared.batch, shared.count
    if not (alone.split and shared.split and beside.split and images and count == beside.count):
        return {}
    before, after = alone.split.parts(), shared.split.parts()
    lost = {name: (after[name] or 0.0) - (before[name] or 0.0) / count for name in after}
    # A line through two batches on as many workers: what it has without images is fixed.
    image_s = (beside.split.compute_s - shared.split.compute_s) / images
    fixed_s = (1 - 1 / count) * (shared.split.compute_s - shared.batch * image_s)
    rest = [lost[name] for name in ("optimizer", "waiting", "transfer", "data")]
    return dict(zip(PARTS, (fixed_s, lost["compute"] - fixed_s, *rest), strict=True))


def _why_facts(found: Found, rows: Sequence[Row]) -> dict[str, Any]:
    for row in rows:
        # One run has no interval, and bounds nothing.
        least = row.amdahl.law and row.amdahl.serial_fraction.low
        row.bound = f", at most {times(1 / least)}" if least and least > 0 else ""
    pairs = zip(last(measured(found, "weak")), last(measured(found, "strong")), strict=False)
    both = [Row(model=a.model, clear=resolved((a, b))) for a, b in pairs if a.model == b.model]
    slower = "strong scaling is slower than weak"
    return {
        "ours": having(rows, "main"),
        "laws": [having(rows, "strong", "weak", source=source) for source in (HERE, CPU)],
        "unfit": any(not 0 <= share <= 1 for row in rows for share in _serial_shares(row)),
        "verdict": verdicts(both, f"that {slower}", f"whether {slower}"),
    }


def _serial_shares(row: Row) -> list[float]:
    shares = (row.amdahl.serial_fraction, row.gustafson.serial_fraction)
    return [share.value for share in shares if share]


WHY = Question(
    key="why",
    text="Why does strong scaling fall off, and weak scaling not?",
    title="Serial shares, and what a step loses, at the most workers or nodes",
    rows=losses,
    columns=(
        *columns("source", MODEL, column("count", "workers or nodes", whole)),
        measure("weak_speedup", "weak", times, "weak"),
        measure("strong_speedup", "strong", times, "strong"),
        measure("gustafson", "serial, Gustafson (weak)", percent, "gustafson.serial_fraction"),
        measure("amdahl", "serial, Amdahl (strong)", percent, "amdahl.serial_fraction"),
        column("weak_lost_s", "lost per step, weak", seconds),
        column("strong_lost_s", "lost per step, strong", seconds),
        column("gradient_bytes", "gradients", size),
        column("weak_waited", "waits for them, weak", percent),
        column("strong_waited", "waits for them, strong", percent),
    ),
    facts=_why_facts,
    say="""
With one global batch on {{ ours[0].count if ours else "several" }} workers, a step takes \
{{ ours | each("{strong_lost_s:seconds} ({model})") }} longer than its share of one worker's step\
{% for main, own in ours | groupby("main") %}; {{ main }} is \
{{ own | each("{main_share:percent} ({model})") }} of it{% endfor %}, waiting and exchange \
{{ ours | each("{sent_share:percent}") }}.
{{ verdict }}
{% for own in laws if own %}
Serial shares {{ "here" if own[0].source == "here" else "on the lab's 8 CPU nodes" }}: \
{{ own | each("{amdahl.serial_fraction.value:percent}{bound} ({model})") }} by Amdahl's law, from \
strong scaling, {{ own | each("{gustafson.serial_fraction.value:percent}") }} by Gustafson's law, \
from weak.
{% endfor %}
{{ "A share outside of 0 to 100 % means that the law does not fit these runs." if unfit }}
A step of the lab loses {{ laws[1] | each("{weak_lost_s:seconds}") }} in weak scaling and \
{{ laws[1] | each("{strong_lost_s:seconds}") }} in strong. The exchange of gradients, the same in \
both, takes no more than the smaller one.
""",
    why="In weak scaling one worker's step has the fixed cost as well, so only waiting, exchange "
    "and slower computing are added. Sharing a batch shortens computing, but not the fixed cost, "
    "the update and the exchange: Amdahl's serial part. Losses that grow with the batch are "
    "usually waits for nodes or input.",
    study=SCALING,
    figures=(
        bars(
            "why-efficiency",
            "Efficiency of weak and strong scaling",
            "Speedup over workers (here) or nodes (lab), at the most that were measured.",
            *(text("scaling", "scaling"), text("setting", "network"), "efficiency"),
            rows=lambda rows: [
                Row(setting=f"{row.model}, {row.source}, {plural(row.count, noun)}").but(
                    scaling=kind, efficiency=scaled(speedup, 1 / row.count)
                )
                for row in rows
                for noun in ["worker" if row.source == HERE else "node"]
                for kind, speedup in (("weak", row.weak), ("strong", row.strong))
                if speedup
            ],
        ),
        bars(
            "why-parts",
            "What a shared step loses, by part",
            "Each part of a step on all workers, less its share of one worker's step. Fixed: by a "
            "line through the computing times of two batches.",
            *(MODEL, *(column(key, title, seconds) for key, title in PARTS.items())),
            rows=lambda rows: [row.but(**row.parts) for row in rows if row.parts],
            x="model",
            y=tuple(PARTS),
            y_title="lost per step",
            series=None,
        ),
    ),
    notes=(
        "Lost, weak: T(N) - T(1), because each worker has as much to do as before. Lost, strong: "
        "T(N) - T(1)/N. The lab's gradients are 4 bytes x trainable parameters at 224 pixels.",
    ),
)


def orders(found: Found) -> list[Row]:
    """Return images per second by setting: one worker or node and the most, here and in the lab."""
    points = [*measured(found, "weak"), *published(found, "weak")]
    rows = []
    for source, noun in ((HERE, "worker"), (CPU, "node"), (GPU, "node")):
        own = having(points, source=source)
        for count in sorted({one.count for one in own if one.count in (1, own[-1].count)}):
            there = sorted(having(own, count=count), key=lambda row: -float(row.throughput.value))
            speeds = {row.model: row.throughput.value for row in there}
            row = Row(source=source, setting=f"{source}, {plural(count, noun)}", speeds=speeds)
            row.order, row.clear = " > ".join(speeds), resolved(there)
            rows.append(row.but(**{key: speeds.get(title) for key, title in MODELS.items()}))
    return [row for row in rows if len(row.speeds) > 1]


ORDER = Question(
    key="order",
    text="In which order of speed do the networks come, and where does it reverse?",
    title="Images per second by network and setting, and their order",
    rows=orders,
    columns=(SETTING, *(column(key, title, _two) for key, title in MODELS.items()), _ORDER),
    facts=lambda found, rows: {
        "verdict": verdicts(_here(rows), "this order", "whether this order holds"),
    },
    say="""
{% set theirs = rows | rejectattr("source", "eq", "here") | list %}
The order is {{ here | each("{order} ({setting})") }}.
{{ verdict }}
{% set cpu, gpu = theirs[0], theirs[2] %}
In the lab VGG16 is last on CPUs and first on 8 GPUs: {{ theirs | each("{order} ({setting})") }}. \
One GPU is as fast as {{ (gpu.inceptionv3 / cpu.inceptionv3) | number }} CPU nodes (InceptionV3), \
{{ (gpu.resnet50 / cpu.resnet50) | number }} (ResNet50) and {{ (gpu.vgg16 / cpu.vgg16) | number }} \
(VGG16).
""",
    why="A GPU usually runs a few large layers more efficiently than many small ones. VGG16 has 16 "
    "layers of a billion multiply-adds per image on average, InceptionV3 95 of 30 million.",
    figures=(
        bars(
            "order-relative",
            "Speed of the networks over ResNet50's",
            "Images per second over those of ResNet50 in the same setting.",
            *(MODEL, "setting", column("ratio", "over ResNet50", times)),
            rows=lambda rows: [
                Row(setting=row.setting, model=title, ratio=row.speeds[title] / row.resnet50)
                for row in rows
                for title in TITLES
                if row.resnet50 and title in row.speeds
            ],
        ),
    ),
)
ACCURACY = compare_recipes(
    "accuracy",
    "How does the accuracy of ages change with more workers?",
    say="""
The lab measures throughput only.
Here a small network of four convolutions is trained, because the lab's three would need hours on \
a few cores; guessing one of 9 groups gives 0.1111.
""",
    why="",
)
QUESTIONS = (TECHNOLOGIES, SPLITS, BATCHES, WEAK, STRONG, WHY, ORDER, ACCURACY)


# What the lab got wrong or left unexplained: said, right, and what shows it.

_CORRECTIONS = (
    (
        """Weak scaling on 8 GPUs reached speedups of \
{{ wrong | map(attribute="claimed") | list | listed }}.""",
        "Two of them are more than linear. By the lab's own figures for one GPU only VGG16's is, "
        "and averaging gradients cannot cause that: most likely something held the single GPU "
        "back. Do not quote it.",
        """
{{ wrong | map(attribute="sentence") | join(" ") }} An image takes VGG16 \
{{ (cpu.resnet50 / cpu.vgg16) | times }} as long as ResNet50 on a CPU node, but \
{{ (gpu.resnet50 / gpu.vgg16) | times }} on one GPU, as if both waited for input. Here, from one \
baseline: {{ ours | each("{weak.value:times} ({model}, {count} workers)") }}.
""",
    ),
    (
        "VGG16 is last on CPUs and first on GPUs.",
        "It is first on 8 GPUs only, by the figure above linear. On one GPU ResNet50 leads by "
        "{{ (gpu.resnet50 / gpu.vgg16 - 1) | percent }}, about as much as single runs differ.",
        """It measured 4 x 7 at a global batch of 128 twice: \
{{ twice | each("{once} and {again} images/s ({model})") }}.""",
    ),
    (
        "4 processes x 7 threads are the best split of a node.",
        "Its ResNet50 is faster at 2 x 14; single runs cannot tell which is best.",
        """{{ resnet | each("{throughput.value} images/s at {split}") }}: closer than VGG16's two \
runs of one setting.""",
    ),
    (
        "Strong scaling falls off, weak scaling does not.",
        "On the lab's CPU nodes ResNet50's strong speedup is the higher one. Only for VGG16 do "
        "these single runs show a fall.",
        """Weak and strong speedups: \
{{ theirs | each("{weak.value:times} and {strong.value:times} ({model})") }} on 8 nodes; here \
{{ ours | each("{weak.value:times} and {strong.value:times} ({model})") }}.""",
    ),
    (
        "ResNet50 flattens in strong scaling on GPUs because it is deeper.",
        "Depth does not set it apart: InceptionV3 has more layers and scales best. ResNet50's step "
        "is shorter for about the same gradients; the lab cannot tell which cost flattens it.",
        """
{{ networks | each("{model}: {layers} layers, {tensors} tensors, {gradients:size} of gradients, \
{multiply_adds:whole} multiply-adds, {compute_s:seconds} for {share} images") }}. Largest part of \
a step's loss here: {{ ours | each("{main} ({model}, {main_share:percent})") }}.
""",
    ),
)


def corrections(found: Found) -> tuple[Correction, ...]:
    """Say what the original got wrong, with the arithmetic on its own figures."""
    lost, split = losses(found), having(splits(found), source=CPU)
    cpu, _, gpu, _ = (row for row in orders(found) if row.source != HERE)
    once = {row.model: row.throughput.value for row in split if row.workers == 4}
    return correct(
        _CORRECTIONS,
        wrong=[claim for claim in shared.claims_of("faces") if not claim.agrees],
        cpu=cpu,
        gpu=gpu,
        twice=[Row(model=one, once=once[one], again=cpu.speeds[one]) for one in TITLES],
        resnet=having(split, model="ResNet50"),
        theirs=having(lost, source=CPU),
        ours=having(lost, "main"),
        networks=demands(published(found, "strong")),
    )


LAB = Lab(
    name="faces",
    title="faces: three CNNs, weak and strong scaling",
    line="processes x threads, batches, weak and strong scaling of ResNet50, InceptionV3, VGG16",
    questions=QUESTIONS,
    published=("faces_weak", "faces_strong", "faces_split", "faces_batch"),
    leading=("weak", "strong", "why"),
    efforts=len(EFFORTS) - 2,
    data=describe_faces,
    pilot=pilot,
    plan=plan,
    corrections=corrections,
    introduction="The lab trains three networks to estimate ages from faces, with TensorFlow and "
    "Horovod on up to eight CPU nodes and eight GPUs. It asks which software carries such "
    "training, how to share out a node's cores, which batch to use, and how throughput grows when "
    "every worker keeps its batch (weak scaling) or all share one (strong scaling). Here a core "
    "stands for a node: the same protocol, on one machine.",
    lab_found={
        "technologies": "Horovod over MPI (MVAPICH2) and NCCL, with a parallel file system.",
        "split": "4 x 7 was best for InceptionV3 (19.46 images/s) and VGG16 (8.57), 2 x 14 for "
        "ResNet50 (23.34).",
    },
    original_data={"source": "IMDB-WIKI: 460 K faces from IMDB, 62 K from Wikipedia"},
    conclusion="""
The lab's conclusions hold, within limits. Weak scaling stays close to linear on its CPU nodes, as \
Gustafson's law describes; a GPU speedup above linear points to a slow baseline. Strong scaling \
loses efficiency, as Amdahl's law says, because a smaller batch does not shrink the fixed cost of \
a step. So keep the batch per worker where throughput is flat: from about 8 on the lab's CPUs.
{{ "One run per setting proves none of this here; a larger --budget may." if found.asked.size ==
   "quick" }}
""",
    references=shared.references_of("faces"),
)
