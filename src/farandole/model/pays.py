"""From which data-set size on more workers would pay.

A job on n workers takes T(D) = fixed + epochs x D / rate, with D training samples. Doubling the
data doubles the second part only, so that from some size on the fixed part no longer decides.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from farandole.model.verdicts.job import LARGEST_BATCH, LEAST_STEPS

SAVED = 0.25
"""More workers pay when they save a quarter of the job: what Amdahl's law leaves of a doubling when
half of the job is shared."""


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
class Pays:
    """The sizes that count for a number of workers; None: no size does, at these speeds."""

    few: Speed
    many: Speed
    epochs: float
    batch: int
    """Per worker."""
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


def size_that_pays(few: Speed, many: Speed, *, epochs: float, batch: int) -> Pays:
    """Find from which number of training samples on more workers would pay.

    It is assumed that the fixed time, the time of a step, the number of epochs and the batch per
    worker stay as they are when the data grow.

    Args:
        few: the workers to compare with.
        many: the larger number.
        epochs: of a job.
        batch: per worker.
    """
    return Pays(
        few=few,
        many=many,
        epochs=epochs,
        batch=batch,
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
