"""Where a run of the faces lab differs from the original: "lab / here"."""

from __future__ import annotations

from farandole.format import listed, plural
from farandole.labs import effort as alike
from farandole.labs.faces.effort import (
    LAB_BATCH,
    LAB_GLOBAL_BATCH,
    LAB_PIXELS,
    RECIPES,
    Effort,
    loop,
    shared_batch,
    timed_counts,
)
from farandole.labs.lab import Asked, Choice, DataFacts
from farandole.labs.training import Workload

_FIT = "to fit the time"


def choices(asked: Asked, data: DataFacts, here: Effort, small: Workload) -> tuple[Choice, ...]:
    """Say what differs, and why."""
    return alike.differing([*_speed(asked, data, here), *_accuracy(asked, data, here, small)])


def _speed(asked: Asked, data: DataFacts, here: Effort) -> list[Choice]:
    cores = plural(asked.cores, "core")
    return [
        Choice(
            what="software",
            lab="TensorFlow on Horovod, over MPI (MVAPICH2) and NCCL",
            here="Keras on PyTorch and Farandole, over shared memory",
        ),
        Choice(
            what="device",
            lab="CPU nodes of 28 cores; GPUs",
            here=f"{cores} of one host",
        ),
        Choice(
            what="nodes",
            lab="1, 2, 4 and 8; 4 processes of 7 threads a CPU node",
            here=f"{alike.words(timed_counts(asked, here))} workers with a thread each",
            why=f"a core stands for a node: speed counts up to {cores}",
        ),
        Choice(what="data set", lab="IMDB-WIKI, 460 K + 62 K faces", here=data.source),
        Choice(
            what="images of a run for speed",
            lab="not said",
            here=f"{loop(asked, here, data.train):,}, again and again",
            why="a step costs the same whatever it sees",
        ),
        Choice(
            what="size of an image, speed",
            lab=f"not said; VGG16's parameters are those at {LAB_PIXELS} pixels",
            here=f"{here.pixels} pixels",
            why=""
            if here.pixels == LAB_PIXELS
            else f"{_FIT}; the least that InceptionV3 takes is 75. VGG16's dense layers shrink "
            "with it",
        ),
        Choice(
            what="batch per worker, weak scaling",
            lab=f"{LAB_BATCH} per process, 128 per GPU",
            here=f"{here.batch}",
            why="" if here.batch == LAB_BATCH else _FIT,
        ),
        Choice(
            what="global batch, strong scaling and splits",
            lab=f"{LAB_GLOBAL_BATCH}",
            here=f"{shared_batch(asked, here)}",
            why="" if here.global_batch == LAB_GLOBAL_BATCH else _FIT,
        ),
        Choice(
            what="splits of a node",
            lab="1 x 28, 2 x 14 and 4 x 7",
            here=_splits(asked),
        ),
        Choice(what="steps of a launch for speed", lab="not said", here=f"{here.steps}"),
    ]


def _accuracy(asked: Asked, data: DataFacts, here: Effort, small: Workload) -> list[Choice]:
    counts = alike.counts(asked, here.workers)
    named = alike.recipes(asked, RECIPES[: here.recipes])
    return [
        Choice(
            what="accuracy",
            lab="not asked for: throughput only",
            here=f"of a small network on nine groups of age, recipe {', '.join(named)}",
            why="the three networks would need hours on a core to learn anything",
        ),
        alike.of_samples("training images, accuracy", "not said", here.samples, data.train),
        Choice(
            what="workers, accuracy",
            lab="not said",
            here=alike.words(counts),
            why=alike.beyond(counts, asked.cores),
        ),
        Choice(
            what="batch per worker and epochs, accuracy",
            lab="not said",
            here=f"{small.batch} and {here.epochs}",
        ),
    ]


def _splits(asked: Asked) -> str:
    cores = asked.cores
    return listed(
        [f"{count} x {cores // count}" for count in sorted({1, 2, 4, cores}) if cores % count == 0]
    )
