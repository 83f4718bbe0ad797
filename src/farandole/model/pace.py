"""How fast one launch was: one number per launch, from its steps or from figures it brought."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from farandole.model.statistics import launch_value
from farandole.model.warmup import warmup_steps
from farandole.study.records import Floats, Launch

STATED = (
    *("dataset_size", "parameters", "gradient_bytes", "stable_epoch"),
    *("gpu_utilisation", "cpu_utilisation"),
)
"""Figures that an imported table may state; it keeps columns it does not know among the metrics."""
UNITS = ("samples/s", "batches/s", "epochs/s", "jobs/s")
"""What a throughput may be in, best first. A batch is one worker's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """The figures of one launch; None where neither steps nor figures tell."""

    launch: Launch
    step_s: float | None
    rates: Mapping[str, float]
    """By unit (UNITS)."""
    steps: int
    """That entered the figure."""
    warmup: int
    typical: npt.NDArray[np.intp]
    """Indices of the typical steps, whose slowest duration is in the middle half; of two, both."""
    batch: int | None
    """Per worker, as planned or else as seen."""


def pace(launch: Launch) -> Pace:
    """Measure one launch."""
    batch = planned_or_seen_batch(launch)
    slowest = slowest_durations(launch)
    warmup = warmup_steps(slowest)
    steady = slowest[warmup:]
    good = np.isfinite(steady) & (steady > 0)
    figures = launch.figures
    if good.any():
        step_s: float | None = launch_value(steady[good].tolist())
        # Of two, none would be in the middle.
        low, high = np.quantile(steady[good], (0.25, 0.75) if good.sum() > 2 else (0, 1))
        typical = warmup + np.flatnonzero(good & (steady >= low) & (steady <= high))
    else:
        step_s = positive(figures.get("step_s"))
        typical = np.empty(0, dtype=np.intp)
    return Pace(
        launch=launch,
        step_s=step_s,
        rates=_rates(launch, step_s, batch, warmup),
        steps=int(good.sum()),
        warmup=warmup,
        typical=typical,
        batch=batch,
    )


def slowest_durations(launch: Launch) -> Floats:
    """Return each step's duration on the rank that took longest.

    Ranks may have recorded different numbers of steps; what all of them have counts.
    """
    durations = [rank.steps.duration_s for rank in launch.ranks if len(rank.steps)]
    if not durations or len(durations) < len(launch.ranks):
        return np.empty(0)
    shortest = min(len(column) for column in durations)
    slowest: Floats = np.max([column[:shortest] for column in durations], axis=0)
    return slowest


def planned_or_seen_batch(launch: Launch) -> int | None:
    """Return the batch per worker: the cell's, or what the recorder saw."""
    if launch.cell.batch is not None:
        return launch.cell.batch
    seen = [rank.batch_seen for rank in launch.ranks if rank.batch_seen]
    return max(seen) if seen else None


def dataset_size(launch: Launch, spec: Mapping[str, object]) -> int | None:
    """Return the number of training samples: recorded, in the figures, or in the study's spec."""
    for rank in launch.ranks:
        if rank.dataset_size:
            return rank.dataset_size
    found = stated(launch, "dataset_size") or positive(spec.get("dataset_size"))
    return None if found is None else int(found)


def stated(launch: Launch, name: str) -> float | None:
    """Return a positive figure that came with an imported table."""
    found = positive(launch.figures.get(name))
    if found is None and launch.purpose == "imported":
        values = [metric.value for metric in launch.metrics if metric.name == name]
        found = positive(values[-1]) if values else None
    return found


def positive(value: object) -> float | None:
    """Return a positive finite number as it is, and anything else as None."""
    if isinstance(value, bool) or not isinstance(value, (int, float, np.number)):
        return None
    number = float(value)
    return number if math.isfinite(number) and number > 0 else None


def _rates(
    launch: Launch, step_s: float | None, batch: int | None, warmup: int
) -> Mapping[str, float]:
    rates: dict[str, float] = {}
    workers = launch.cell.workers
    samples = _samples_per_step(launch, warmup)
    if samples is None and batch is not None:
        samples = float(batch * workers)
    throughput = positive(launch.figures.get("throughput"))
    if step_s is not None and samples is not None:
        rates["samples/s"] = samples / step_s
    elif throughput is not None:
        rates["samples/s"] = throughput
    if step_s is not None:
        rates["batches/s"] = workers / step_s
    for unit, name in (("epochs/s", "epoch_s"), ("jobs/s", "job_s")):
        seconds = positive(launch.figures.get(name))
        if seconds is not None:
            rates[unit] = 1 / seconds
    return rates


def _samples_per_step(launch: Launch, warmup: int) -> float | None:
    total = 0.0
    for rank in launch.ranks:
        samples = rank.steps.samples[warmup:]
        samples = samples[np.isfinite(samples)]
        if not len(samples):
            return None
        total += float(np.median(samples))
    return total if total > 0 else None
