"""A mnist lab made by hand: accuracy falls with the workers by the fixed recipe only."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

from farandole.labs.lab import Found
from farandole.labs.mnist import LAB
from farandole.study.records import Cell, Study
from tests.labs.trained import MACHINE, found_of, training_study
from tests.model.build import make_study, make_utilisation, timed_launch

BATCHES = (32, 128, 512)
LOST = 0.01
"""By each further worker with the fixed recipe."""


def accuracy(workers: int, recipe: str, seed: int) -> float:
    """Return an accuracy whose seeds differ alike in all settings."""
    lost = LOST * (workers - 1) if recipe == "fixed" else 0.0
    return 0.95 - lost + 0.002 * seed


def step_s(batch: int) -> float:
    """Return a step's time: 10 ms whatever its size, and 1 ms per sample."""
    return 0.010 + batch / 1000


def batch_study() -> Study:
    """Return a sweep whose utilisation rises with the batch."""
    launches = []
    for place, batch in enumerate(BATCHES):
        launch = timed_launch(Cell(workers=1, threads=2, batch=batch), step_s(batch))
        used = make_utilisation([1.0 + 0.4 * place] * 4)
        ranks = tuple(replace(rank, utilisation=used) for rank in launch.ranks)
        launches.append(replace(launch, ranks=ranks))
    return make_study(launches, machine=MACHINE)


def studies(seeds: int = 2) -> dict[str, Study]:
    """Return what the lab plans, as launches."""
    scores = {"val_accuracy": accuracy}
    return {
        "batch": batch_study(),
        "workers": training_study((1, 2, 4), ("linear",), scores, batch=128, seeds=seeds),
        "recipes": training_study(
            (2, 4), ("fixed", "warmup", "longer"), scores, batch=128, seeds=seeds
        ),
    }


@cache
def found(seeds: int = 2) -> Found:
    """Return what the lab finds."""
    return found_of(LAB, studies(seeds))


@cache
def nothing() -> Found:
    """Return a lab none of whose studies could be made."""
    return found_of(LAB, {})
