"""Time and money of a whole job, and from which data-set size on more workers are worth it.

A job on n workers takes T(D) = fixed + epochs x D / rate, with D training samples. Doubling the
data doubles the second part only, so that from some size on the fixed part no longer decides.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from farandole.errors import UsageError
from farandole.model.communication import steps_per_epoch
from farandole.model.measured import Measured, positive
from farandole.model.statistics import Estimate, geometric_mean, known_mean, scaled
from farandole.study.records import Cell, Launch

if TYPE_CHECKING:
    from farandole.model.accuracy import MetricRow

LEAST_STEPS = 20
"""Of an epoch; with fewer, the data are too small for more workers."""
LARGEST_BATCH = 0.10
"""Share of the training data that a global batch may take."""
_HOUR_S = 3600.0
SAVED = 0.25
"""More workers are worth it when they save a quarter of the job: what Amdahl's law leaves of a
doubling when half of the job is shared."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobTime:
    """Job, epoch and fixed time of a cell."""

    cell: Cell
    label: str
    job_s: Estimate | None
    epochs: float | None
    """Of the job that was measured."""
    epoch_s: Estimate | None
    """One pass over the training data, measured or steps per epoch x step time."""
    epoch_measured: bool
    steps_per_epoch: int | None
    startup_s: float | None
    """From the launch to the first step."""
    between_s: float | None
    """Validation, checkpoints and whatever else lies between and after epochs, whole job."""
    fixed_s: float | None
    """job - epochs x epoch."""
    fixed_share: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """Money, at a price per worker and hour."""

    cell: Cell
    label: str
    price_per_worker_hour: float
    per_epoch: float | None
    job: float | None
    to_target: float | None
    per_million_samples: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Job:
    """One launch that ran to its end."""

    wall_s: float | None
    """None where it started warm: a user's job does not."""
    epochs: float | None
    epoch_s: float | None
    startup_s: float | None = None
    between_s: float | None = None


def time_job(found: Measured, spec: Mapping[str, object]) -> JobTime | None:
    """Return a cell's job and epoch times; None when nothing but single steps is known.

    Fixed time is what more workers do not shorten: job - epochs x epoch. It holds the start-up, and
    whatever lies between and after the passes over the training data (validation, checkpoints).
    """
    if found.cell.today:
        return None
    whole = [] if found.void_for_speed else [one for one in found.launches if _is_whole(one)]
    whole = [one for one in whole if not one.busy] or whole
    jobs = [job for one in whole if (job := _job(one, spec)) is not None]
    # Of launches of different lengths the longest ones are the user's whole job.
    epochs = max((job.epochs for job in jobs if job.epochs), default=None)
    longest = [job for job in jobs if job.epochs == epochs]
    # Times of the same launches add up: start-up, epochs and what is between them are the job.
    epoch_times = (
        [job.epoch_s for job in longest if job.epoch_s]
        or [job.epoch_s for job in jobs if job.epoch_s]
        or [1 / rate for rate in found.rates("epochs/s")]
    )
    steps = None
    if found.samples and (batch := found.worker_batch):
        steps = math.ceil(steps_per_epoch(found.samples, batch, found.cell.workers))
    epoch_s = geometric_mean(epoch_times) if epoch_times else None
    if epoch_s is None and steps and found.step_s:
        epoch_s = scaled(found.step_s, steps)
    lengths = [job.wall_s for job in longest if job.wall_s is not None]
    job_s = geometric_mean(lengths) if lengths else None
    if job_s is None and epoch_s is None:
        return None
    fixed = None
    if job_s and epochs and epoch_s and epoch_times:
        fixed = job_s.value - epochs * epoch_s.value
    startup = known_mean(job.startup_s for job in longest or jobs)
    between = known_mean(job.between_s for job in longest)
    # Means of unequal launches may add up to more than the mean job.
    if job_s and startup is not None:
        startup = min(startup, job_s.value)
        between = None if between is None else min(between, job_s.value - startup)
    return JobTime(
        cell=found.cell,
        label=found.label,
        job_s=job_s,
        epochs=epochs,
        epoch_s=epoch_s,
        epoch_measured=bool(epoch_times),
        steps_per_epoch=steps,
        startup_s=startup,
        between_s=between,
        fixed_s=fixed,
        fixed_share=fixed / job_s.value if fixed is not None and job_s else None,
    )


def training_steps(epochs: float, samples: int, batch: int, workers: int = 1) -> float:
    """Return epochs x samples / global batch: 40 epochs of 60,000 at 128 are 18,750 steps."""
    return epochs * steps_per_epoch(samples, batch, workers)


def _is_whole(launch: Launch) -> bool:
    """Tell whether a launch's length means something: a job or a whole epoch."""
    return launch.outcome == "ok" or (launch.purpose == "epoch" and launch.outcome == "stopped")


def _job(launch: Launch, spec: Mapping[str, object]) -> _Job | None:
    figures = launch.figures
    wall = positive(figures.get("job_s")) or positive(launch.wall_s)
    passes = _passes(launch)
    if wall is None or (launch.warm and not passes) or (launch.outcome == "stopped" and not passes):
        return None
    if not passes:
        epochs = positive(figures.get("epochs"))
        if launch.purpose == "imported":
            epochs = epochs or positive(spec.get("epochs"))
        epoch_s = positive(figures.get("epoch_s"))
        return _Job(wall_s=wall, epochs=epochs, epoch_s=epoch_s)
    if launch.outcome == "stopped":
        # It was ended in the first steps of the next epoch, which belong to no job of one epoch.
        wall -= _steps_after(launch, passes[-1][1])
    inside = sum(end - begin for begin, end in passes)
    if launch.warm:
        return _Job(wall_s=None, epochs=float(len(passes)), epoch_s=inside / len(passes))
    startup = None if launch.begin_s is None else max(0.0, passes[0][0] - launch.begin_s)
    return _Job(
        wall_s=wall,
        epochs=float(len(passes)),
        epoch_s=inside / len(passes),
        startup_s=startup,
        between_s=None if startup is None else max(0.0, wall - startup - inside),
    )


def _steps_after(launch: Launch, end_s: float) -> float:
    """Return how long the steps after a point in time took, without what lay before the first."""
    taken = 0.0
    for rank in launch.ranks:
        late = int(np.count_nonzero(rank.steps.end_s > end_s))
        durations = rank.steps.duration_s[1:]
        if late and len(durations):
            taken = max(taken, late * float(np.median(durations)))
    return taken


def _passes(launch: Launch) -> list[tuple[float, float]]:
    """Return each pass over the data, from the first rank that begins to the last that ends."""
    counted = [rank.epochs for rank in launch.ranks if rank.epochs]
    if not counted or len({rank.host for rank in launch.ranks}) > 1:
        # Clocks of several hosts cannot be compared: the first rank's stand for all.
        return [(begin, end) for begin, end in (counted[0] if counted else ()) if end > begin]
    number = min(len(epochs) for epochs in counted)
    return [
        (min(epochs[i][0] for epochs in counted), max(epochs[i][1] for epochs in counted))
        for i in range(number)
    ]


def price(
    found: Measured, job: JobTime | None, metric: MetricRow | None, price_per_worker_hour: float
) -> Cost | None:
    """Return workers x price x time, for an epoch, the job and the target; None without a time.

    Raises:
        UsageError: when the price is not a number above 0.
    """
    if not price_per_worker_hour > 0:
        raise UsageError(
            f"A price of {price_per_worker_hour} per worker and hour is not above 0. "
            f"Pass what one worker costs in an hour, such as --price 2.5."
        )
    rate = found.cell.workers * price_per_worker_hour / _HOUR_S
    throughput = found.throughput("samples/s")
    times = {
        "per_epoch": job.epoch_s.value if job and job.epoch_s else None,
        "job": job.job_s.value if job and job.job_s else None,
        "to_target": metric.target_s if metric else None,
        "per_million_samples": 1e6 / throughput.value if throughput else None,
    }
    if all(time_s is None for time_s in times.values()):
        return None
    return Cost(
        cell=found.cell,
        label=found.label,
        price_per_worker_hour=price_per_worker_hour,
        **{name: None if time_s is None else rate * time_s for name, time_s in times.items()},
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Speed:
    """What a worker count needs for a job."""

    workers: int
    fixed_s: float
    """Per job: start-up, validation, whatever more data do not lengthen."""
    samples_per_s: float
    """Of all workers together, while they train."""

    def job_s(self, samples: float, epochs: float) -> float:
        """Return how long a job on so many samples takes."""
        return self.fixed_s + epochs * samples / self.samples_per_s


@dataclass(frozen=True, slots=True, kw_only=True)
class BreakEven:
    """From how many samples on more workers are worth it; None: from none, at these speeds."""

    even: int | None
    """From this size on the job is not longer than with fewer workers."""
    time: int | None
    """From this size on a quarter of the job is saved."""
    steps: int
    """From this size on an epoch has enough steps, and a step takes little enough of the data."""

    @property
    def samples(self) -> int | None:
        """The size from which on both time and steps speak for more workers."""
        return None if self.time is None else max(self.time, self.steps)


def fixed_time(job_s: float, epochs: float, samples: float, samples_per_s: float) -> float:
    """Return what of a job is not training at its steady rate; never below 0."""
    return max(0.0, job_s - epochs * samples / samples_per_s)


def break_even(few: Speed, many: Speed, *, epochs: float, batch: int) -> BreakEven:
    """Find from which number of training samples on more workers are worth it.

    It is assumed that the fixed time, the time of a step, the number of epochs and the batch per
    worker stay as they are when the data grow.
    """
    return BreakEven(
        even=_smallest(few, many, epochs, saved=0.0),
        time=_smallest(few, many, epochs, saved=SAVED),
        steps=enough_steps(batch, many.workers),
    )


def enough_steps(batch: int, workers: int) -> int:
    """Return from which size on an epoch has enough steps, and a step few enough of the samples."""
    return math.ceil(max(LEAST_STEPS, 1 / LARGEST_BATCH) * batch * workers)


def _smallest(few: Speed, many: Speed, epochs: float, *, saved: float) -> int | None:
    """Solve many.job_s(D) = (1 - saved) x few.job_s(D) for the number of samples D."""
    more_fixed = many.fixed_s - (1 - saved) * few.fixed_s
    gained_per_sample = epochs * ((1 - saved) / few.samples_per_s - 1 / many.samples_per_s)
    if gained_per_sample <= 0:
        # Training itself is too slow; less fixed time is no reason to add workers.
        return None
    return max(1, math.ceil(more_fixed / gained_per_sample))
