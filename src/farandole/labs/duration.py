"""How long launches take, from what a pilot measured: what plans of labs add up.

Estimates only rise with samples, epochs and workers beyond the cores, so that a larger effort never
looks shorter than a smaller one.
"""

from __future__ import annotations

from collections.abc import Iterable

from farandole.labs.lab import Rate

_SHARING = 0.8
"""What workers that run at once keep of the speed that each has alone: they share the memory."""
_FORWARD = 1 / 3
"""A test sample goes forward only; a training sample forward, and backward at twice the cost."""
STUDY_S = 3.0
"""Of a study itself: its folder, its records, its report."""


def launch_s(
    rate: Rate, *, workers: int, cores: int, samples: int, epochs: float, test_samples: int = 0
) -> float:
    """Return what a launch takes that trains to its script's end.

    Args:
        rate: of one worker with one thread.
        workers: more than cores take turns.
        cores: of this machine.
        samples: of an epoch, over all workers.
        epochs: of the job.
        test_samples: after each epoch, over all workers.
    """
    at_once = min(workers, cores)
    speed = rate.samples_per_s * (at_once * _SHARING if at_once > 1 else 1.0)
    return startup_s(rate, workers=workers, cores=cores) + epochs * (
        samples / speed + _FORWARD * test_samples / speed
    )


def steps_s(rate: Rate, *, threads: int, batches: Iterable[int], steps: int) -> float:
    """Return what launches of one worker take that end after so many steps, one per batch."""
    speed = rate.samples_per_s * (threads * _SHARING if threads > 1 else 1.0)
    return sum(rate.startup_s + steps * batch / speed for batch in batches)


def startup_s(rate: Rate, *, workers: int, cores: int) -> float:
    """Return what starting and ending take; workers beyond the cores import in turns."""
    return rate.startup_s * max(1.0, workers / cores)
