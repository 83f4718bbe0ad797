"""Where a run of a lab on transfer learning differs from the original: "lab / here"."""

from __future__ import annotations

from pathlib import Path

from farandole.labs import effort as alike
from farandole.labs.lab import Asked, Choice, DataFacts
from farandole.labs.models.weights import NONE, PRETRAINED
from farandole.labs.transfer.kind import RECIPES, Effort, Kind


def choices(
    kind: Kind, asked: Asked, data: DataFacts, here: Effort, image_size: int
) -> tuple[Choice, ...]:
    """Say what is other than in the lab, and why."""
    workers = alike.counts(asked, here.workers)
    named = alike.recipes(asked, RECIPES[: here.recipes])
    return alike.differing(
        [
            Choice(
                what="device",
                lab=kind.device,
                here=f"{asked.cores} CPU cores, a thread per worker",
            ),
            Choice(what="data set", lab=kind.data, here=data.source),
            Choice(what="base network", lab="not named", here=_network(asked.weights)),
            Choice(what="images", lab="size not said", here=f"{image_size} x {image_size} pixels"),
            alike.of_samples("training samples", kind.train, here.samples, data.train),
            alike.of_samples("test samples", kind.test, here.test_samples, data.test),
            Choice(
                what="epochs",
                lab=f"{kind.epochs}",
                here=f"{here.epochs}",
                why="to fit the time" if here.epochs < kind.epochs else "",
            ),
            Choice(
                what="workers",
                lab=kind.workers,
                here=alike.words(workers),
                why=alike.beyond(workers, asked.cores),
            ),
            Choice(
                what="learning rate",
                lab=kind.optimizer,
                here=alike.recipe_words(kind.work.learning_rate, named),
                why="what the lab's does is shown under the question original",
            ),
            alike.of_decay(),
        ]
    )


def _network(weights: str | None) -> str:
    """Name the network, and its weights where they were asked for."""
    if weights is None:
        return "EfficientNet-Lite0"
    told = {NONE: "random weights", PRETRAINED: "weights of ImageNet"}
    return f"EfficientNet-Lite0, {told.get(weights, f'weights of {Path(weights).name}')}"
