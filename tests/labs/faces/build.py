"""A faces lab made by hand: step times follow from a formula, one per network.

A step computes its images and moves its gradients, and nothing hides the one behind the other: so
strong scaling falls off where gradients are large, and weak scaling does not.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import cache
from typing import Any

from farandole.labs.faces.lab import LAB
from farandole.labs.faces.plan import BATCH, SCALING, WORKERS
from farandole.labs.lab import Answered, Found
from farandole.study.records import Cell, Launch, Study
from tests.labs.trained import MACHINE, found_of, training_study
from tests.model.build import make_launch, make_rank, make_steps, make_study

SHARED = 16
PER_IMAGE_S = {"inceptionv3": 0.08, "resnet50": 0.10, "vgg16": 0.25}
PARAMETERS = {"inceptionv3": 20_000_000, "resnet50": 23_000_000, "vgg16": 40_000_000}
PER_STEP_S = 0.05
BYTES_PER_S = 1e9
PEAK_BYTES = 1_500_000_000


def moves_s(model: str, workers: int) -> float:
    """Return what gradients take in a step."""
    return 4 * PARAMETERS[model] / BYTES_PER_S if workers > 1 else 0.0


def step_s(model: str, workers: int, batch: int, threads: int = 1) -> float:
    """Return a step's time; two threads are worth 1.6."""
    speed = 1.6 if threads == 2 else 1.0
    return PER_STEP_S + batch * PER_IMAGE_S[model] / speed + moves_s(model, workers)


def launch(
    model: str, workers: int, batch: int, *, threads: int = 1, repeat: int = 0, drift: float = 0.0
) -> Launch:
    """Return a launch that was ended after some steps; repeats differ by the drift."""
    cell = Cell(workers=workers, threads=threads, batch=batch, params=(("model", model),))
    length_s = step_s(model, workers, batch, threads) * (1 + drift * repeat)
    waits_s = moves_s(model, workers)
    steps = make_steps(length_s, 8, samples=batch, communication_s=waits_s, exposed_s=waits_s)
    ranks = [
        make_rank(
            number,
            replace(steps, ready_s=steps.end_s - waits_s),
            gradient_bytes_per_step=4 * PARAMETERS[model],
            bytes_sent={"gradients": 4 * PARAMETERS[model] * len(steps)},
            parameters=PARAMETERS[model],
            peak_memory_bytes=PEAK_BYTES,
        )
        for number in range(workers)
    ]
    return make_launch(cell, ranks, repeat=repeat)


def speed_study(cells: Iterable[tuple[int, int, int]], repeats: int, drift: float = 0.01) -> Study:
    """Return a study of all networks: (workers, batch, threads) by cell."""
    cells = tuple(cells)
    launches = [
        launch(model, workers, batch, threads=threads, repeat=repeat, drift=drift)
        for repeat in range(repeats)
        for model in PER_IMAGE_S
        for workers, batch, threads in cells
    ]
    return make_study(launches, machine=MACHINE)


def accuracy(workers: int, recipe: str, seed: int) -> float:
    """Return an accuracy that falls with the workers."""
    return 0.6 - 0.02 * (workers - 1) + 0.005 * seed


def studies(repeats: int = 2) -> dict[str, Study]:
    """Return what the lab plans on two cores, as launches."""
    return {
        SCALING: speed_study([(1, SHARED, 1), (2, SHARED, 1), (2, SHARED // 2, 1)], repeats),
        BATCH: speed_study([(1, 4, 2), (1, SHARED, 2)], repeats),
        WORKERS: training_study(
            (1, 2), ("linear",), {"val_accuracy": accuracy}, batch=16, seeds=repeats
        ),
    }


@cache
def found(repeats: int = 2) -> Found:
    """Return what the lab finds."""
    return found_of(LAB, studies(repeats))


@cache
def nothing() -> Found:
    """Return a lab none of whose studies could be made."""
    return found_of(LAB, {})


@cache
def disturbed() -> Found:
    """Return a lab during which other programs took most of the machine."""
    busy = {
        name: replace(
            study,
            launches=tuple(
                replace(one, busy=True, foreign_share=0.8, steal_share=0.0)
                for one in study.launches
            ),
        )
        for name, study in studies(1).items()
    }
    return found_of(LAB, busy)


@cache
def answers(repeats: int = 2) -> dict[str, Answered]:
    """Return the lab's answers by their keys; zero repeats: when nothing could be made."""
    made = LAB.answer(found(repeats) if repeats else nothing())
    return {one.question.key: one for one in made}


def rows(table: Any, **wanted: object) -> list[dict[str, Any]]:
    """Return the rows of a table with these cells, by the keys of its columns."""
    keys = [column.key for column in table.columns]
    every = [dict(zip(keys, row, strict=True)) for row in table.rows]
    return [row for row in every if wanted.items() <= row.items()]
