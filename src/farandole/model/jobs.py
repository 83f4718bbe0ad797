"""Job, epoch and fixed time of a cell."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from farandole.model.communication import steps_per_epoch
from farandole.model.info.job import JobTime
from farandole.model.measured import Measured, is_tolerable
from farandole.model.pace import dataset_size, positive
from farandole.model.statistics import Estimate, geometric_mean
from farandole.study.records import Launch


@dataclass(frozen=True, slots=True, kw_only=True)
class _Job:
    """One launch that ran to its end."""

    wall_s: float
    epochs: float | None
    epoch_s: float | None
    startup_s: float | None
    between_s: float | None


def time_job(found: Measured, spec: Mapping[str, object]) -> JobTime | None:
    """Return a cell's job and epoch times; None when nothing but single steps is known.

    Fixed time is what more workers do not shorten: job - epochs x epoch. It holds the start-up, and
    whatever lies between and after the passes over the training data (validation, checkpoints).
    """
    if found.cell.today:
        return None
    whole = [one for one in found.launches if _is_whole(one)]
    whole = [one for one in whole if not one.busy] or [one for one in whole if is_tolerable(one)]
    if found.void_for_speed:
        whole = []
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
    samples = next((size for one in found.launches if (size := dataset_size(one, spec))), None)
    steps = None
    if samples and (batch := found.worker_batch):
        steps = math.ceil(steps_per_epoch(samples, batch, found.cell.workers))
    measured = bool(epoch_times)
    epoch_s = geometric_mean(epoch_times) if measured else None
    step_s = found.step_s
    if epoch_s is None and steps and step_s:
        epoch_s = Estimate(
            value=step_s.value * steps,
            low=None if step_s.low is None else step_s.low * steps,
            high=None if step_s.high is None else step_s.high * steps,
        )
    job_s = geometric_mean([job.wall_s for job in longest]) if longest else None
    if job_s is None and epoch_s is None:
        return None
    fixed = None
    if job_s and epochs and epoch_s and measured:
        fixed = job_s.value - epochs * epoch_s.value
    return JobTime(
        cell=found.cell,
        label=found.label,
        job_s=job_s,
        epochs=epochs,
        epoch_s=epoch_s,
        epoch_measured=measured,
        steps_per_epoch=steps,
        startup_s=_mean([job.startup_s for job in longest or jobs]),
        between_s=_mean([job.between_s for job in longest]),
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
    if wall is None:
        return None
    stated_epochs = positive(figures.get("epochs"))
    if launch.purpose == "imported":
        stated_epochs = stated_epochs or positive(spec.get("epochs"))
    passes = _passes(launch)
    if launch.outcome == "stopped":
        # It was ended in the first steps of the next epoch, which belong to no job of one epoch.
        if not passes:
            return None
        wall -= _steps_after(launch, passes[-1][1])
    if not passes:
        return _Job(
            wall_s=wall,
            epochs=stated_epochs,
            epoch_s=positive(figures.get("epoch_s")),
            startup_s=None,
            between_s=None,
        )
    inside = sum(end - begin for begin, end in passes)
    startup = None if launch.begin_s is None else max(0.0, passes[0][0] - launch.begin_s)
    between = None if startup is None else max(0.0, wall - startup - inside)
    return _Job(
        wall_s=wall,
        epochs=float(len(passes)),
        epoch_s=inside / len(passes),
        startup_s=startup,
        between_s=between,
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


def _mean(values: list[float | None]) -> float | None:
    good = [value for value in values if value is not None]
    return sum(good) / len(good) if good else None
