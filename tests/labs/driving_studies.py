"""A driving lab made by hand: fewer steps cost loss, and so does a scaled rate."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

from farandole.labs.driving import LAB
from farandole.labs.lab import Found
from farandole.study.records import Study
from tests.labs.trained import MACHINE, Score, found_of, training_study
from tests.model.build import make_study

CONSTANT = 0.1
SIZES = (250, 500)


def loss(workers: int, recipe: str, seed: int) -> float:
    """Return a loss that doubles with the workers, and once more with the rate scaled."""
    scaled = 2.0 if recipe == "linear" and workers > 1 else 1.0
    return 0.02 * workers * scaled + 0.001 * seed


def constant(workers: int, recipe: str, seed: int) -> float:
    """Return what the best constant prediction gets."""
    return CONSTANT


def studies(seeds: int = 2) -> dict[str, Study]:
    """Return what the lab plans, as launches."""
    scores = {"val_loss": loss, "constant_mse": constant}
    return {
        "workers": training_study((1, 2, 4), ("linear",), scores, batch=32, seeds=seeds),
        "recipes": training_study((2, 4), ("fixed",), scores, batch=32, seeds=seeds),
        "eight": eight(),
        "size": training_study((1, 2), ("linear",), scores, batch=32, seeds=1, sizes=SIZES),
    }


def eight() -> Study:
    """Return one worker with the steps of 8, at two rates, the larger of which diverges."""
    launches = []
    for lr, end in (("0.005", 0.04), ("0.04", 0.3)):
        ends: dict[str, Score] = {"val_loss": lambda *_, end=end: end, "constant_mse": constant}
        (one,) = training_study((1,), ("fixed",), ends, batch=256, seeds=1).launches
        launches.append(replace(one, cell=replace(one.cell, params=(("lr", lr),)), id=lr))
    return make_study(launches, machine=MACHINE)


@cache
def found(seeds: int = 2) -> Found:
    """Return what the lab finds."""
    return found_of(LAB, studies(seeds))


@cache
def nothing() -> Found:
    """Return a lab none of whose studies could be made."""
    return found_of(LAB, {})
