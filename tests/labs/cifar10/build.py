"""What the cifar10 lab's studies would find, made by hand."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from farandole.labs.cifar10.lab import LAB
from farandole.labs.cifar10.plan import ACCURACY, BASELINE, NORM, ORDER, REPLICAS, TIME
from farandole.labs.lab import Asked, DataFacts, Found
from farandole.labs.scripts import published_path
from farandole.model.analyse import analyse
from farandole.model.info.scaling import ScalingInfo
from farandole.study.import_table import read_table
from farandole.study.records import Cell, Launch, Metric
from tests.model.build import MACHINE, make_launch, make_rank, make_steps, make_study, timed_launch

PARAMETERS = 11_173_962
SMALL_PARAMETERS = 68_194
DATA = DataFacts(source="by hand", train=50_000, test=10_000, sample="32x32 RGB")
TEST_SAMPLES = 2000
TWO_CORES = {**MACHINE, "cores": 2, "physical_cores": 2}


def ask(**changes: object) -> Asked:
    given: dict[str, object] = {
        "size": "quick",
        "budget_s": None,
        "data": None,
        "workers": (),
        "recipes": (),
        "cores": 2,
    }
    return Asked(**(given | changes))  # type: ignore[arg-type]


def time_launches(
    step_s: Mapping[tuple[int, int], Sequence[float]], *, too_large: int = 256
) -> list[Launch]:
    """Return ResNet-18's launches: step times by workers and batch, and one that does not fit."""
    launches = []
    for (workers, batch), times in step_s.items():
        cell = Cell(workers=workers, threads=1, batch=batch)
        for repeat, seconds in enumerate(times):
            steps = make_steps(
                seconds,
                20,
                samples=batch,
                # Most of it runs beside the backward pass.
                communication_s=0.010 if workers > 1 else 0.0,
                exposed_s=0.004 if workers > 1 else 0.0,
            )
            ranks = [
                make_rank(
                    number,
                    replace(steps, ready_s=steps.end_s - 0.010),
                    gradient_bytes_per_step=4 * PARAMETERS,
                    bytes_sent={"gradients": 4 * PARAMETERS * len(steps)},
                    parameters=PARAMETERS,
                )
                for number in range(workers)
            ]
            launches.append(make_launch(cell, ranks, repeat=repeat))
    for workers in sorted({workers for workers, _ in step_s}):
        cell = Cell(workers=workers, threads=1, batch=too_large)
        reason = "a worker had 0.95 GB of memory; its limit is 0.69 GB (--memory)"
        launches.append(make_launch(cell, outcome="out_of_memory", reason=reason))
    return launches


def trained_launch(
    workers: int,
    seed: int,
    accuracy: float,
    *,
    recipe: str = "fixed",
    norm: str = "local",
    order: str = "epoch",
    steps: int = 40,
) -> Launch:
    """Return a run of the small network to its end."""
    argv = (
        *("python", "cifar10.py", "--model", "small", "--epochs", "2", "--batch-size", "32"),
        *("--test-samples", str(TEST_SAMPLES), "--recipe", recipe, "--norm", norm),
        *("--order", order, "--seed", str(seed)),
    )
    params = tuple({"recipe": recipe, "norm": norm, "order": order}.items())
    cell = Cell(workers=workers, threads=1, batch=32, params=params)
    metrics = (
        Metric(name="val_accuracy", value=accuracy / 2, epoch=1, time_s=1.0),
        Metric(name="val_accuracy", value=accuracy, epoch=2, time_s=2.0),
        Metric(name="first_sample", value=17.0, epoch=1, time_s=1.0),
        Metric(name="first_sample", value=17.0 if order == "fixed" else 4.0, epoch=2, time_s=2.0),
    )
    sent = {"gradients": 4 * SMALL_PARAMETERS * steps, "parameters": 4 * SMALL_PARAMETERS}
    if norm == "broadcast":
        sent["buffers"] = 1000 * steps
    if norm == "sync":
        sent["other"] = 2000 * steps
    ranks = [
        make_rank(
            number,
            make_steps(0.02 * max(1, workers / 2), steps, samples=32),
            parameters=SMALL_PARAMETERS,
            gradient_bytes_per_step=4 * SMALL_PARAMETERS,
            bytes_sent=sent if workers > 1 else {},
            metrics=metrics if number == 0 else (),
        )
        for number in range(workers)
    ]
    return make_launch(
        cell, ranks, purpose="accuracy", outcome="ok", seed=seed, repeat=seed, argv=argv
    )


def replica_launch(replicas: int, step_s: float) -> Launch:
    cell = Cell(workers=1, threads=1, batch=32 * replicas, params=(("replicas", str(replicas)),))
    return timed_launch(cell, step_s)


STEP_S = {(1, 4): (0.25, 0.26), (1, 16): (0.8, 0.82), (2, 4): (0.3, 0.31), (2, 16): (0.9, 0.92)}


def usual() -> dict[str, list[Launch]]:
    """Return launches of all studies, with two seeds: eight workers at a fixed rate lose."""
    seeds = (0, 1)
    recipes = {
        ("fixed", 2): 0.68,
        ("linear", 2): 0.70,
        ("fixed", 8): 0.60,
        ("linear", 8): 0.69,
        ("longer", 8): 0.66,
    }
    return {
        TIME: time_launches(STEP_S),
        BASELINE: [trained_launch(1, s, 0.70 + 0.01 * s, steps=80) for s in seeds],
        ACCURACY: [
            trained_launch(workers, s, accuracy + 0.011 * s, recipe=name, steps=80 // workers)
            for (name, workers), accuracy in recipes.items()
            for s in seeds
        ],
        NORM: [
            trained_launch(2, s, accuracy + 0.01 * s, norm=norm)
            for norm, accuracy in (("broadcast", 0.681), ("sync", 0.685))
            for s in seeds
        ],
        ORDER: [trained_launch(1, s, 0.66 + 0.012 * s, order="fixed") for s in seeds],
        REPLICAS: [replica_launch(2, step_s) for step_s in (0.030, 0.031)],
    }


def find(launches: Mapping[str, Iterable[Launch]], asked: Asked | None = None) -> Found:
    """Return what a lab with these launches finds."""
    asked = asked or ask()
    records = {name: make_study(made, machine=TWO_CORES) for name, made in launches.items()}
    return Found(
        asked=asked,
        data=DATA,
        plan=LAB.plan(asked, DATA, {}, 0),
        studies={name: analyse(study) for name, study in records.items()},
        records=records,
        published={name: published(name) for name in LAB.published},
    )


@functools.cache
def published(name: str) -> ScalingInfo:
    launches = read_table(published_path(name).read_bytes(), name=name).launches
    return analyse(make_study(launches, label=name, machine={}))
