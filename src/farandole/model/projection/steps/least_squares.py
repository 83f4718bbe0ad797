"""Fitting curves of log times: least squares with priors, robust to odd rows; no randomness.

Parameters are on scales where a normal prior makes sense (mostly logarithms). The prior keeps what
few rows cannot tell near what is plausible, and the curvature at the solution says how well each
parameter is known.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from farandole.study.records import Floats

LogTimes = Callable[[Floats], Floats]
"""From parameters, one set per row, to log seconds, one row per set."""

_STEP = 1e-4
_LONGEST_STEP = 2.0
_ITERATIONS = 60
_ENOUGH = 1e-7
# Residuals beyond so many sigma count by their size, not by their square.
_ODD = 2.0
# A draw that is less likely than this by a factor of e to the power counts nothing.
_UNBELIEVABLE = 50.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Prior:
    """What is believed before any row is seen: `lines @ parameters` is near `mean`."""

    lines: Floats
    mean: Floats
    sd: Floats


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """Rows to fit."""

    log_times: LogTimes
    observed: Floats
    """Log seconds."""
    weights: Floats
    """What each row counts; 1 for a row that is independent of all others."""
    prior: Prior
    sigma: float
    """How much one row scatters, as a logarithm."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Solution:
    """Where a fit ended, and how well that is known."""

    parameters: Floats
    covariance: Floats
    residuals: Floats
    """Observed minus fitted, of logarithms."""
    slopes: Floats
    """Of the fitted log times, rows by parameters."""
    objective: float
    problem: Problem


def solve(problem: Problem, starts: Sequence[Floats]) -> Solution:
    """Minimise from each start and return the best end."""
    ends = [_descend(problem, np.asarray(start, dtype=np.float64)) for start in starts]
    parameters, objective = min(ends, key=lambda end: end[1])
    fitted, slopes = slopes_at(problem.log_times, parameters)
    residuals = problem.observed - fitted
    return Solution(
        parameters=parameters,
        covariance=_floats(np.linalg.inv(_curvature(problem, residuals, slopes))),
        residuals=residuals,
        slopes=slopes,
        objective=objective,
        problem=problem,
    )


def slopes_at(log_times: LogTimes, parameters: Floats) -> tuple[Floats, Floats]:
    """Return log times and their slopes by parameter, rows by parameters."""
    moved = np.vstack([parameters, parameters + _STEP * np.eye(len(parameters))])
    values = log_times(moved)
    return values[0], (values[1:] - values[0]).T / _STEP


def draw(solution: Solution, count: int) -> tuple[Floats, Floats]:
    """Draw parameters around the solution, and say how much each draw counts.

    Draws come from the curvature, the same at every call. Where the rows bear one out less than
    the curvature has it, it counts less: gradients that hide behind computing change nothing in a
    small step, and much in a large one.
    """
    problem = solution.problem
    values, vectors = np.linalg.eigh(solution.covariance)
    normal = np.random.default_rng(0).standard_normal((count // 2, len(values)))
    normal = np.vstack([normal, -normal])
    roots = _floats(vectors * np.sqrt(np.maximum(values, 0.0)))
    drawn = solution.parameters + normal @ roots.T
    expected = (normal**2).sum(axis=1) / 2
    excess = _objectives(problem, drawn) - solution.objective - expected
    return drawn, np.exp(-np.clip(excess, 0.0, _UNBELIEVABLE))


def left_out(solution: Solution, labels: npt.NDArray[np.int64]) -> Floats:
    """Return residuals as if the rows of each label had not been fitted, to first order."""
    problem = solution.problem
    importance = _importance(problem, solution.residuals) / problem.sigma**2
    curvature = np.linalg.inv(solution.covariance)
    found = np.empty_like(solution.residuals)
    for label in np.unique(labels):
        rows = labels == label
        slopes, residuals = solution.slopes[rows], solution.residuals[rows]
        pulls = slopes * importance[rows, None]
        # What the other rows and the prior leave of the curvature, and how far they would move.
        moved = np.linalg.solve(curvature - pulls.T @ slopes, pulls.T @ residuals)
        found[rows] = residuals + slopes @ moved
    return found


def _descend(problem: Problem, parameters: Floats) -> tuple[Floats, float]:
    """Take Levenberg and Marquardt's steps until they gain nothing."""
    value = _objective(problem, parameters)
    damping = 1e-2
    for _ in range(_ITERATIONS):
        fitted, slopes = slopes_at(problem.log_times, parameters)
        residuals = problem.observed - fitted
        curvature = _curvature(problem, residuals, slopes)
        importance = _importance(problem, residuals) / problem.sigma**2
        prior = problem.prior
        downhill = slopes.T @ (importance * residuals) + prior.lines.T @ (
            (prior.mean - prior.lines @ parameters) / prior.sd**2
        )
        while True:
            damped = curvature + damping * np.diag(np.diag(curvature))
            step = _floats(np.linalg.solve(damped, downhill))
            step = np.clip(step, -_LONGEST_STEP, _LONGEST_STEP)
            fresh = _objective(problem, parameters + step)
            if fresh < value:
                break
            damping *= 4
            if damping > 1e8:
                return parameters, value
        gained = value - fresh
        parameters, value = parameters + step, fresh
        damping = max(damping / 5, 1e-9)
        if gained < _ENOUGH * (1 + value):
            break
    return parameters, value


def _objective(problem: Problem, parameters: Floats) -> float:
    return float(_objectives(problem, parameters[None])[0])


def _objectives(problem: Problem, parameters: Floats) -> Floats:
    """Return what is minimised, for each set of parameters."""
    residuals = (problem.observed - problem.log_times(parameters)) / problem.sigma
    # Pseudo-Huber: a square for small residuals, a straight line for large ones.
    losses = 2 * _ODD**2 * (np.sqrt(1 + (residuals / _ODD) ** 2) - 1)
    beliefs = (parameters @ problem.prior.lines.T - problem.prior.mean) / problem.prior.sd
    return np.asarray((losses @ problem.weights + (beliefs**2).sum(axis=1)) / 2)


def _importance(problem: Problem, residuals: Floats) -> Floats:
    return problem.weights / np.sqrt(1 + (residuals / (_ODD * problem.sigma)) ** 2)


def _curvature(problem: Problem, residuals: Floats, slopes: Floats) -> Floats:
    importance = _importance(problem, residuals) / problem.sigma**2
    lines = problem.prior.lines / problem.prior.sd[:, None]
    return (slopes * importance[:, None]).T @ slopes + lines.T @ lines


def _floats(values: npt.ArrayLike) -> Floats:
    """Narrow what numpy's linear algebra is typed to give."""
    return np.asarray(values, dtype=np.float64)
