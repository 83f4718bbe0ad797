"""Where a run of the cifar10 lab differs from the original: "lab / here"."""

from __future__ import annotations

from farandole.format import listed, plural, size
from farandole.labs import effort as alike
from farandole.labs.cifar10.effort import (
    LAB_ACCURACY_BATCH,
    LAB_BATCHES,
    LAB_SAMPLES,
    LAB_TOO_LARGE,
    LEARNING_RATE,
    Effort,
    memory_bytes,
    recipes,
    timed_counts,
    trained_counts,
)
from farandole.labs.lab import Asked, Choice, DataFacts
from farandole.recipes import recipe

_LAB_WORKERS = "1, 2 and 4"


def choices(asked: Asked, data: DataFacts, here: Effort) -> tuple[Choice, ...]:
    """Say what differs, and why."""
    return alike.differing([*_time(asked, here), *_accuracy(asked, data, here)])


def _time(asked: Asked, here: Effort) -> list[Choice]:
    timed = timed_counts(asked, here)
    return [
        Choice(
            what="device",
            lab="1 to 4 K80 GPUs",
            here=f"{plural(asked.cores, 'CPU core')}, one thread per worker",
            why="one thread each, so that only workers differ",
        ),
        Choice(
            what="workers, times",
            lab=_LAB_WORKERS,
            here=alike.words(timed),
            why=f"speed counts up to {plural(asked.cores, 'core')}",
        ),
        Choice(
            what="steps of a launch for times",
            lab=f"an epoch of {LAB_SAMPLES:,} images",
            here=f"{here.steps}" if here.steps else f"an epoch of {LAB_SAMPLES:,} images",
            why="ResNet-18 makes some 20 images/s on a core; an epoch's time is derived from steps",
        ),
        Choice(
            what="batches per worker, times",
            lab=alike.words(LAB_BATCHES),
            here=alike.words(here.batches),
            why="to fit the time",
        ),
        Choice(
            what="batch that does not fit",
            lab=f"{LAB_TOO_LARGE:,} in a GPU's memory",
            here=f"{here.too_large:,} in {size(memory_bytes(asked, here))} per worker (--memory)",
            why="so little that memory runs out in seconds and the machine is not endangered",
        ),
    ]


def _accuracy(asked: Asked, data: DataFacts, here: Effort) -> list[Choice]:
    named = recipes(asked, here)
    longer = sorted({recipe(each).epochs(here.epochs) for each in named} - {here.epochs})
    trained = (1, *trained_counts(asked, here))
    beyond = [str(count) for count in trained if count > asked.cores]
    return [
        Choice(what="data set", lab="CIFAR-10", here=data.source),
        alike.of_samples("training images, accuracy", "50,000", here.samples, data.train),
        alike.of_samples("test images", "10,000", here.test_samples, data.test),
        Choice(
            what="network, accuracy",
            lab="ResNet-18",
            here="ResNet-18" if here.model == "resnet18" else "a small network: 3 convolutions",
            why="it trains in minutes on a core; times are ResNet-18's",
        ),
        Choice(
            what="batch per worker, accuracy",
            lab=f"{LAB_ACCURACY_BATCH}",
            here=f"{here.batch}",
            why="with fewer images a run would have too few steps",
        ),
        Choice(
            what="epochs",
            lab="not said",
            here=f"{here.epochs}" + (f" ({longer[-1]} with recipe longer)" if longer else ""),
        ),
        Choice(what="learning rate of one worker", lab="not said", here=f"{LEARNING_RATE:g}"),
        alike.of_decay(),
        Choice(
            what="workers, accuracy",
            lab="4",
            here=alike.words(trained),
            why=f"{listed(beyond)} share {plural(asked.cores, 'core')}: for accuracy only"
            if beyond
            else "",
        ),
        Choice(what="recipes", lab="linear, longer, warmup", here=", ".join(named)),
        Choice(
            what="one process with several replicas",
            lab="nn.DataParallel",
            here="threads of one process",
            why="nn.DataParallel needs GPUs",
        ),
    ]
