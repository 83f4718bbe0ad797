"""Simpler laws of step time, to compare with: linear scaling, Amdahl's law, Pollux's form."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from farandole.model.laws import amdahl_fraction
from farandole.model.projection.records import StepRow
from farandole.model.projection.steps.least_squares import Prior, Problem, solve
from farandole.study.records import Floats

Baseline = Callable[[StepRow], float]
"""Seconds of a step on the row's workers, hosts and batch; its times are not looked at."""

# Wide: Pollux bounds its parameters, and otherwise lets the rows decide.
_VAGUE = 10.0
_POLLUX_PARAMETERS = 7
_SHARPEST = 10.0


def fit_baselines(rows: Sequence[StepRow]) -> Mapping[str, Baseline]:
    """Fit each of the laws to the same rows."""
    alone = _alone(rows)
    fraction = _serial_fraction(rows, alone)
    return {
        "linear": lambda row: alone(row.batch),
        "amdahl": lambda row: alone(row.batch) * (1 + fraction * (row.workers - 1)),
        "pollux": _pollux(rows),
    }


def _alone(rows: Sequence[StepRow]) -> Callable[[int], float]:
    """Return the seconds of a step by batch, from the rows of the fewest workers."""
    fewest = min(row.workers for row in rows)
    small = [row for row in rows if row.workers == fewest]
    batch = np.array([row.batch for row in small], dtype=np.float64)
    seconds = np.array([row.step_s for row in small])
    if len(set(batch.tolist())) < 2:
        # One batch says nothing of others but that work is proportional to samples.
        per_sample = float(np.exp(np.mean(np.log(seconds / batch))))
        return lambda at: per_sample * at
    design = np.column_stack([np.ones_like(batch), batch]) / seconds[:, None]
    (fixed, slope), *_ = np.linalg.lstsq(design, np.ones_like(batch), rcond=None)
    least = float(seconds.min()) / 10
    return lambda at: max(least, float(fixed + slope * at))


def _serial_fraction(rows: Sequence[StepRow], alone: Callable[[int], float]) -> float:
    several = [row for row in rows if row.workers > 1]
    if not several:
        return 0.0
    speedups = [row.workers * alone(row.batch) / row.step_s for row in several]
    return min(1.0, max(0.0, amdahl_fraction([row.workers for row in several], speedups)))


def _pollux(rows: Sequence[StepRow]) -> Baseline:
    """Fit Pollux's throughput model (OSDI'21) to step times and, where known, compute times."""
    observed = np.log([row.step_s for row in rows])
    timed = [row for row in rows if row.sync_s is not None and row.sync_s < row.step_s]
    computed = np.log([row.step_s - (row.sync_s or 0.0) for row in timed])
    typical = float(np.median(observed))
    batch = float(np.median([row.batch for row in rows]))

    def log_times(parameters: Floats) -> Floats:
        steps = _pollux_log_times(parameters, rows)
        compute = np.log(_pollux_compute(parameters, timed))
        return np.concatenate([steps, compute], axis=1)

    guess = np.full(_POLLUX_PARAMETERS, typical - 2)
    guess[1] = typical - math.log(batch)
    guess[6] = 0.0
    prior = Prior(
        lines=np.eye(_POLLUX_PARAMETERS),
        mean=guess,
        sd=np.full(_POLLUX_PARAMETERS, _VAGUE),
    )
    found = solve(
        Problem(
            log_times=log_times,
            observed=np.concatenate([observed, computed]),
            weights=np.ones(len(rows) + len(timed)),
            prior=prior,
            sigma=0.1,
        ),
        [guess],
    )
    best = found.parameters[None]
    return lambda row: float(np.exp(_pollux_log_times(best, [row])[0, 0]))


def _pollux_compute(parameters: Floats, rows: Sequence[StepRow]) -> Floats:
    batch = np.array([row.batch for row in rows], dtype=np.float64)
    fixed, per_sample = np.exp(parameters[:, :1]), np.exp(parameters[:, 1:2])
    return np.asarray(fixed + per_sample * batch)


def _pollux_log_times(parameters: Floats, rows: Sequence[StepRow]) -> Floats:
    workers = np.array([row.workers for row in rows], dtype=np.float64)
    several = np.array([row.hosts > 1 for row in rows])
    local, local_growth, between, between_growth = (
        np.exp(parameters[:, place : place + 1]) for place in range(2, 6)
    )
    beyond = np.maximum(workers - 2, 0.0)
    network = np.where(several, between + between_growth * beyond, local + local_growth * beyond)
    network = np.where(workers > 1, network, 0.0)
    sharpness = np.minimum(1 + np.exp(parameters[:, 6:7]), _SHARPEST)
    compute = _pollux_compute(parameters, rows)
    longer, shorter = np.maximum(compute, network), np.minimum(compute, network)
    return np.asarray(
        np.log(longer) + np.log1p((shorter / longer) ** sharpness) / sharpness, dtype=np.float64
    )
