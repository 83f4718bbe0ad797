"""The faces lab's plan: which studies are made at which size. No two of them run the same cell."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from farandole.format import listed, plural
from farandole.labs import plan as plans
from farandole.labs.lab import Asked, Choice, DataFacts, Plan, Planned, Rate
from farandole.labs.plan import (
    STUDY_S,
    Training,
    Workload,
    busy_options,
    launch_s,
    speed_options,
    steps_s,
)
from farandole.labs.questions import sentences
from farandole.labs.rows import Row

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


@dataclass(frozen=True, slots=True)
class Effort:
    """How much of the lab is run; a larger effort has no smaller figure."""

    pixels: int
    """Side of an image in the runs for speed."""
    batch: int
    """Per worker, for weak scaling."""
    global_batch: int
    """For strong scaling and for splits of the cores."""
    sweep: tuple[int, ...]
    """Batches of one process with all cores, beside the global one."""
    steps: int
    """Of each launch for speed."""
    repeats: int
    workers: tuple[int, ...]
    """Beyond the cores for accuracy only."""
    recipes: int
    """How many of RECIPES."""
    epochs: int
    seeds: int


_TWO, _FOUR, _EIGHT = (1, 2), (1, 2, 4), (1, 2, 4, 8)
_MANY = (1, 2, 4, 8, 16)
QUICK = Effort(75, 6, 6, (2,), 4, 1, _TWO, 1, 2, 1)
LADDER = (
    Effort(75, 8, 8, (2,), 5, 1, _TWO, 1, 4, 1),
    Effort(75, 8, 8, (2,), 6, 2, _TWO, 1, 4, 1),
    Effort(75, 8, 8, (2,), 6, 3, _TWO, 1, 8, 1),
    Effort(75, 8, 8, (1, 4), 6, 3, _FOUR, 1, 8, 1),
    Effort(75, 16, 16, (1, 4), 6, 3, _FOUR, 1, 8, 2),
    Effort(75, 16, 16, (1, 4), 8, 3, _FOUR, 2, 10, 3),
    Effort(75, 16, 16, (1, 4, 8), 8, 3, _FOUR, 2, 10, 3),
    Effort(75, 16, 16, (1, 4, 8), 8, 5, _FOUR, 2, 15, 3),
    Effort(96, 32, 32, _MANY, 8, 5, _EIGHT, 3, 20, 5),
    Effort(128, 32, 32, _MANY, 8, 5, _EIGHT, 4, 20, 5),
    Effort(LAB_PIXELS, 32, 32, _MANY, 8, 5, _EIGHT, 4, 20, 5),
)
_SWEEP = (1, 2, 4, 8, 16, 32, 64)
FULL = Effort(LAB_PIXELS, LAB_BATCH, LAB_GLOBAL_BATCH, _SWEEP, 20, 1, _EIGHT, 1, 20, 1)


def pilot(asked: Asked) -> tuple[Planned, ...]:
    """Return the studies that measure what one worker does in a second, for each network."""
    speed = [
        _speed_study(
            *(asked, model, f"How fast one worker trains {title}", model),
            options={"workers": 1, "threads": 1, "params": {"batch": _PILOT_BATCH}},
            pixels=PILOT_PIXELS,
            images=4 * _PILOT_BATCH,
            steps=_PILOT_STEPS,
            once_s=steps_s(_GUESS[model], threads=1, batches=(_PILOT_BATCH,), steps=_PILOT_STEPS),
        )
        for model, title in MODELS.items()
    ]
    return (*speed, SMALL.pilot(asked))


def plan(asked: Asked, data: DataFacts, rates: Mapping[str, Rate], effort: int) -> Plan:
    """Return the studies of a size."""
    here = {"quick": QUICK, "full": FULL}.get(asked.size) or LADDER[effort]
    cores, counts, splits = asked.cores, timed_counts(asked, here), split_counts(asked, here)
    shared, steps = shared_batch(asked, here), here.steps
    largest = max(shared, *here.sweep, here.batch * counts[-1])
    images = min(data.train, 4 * largest)
    # Convolutions cost as many operations as there are pixels.
    slower = (here.pixels / PILOT_PIXELS) ** 2
    by_model = [rates.get(model, guess) for model, guess in _GUESS.items()]
    by_model = [replace(rate, samples_per_s=rate.samples_per_s / slower) for rate in by_model]

    def study(
        name: str, title: str, *, once_s: float, repeats: int, params: dict[str, Any], **given: Any
    ) -> Planned:
        return _speed_study(
            *(asked, name, title, "{model}"),
            options={**given, "params": {**params, "model": MODELS}},
            pixels=here.pixels,
            images=images,
            steps=steps,
            once_s=once_s,
            repeats=repeats,
        )

    cells = {(count, batch) for count in counts for batch in (here.batch, shared // count)}
    batches = tuple(sorted({*here.sweep, shared}))
    studies = [
        study(
            *(SCALING, "Weak and strong scaling of the three networks"),
            workers=counts,
            threads=1,
            params={"batch": here.batch, "global_batch": shared},
            once_s=sum(
                launch_s(rate, workers=n, cores=cores, samples=steps * batch * n, epochs=1)
                for rate in by_model
                for n, batch in cells
            ),
            repeats=here.repeats,
        ),
        study(
            *(BATCH, "One process with all cores, by batch"),
            workers=1,
            threads=cores,
            params={"batch": batches},
            once_s=sum(
                steps_s(rate, threads=cores, batches=batches, steps=steps) for rate in by_model
            ),
            # What a sweep compares differs more than what scales does.
            repeats=max(1, here.repeats - 1),
        ),
    ]
    if splits:
        once_s = sum(
            rate.startup_s + steps * shared / (rate.samples_per_s * cores) for rate in by_model
        )
        studies.append(
            study(
                *(SPLIT, "Processes x threads between one process and one thread each"),
                workers=splits,
                split="all",
                params={"global_batch": shared},
                once_s=len(splits) * once_s,
                repeats=here.repeats,
            )
        )
    studies += _accuracy_studies(asked, data, rates.get(SMALL.name, SMALL.guess), here)
    return Plan(studies=tuple(studies), choices=_choices(asked, data, here, images))


def timed_counts(asked: Asked, here: Effort) -> tuple[int, ...]:
    """Return the numbers of workers whose speed counts; one is what others are compared with."""
    chosen = plans.counts(asked, here.workers)
    return tuple(sorted({1, *(count for count in chosen if count <= asked.cores)}))


def split_counts(asked: Asked, here: Effort) -> tuple[int, ...]:
    """Return the processes of the lab's splits that no other study runs.

    One process with all cores is in the sweep of batches, one thread each in the scaling.
    """
    cores, counts = asked.cores, timed_counts(asked, here)
    divides = (count for count in LAB_SPLITS if cores % count == 0)
    return tuple(count for count in divides if not (count == cores and count in counts))


def shared_batch(asked: Asked, here: Effort) -> int:
    """Return the global batch: what all numbers of processes can share, no smaller than planned."""
    divisor = math.lcm(*timed_counts(asked, here), *split_counts(asked, here))
    return math.ceil(here.global_batch / divisor) * divisor


def _speed_study(
    asked: Asked,
    name: str,
    title: str,
    model: str,
    *,
    options: Mapping[str, Any],
    pixels: int,
    images: int,
    steps: int,
    once_s: float,
    repeats: int = 1,
) -> Planned:
    """Return a study of steps: its job has no end and goes round few images.

    `once_s` is what one launch of each cell takes.
    """
    # At full size a step is minutes long on a CPU.
    patience = {"launch_timeout": "24h"} if asked.size == "full" else busy_options(asked)
    return Planned(
        name=name,
        title=title,
        options={**options, "steps": steps, **speed_options(repeats), **patience},
        script=SMALL.script,
        arguments=(
            *plans.data_arguments(asked),
            *("--model", model, "--image-size", str(pixels), "--loop", str(images)),
            *("--epochs", "1000", "--batch-size", "{batch}", "--recipe", "fixed"),
        ),
        estimate_s=repeats * once_s + STUDY_S,
        environ=plans.KERAS,
    )


def _accuracy_studies(asked: Asked, data: DataFacts, rate: Rate, here: Effort) -> list[Planned]:
    """Return what trains the small network to the end, the lab's own recipe first."""
    training = Training(
        workload=SMALL,
        asked=asked,
        data=data,
        rate=rate,
        samples=0,
        test_samples=0,
        epochs=here.epochs,
        seeds=here.seeds,
    )
    one, *rest = plans.recipes(asked, RECIPES[: here.recipes])
    counts = plans.counts(asked, here.workers)
    several = tuple(count for count in counts if count > 1)
    title = "Accuracy of the small network by workers"
    studies = [
        training.study(name=WORKERS, title=f"{title}, recipe {one}", recipes=(one,), workers=counts)
    ]
    if rest and several:
        title, recipes = f"{title}, {listed(rest)}", tuple(rest)
        studies.append(training.study(name=RECIPE, title=title, recipes=recipes, workers=several))
    return studies


def _choices(asked: Asked, data: DataFacts, here: Effort, images: int) -> tuple[Choice, ...]:
    """Say where a run differs from the original, and why."""
    counts = plans.counts(asked, here.workers)
    splits = [count for count in sorted({1, 2, 4, asked.cores}) if asked.cores % count == 0]
    lines = sentences(
        _CHOICES,
        data=data,
        effort=here,
        images=images,
        cores=plural(asked.cores, "core"),
        counts=plans.words(timed_counts(asked, here)),
        smaller=here.pixels != LAB_PIXELS,
        batch_fit="" if here.batch == LAB_BATCH else "to fit the time",
        shared=shared_batch(asked, here),
        shared_fit="" if here.global_batch == LAB_GLOBAL_BATCH else "to fit the time",
        splits=listed([f"{count} x {asked.cores // count}" for count in splits]),
        recipes=", ".join(plans.recipes(asked, RECIPES[: here.recipes])),
        workers=plans.words(counts),
        beyond=plans.beyond(counts, asked.cores),
        small=SMALL,
    )
    rows = grid("what lab here why", lines)
    return plans.choices(*(Choice(**vars(row)) for row in rows))


def grid(keys: str, lines: Iterable[str]) -> list[Row]:
    """Return rows written as lines: a cell for each key, with bars between them."""
    cells = ([cell.strip() for cell in line.split("|")] for line in lines)
    return [Row(**dict(zip(keys.split(), own, strict=True))) for own in cells]


_CHOICES = """
software | TensorFlow on Horovod, over MPI (MVAPICH2) and NCCL \
| Keras on PyTorch and Farandole, over shared memory |
device | CPU nodes of 28 cores; GPUs | {{ cores }} of one host |
nodes | 1, 2, 4 and 8; 4 processes of 7 threads a CPU node | {{ counts }} workers with a thread \
each | a core stands for a node: speed counts up to {{ cores }}
data set | IMDB-WIKI, 460 K + 62 K faces | {{ data.source }} |
images of a run for speed | not said | {{ images | whole }}, again and again \
| a step costs the same whatever it sees
size of an image, speed | not said; VGG16's parameters are those at 224 pixels \
| {{ effort.pixels }} pixels | {{ "to fit the time; the least that InceptionV3 takes is 75. \
VGG16's dense layers shrink with it" if smaller }}
batch per worker, weak scaling | 32 per process, 128 per GPU | {{ effort.batch }} | {{ batch_fit }}
global batch, strong scaling and splits | 128 | {{ shared }} | {{ shared_fit }}
splits of a node | 1 x 28, 2 x 14 and 4 x 7 | {{ splits }} |
steps of a launch for speed | not said | {{ effort.steps }} |
accuracy | not asked for: throughput only | of a small network on nine groups of age, recipe \
{{ recipes }} | the three networks would need hours on a core to learn anything
training images, accuracy | not said | {{ data.train | whole }} |
workers, accuracy | not said | {{ workers }} | {{ beyond }}
batch per worker and epochs, accuracy | not said | {{ small.batch }} and {{ effort.epochs }} |
"""
