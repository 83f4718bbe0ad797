"""The cifar10 lab: where the time of a training step goes.

ResNet-18 is timed by batch and workers. A small network is trained to the end on one and on several
workers, by recipe, by batch norm and by the order of samples.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from farandole.format import brief, number, percent, plural, seconds, size, times, whole
from farandole.labs import plan as plans
from farandole.labs import rows as shared
from farandole.labs.data import describe_cifar10
from farandole.labs.lab import Asked, Choice, Correction, DataFacts, Found, Lab, Plan, Planned, Rate
from farandole.labs.plan import EIGHT, TWO
from farandole.labs.questions import Question, bars, boxes, compare_recipes, correct, lines
from farandole.labs.rows import (
    HERE,
    Row,
    cell_rows,
    column,
    columns,
    first,
    having,
    measure,
    text,
)
from farandole.labs.rows import (
    LAB as THE_LAB,
)
from farandole.model.communication import bus_bandwidth, derived_communication_s, steps_per_epoch
from farandole.model.statistics import scaled
from farandole.recipes import recipe
from farandole.study.records import BYTE_KINDS

if TYPE_CHECKING:
    from farandole.model.analyse import ScalingInfo

LAB_SAMPLES, LAB_BATCHES = 50_000, (32, 128, 512)
LAB_TOO_LARGE = 2048
"""The lab's batch that did not fit its GPU."""
PARAMETERS = 11_173_962
"""That ResNet-18 trains."""
LEARNING_RATE = 0.01
"""Of one worker, at 32 images per batch."""
TRIED = ("fixed", "linear", "warmup", "longer")
"""Recipes, in the order in which a larger effort adds them."""
TIME, BASELINE, ACCURACY, FEWER = "speedup", "baseline", "accuracy", "fewer"
ORDER, REPLICAS, NORM, SYNC = "order", "replicas", "norm", "sync"
"""Names of the studies."""
TRAINED = (BASELINE, FEWER, ACCURACY, NORM, SYNC, ORDER)
"""Studies whose launches train to the end."""
RESNET, SMALL = "resnet18", "small"
"""Names of the pilots, and of the networks."""

METRIC, GB, IMAGES = "val_accuracy", 1e9, f"{LAB_SAMPLES:,} images"
PAIRED = "Difference: of runs with the same seed, 90 % interval by Student's t."


# The plan: no two of its studies run the same cell.

# One core of a virtual machine, where no pilot has measured: for `quick` and `full`.
_GUESS = {
    RESNET: Rate(samples_per_s=18.0, startup_s=4.5),
    SMALL: Rate(samples_per_s=1200.0, startup_s=4.5),
}
_OUT_OF_MEMORY_S = 2.0
"""What a launch takes beyond its start until its memory is used up."""
_CALIBRATION_S = 18.0
"""Of the link, and of workers that send nothing, for each number of workers."""

# Quick, by budget, full. Timed launches of ResNet-18: batches per worker, one that does not fit the
# memory limit, steps (0: a whole epoch) and repeats. Runs for accuracy: samples (0: all), test
# samples, epochs, seeds, workers, how many of TRIED are tried with the most workers, network and
# batch. A larger effort has no smaller figure.
_FAR, _NETWORK = (1, 2, 8), (SMALL, 32)
_SHORT, _TWICE = ((8, 32), 256, 6, 1), ((8, 32), 256, 8, 2)
_THREE = ((8, 32, 64), 512, 10, 3)
_WIDE, _LONG = (((8, 32, 128), 1024, steps, 3) for steps in (12, 20))
EFFORTS = shared.table_rows(
    "batches too_large steps repeats samples test_samples epochs seeds workers recipes model batch",
    ((2, 8), 256, 3, 1, 512, 250, 2, 1, TWO, 2, *_NETWORK),
    ((4, 16), 256, 4, 1, 1024, 500, 3, 1, TWO, 2, *_NETWORK),
    (*_SHORT, 1024, 1000, 3, 1, TWO, 4, *_NETWORK),
    (*_SHORT, 2048, 1000, 4, 1, _FAR, 4, *_NETWORK),
    (*_SHORT, 2048, 2000, 6, 1, _FAR, 4, *_NETWORK),
    *((*_TWICE, 2048, 2000, 6, seeds, _FAR, 4, *_NETWORK) for seeds in (2, 3)),
    *((*_TWICE, samples, 2000, 6, 3, _FAR, 4, *_NETWORK) for samples in (3072, 4096)),
    (*_TWICE, 4096, 2000, 8, 3, _FAR, 4, *_NETWORK),
    (*_THREE, 4096, 2000, 8, 3, _FAR, 4, *_NETWORK),
    *((*_THREE, samples, 2000, 10, 3, _FAR, 4, *_NETWORK) for samples in (6000, 10_000)),
    (*_WIDE, 10_000, 2000, 10, 3, EIGHT, 4, *_NETWORK),
    (*_WIDE, 10_000, 5000, 15, 3, EIGHT, 4, *_NETWORK),
    (*_WIDE, 20_000, 10_000, 15, 3, EIGHT, 4, *_NETWORK),
    *((*_LONG, 0, 0, 20, seeds, EIGHT, 4, *_NETWORK) for seeds in (3, 5)),
    # One run of each, as the lab made them: each takes hours where it had GPUs.
    (LAB_BATCHES, LAB_TOO_LARGE, 0, 1, 0, 0, 10, 1, (1, 2, 4), 4, RESNET, LAB_BATCHES[-1]),
)


def sizing(here: Row, asked: Asked, data: DataFacts, rates: Mapping[str, Rate]) -> Row:
    """Return an effort with what all studies of a plan have in common.

    The memory limit of a worker has room for half as much again as the largest batch. Peak of
    ResNet-18 with SGD on torch 2.13, without mapped files: 387 MB at batch 4, 1360 MB at 128, that
    is 355 MB and 7.85 MB an image of a batch. On top come 100 MB that the heap keeps for the next
    step (engine.memory), 150 MB of shared buckets of gradients, and the images to choose from as
    32-bit numbers, three times while they are made. The batch that is too large goes beyond the
    limit in its first layers.
    """
    chosen = plans.counts(asked, here.workers)
    # Speed counts up to the cores; one worker is what the others are compared with.
    timed = tuple(sorted({1, *(count for count in chosen if count <= asked.cores)}))
    # One batch of each worker, also where it does not fit; 0: all. Passes over them go on.
    images = here.steps and here.too_large * timed[-1]
    memory = 355e6 + 100e6 + 150e6 + 1.5 * 7.85e6 * max(here.batches)
    memory += 3 * 4 * 32 * 32 * 3 * (images or LAB_SAMPLES)
    sized = here.but(asked=asked, data=data, rates={**_GUESS, **rates}, timed=timed, images=images)
    return sized.but(
        memory_bytes=int(memory),
        trained=tuple(count for count in chosen if count > 1),
        # The first is used wherever something else is varied.
        names=plans.recipes(asked, TRIED[: here.recipes]),
    )


def _launch_s(here: Row, model: str, workers: int, samples: int, **more: int) -> float:
    count = {"epochs": 1, "workers": workers, "samples": samples} | more
    return plans.launch_s(here.rates[model], cores=here.asked.cores, **count)


def _study(here: Row, name: str, title: str, settings: Mapping[str, Any], **given: Any) -> Planned:
    """Return a study: `workers`, `params`, `options`, `settings` of the script, `seconds` in all.

    Where they are not the effort's, also model, batch, epochs, samples and test samples.
    """
    run = here.but(**given)
    # Whole epochs of ResNet-18 take longer than a launch usually may; where time is short, no
    # launch that others disturbed is made again.
    busy = {"launch_timeout": "24h"} if here.asked.size == "full" else {"keep_busy": True}
    options = {"workers": run.workers, "threads": 1, "params": run.params, **run.options, **busy}
    flags = {"model": run.model, "epochs": run.epochs, "batch-size": run.batch}
    flags |= {"samples": plans.subset(run.samples, here.data.train)}
    flags |= {"test-samples": plans.subset(run.test_samples, here.data.test)}
    flags |= {"lr": f"{LEARNING_RATE:g}", **settings}
    rest = {"options": options, "seconds": run.seconds, "environ": {}}
    return plans.script_study(here.asked, name, title, "cifar10.py", flags, **rest)


def _timed(here: Row, name: str, title: str, settings: Any = None, **given: Any) -> Planned:
    """Return a study whose launches, for their speed, end after some steps."""
    given = {"epochs": 1000, "batch": "{batch}", "test_samples": 10} | given
    return _study(here, name, title, settings or {"recipe": "fixed"}, **given)


def _times(here: Row) -> Planned:
    """Return the study of ResNet-18's times by batch and workers."""
    seconds = here.repeats * sum(
        _launch_s(here, RESNET, n, here.steps * batch * n or here.data.train)
        for n in here.timed
        for batch in here.batches
    )
    seconds += sum(_launch_s(here, RESNET, n, 0) + _OUT_OF_MEMORY_S for n in here.timed)
    options = plans.speed_options(here.repeats) | {"memory": f"{here.memory_bytes // 10**6}M"}
    options |= {"steps": here.steps} if here.steps else {"epochs": 1}
    if here.repeats > 1 or here.steps == 0:
        # The link between the workers is measured as well.
        options["no_calibration"] = False
        seconds += _CALIBRATION_S * (len(here.timed) - 1)
    given = {"workers": here.timed, "params": {"batch": (*here.batches, here.too_large)}}
    given |= {"model": RESNET, "samples": here.images, "options": options, "seconds": seconds}
    return _timed(here, TIME, "ResNet-18's times by batch and workers", **given)


def _replicas(here: Row, count: int) -> Planned:
    """Return the study of replicas as threads of one process."""
    steps, repeats = 24 if here.seeds == 1 else 60, max(here.repeats, here.seeds)
    given = {"workers": 1, "params": {"replicas": count}, "batch": here.batch}
    given |= {"options": {"steps": steps, **plans.speed_options(repeats)}}
    given |= {"seconds": repeats * _launch_s(here, here.model, count, steps * here.batch * count)}
    settings = {"recipe": "fixed", "norm": "local", "order": "epoch"}
    settings |= {"replicas": "{replicas}", "seed": "{seed}"}
    return _timed(here, REPLICAS, f"{count} replicas as threads of one process", settings, **given)


def _training(
    here: Row, name: str, title: str, workers: Sequence[int], varied: str, *values: str, by: str
) -> Planned:
    """Return a study whose launches run to the script's end, `by` a recipe if that is fixed."""
    settings = {"recipe": by, "norm": "local", "order": "epoch"} | {varied: f"{{{varied}}}"}
    settings["seed"] = "{seed}"
    epochs = [recipe(v if varied == "recipe" else by).epochs(here.epochs) for v in values]
    samples = plans.taken(here.samples, here.data.train)
    tests = plans.taken(here.test_samples, here.data.test)
    seconds = here.seeds * sum(
        _launch_s(here, here.model, n, samples, epochs=each, test_samples=tests)
        for n in workers
        for each in epochs
    )
    options = {"measure": "accuracy", "seeds": here.seeds, "no_calibration": True}
    given = {"params": {varied: values}, "options": options, "seconds": seconds}
    return _study(here, name, title, settings, workers=workers, **given)


def pilot(asked: Asked) -> tuple[Planned, ...]:
    """Return the studies that measure what one worker does in a second, for both networks."""
    here = sizing(EFFORTS[0], asked, DataFacts(source="", train=1024, test=1024, sample=""), {})
    made = []
    names = {RESNET: ("ResNet-18", 8, 5), SMALL: ("the small network", here.batch, 40)}
    for model, (words, batch, steps) in names.items():
        given = {"workers": 1, "params": {"batch": batch}, "model": model, "samples": 512}
        given |= {"options": {"steps": steps, **plans.speed_options(1)}}
        given |= {"seconds": _launch_s(here, model, 1, steps * batch)}
        made += [_timed(here, model, f"How fast one worker trains {words}", **given)]
    return tuple(made)


def plan(asked: Asked, data: DataFacts, rates: Mapping[str, Rate], effort: int) -> Plan:
    """Return the studies of a size, with what they choose."""
    here = sizing(plans.chosen(asked, EFFORTS, effort), asked, data, rates)
    return Plan(studies=tuple(_studies(here)), choices=plans.choices(*_choices(here)))


def _studies(here: Row) -> Iterator[Planned]:
    yield _times(here)
    one = "Accuracy of one worker"
    yield _training(here, BASELINE, one, (1,), "recipe", "fixed", by="fixed")
    if here.trained:
        pair, most = here.trained[:1], here.trained[-1:]
        title, by = f"Accuracy of {most[0]} workers", here.names[0]
        yield _training(here, ACCURACY, f"{title} by recipe", most, "recipe", *here.names, by=by)
        if len(here.trained) > 1:
            # All recipes with fewer workers, too, where there is time for many runs.
            names = here.names if len(here.workers) > 3 or here.steps == 0 else here.names[:1]
            below = "Accuracy of fewer workers"
            yield _training(here, FEWER, below, here.trained[:-1], "recipe", *names, by=by)
        # Statistics left alone are in the study of the recipes.
        norm = "Batch norm's statistics broadcast and synchronised"
        yield _training(here, NORM, norm, pair, "norm", "broadcast", "sync", by=by)
        yield _replicas(here, pair[0])
        # SyncBatchNorm as a remedy: where a large global batch loses most, on top of the recipe
        # that usually helps most. NORM may have it already.
        scaled_by = [name for name in here.names if recipe(name).scaled]
        if scaled_by and here.recipes == len(TRIED) and (most, scaled_by[-1]) != (pair, by):
            title = f"{title} with batch norm synchronised, recipe {scaled_by[-1]}"
            yield _training(here, SYNC, title, most, "norm", "sync", by=scaled_by[-1])
    title = "One worker that sees its samples in the same order in every epoch"
    yield _training(here, ORDER, title, (1,), "order", "fixed", by="fixed")


def _choices(here: Row) -> list[Choice | tuple[str, ...]]:
    data, cores = here.data, plural(here.asked.cores, "core")
    epoch, trained = f"an epoch of {IMAGES}", (1, *here.trained)
    steps = f"{here.steps}" if here.steps else epoch
    beyond = plans.beyond(trained, here.asked.cores)
    too_large = f"{here.too_large:,} in {size(here.memory_bytes)} per worker (--memory)"
    network = "ResNet-18" if here.model == RESNET else "a small network: 3 convolutions"
    batches = (plans.words(LAB_BATCHES), plans.words(here.batches), "to fit the time")
    threads = ("nn.DataParallel", "threads of one process", "nn.DataParallel needs GPUs")
    return [
        ("device", "1 to 4 K80 GPUs", f"CPU, {cores}", "one thread each: only workers differ"),
        ("workers, times", "1, 2 and 4", plans.words(here.timed), f"speed counts up to {cores}"),
        ("steps of a launch for times", epoch, steps, "an epoch's time is derived from steps"),
        ("batches per worker, times", *batches),
        ("batch that does not fit", f"{LAB_TOO_LARGE:,} in a GPU's memory", too_large),
        ("data set", "CIFAR-10", data.source),
        plans.samples_choice("training images, accuracy", "50,000", here.samples, data.train),
        plans.samples_choice("test images", "10,000", here.test_samples, data.test),
        ("network, accuracy", "ResNet-18", network, "it trains in minutes on a core"),
        ("batch per worker, accuracy", f"{LAB_BATCHES[-1]}", f"{here.batch}", "for enough steps"),
        ("epochs", "not said", plans.epochs_words(here.epochs, here.names)),
        ("learning rate of one worker", "not said", f"{LEARNING_RATE:g}"),
        plans.DECAY,
        ("workers, accuracy", "4", plans.words(trained), beyond),
        ("recipes", "linear, longer, warmup", ", ".join(here.names)),
        ("one process with several replicas", *threads),
    ]


# Questions 1 to 3: ResNet-18's times, this machine's and the lab's.


def _timings(found: Found, table: str) -> list[Row]:
    """Return every batch and number of workers that was timed here, then those of a lab's table.

    Speedups are at a fixed batch per worker: where two cells have the same global batch as well,
    there is another one.
    """
    tables = {HERE: found.studies.get(TIME), THE_LAB: found.published[f"cifar10_{table}"]}
    rows = []
    for source, info in tables.items():
        curves = [one for one in (info.curves if info else ()) if one.scaling == "weak"]
        points = [point for one in curves if one.baseline_workers == 1 for point in one.points]
        weak = {point.cell: point for point in points if point.valid}
        for row in having(cell_rows(info, source), "batch", today=False):
            point = weak.get(row.cell, Row())
            row.speedup, row.efficiency = point.speedup, point.efficiency
            row.series = f"batch {row.batch}, {source}"
            row.steps = steps_per_epoch(LAB_SAMPLES, row.batch, row.workers)
            row.memory_gb = row.memory_bytes and row.memory_bytes / GB
            if source == HERE:
                row.epoch_s = row.step_s and scaled(row.step_s, row.steps)
            else:
                row.step_s = row.throughput = None  # its epochs once more
            rows.append(row)
    return sorted(rows, key=lambda row: (row.source, row.batch, row.workers))


EPOCH_TIME = Question(
    key="batch",
    text="How long does an epoch take on one worker, by batch?",
    title=f"One worker by batch: an epoch of {IMAGES}, without data loading",
    rows=lambda found: having(_timings(found, "batch"), workers=1),
    columns=columns(
        "source batch epoch_s",
        measure("images_per_s", "images/s", number, "throughput"),
        *("step_s", column("memory_gb", "memory (GB)"), text("outcome", "outcome")),
    ),
    say="""
{% set timed = here | having("throughput") %}
An epoch of 50,000 images on one worker: \
{{ timed | each("{epoch_s:interval_seconds} at batch {batch}") }}.
{{ (timed[-1:] + timed[:1]) | relation("speed", "batch {batch}") }}
The lab's GPU took \
{{ lab | having("epoch_s") | each("{epoch_s.value:seconds} at batch {batch}") }}, and ran out \
of memory at batch 2,048.
{% for row in here if row.failed %}
Batch {{ row.batch }} failed here: {{ row.failed }}.
{% endfor %}
""",
    why="A larger batch usually keeps vector units and GPU cores busier (vectorisation) and "
    "spreads the fixed cost of a step over more images.",
    study=TIME,
    figures=(
        lines(
            "batch-epoch",
            f"Seconds per epoch of {IMAGES}, by batch",
            "One worker here beside the lab's one GPU; both axes are logarithmic.",
            "source batch epoch_s",
            rows=list,
            log=True,
            x_log=True,
        ),
    ),
)


def _with_most(rows: Sequence[Row]) -> list[Row]:
    """Return the rows of the largest number of workers that has a speedup, by batch."""
    several = [row for row in having(rows, "speedup") if row.workers > 1]
    return having(several, workers=max((row.workers for row in several), default=0))


def _amdahl(info: ScalingInfo | None) -> list[Row]:
    """Return Amdahl's law by batch: an epoch has the same images, whatever the workers."""
    curves = sorted(info.curves if info else (), key=lambda curve: curve.batch or 0)
    laws = [(one.batch, one.amdahl) for one in curves if one.scaling == "weak" and one.amdahl]
    return [
        Row(batch=b, serial=law.serial_fraction, limit=law.limit) for b, law in laws if law.limit
    ]


def _speedup_facts(found: Found, rows: Sequence[Row]) -> dict[str, Any]:
    here = having(rows, source=HERE)
    alone = {row.batch: row for row in having(here, workers=1)}
    most = [row.but(one=alone[row.batch]) for row in _with_most(here)]
    for row in most:
        # Launches take turns: those of one turn are compared.
        row.rates = [many / one for many, one in zip(row.rates, row.one.rates, strict=False)]
    return {
        "most": most,
        "lab_most": _with_most(having(rows, source=THE_LAB)),
        "lab_law": _amdahl(found.published["cifar10_speedup"]),
        # A bound is shown only where launches were repeated and leave no room for none.
        "law": [row for row in _amdahl(found.studies.get(TIME)) if (row.serial.low or 0) > 0],
    }


SPEEDUPS = Question(
    key="speedup",
    text="What is the speedup, by batch and workers?",
    title=f"Speedup by batch per worker and workers; an epoch is {IMAGES}",
    rows=lambda found: [row for row in _timings(found, "speedup") if not row.failed],
    columns=columns("source batch workers step_s epoch_s speedup efficiency"),
    facts=_speedup_facts,
    say="""
Speedup: {{ most | each("{speedup:interval_times} on {workers:workers} at batch {batch}") }}.
{{ (most[-1:] + most[:1]) | relation("speedup", "batch {batch}") }}
{% for last in most[-1:] %}
At batch {{ last.batch }} per worker, a step takes {{ last.one.step_s.value | seconds }} on one \
worker and {{ last.step_s.value | seconds }} on {{ last.workers }} (weak scaling: the work per \
worker stays the same), and an epoch has {{ last.steps | round(0, "ceil") | whole }} steps instead \
of {{ last.one.steps | round(0, "ceil") | whole }} (strong scaling: the images stay the same).
{% endfor %}
The lab's {{ lab_most[0].workers }} GPUs reach \
{{ lab_most | each("{speedup.value:times} at batch {batch}") }}.
By Amdahl's law, more GPUs do not shorten {{ lab_law | each("{serial.value:percent} (batch \
{batch})") }} of its epoch, and the speedup stays below {{ lab_law | each("{limit:times}") }}; \
single runs give that no interval.
{% if law %}
Here the law gives {{ law | each("{serial.value:percent} (batch {batch}, speedup below \
{limit:times})") }}.
{% endif %}
""",
    why="A larger batch usually scales better: the same gradients are sent for more images. In the "
    "lab's table it scales worse, but its times of one GPU do not agree (see the appendix).",
    study=TIME,
    figures=(
        lines(
            "speedup-workers",
            "Speedup by workers",
            "Throughput over that of one worker at the same batch; hollow: the lab's GPUs.",
            *(text("series", "batch per worker"), "workers", "speedup"),
            ideal=True,
        ),
    ),
)


def _communication_rows(found: Found) -> list[Row]:
    rows = []
    for row in having(_timings(found, "communication"), "communication"):
        sent, row.setting = row.communication, f"batch {row.batch}, {plural(row.workers, 'worker')}"
        if row.workers == 1:
            continue
        row.transfer_step_s, row.derived_step_s = sent.measured_s or None, sent.derived_s
        row.waiting_step_s = row.transfer_step_s and row.split and row.split.waiting_s
        row.transfer_epoch_s = row.transfer_step_s and row.transfer_step_s * row.steps
        row.derived_epoch_s = sent.derived_epoch_s
        if row.source == HERE:
            row.derived_epoch_s = sent.derived_s and sent.derived_s * row.steps
        if row.epoch_s and row.derived_epoch_s is not None:
            row.computing_epoch_s = row.epoch_s.value - row.derived_epoch_s
        for key in ("bus", "peak", "derived_bus"):
            rate = getattr(sent, f"{key}_bytes_per_s")
            setattr(row, f"{key}_gb_per_s", rate and rate / GB)
        rows.append(row.but(gradient_bytes=sent.gradient_bytes))
    return rows


def _communication_bars(rows: Sequence[Row]) -> list[Row]:
    kinds = {"transfer_epoch_s": "transfer, measured", "derived_epoch_s": "T(N) - T(1)/N"}
    return [
        row.but(kind=f"{row.source}: {kind}", epoch_s=value)
        for row in rows
        for key, kind in kinds.items()
        # What is not above zero has no place on a logarithmic axis; the table has it.
        if (value := row[key]) is not None and value > 0
    ]


TRANSFERS = Question(
    key="communication",
    text="How much of it is communication, and at which bandwidth?",
    title=f"Communication: measured, and derived as T(N) - T(1)/N; an epoch is {IMAGES}",
    rows=_communication_rows,
    columns=columns(
        *("source batch workers", column("transfer_step_s", "transfer per step (s)")),
        column("waiting_step_s", "waiting for the slower, per step (s)"),
        column("derived_step_s", "derived per step (s)"),
        column("transfer_epoch_s", "transfer per epoch (s)"),
        column("derived_epoch_s", "derived per epoch (s)"),
        column("computing_epoch_s", "computing per epoch, T(1)/N (s)"),
        measure("epoch_s", "epoch, T(N) (s)"),
        column("bus_gb_per_s", "measured (GB/s)"),
        column("peak_gb_per_s", "link's peak (GB/s)"),
        column("derived_bus_gb_per_s", "derived (GB/s)", shared.five),
    ),
    notes=("GB = 10^9 bytes. Transfer: during backward or after it, without waiting.",),
    say="""
{% set moved = (rows | having("transfer_step_s"))[-1:] %}
{% for row in moved %}
At batch {{ row.batch }}, {{ row.workers }} workers need {{ row.transfer_step_s | seconds }} of a \
step of {{ row.step_s.value | seconds }} to move {{ row.gradient_bytes | size }} of gradients \
({{ row.bus_gb_per_s | number }} GB/s), measured; T(N) - T(1)/N, the lab's way, gives \
{{ row.derived_step_s | seconds }}.
{% else %}
No transfer was measured here.
{% endfor %}
{{ moved | map(attribute="split") | select | map("split_words") | join }}
Bandwidth = 2(N-1)/N x 4 bytes x 11,173,962 parameters x steps per epoch / \
communication time, for a ring all-reduce (Lemma 4 of Patarasuk and Yuan 2009), with 50,000 / \
(batch x N) steps per epoch.
{% set example = lab | having(batch=32, workers=2) | first %}
{% set rate = example.derived_bus_gb_per_s %}
Worked example, the lab's 2 GPUs at batch 32: 2(2-1)/2 x 4 x 11,173,962 x \
{{ example.steps }} bytes / {{ "%.7f" % example.derived_epoch_s }} s = \
{{ "%.5f" % rate }} GB/s (/ 10^9), or {{ "%.5f" % (rate * 1e9 / 2**30) }} GiB/s (/ 2^30).
""",
    why="T(N) - T(1)/N counts as communication whatever does not shrink with more workers: waiting "
    "for the slower one, and usually shared memory and caches.",
    figures=(
        bars(
            "communication-epoch",
            f"Communication in an epoch of {IMAGES}",
            "Measured here, by the lab's formula here, and by its formula in the lab.",
            *(text("kind", "kind"), text("setting", "cell")),
            column("epoch_s", "communication per epoch", seconds),
            rows=_communication_bars,
            log=True,
        ),
    ),
)


# Question 4: what a large global batch does to accuracy, and what helps.


def _runs(found: Found, **values: Any) -> list[Row]:
    """Return the ways of training that ended with an accuracy, one worker first."""
    runs = having(shared.setting_rows(found, *TRAINED), "final", **values)
    return sorted(runs, key=lambda run: bool(run.workers > 1))


def _accuracy_rows(found: Found) -> list[Row]:
    """Compare one worker with whatever is meant to keep accuracy on several."""
    runs = [run for run in _runs(found, order="epoch") if run.norm != "broadcast"]
    for run in runs:
        run.recipe += " + SyncBatchNorm" if run.norm == "sync" else ""
    return shared.against(first(runs, workers=1), runs)


def _accuracy_facts(found: Found, rows: Sequence[Row]) -> dict[str, Any]:
    (lab,) = cell_rows(found.published["cifar10_accuracy"])
    return {
        "untried": [name for name in TRIED if not having(rows, recipe=name)],
        "lab_run": {name: metric.final.value for name, metric in lab.metrics.items()},
    }


def _epoch_points(rows: Sequence[Row]) -> list[Row]:
    most = max((row.workers for row in rows), default=0)
    return [
        Row(series=f"{row.recipe}, {plural(row.workers, 'worker')}", epoch=point.epoch, point=point)
        for row in rows
        for curve in row.metric_curves or ()
        if row.workers in (1, most) and curve.metric == METRIC
        for point in curve.points
    ]


REMEDIES = compare_recipes(
    "accuracy",
    "What does a large global batch do to accuracy, and what helps?",
    rows=_accuracy_rows,
    facts=_accuracy_facts,
    say="""
At the learning rate of one worker, accuracy ends at \
{{ rows | having(recipe="fixed") | each("{final.value:four} on {workers:workers} after \
{counted:whole} updates") }}.
{% if untried %}
Not tried at this size: {{ untried | listed }}.
{% endif %}
The lab's largest batch, 512 on each of 4 GPUs, ended at a training accuracy of \
{{ lab_run.train_accuracy }} % (loss {{ lab_run.train_loss }}).
The 49.78 % (loss 1.3860) given next to it are an earlier lab's SGD run: another experiment, which \
says nothing about the batch.
""",
    why="In the same epochs a larger global batch makes fewer updates, which usually costs "
    "accuracy. A rate scaled with the workers (linear), a gradual warm-up over 5 epochs (warmup) "
    "and more epochs (longer) usually win it back (Goyal et al. 2017).",
    study=ACCURACY,
    figures=(
        lines(
            "accuracy-epochs",
            "Accuracy by epoch: one worker, and the recipes on the most workers",
            "Mean over seeds.",
            *(text("series", "run"), column("epoch", "epoch", brief)),
            measure("value", "accuracy", number, "point.value"),
            rows=_epoch_points,
            x_log=False,
            zero=False,
        ),
    ),
)


# Question 5: DataParallel and DistributedDataParallel, and the order of samples.

STEP = shared.table_rows(
    "step first other process",
    ("1. data", "loads the whole batch, splits it", "receives its part", "loads its own batch"),
    ("2. weights", "sends a copy to every GPU", "receives a copy", ""),
    ("3. forward", *["computes its part"] * 2, "computes its batch"),
    ("4. loss", "collects outputs, computes the loss", "sends its outputs", "computes its loss"),
    ("5. backward", *["computes its gradients"] * 2, "computes and averages gradients"),
    ("6. gradients", "adds up all gradients", "sends its gradients", ""),
    ("7. update", "updates the weights", "", "updates its replica"),
)
ORDERS = {"epoch": "epoch in the seed", "fixed": "the same seed in every epoch"}


def _replica_rows(found: Found) -> list[Row]:
    """Return one process, then threads, then processes, as far as they were run."""
    one = _runs(found, workers=1, recipe="fixed", norm="local", order="epoch")
    threads = cell_rows(found.studies.get(REPLICAS))
    processes = having(_norm_rows(found), norm="local")
    rows = [
        *(row.but(arrangement="1 process") for row in one),
        *(row.but(arrangement=f"{row.replicas} threads of 1 process", kind=1) for row in threads),
        *(row.but(arrangement=f"{row.workers} processes", kind=2) for row in processes),
    ]
    base = first(rows, "throughput")
    for row in rows:
        row.batch = one[0].batch if one else None
        row.ratio = base and row.throughput and row.throughput.value / base.throughput.value
        row.note = row.note or ("" if row.throughput else "does not count")
    return rows


def _order_rows(found: Found) -> list[Row]:
    """Return runs of one worker whose order of samples does and does not depend on the epoch."""
    runs = [run for order in ORDERS for run in _runs(found, workers=1, order=order)]
    for run in runs:
        run.words, same = ORDERS[run.order], []
        for launch in run.records:
            recorded = [one for one in launch.ranks[0].metrics if one.name == "first_sample"]
            firsts = [one.value for one in sorted(recorded, key=lambda one: one.epoch or 0)]
            same += [sample == firsts[0] for sample in firsts[1:]]
        run.repeats = sum(same) / len(same) if same else None
    return shared.against(first(runs, order="epoch"), runs)


def _replica_facts(found: Found, rows: Sequence[Row]) -> dict[str, Any]:
    fast = sorted(having(rows, "throughput", "kind"), key=lambda row: -int(row.kind))
    return {"fast": fast, "orders": _order_rows(found)}


ARRANGEMENTS = Question(
    key="replicas",
    text="How do DataParallel and DistributedDataParallel differ, and does sample order matter?",
    title="Replicas as threads of one process, and as processes",
    rows=_replica_rows,
    columns=columns(
        *(text("arrangement", "arrangement"), column("batch", "batch per replica", whole)),
        *(measure("throughput", "images/s"), "step_s"),
        *(column("ratio", "over one process", times), text("note", "note")),
    ),
    facts=_replica_facts,
    say="""
DataParallel is one process with a thread per GPU: it copies the weights to every GPU in every \
step, its threads share Python's lock, and it is limited to one machine.
DistributedDataParallel (DDP) is one process per GPU: each keeps its replica and exchanges \
gradients instead of weights, and any number of machines can take part.
Speed here: {{ fast | each("{throughput:interval} images/s with {arrangement}") }}.
{{ fast | relation("speed", "{arrangement}") }}
Later epochs that begin with the same sample as the first: \
{{ orders | each("{repeats:percent} ({words})") }}.
{% for row in orders if row.difference %}
With the same order in every epoch, accuracy changes by {{ row.change }}.
{% endfor %}
""",
    why="Threads usually wait for each other at Python's lock. The threads here share one set of "
    "weights, so DataParallel's copies are not in their time.",
    study=REPLICAS,
    tables=(
        Question(
            key="order",
            title="The order of samples with and without the epoch in the seed, one worker",
            rows=_order_rows,
            columns=columns(
                text("order", "order", "words"),
                column("repeats", "later epochs that begin as the first", percent),
                "accuracy difference seeds",
            ),
        ),
    ),
    figures=(
        boxes(
            "replicas-designs",
            "One training step of DataParallel and of DDP",
            "No box: nothing to do.",
            *(text("step", "step"), text("first", "DataParallel, first GPU")),
            *(text("other", "DataParallel, other GPUs"), text("process", "DDP, every GPU")),
            rows=lambda rows: STEP,
        ),
        bars(
            "replicas-throughput",
            "Images per second by arrangement",
            "The same network and batch per replica, one thread each.",
            "arrangement throughput",
        ),
    ),
)


# Questions 6 and 7: what crosses the network besides gradients, and whether it has to.

STATISTICS = {"local": "left alone", "broadcast": "broadcast from rank 0", "sync": "synchronised"}
AT_START = ("parameters", "objects")
"""Kinds that cross once, whatever the number of steps."""
PURPOSES = {
    "gradients": "averaged in every step",
    "buffers": "batch norm's statistics; where they are left alone, for tests only",
    "parameters": "weights of rank 0, once at the start",
    "objects": "states of the optimizer and the like, once at the start",
    "other": "collectives of the script: losses, right answers",
    "control": "messages by which workers agree",
}
NORM_COLUMN = text("norm", "statistics", "statistics")


def _norm_rows(found: Found) -> list[Row]:
    """Return each way to treat the statistics, at the fewest workers above one."""
    several = [run for run in _runs(found, order="epoch") if run.workers > 1]
    ways: list[Row] = []
    for chosen in (having(several, study=NORM) or several)[:1]:
        same = having(several, workers=chosen.workers, recipe=chosen.recipe)
        ways = [run for norm in STATISTICS for run in having(same, norm=norm)]
    for run in ways:
        sent = run.communication or Row(bytes_by_kind={}, total_bytes_by_kind={})
        run.statistics, run.total, each = STATISTICS[run.norm], sent.total_bytes_by_kind, {}
        for kind in BYTE_KINDS if sent.bytes_by_kind else ():
            each[kind] = sent.bytes_by_kind.get(kind, 0.0) / run.workers
        run.each = {kind: count for kind, count in each.items() if kind not in AT_START}
        run.gradients, run.start = each.get("gradients"), sum(map(run.total.get, AT_START, (0, 0)))
        run.beside_bytes = sum(run.each.values()) - run.gradients if each else None
    return shared.against(first(ways, norm="local"), ways)


def _wire_rows(found: Found) -> list[Row]:
    return [
        run.but(
            kind=kind,
            total_bytes=run.total[kind],
            step_bytes=run.each.get(kind),
            share=run.total[kind] / sum(run.total.values()),
            what=PURPOSES[kind],
            not_applicable=("step_bytes",) if kind in AT_START else (),
        )
        for run in _norm_rows(found)
        for kind in BYTE_KINDS
        if run.total.get(kind)
    ]


PAYLOAD = Question(
    key="wire",
    text="What crosses the network besides gradients?",
    title="Payload by kind and by what is done with batch norm's statistics",
    rows=_wire_rows,
    columns=columns(
        *(NORM_COLUMN, text("kind", "kind"), column("total_bytes", "whole run, all workers", size)),
        column("step_bytes", "per step and worker", size),
        *(column("share", "share of the run's bytes", percent), text("what", "what it is")),
    ),
    notes=("Payload, before a transport multiplies it by 2(N-1)/N.",),
    facts=lambda found, rows: {"sent": having(_norm_rows(found), "gradients")},
    say="""
Besides gradients, a worker sends {{ sent | each("{beside_bytes:size} ({statistics})") }} in a \
step, by what is done with batch norm's statistics.
{% for row in sent[:1] %}
Gradients are {{ row.gradients | size }} a step; {{ (row.start / row.workers) | size }} of weights \
cross once, at the start.
{% endfor %}
""",
    why="Statistics are a mean and a variance per channel, usually far smaller than gradients.",
    figures=(
        bars(
            "wire-kinds",
            "Payload per step and worker, by kind",
            "On a logarithmic axis; without what crosses once, at the start.",
            *("norm kind", column("step_bytes", "bytes per step and worker", size)),
            log=True,
        ),
    ),
)
NORMS = Question(
    key="batch_norm",
    text="Would gradients alone do?",
    title="Batch norm's statistics left alone, broadcast and synchronised",
    rows=_norm_rows,
    columns=columns(
        *(NORM_COLUMN, "workers accuracy difference"),
        *(column("beside_bytes", "beside gradients, per step and worker", size), "step_s seeds"),
    ),
    notes=(PAIRED,),
    # Running statistics are not used in training: rank 0's are the same, sent around or not.
    say="""
Accuracy with gradients alone: \
{{ rows[:1] | each("{final.value:four} on {workers:workers}") }}; difference with statistics \
{{ rows | selectattr("difference") | each("{statistics}: {change}") }}.
The lab answered yes: statistics stay on each GPU, and those of the first are used in the end.
""",
    why="Batch norm takes mean and variance over the n images of one worker's batch, not of the "
    "global batch. Unless they are synchronised, the loss of several workers is usually not that "
    "of one worker with the whole batch.",
    figures=(
        bars(
            "batch-norm-accuracy",
            "Accuracy by what is done with batch norm's statistics",
            "Mean over seeds.",
            "norm accuracy",
            zero=False,
        ),
    ),
)


# What the original got wrong: said, right, and what shows it, as templates.

CORRECTIONS = (
    (
        "A fixed batch per worker is strong scaling in one place and weak scaling in another.",
        "It is weak scaling of the step (the work per worker stays the same, the global batch "
        "grows) and strong scaling of the epoch (the images stay the same).",
        """The lab's 2 GPUs at batch 32 take {{ two_s | number }} s for an epoch instead of \
{{ ones[1] | number }} s, in half as many steps of {{ (two_s / steps) | seconds }} instead of \
{{ (ones[1] / (2 * steps)) | seconds }}.""",
    ),
    (
        "One GPU at batch 32 takes {{ ones[0] | number }} s in one table, {{ ones[1] | number }} s "
        "in another, and communication is derived from the first.",
        "Two measurements of one setting have to agree before anything is derived from them. "
        "Measure communication instead.",
        """T(2) - T(1)/2 at batch 32 is {{ derived[0] | number }} s ({{ rates[0] | rate }}) with \
the first time and {{ derived[1] | number }} s ({{ rates[1] | rate }}) with the other.""",
    ),
    (
        "Bandwidth is divided by 2^30 to get GB/s.",
        "The lab's own figures are divided by 10^9, as are all figures of this report.",
        """2 GPUs at batch 32 move {{ "%.6g" % rates[0] }} bytes/s: \
{{ "%.5f" % (rates[0] / 1e9) }} GB/s, as published, but {{ "%.5f" % (rates[0] / 2**30) }} in units \
of 2^30.""",
    ),
    (
        """The {{ wrong | each("{what}, is {claimed}") }}.""",
        """It is {{ wrong | each("{value:four}") }}, by the lab's own times.""",
        """{{ wrong | map(attribute="sentence") | join(" ") }}""",
    ),
    (
        "With a larger batch an epoch gets faster because fewer parameters are updated.",
        "Every update changes every parameter, whatever the batch. An epoch has fewer updates.",
        """50,000 images are {{ (50000 / 32) | round(0, "ceil") | whole }} updates at batch 32 and \
{{ (50000 / 512) | round(0, "ceil") | whole }} at batch 512. {% if timed %}Updated in a step here: \
{{ timed | each("{parameters:whole} parameters at batch {batch}") }}.{% endif %}""",
    ),
    (
        "A full batch is certain to reach the global optimum.",
        "No batch is: the loss of such a network is not convex. A full batch gives the exact "
        "gradient, which is also zero at a local minimum and on a plateau. Small batches make more "
        "and noisier updates, again without a guarantee.",
        "One unit max(0, w x), squared error, and x = 1, y = 1 as the full batch: from w = -1 its "
        "gradient is 0 and the loss stays 1; from w = 0.5 descent reaches 0.",
    ),
)


def corrections(found: Found) -> tuple[Correction, ...]:
    """Say what the original got wrong, with the arithmetic on its own figures."""

    def epoch_s(table: str, workers: int) -> float:
        (row,) = having(_timings(found, table), source=THE_LAB, batch=32, workers=workers)
        return float(row.epoch_s.value)

    ones = [epoch_s(table, 1) for table in ("batch", "speedup")]
    derived = [derived_communication_s(epoch_s("communication", 2), one, 2) for one in ones]
    steps = steps_per_epoch(LAB_SAMPLES, 32, 2)
    return correct(
        CORRECTIONS,
        steps=steps,
        ones=ones,
        two_s=epoch_s("speedup", 2),
        derived=derived,
        rates=[bus_bandwidth(4 * PARAMETERS * steps, one, 2) for one in derived],
        wrong=[claim for claim in shared.claims_of("cifar10") if not claim.agrees],
        timed=having(_timings(found, "speedup"), "parameters", source=HERE, workers=1),
    )


QUESTIONS = (EPOCH_TIME, SPEEDUPS, TRANSFERS, REMEDIES, ARRANGEMENTS, PAYLOAD, NORMS)
LAB = Lab(
    name="cifar10",
    title="cifar10: where the time goes",
    line="ResNet-18 by batch and workers, communication measured, large batches, batch norm",
    questions=QUESTIONS,
    published=("cifar10_batch", "cifar10_speedup", "cifar10_communication", "cifar10_accuracy"),
    leading=("speedup", "communication", "accuracy"),
    efforts=len(EFFORTS) - 2,
    introduction="Computing, moving gradients and waiting for others are the parts of a training "
    "step. This lab trains ResNet-18 on CIFAR-10 and asks where the time goes: how long an epoch "
    "takes by batch and by workers, how much of it is communication and at which bandwidth, what "
    "the large global batch of many workers does to accuracy, how DataParallel and "
    "DistributedDataParallel differ, and what has to cross the network besides gradients. The "
    "original ran PyTorch on 1 to 4 K80 GPUs and derived communication from epoch times; here it "
    "is measured.",
    lab_found={
        "communication": "By T(N) - T(1)/N, 17.0 s of an epoch of 40.2 s on 2 GPUs at batch 32, or "
        "2.05 GB/s.",
        "replicas": "DataParallel runs threads of one process, DistributedDataParallel processes; "
        "the sampler's seed must include the epoch.",
        "wire": "Batch norm's statistics, and broadcasts at the start.",
    },
    original_data={
        "source": "CIFAR-10",
        "training samples": "50,000",
        "test samples": "10,000",
        "classes": "10",
        "training samples per class": "5,000",
        "as trained": "32x32 RGB",
    },
    method=(
        (
            "SLURM request",
            "srun: 10 CPUs per task, 8 K80, 120 GB",
            "none (examples/cifar10.sbatch: 4 tasks of 10 CPUs, 120 GB)",
        ),
        ("gradients", f"4 bytes x {PARAMETERS:,} parameters of ResNet-18", "the same, for times"),
        ("optimizer", "SGD", "SGD with momentum 0.9"),
    ),
    conclusion="""
{% for sentence in answers.communication.sentences if sentence.startswith("A step of") %}
Where the time goes here: {{ sentence[0] | lower }}{{ sentence[1:] }}
{% endfor %}
T(N) - T(1)/N counts waiting and contention as communication, and depends on T(1), for which the \
lab has two values. Measure the transfer instead.
With a fixed batch per worker the global batch grows with the workers, so a run makes fewer \
updates; whether that costs accuracy takes several seeds and enough test images to see.
Gradients have to cross the network in every step; batch norm's statistics do not.
{% if found.asked.size == "quick" %}
This quick run shows figures and makes no claims: farandole lab cifar10 repeats every setting.
{% endif %}
""",
    references=shared.references_of("cifar10"),
    data=describe_cifar10,
    pilot=pilot,
    plan=plan,
    corrections=corrections,
)
