"""How fast one launch was: one number per launch, from its steps or from figures it brought."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from farandole.model.statistics import launch_value
from farandole.study.records import Floats, Launch

STATED = (
    *("dataset_size", "parameters", "gradient_bytes", "stable_epoch"),
    *("gpu_utilisation", "cpu_utilisation"),
)
"""Figures that an imported table may state; it keeps columns it does not know among the metrics."""
UNITS = ("samples/s", "batches/s", "epochs/s", "jobs/s")
"""What a throughput may be in, best first. A batch is one worker's."""
_WINDOW = 3
"""Steps whose median decides, so that one hiccup neither ends nor prolongs the warm-up."""
_LEAST_STEPS = 8
"""With fewer there is no second half to compare with."""
_TOLERANCE = 0.05


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
    """Per worker and backward pass, as planned or else as seen."""
    accumulation: int
    """Backward passes per step."""


def pace(launch: Launch) -> Pace:
    """Measure one launch."""
    slowest = slowest_durations(launch)
    warmup = warmup_steps(slowest)
    samples = [_median(rank.steps.samples[warmup:]) for rank in launch.ranks]
    batch = planned_or_seen_batch(launch)
    passes = 1 if batch is None else _accumulation(launch, batch, samples, warmup)
    if batch is None:
        batch = _told_batch(launch, warmup)
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
        rates=_rates(launch, step_s, None if batch is None else batch * passes, samples),
        steps=int(good.sum()),
        warmup=warmup,
        typical=typical,
        batch=batch,
        accumulation=passes,
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
    launch: Launch,
    step_s: float | None,
    worker_batch: int | None,
    by_rank: Sequence[float | None],
) -> Mapping[str, float]:
    rates: dict[str, float] = {}
    workers = launch.cell.workers
    # All ranks must have told theirs, and a step without any samples tells nothing.
    told = [samples for samples in by_rank if samples is not None]
    samples = sum(told) if told and len(told) == len(by_rank) else None
    if not samples and worker_batch is not None:
        samples = float(worker_batch * workers)
    throughput = positive(launch.figures.get("throughput"))
    if step_s is not None and samples:
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


def _accumulation(launch: Launch, batch: int, samples: Sequence[float | None], warmup: int) -> int:
    """Return the backward passes per step: as counted, or of older recordings by their samples."""
    counted = [_median(rank.steps.passes[warmup:]) for rank in launch.ranks]
    passes = max((count for count in counted if count is not None), default=None)
    if passes is None:
        passes = max((one / batch for one in samples if one is not None), default=1.0)
    return max(1, round(passes))


def _told_batch(launch: Launch, warmup: int) -> int | None:
    """Return the samples of a worker's step, if scripts have told the same in all steps."""
    columns = [rank.steps.samples[warmup:] for rank in launch.ranks]
    told = {float(count) for column in columns for count in column[np.isfinite(column)]}
    return int(told.pop()) if len(told) == 1 and min(told) >= 1 else None


def _median(column: Floats) -> float | None:
    known = column[np.isfinite(column)]
    return float(np.median(known)) if len(known) else None


def warmup_steps(durations_s: Floats) -> int:
    """Return how many steps at the begin do not count.

    The first never does: it has no step before it, and plans are made in it. After that, steps are
    dropped as long as the median of the next three is above the second half's median by more than
    5 % and by more than three standard deviations; never more than half of all.
    """
    steps = len(durations_s)
    if steps < _LEAST_STEPS:
        return min(1, steps)
    half = durations_s[steps // 2 :]
    centre = float(np.median(half))
    deviation = 1.4826 * float(np.median(np.abs(half - centre)))  # MAD to standard deviation
    limit = max(centre * (1 + _TOLERANCE), centre + 3 * deviation)
    begin = durations_s[1 : steps // 2 + _WINDOW]
    windows = np.stack([begin[shift : len(begin) - _WINDOW + 1 + shift] for shift in range(3)])
    settled = np.flatnonzero(~(np.median(windows, axis=0) > limit))
    return 1 + int(settled[0]) if len(settled) else steps // 2
