"""A lab on transfer learning made by hand: what its runs end with follows from formulas."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache

from farandole.labs.caltech.lab import LAB as CALTECH
from farandole.labs.fruits.lab import LAB as FRUITS
from farandole.labs.lab import Answered, Found, Lab
from farandole.study.records import Launch, Metric, Study
from tests.labs.trained import found_of, training_study

LABS: dict[str, Lab] = {"fruits": FRUITS, "caltech": CALTECH}
EPOCHS = 14
GAP = 0.08
"""Training ends above validation by so much."""
ALONE = 0.9
"""Validation accuracy of one worker, seed 0."""
LOST = 0.02
"""By each further worker with recipe linear."""


def end(workers: int, recipe: str, seed: int) -> float:
    """Return the validation accuracy at the end; seeds differ alike in all settings."""
    if recipe == "original":
        return 0.2 + 0.001 * seed
    lost = LOST * (workers - 1) if recipe == "linear" else 0.0
    return ALONE - lost + 0.002 * seed


def course(workers: int, last: float) -> list[float]:
    """Return an accuracy by epoch: it rises until it is stable, one epoch later per worker."""
    rising = 2 + workers
    return [last * min(1.0, (epoch + 1) / rising) for epoch in range(EPOCHS)]


def study(
    workers: Sequence[int], recipes: Sequence[str], *, seeds: int = 2, batch: int = 32
) -> Study:
    """Return a study whose launches tell both accuracies by epoch, counted from 0 as Keras does."""
    made = training_study(workers, recipes, {}, batch=batch, seeds=seeds, epochs=EPOCHS)
    return replace(made, launches=tuple(_scored(launch) for launch in made.launches))


def _scored(launch: Launch) -> Launch:
    recipe = dict(launch.cell.params)["recipe"]
    last = end(launch.cell.workers, recipe, launch.seed or 0)
    values = course(launch.cell.workers, last)
    ranks = []
    for rank in launch.ranks:
        metrics = []
        for epoch, value in enumerate(values):
            told = {"val_accuracy": value, "accuracy": value + GAP, "loss": 1 - value}
            metrics += [
                Metric(
                    name=name,
                    value=float("nan") if name == "loss" and recipe == "original" else one,
                    epoch=float(epoch),
                    rank=rank.rank,
                    # The lab's own timing: 5 s to start, epochs as long as their steps.
                    time_s=rank.epochs[epoch][1] - 100.0,
                )
                for name, one in told.items()
            ]
        metrics.append(Metric(name="pretrained", value=1.0, rank=rank.rank))
        ranks.append(replace(rank, metrics=tuple(metrics)))
    rate = "0.1" if recipe == "original" else "0.001"
    argv = tuple(rate if word == "0.001" else word for word in launch.argv)
    return replace(launch, ranks=tuple(ranks), argv=argv)


def recorded(made: Study, name: str, value: float) -> Study:
    """Return the same with another value of a metric throughout."""
    launches = tuple(
        replace(
            launch,
            ranks=tuple(
                replace(
                    rank,
                    metrics=tuple(
                        replace(one, value=value) if one.name == name else one
                        for one in rank.metrics
                    ),
                )
                for rank in launch.ranks
            ),
        )
        for launch in made.launches
    )
    return replace(made, launches=launches)


def apart(made: Study) -> Study:
    """Return the same as if nobody had wrapped the optimizer."""
    launches = tuple(
        replace(
            launch,
            ranks=tuple(
                replace(rank, weights=f"of rank {rank.rank}", bytes_sent={"gradients": 0})
                for rank in launch.ranks
            ),
        )
        for launch in made.launches
    )
    return replace(made, launches=launches)


def studies(seeds: int = 2) -> dict[str, Study]:
    """Return what a lab plans, as launches."""
    return {
        "workers": study((1, 2, 4), ("linear",), seeds=seeds),
        "recipes": study((2, 4), ("warmup", "fixed"), seeds=seeds),
        "original": study((1, 2), ("original",), seeds=seeds),
        "same_batch": study((2,), ("fixed",), seeds=seeds, batch=16),
        "unwrapped": apart(study((2,), ("fixed",), seeds=1)),
    }


@cache
def found(name: str = "fruits", seeds: int = 2) -> Found:
    """Return what a lab finds."""
    return found_of(LABS[name], studies(seeds))


@cache
def nothing(name: str = "fruits") -> Found:
    """Return a lab none of whose studies could be made."""
    return found_of(LABS[name], {})


@cache
def answered(name: str, seeds: int = 2) -> tuple[Answered, ...]:
    """Return a lab's answers, once for all tests; no seeds: nothing was found."""
    return LABS[name].answer(found(name, seeds) if seeds else nothing(name))
