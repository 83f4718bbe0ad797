"""Step times by replay, fitted to what was measured: one more form beside those without buckets.

What a replay needs is measured, but for three factors near 1: how much communication slows down
beside computing, how much computing does beside communication, and how all of it lies beside the
measured times. They are fitted with priors, so that few launches do not tell tales.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from farandole.model.projection.intervals import FARTHEST, floor_sides
from farandole.model.projection.records import Projected, StepRow
from farandole.model.projection.replay.inputs import Factors, ReplayInputs
from farandole.model.projection.replay.step import Replayed
from farandole.model.projection.replay.whatif import Change
from farandole.model.statistics import NORMAL_90
from farandole.study.records import Floats

# Standard deviations of the logarithms of the three factors, before anything was measured.
_PRIOR_SD = np.array([0.2, 0.3, 0.1])
# Beyond these a factor stands for something else than what it is called.
_LARGEST = np.log([5.0, 10.0, 2.0])
# What the median of a launch is known to.
_ROW_SD = 0.03
# The network's speed: on paper, and measured at best.
_PAPER_SD, _LEAST_SD = 0.3, 0.03


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayFit:
    """A model's step time by replay; a StepFit."""

    inputs: ReplayInputs
    factors: Factors
    measured_workers: int
    """The most that rows were fitted to."""
    covariance: Floats
    """Of the logarithms of slowdown, contention and correction."""
    error: float | None
    """Root mean square of log errors on worker counts that were left out; None without any."""
    assumptions: tuple[str, ...]
    forms: tuple[tuple[str, float], ...] = (("replay", 1.0),)

    def played(self, workers: int, hosts: int, batch: int) -> Replayed:
        """Return the parts of a step as replayed, the correction applied to its whole."""
        found = self.inputs.played(workers, hosts, batch, self.factors)
        return replace(found, step_s=found.step_s * _correction(self.factors, workers))

    def at(self, workers: int, hosts: int, batch: int) -> Projected:
        """Return the seconds of a step."""
        value = self.played(workers, hosts, batch).step_s
        ratio = workers / self.measured_workers
        fast = slow = NORMAL_90 * self.spread(workers, hosts, batch)
        if ratio > 1:
            least_fast, least_slow = floor_sides(ratio)
            fast, slow = max(fast, least_fast), max(slow, least_slow)
        low, high = value * math.exp(-fast), value * math.exp(slow)
        if ratio > FARTHEST:
            # All of it hidden, and none of it.
            shown = self.inputs.played(workers, hosts, batch, Factors(overlap=False))
            low, high = min(low, shown.step_s - shown.exposed_s), max(high, shown.step_s)
        return Projected(value=value, low=low, high=high, ratio=ratio, indicative=ratio > FARTHEST)

    def spread(self, workers: int, hosts: int, batch: int) -> float:
        """Return how well a step is known: the standard deviation of its logarithm.

        Each factor is moved by as much as the measurements leave open, and so is the network. No
        step is known better than the median of a launch.
        """
        logs = _logs(self.factors)
        base = self._log_s(workers, hosts, batch, logs)
        open_by = np.sqrt(np.diag(self.covariance))
        moved = [
            self._log_s(workers, hosts, batch, logs + open_by * (place == np.arange(3))) - base
            for place in range(3)
        ]
        slopes = np.array(moved) / open_by
        faster, slower = (
            self._log_s(workers, hosts, batch, logs, math.exp(side * self._network_sd(hosts)))
            for side in (1, -1)
        )
        within = float(slopes @ self.covariance @ slopes)
        return math.sqrt(within + ((slower - faster) / 2) ** 2 + _ROW_SD**2)

    def _network_sd(self, hosts: int) -> float:
        """Return how well the network's speed is known: the standard deviation of its logarithm."""
        network = self.inputs.network
        error = network.inside.error
        if not error or (hosts > 1 and network.link is not None):
            return _PAPER_SD
        return max(_LEAST_SD, error)

    def _log_s(
        self, workers: int, hosts: int, batch: int, logs: Floats, network_speed: float = 1.0
    ) -> float:
        factors = _factors(logs, self.factors.overlap)
        played = self.inputs.played(workers, hosts, batch, factors, network_speed)
        return math.log(played.step_s * _correction(factors, workers))

    def with_change(self, change: Change) -> ReplayFit:
        """Return the same with something done otherwise: what would be if."""
        return replace(self, inputs=replace(self.inputs, change=change))


def fit_replay(
    inputs: ReplayInputs, rows: Sequence[StepRow], *, overlap: bool | None = None
) -> ReplayFit:
    """Fit the three factors to measured steps.

    Args:
        inputs: of the replay.
        rows: measured steps; those of one worker say nothing of communication. None at all will
            do: the priors hold then, and the intervals are wide.
        overlap: whether buckets go before computing is over; by default what suits the rows better,
            or that they do when there are none.
    """
    together = [row for row in rows if row.workers > 1]
    ways = (True, False) if overlap is None and together else (overlap is not False,)
    fits = [_Fit(inputs, together, way) for way in ways]
    best = min(fits, key=lambda fit: fit.loss)
    assumptions = list(inputs.assumptions)
    if not together:
        assumptions.append(
            "Nobody measured steps of several workers: how communication and computing slow each "
            "other down is taken from experience."
        )
    if len(inputs.computing.batches) == 1:
        assumptions.append(
            f"Only batch {inputs.computing.batches[0]} was measured: at others computing is taken "
            "as proportional to it."
        )
    return ReplayFit(
        inputs=inputs,
        factors=best.factors,
        measured_workers=max((row.workers for row in rows), default=1),
        covariance=best.covariance,
        error=_left_out_error(inputs, together, overlap=best.factors.overlap),
        assumptions=tuple(assumptions),
    )


class _Fit:
    """The factors of one way to send, by least squares of logarithms."""

    def __init__(self, inputs: ReplayInputs, rows: Sequence[StepRow], overlap: bool) -> None:
        self._inputs, self._rows, self._overlap = inputs, rows, overlap
        if not rows:
            self.logs, self.covariance, self.loss = np.zeros(3), np.diag(_PRIOR_SD**2), 0.0
            return
        from scipy.optimize import least_squares

        # From the priors' middle: they make one valley of it.
        bounds = ([0.0, 0.0, -_LARGEST[2]], _LARGEST)
        found = least_squares(self._residuals, [0.05, 0.05, 0.0], bounds=bounds, diff_step=1e-3)
        self.logs, self.loss = found.x, float(found.cost)
        self.covariance = np.linalg.inv(found.jac.T @ found.jac)

    @property
    def factors(self) -> Factors:
        return _factors(self.logs, self._overlap)

    def _residuals(self, logs: Floats) -> Floats:
        beside = _beside(self._inputs, self._rows, _factors(logs, self._overlap))
        return np.concatenate([beside / _ROW_SD, logs / _PRIOR_SD])


def _beside(inputs: ReplayInputs, rows: Sequence[StepRow], factors: Factors) -> Floats:
    """Return the logarithms of measured over replayed."""
    settings = {(row.workers, row.hosts, row.batch) for row in rows}
    played_s = {setting: inputs.played(*setting, factors).step_s for setting in settings}
    return np.array(
        [
            math.log(row.step_s / played_s[row.workers, row.hosts, row.batch])
            - math.log(factors.correction)
            for row in rows
        ]
    )


def _left_out_error(
    inputs: ReplayInputs, rows: Sequence[StepRow], *, overlap: bool
) -> float | None:
    squares: list[float] = []
    for workers in {row.workers for row in rows}:
        others = _Fit(inputs, [row for row in rows if row.workers != workers], overlap)
        held = [row for row in rows if row.workers == workers]
        squares += np.square(_beside(inputs, held, others.factors)).tolist()
    return math.sqrt(math.fsum(squares) / len(squares)) if squares else None


def _factors(logs: Floats, overlap: bool) -> Factors:
    slowdown, contention, correction = (float(value) for value in np.exp(logs))
    return Factors(slowdown=slowdown, contention=contention, correction=correction, overlap=overlap)


def _logs(factors: Factors) -> Floats:
    return np.log([factors.slowdown, factors.contention, factors.correction])


def _correction(factors: Factors, workers: int) -> float:
    # One worker's step is what its computing was measured to be.
    return factors.correction if workers > 1 else 1.0
