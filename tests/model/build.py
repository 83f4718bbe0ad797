"""Studies made by hand, whose answers are known."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from farandole.study.records import (
    Cell,
    Floats,
    Launch,
    Link,
    Metric,
    Rank,
    Steps,
    Study,
    Utilisation,
)

MACHINE: Mapping[str, Any] = {
    "host": "here",
    "cpu": "a processor",
    "cores": 8,
    "physical_cores": 8,
    "memory_bytes": 16_000_000_000,
    "gpus": [],
}


def column(value: float | Sequence[float] | Floats, steps: int) -> Floats:
    """Return a column of so many steps."""
    return np.broadcast_to(np.asarray(value, dtype=np.float64), (steps,)).copy()


def make_steps(
    durations_s: float | Sequence[float],
    steps: int = 40,
    *,
    begin_s: float = 100.0,
    data_s: float | Sequence[float] = np.nan,
    optimizer_s: float | Sequence[float] = np.nan,
    communication_s: float | Sequence[float] = np.nan,
    exposed_s: float | Sequence[float] = np.nan,
    ready_s: Floats | None = None,
    passes: float = np.nan,
    samples: float = np.nan,
) -> Steps:
    """Return steps of the given durations; the first one ends one duration after the begin."""
    if not isinstance(durations_s, (int, float)):
        steps = len(durations_s)
    ends = begin_s + np.cumsum(column(durations_s, steps))
    return Steps(
        end_s=ends,
        data_s=column(data_s, steps),
        optimizer_s=column(optimizer_s, steps),
        communication_s=column(communication_s, steps),
        exposed_s=column(exposed_s, steps),
        ready_s=column(np.nan, steps) if ready_s is None else ready_s,
        done_s=column(np.nan, steps),
        passes=column(passes, steps),
        samples=column(samples, steps),
    )


def make_utilisation(
    cpu: float | Sequence[float] = (),
    *,
    gpu: float = np.nan,
    energy_j: Sequence[float] | None = None,
) -> Utilisation:
    """Return one sample per second."""
    values = np.atleast_1d(np.asarray(cpu, dtype=np.float64))
    number = len(values)
    return Utilisation(
        time_s=np.arange(1.0, number + 1),
        cpu=values,
        memory_bytes=column(1e9, number),
        gpu=column(gpu, number),
        gpu_energy_j=column(np.nan if energy_j is None else energy_j, number),
    )


def make_rank(number: int, steps: Steps, **changes: Any) -> Rank:
    """Return a rank that trained together with others."""
    given: dict[str, Any] = {
        "rank": number,
        "host": "here",
        "framework": "farandole.torch",
        "device": "cpu",
        "steps": steps,
        "begin_s": 99.0,
        "end_s": float(steps.end_s[-1]) if len(steps) else None,
        "bytes_sent": {"gradients": 4000 * len(steps)},
        "gradient_bytes_per_step": 4000,
        "parameters": 1000,
        "peak_memory_bytes": None,
        "peak_gpu_bytes": None,
        "weights": "the same",
        "sample_hashes": tuple(f"{number}-{index}" for index in range(64)),
        "batch_seen": None,
        "epochs": (),
        "dataset_size": None,
        "utilisation": make_utilisation(),
        "metrics": (),
    }
    return Rank(**(given | changes))


_COUNTER = iter(range(1, 10**9))


def make_launch(cell: Cell, ranks: Iterable[Rank] = (), **changes: Any) -> Launch:
    """Return a launch for speed that ended well."""
    given: dict[str, Any] = {
        "id": f"{next(_COUNTER):04d}",
        "cell": cell,
        "repeat": 0,
        "seed": None,
        "purpose": "speed",
        "outcome": "stopped",
        "begin_s": 98.0,
        "ranks": tuple(ranks),
    }
    return Launch(**(given | changes))


def timed_launch(cell: Cell, step_s: float, *, steps: int = 40, **changes: Any) -> Launch:
    """Return a launch whose every rank takes the same time for every step."""
    batch = cell.batch if cell.batch is not None else np.nan
    ranks = [
        make_rank(number, make_steps(step_s, steps, samples=batch))
        for number in range(cell.workers)
    ]
    return make_launch(cell, ranks, **changes)


def table_launch(
    cell: Cell, metrics: Mapping[str, float] | None = None, **figures: float
) -> Launch:
    """Return a launch as an imported table gives it."""
    values = tuple(Metric(name=name, value=value) for name, value in (metrics or {}).items())
    return make_launch(
        cell, purpose="imported", outcome="ok", begin_s=None, figures=figures, metrics=values
    )


def trained_launch(
    cell: Cell,
    seed: int,
    values: Sequence[float],
    *,
    name: str = "val_accuracy",
    epoch_s: float = 10.0,
    more: Sequence[Metric] = (),
) -> Launch:
    """Return a launch for accuracy, with one value per epoch."""
    metrics = tuple(
        Metric(name=name, value=value, epoch=epoch, time_s=epoch * epoch_s)
        for epoch, value in enumerate(values, start=1)
    )
    return make_launch(cell, purpose="accuracy", outcome="ok", seed=seed, metrics=(*metrics, *more))


def make_study(launches: Iterable[Launch], **changes: Any) -> Study:
    """Return a study of these launches."""
    given: dict[str, Any] = {
        "path": "",
        "label": "a study",
        "command": ("python", "train.py"),
        "spec": {},
        "machine": MACHINE,
        "created": "",
        "launches": tuple(launches),
        "link": Link(),
    }
    return Study(**(given | changes))


def noisy(rng: np.random.Generator, value: float, spread: float, number: int) -> list[float]:
    """Return so many values around one, spread in log space."""
    return (value * np.exp(rng.normal(0.0, spread, number))).tolist()


def repeated(
    cell: Cell, times_s: Iterable[float], make: Callable[..., Launch] = timed_launch
) -> list[Launch]:
    """Return one launch per step time."""
    return [make(cell, time_s, repeat=index) for index, time_s in enumerate(times_s)]
