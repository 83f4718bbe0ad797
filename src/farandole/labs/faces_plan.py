"""The faces lab's plan: which studies are made at which size. No two of them run the same cell."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from farandole.format import listed, plural, whole
from farandole.labs import plan as plans
from farandole.labs.lab import Asked, Choice, DataFacts, Plan, Planned, Rate
from farandole.labs.plan import Training, Workload, launch_s, steps_s
from farandole.labs.rows import Row, table_rows

MODELS = {"inceptionv3": "InceptionV3", "resnet50": "ResNet50", "vgg16": "VGG16"}
"""Names for the script, with those for people, in the lab's order."""
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
    "inceptionv3": Rate(samples_per_s=10.0, startup_s=8.5),
    "resnet50": Rate(samples_per_s=8.0, startup_s=8.5),
    "vgg16": Rate(samples_per_s=4.0, startup_s=8.5),
}
_TWO, _FOUR, _EIGHT = (1, 2), (1, 2, 4), (1, 2, 4, 8)
_FEW, _MORE, _MANY = (1, 4), (1, 4, 8), (1, 2, 4, 8, 16)

# Quick, by budget, full. `batch` is per worker, for weak scaling; `global_batch` is for strong
# scaling and for splits of the cores; `sweep` are batches of one process with all cores, beside the
# global one. Steps and repeats are of launches for speed. Workers beyond the cores count for
# accuracy only, which has so many recipes, epochs and seeds.
EFFORTS = table_rows(
    "pixels batch global_batch sweep steps repeats workers recipes epochs seeds",
    (75, 6, 6, (2,), 4, 1, _TWO, 1, 2, 1),
    (75, 8, 8, (2,), 5, 1, _TWO, 1, 4, 1),
    (75, 8, 8, (2,), 6, 2, _TWO, 1, 4, 1),
    (75, 8, 8, (2,), 6, 3, _TWO, 1, 8, 1),
    (75, 8, 8, _FEW, 6, 3, _FOUR, 1, 8, 1),
    (75, 16, 16, _FEW, 6, 3, _FOUR, 1, 8, 2),
    (75, 16, 16, _FEW, 8, 3, _FOUR, 2, 10, 3),
    (75, 16, 16, _MORE, 8, 3, _FOUR, 2, 10, 3),
    (75, 16, 16, _MORE, 8, 5, _FOUR, 2, 15, 3),
    (96, 32, 32, _MANY, 8, 5, _EIGHT, 3, 20, 5),
    (128, 32, 32, _MANY, 8, 5, _EIGHT, 4, 20, 5),
    (LAB_PIXELS, 32, 32, _MANY, 8, 5, _EIGHT, 4, 20, 5),
    (LAB_PIXELS, LAB_BATCH, LAB_GLOBAL_BATCH, (*_MANY, 32, 64), 20, 1, _EIGHT, 1, 20, 1),
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
    training = Training.of(SMALL, asked, data, rates, everything)
    workers = plans.counts(asked, here.workers)
    several = tuple(count for count in workers if count > 1)
    names = plans.recipes(asked, RECIPES[: here.recipes])
    studies += training.by_workers("Accuracy", names, workers, several)
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
    lines = f"""
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
    rows = [[cell.strip() for cell in line.split("|")] for line in lines.strip().splitlines()]
    return plans.choices(*rows)
