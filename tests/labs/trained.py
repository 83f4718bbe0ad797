"""Labs made by hand: launches of a lab's script whose figures follow from formulas."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from farandole.labs.lab import Asked, DataFacts, Found, Lab, Rate, Size, published_path
from farandole.labs.plan import lab_recipe
from farandole.model.analyse import analyse
from farandole.study.import_table import read_table
from farandole.study.records import Cell, Launch, Metric, Study
from tests.model.build import make_launch, make_rank, make_steps, make_study, make_utilisation

Score = Callable[[int, str, int], float]
"""A metric's end by workers, recipe and seed."""

ONE_WORKER = 100.0
"""Samples per second."""
STARTUP_S = 5.0
MACHINE = {"host": "here", "cores": 2, "physical_cores": 2, "gpus": []}


def asked(size: Size = "quick", **changes: Any) -> Asked:
    """Return what a user may ask for, on two cores."""
    given: dict[str, Any] = {
        "size": size,
        "budget_s": 900.0 if size == "budget" else None,
        "data": None,
        "workers": (),
        "recipes": (),
        "cores": 2,
    }
    return Asked(**(given | changes))


def facts(train: int = 1000, test: int = 200) -> DataFacts:
    """Return data of some size."""
    return DataFacts(source="data made by hand", train=train, test=test, sample="8x8 grey")


def speed(workers: int) -> float:
    """Return samples per second of all workers: each further one adds nine tenths."""
    return ONE_WORKER * (1 + 0.9 * (workers - 1))


def job_launch(
    cell: Cell, argv: Iterable[str], seed: int, metrics: Mapping[str, float], *, epochs: int
) -> Launch:
    """Return a launch that trained to its script's end, at `speed`."""
    argv = tuple(argv)
    flags = dict(zip(argv[::2], argv[1::2], strict=True))
    batch, samples = cell.batch or 1, int(flags["--samples"])
    per_epoch = -(-(samples // cell.workers) // batch)
    step_s = batch * cell.workers / speed(cell.workers)
    begin_s = 100.0 + STARTUP_S
    end_s = begin_s + epochs * per_epoch * step_s
    ranks = []
    for number in range(cell.workers):
        steps = make_steps(step_s, epochs * per_epoch, begin_s=begin_s, samples=batch)
        own = tuple(
            Metric(
                name="rank_loss", value=1.0 / epoch + 0.01 * number, epoch=epoch - 1, rank=number
            )
            for epoch in range(1, epochs + 1)
        )
        shared = tuple(
            Metric(name=name, value=value, epoch=epochs, rank=number)
            for name, value in metrics.items()
        )
        length = per_epoch * step_s
        ranks.append(
            make_rank(
                number,
                steps,
                metrics=own + shared,
                utilisation=make_utilisation([0.5 + 0.01 * number] * 4),
                epochs=tuple(
                    (begin_s + place * length, begin_s + (place + 1) * length)
                    for place in range(epochs)
                ),
                dataset_size=samples,
                peak_memory_bytes=1_000_000_000,
            )
        )
    return make_launch(
        cell,
        ranks,
        purpose="accuracy",
        outcome="ok",
        seed=seed,
        begin_s=100.0,
        wall_s=end_s - 100.0,
        argv=("python", "train.py", *argv),
    )


def training_study(
    workers: Iterable[int],
    recipes: Iterable[str],
    scores: Mapping[str, Score],
    *,
    batch: int,
    seeds: int = 2,
    epochs: int = 3,
    samples: int = 1000,
    sizes: Iterable[int] = (),
) -> Study:
    """Return a study of launches that ran to their end."""
    launches = []
    for seed in range(seeds):
        for name in recipes:
            for count in workers:
                for size in tuple(sizes) or (samples,):
                    params = (("recipe", name),)
                    params += (("samples", str(size)),) if sizes else ()
                    cell = Cell(workers=count, threads=1, batch=batch, params=params)
                    argv = (
                        *("--epochs", str(epochs), "--batch-size", str(batch)),
                        *("--samples", str(size), "--test-samples", "200"),
                        *("--lr", "0.001", "--recipe", name, "--seed", str(seed)),
                    )
                    metrics = {metric: score(count, name, seed) for metric, score in scores.items()}
                    length = lab_recipe(name).epochs(epochs)
                    launches.append(job_launch(cell, argv, seed, metrics, epochs=length))
    return make_study(launches, machine=MACHINE)


def found_of(lab: Lab, studies: Mapping[str, Study], **changes: Any) -> Found:
    """Return what a lab finds in these studies, beside its published tables."""
    wanted, data = changes.get("asked", asked()), changes.get("data", facts())
    return Found(
        asked=wanted,
        data=data,
        plan=lab.plan(wanted, data, {}, 0),
        studies={name: analyse(study) for name, study in studies.items()},
        records=dict(studies),
        published={name: analyse(published(name)) for name in lab.published},
        published_records={name: published(name) for name in lab.published},
    )


def published(name: str) -> Study:
    """Return a published table as a study."""
    launches = read_table(published_path(name).read_bytes(), name=name).launches
    return make_study(launches, machine={})


def estimates(lab: Lab, data: DataFacts, rates: Mapping[str, Rate], **wanted: Any) -> list[float]:
    """Return what every effort of a lab is estimated to take."""
    ask = asked("budget", **wanted)
    return [lab.plan(ask, data, rates, effort).estimate_s for effort in range(lab.efforts)]


def flag(parts: tuple[str, ...], name: str) -> str:
    """Return the value of a flag in a command."""
    return parts[parts.index(name) + 1]


def here(path: str = "data") -> Path:
    """Return a folder that plans only name."""
    return Path("/somewhere") / path
