"""A model's step time by workers, hosts and batch: several forms, weighted by how well they do.

T = (1 - q) C + (q C ^ g + G ^ g) ^ (1/g) + J, with C = fixed + per sample x batch, the longer the
more workers share a host, G the time that gradients take by one of five laws, q the share of
computing behind which they can hide, g how well they do (1: not at all), and J what the slowest of
N workers takes longer than the average one.

Each form is fitted to all rows by least squares of log times with priors, robust to odd rows and
without randomness. Parameters are on scales where a normal prior makes sense (mostly logarithms);
the prior keeps what few rows cannot tell near what is plausible, and the curvature at the solution
says how well each parameter is known. A form's weight comes from the error that it makes on
configurations (workers and hosts) that are left out of the fit, so that a form which merely bends
well has none.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal, Protocol

import numpy as np
import numpy.typing as npt
from scipy.special import ndtri

from farandole.errors import DataError
from farandole.format import plural
from farandole.model.projection.intervals import Prediction, duration, predict, track_record
from farandole.model.projection.question import LinkSpeed
from farandole.model.statistics import NORMAL_90
from farandole.study.records import Floats

LEAST_ROWS = 3
"""Step times; fewer say nothing that could be projected."""
DDP_BUCKET_BYTES = 25 << 20
"""DDP's default size of a gradient bucket."""

Law = Literal["ring", "slow ring", "hierarchical", "crowded", "bus"]
FORMS: dict[str, Law] = {
    "ring": "ring",
    "slowly growing ring": "slow ring",
    "hierarchical ring": "hierarchical",
    "crowded hierarchical ring": "crowded",
    "shared bus": "bus",
}

Place = tuple[int, int, int]
"""Workers, hosts, batch per worker."""

# Places in a vector of parameters; all are logarithms. Deviations of single batches follow.
FIXED, PER_SAMPLE, JITTER = 0, 1, 2
INSIDE, INSIDE_GROWTH, BETWEEN, BETWEEN_GROWTH = 3, 4, 5, 6
MANY_HOSTS, SHARPNESS, SHARING = 7, 8, 9
BATCHES = 10

GROWTH = 0.05
"""What a unit of a law's growth adds, of passing all gradients once, where no row tells."""
# Gradients hide behind backward, two thirds of computing, and behind what runs beside it: q.
_HIDING = 0.8
_MOST_KNOTS = 12
_SHARPEST = 12.0
# One belief on growth holds for all laws: with this, each adds about as much at 64 workers.
_GENTLY = 0.25

# Priors, chosen once by fits that left a model out, and not per model: (mean, sd) of a logarithm.
# What one standard deviation of a worker's time is, of computing.
_JITTER = (math.log(0.04), 0.7)
# Gradients inside of a host, of a typical step.
_INSIDE = (math.log(0.03), 2.0)
_GROWTH = (math.log(GROWTH), 0.5)
# Between hosts, of inside of one.
_SLOWER_BETWEEN = (math.log(5.0), 1.5)
# Three hosts or more, of two: libraries choose other ways for two.
_MANY_HOSTS = (-0.15, 0.3)
_SHARPNESS = (math.log(2.0), 0.7)
# What two workers of a host compute slower than one alone: they share its memory and loaders.
_SHARING = (math.log(0.02), 1.5)
# How far computing strays from a straight line in the batch.
_BATCH = (0.0, 0.1)
_VAGUE = 3.0
# A link's rate is what is sold. NCCL and Gloo reach some half of it; where one connection may not
# have all of it, as in clouds, far less.
_REACHED = (math.log(0.55), 0.7)
# What GPUs of one host reach over PCIe; nothing better is known where bytes were not stated.
_INSIDE_BYTES_PER_S = (math.log(10e9), 0.9)

_FIRST_SIGMA, _LEAST_SIGMA = 0.08, 0.04
# How alike rows of one configuration are: they share their congestion, whatever the batch.
_ALIKE = 0.7
_WORST = 1.0
_SHARP_STARTS = (-1.0, 1.5)
# What no form has, of what is not computing: for each doubling beyond the measured size.
_DRIFT = 0.07
# The track record's factors come from fits to 30 settings (workers, hosts, batch) and more, of one
# cluster: fewer than about as many may not be surer than the floors (docs/explanation/backtest.md).
_FEW_SETTINGS = 20
_DRAWS = 100
# Places at a time: draws of all of them are in memory at once.
_AT_ONCE = 2000
# The scale on which errors make weights: a fit that errs by so much more counts 1/e as much.
_TEMPERATURE = 0.05


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
class StepRow:
    """How long a step of one model took in one launch."""

    workers: int
    hosts: int
    batch: int
    """Per worker."""
    step_s: float
    sync_s: float | None = None
    """What of it training waited for gradients; None where nobody measured it."""


class StepFit(Protocol):
    """A model's step time as a function of workers, hosts and batch."""

    @property
    def forms(self) -> tuple[tuple[str, float], ...]:
        """Names of the forms and their weights, the heaviest first."""
        ...

    @property
    def assumptions(self) -> tuple[str, ...]:
        """In sentences: what was not measured and had to be taken for granted."""
        ...

    def at(self, workers: int, hosts: int, batch: int, /) -> Prediction:
        """Return the seconds of a step."""
        ...


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


def leave_out(solution: Solution, labels: npt.NDArray[np.int64]) -> Floats:
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """What forms need to know of rows: one value per row."""

    workers: Floats
    hosts: Floats
    batch: Floats
    knots: Floats
    """How much of each known batch is in a row's: rows by knots."""
    latency_s: float = 0.0
    """Of a message between hosts, for all buckets together; 0 where only rows tell of a network."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """What a step consists of, in seconds: sets of parameters by rows."""

    total: Floats
    compute: Floats
    gradients: Floats


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """One fitted form."""

    name: str
    solution: Solution
    draws: Floats
    """Parameters as likely as the rows leave them: draws by parameters."""
    shares: Floats
    """How much each draw counts, of 1."""
    error: float
    """Root mean square of log errors on configurations that were left out."""
    weight: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """What is known of step times, one value per place."""

    log_s: Floats
    fast_sd: Floats
    slow_sd: Floats
    """Of log seconds, to either side: of parameters and forms, of rows, of what no form has."""
    compute_s: Floats
    gradients_s: Floats


@dataclass(frozen=True, slots=True, kw_only=True)
class EnsembleFit:
    """Forms fitted to the same rows; a StepFit."""

    members: tuple[Member, ...]
    knots: Floats
    measured_workers: int
    """The most that rows were fitted to."""
    settings: int
    """Different ones among the rows, of workers, hosts and batch."""
    assumptions: tuple[str, ...]
    latency_s: float = 0.0
    """Of a message over the stated link, for all buckets together; 0 where none was needed."""

    @property
    def forms(self) -> tuple[tuple[str, float], ...]:
        """Names and weights, the heaviest first."""
        ranked = sorted(self.members, key=lambda member: -member.weight)
        return tuple((member.name, member.weight) for member in ranked)

    @property
    def error(self) -> float:
        """The mean of the forms' errors on configurations that were left out."""
        return math.fsum(member.weight * member.error for member in self.members)

    def at(self, workers: int, hosts: int, batch: int, /) -> Prediction:
        """Return the seconds of a step."""
        return self.at_each([(workers, hosts, batch)])[0]

    def at_each(self, places: Sequence[Place]) -> list[Prediction]:
        """Return the seconds of a step at several places."""
        found = []
        for first in range(0, len(places), _AT_ONCE):
            some = places[first : first + _AT_ONCE]
            spread = self.spread(some)
            found += [self._prediction(place, spread, index) for index, place in enumerate(some)]
        return found

    def spread(self, places: Sequence[Place]) -> Spread:
        """Return the ensemble's mean and standard deviation at several places."""
        columns = np.array(places, dtype=np.float64).T
        shape = make_shape(columns[0], columns[1], columns[2], self.knots, latency_s=self.latency_s)
        weights = np.array([member.weight for member in self.members])[:, None]
        found = [
            step_parts(
                FORMS[member.name], shape, np.vstack([member.solution.parameters, member.draws])
            )
            for member in self.members
        ]
        logs = np.log(np.array([parts.total for parts in found]))
        mean = (weights * logs[:, 0]).sum(axis=0)
        compute = (weights * np.array([parts.compute[0] for parts in found])).sum(axis=0)
        gradients = (weights * np.array([parts.gradients[0] for parts in found])).sum(axis=0)
        shares = np.concatenate([member.weight * member.shares for member in self.members])
        low, high = _weighted_quantiles(logs[:, 1:].reshape(len(shares), -1), shares)
        sigma = float(sum(member.weight * member.solution.problem.sigma for member in self.members))
        farther = np.log2(np.maximum(1.0, columns[0] / self.measured_workers))
        exposed = np.maximum(0.0, 1 - compute / np.exp(mean))
        rest = sigma**2 + (_DRIFT * farther * exposed) ** 2
        return Spread(
            log_s=mean,
            fast_sd=np.sqrt(np.maximum(0.0, (mean - low) / NORMAL_90) ** 2 + rest),
            slow_sd=np.sqrt(np.maximum(0.0, (high - mean) / NORMAL_90) ** 2 + rest),
            compute_s=compute,
            gradients_s=gradients,
        )

    def _prediction(self, place: Place, spread: Spread, index: int) -> Prediction:
        ratio = place[0] / self.measured_workers
        reach = track_record().at(ratio)
        compute, gradients = float(spread.compute_s[index]), float(spread.gradients_s[index])
        return predict(
            math.exp(float(spread.log_s[index])),
            reach.fast * float(spread.fast_sd[index]),
            reach.slow * float(spread.slow_sd[index]),
            ratio,
            floors=self.settings < _FEW_SETTINGS,
            # All of it hidden, and none of it.
            bounds=lambda: (compute, compute + gradients),
        )


def fit_steps(
    rows: Sequence[StepRow], *, link: LinkSpeed | None = None, gradient_bytes: float | None = None
) -> EnsembleFit:
    """Fit step times of one model.

    Args:
        rows: Measured steps, one per launch; of one host or several, of one batch or several.
        link: What connects hosts; used where no row spans hosts.
        gradient_bytes: What is averaged in each step, where known; used with `link`.

    Raises:
        DataError: There is no row, or one has a time or count that cannot be.
    """
    _check(rows)
    across = any(row.hosts > 1 for row in rows)
    needed = None if across else link
    table = _Table(rows)
    prior = make_prior(
        typical_s=float(np.median(table.seconds)),
        typical_batch=float(np.median(table.batch)),
        num_knots=len(table.knots),
        link=needed,
        gradient_bytes=gradient_bytes,
    )
    members = [_fit_form(name, table, prior) for name in FORMS]
    weights = weigh([member.error for member in members])
    # Averaged one after the other; one where nobody knows the bytes.
    num_buckets = max(1, math.ceil((gradient_bytes or 0) / DDP_BUCKET_BYTES))
    return EnsembleFit(
        members=tuple(
            replace(member, weight=weight) for member, weight in zip(members, weights, strict=True)
        ),
        knots=table.knots,
        measured_workers=int(table.workers.max()),
        # Launches that repeat a setting share what is odd about it.
        settings=len({(row.workers, row.hosts, row.batch) for row in rows}),
        assumptions=_assumptions(rows, link, gradient_bytes),
        # Rows of one host have no message between hosts: what they were fitted with holds.
        latency_s=0.0 if needed is None else needed.latency_s * num_buckets,
    )


def weigh(errors: Sequence[float]) -> list[float]:
    """Return weights that add up to 1, by RMS log errors on what was left out of each fit."""
    least = min(errors)
    raw = [math.exp((least - error) / _TEMPERATURE) for error in errors]
    total = sum(raw)
    return [weight / total for weight in raw]


class _Table:
    """Rows as columns."""

    def __init__(self, rows: Sequence[StepRow]) -> None:
        self.workers = np.array([row.workers for row in rows], dtype=np.float64)
        self.hosts = np.array([row.hosts for row in rows], dtype=np.float64)
        self.batch = np.array([row.batch for row in rows], dtype=np.float64)
        self.seconds = np.array([row.step_s for row in rows], dtype=np.float64)
        self.knots = choose_knots(self.batch)
        self.shape = make_shape(self.workers, self.hosts, self.batch, self.knots)
        configurations = sorted({(row.workers, row.hosts) for row in rows})
        self.labels: npt.NDArray[np.int64] = np.array(
            [configurations.index((row.workers, row.hosts)) for row in rows]
        )
        crowd = np.bincount(self.labels)[self.labels]
        self.weights = 1 / (1 + (crowd - 1) * _ALIKE)


def _check(rows: Sequence[StepRow]) -> None:
    if not rows:
        raise DataError("There are no step times to fit. Measure at least one launch.")
    for row in rows:
        if not 0 < row.step_s < math.inf:
            raise DataError(
                f"A step of {plural(row.workers, 'worker')} takes {row.step_s:g} s, but must "
                "take more than 0. Correct or remove that row."
            )
        if row.workers < 1 or row.batch < 1 or not 1 <= row.hosts <= row.workers:
            raise DataError(
                f"A row has {plural(row.workers, 'worker')} on {plural(row.hosts, 'host')} with "
                f"a batch of {row.batch}. Correct or remove it."
            )


def _fit_form(name: str, table: _Table, prior: Prior) -> Member:
    problem = Problem(
        log_times=lambda parameters: np.log(step_parts(FORMS[name], table.shape, parameters).total),
        observed=np.log(table.seconds),
        weights=table.weights,
        prior=prior,
        sigma=_FIRST_SIGMA,
    )
    guess = np.linalg.lstsq(prior.lines, prior.mean, rcond=None)[0]
    starts = [np.array(guess, dtype=np.float64) for _ in _SHARP_STARTS]
    for start, sharpness in zip(starts, _SHARP_STARTS, strict=True):
        start[SHARPNESS] = sharpness
    first = solve(problem, starts)
    # 1.4826 turns a median absolute deviation into a standard deviation.
    scatter = 1.4826 * float(np.median(np.abs(first.residuals)))
    solution = solve(replace(problem, sigma=max(_LEAST_SIGMA, scatter)), [first.parameters])
    residuals = np.clip(leave_out(solution, table.labels), -_WORST, _WORST)
    sums = np.bincount(table.labels, weights=residuals**2)
    error = math.sqrt(float(np.mean(sums / np.bincount(table.labels))))
    draws, shares = draw(solution, _DRAWS)
    return Member(
        name=name, solution=solution, draws=draws, shares=shares / shares.sum(), error=error
    )


def _weighted_quantiles(logs: Floats, shares: Floats) -> tuple[Floats, Floats]:
    """Return the 5 and 95 % quantiles of draws (draws by places), which count by their shares."""
    order = np.argsort(logs, axis=0)
    ranked = np.take_along_axis(logs, order, axis=0)
    reached = np.cumsum(shares[order], axis=0)
    low, high = (np.argmax(reached >= share, axis=0) for share in (0.05, 0.95))
    places = np.arange(logs.shape[1])
    return ranked[low, places], ranked[high, places]


def make_prior(
    *,
    typical_s: float,
    typical_batch: float,
    num_knots: int,
    link: LinkSpeed | None = None,
    gradient_bytes: float | None = None,
) -> Prior:
    """Return what holds for any model, on the scale of this one.

    Args:
        typical_s: A middling step time among the rows.
        typical_batch: A middling batch.
        num_knots: Batches at which computing may deviate from a straight line.
        link: What connects hosts, where no row has measured it. Its rate counts here; its latency
            is no parameter (`Shape`).
        gradient_bytes: What is averaged in each step; None when nobody knows.
    """
    beliefs: list[tuple[dict[int, float], tuple[float, float]]] = [
        ({FIXED: 1}, (math.log(0.3 * typical_s), _VAGUE)),
        ({PER_SAMPLE: 1}, (math.log(0.7 * typical_s / typical_batch), _VAGUE)),
        ({JITTER: 1}, _JITTER),
        ({INSIDE: 1}, (_INSIDE[0] + math.log(typical_s), _INSIDE[1])),
        ({INSIDE_GROWTH: 1}, _GROWTH),
        ({BETWEEN_GROWTH: 1}, _GROWTH),
        ({MANY_HOSTS: 1}, _MANY_HOSTS),
        ({SHARPNESS: 1}, _SHARPNESS),
        ({SHARING: 1}, _SHARING),
    ]
    beliefs += [({BATCHES + knot: 1}, _BATCH) for knot in range(num_knots)]
    if link is None:
        beliefs.append(({BETWEEN: 1, INSIDE: -1}, _SLOWER_BETWEEN))
    elif gradient_bytes is not None:
        seconds = math.log(gradient_bytes / link.bytes_per_s)
        beliefs.append(({BETWEEN: 1}, (seconds - _REACHED[0], _REACHED[1])))
    else:
        slower = _INSIDE_BYTES_PER_S[0] - math.log(link.bytes_per_s) - _REACHED[0]
        spread = math.hypot(_INSIDE_BYTES_PER_S[1], _REACHED[1])
        beliefs.append(({BETWEEN: 1, INSIDE: -1}, (slower, spread)))
    lines = np.zeros((len(beliefs), BATCHES + num_knots))
    for row, (line, _) in enumerate(beliefs):
        for place, factor in line.items():
            lines[row, place] = factor
    mean, sd = np.array([belief for _, belief in beliefs]).T
    return Prior(lines=lines, mean=mean, sd=sd)


def choose_knots(batches: Floats) -> Floats:
    """Return the logarithms of batches at which computing may deviate from a straight line."""
    logs = np.log(np.unique(batches))
    if len(logs) <= _MOST_KNOTS:
        return logs
    return np.quantile(logs, np.linspace(0, 1, _MOST_KNOTS))


def make_shape(
    workers: Floats, hosts: Floats, batch: Floats, knots: Floats, *, latency_s: float = 0.0
) -> Shape:
    """Describe rows to the forms."""
    logs = np.clip(np.log(batch), knots[0], knots[-1])
    places = np.arange(len(knots), dtype=np.float64)
    position = np.interp(logs, knots, places)
    shares = np.maximum(0.0, 1 - np.abs(position[:, None] - places[None, :]))
    return Shape(workers=workers, hosts=hosts, batch=batch, knots=shares, latency_s=latency_s)


def slowest(workers: Floats) -> Floats:
    """Return how many standard deviations the slowest of N lies above the mean (Blom)."""
    return np.asarray(ndtri((workers - 0.375) / (workers + 0.25)) * (workers > 1), dtype=np.float64)


def step_parts(law: Law, shape: Shape, parameters: Floats) -> Parts:
    """Return what steps take, for each set of parameters."""

    def value(place: int) -> Floats:
        return np.asarray(np.exp(parameters[:, place])[:, None], dtype=np.float64)

    straight = value(FIXED) + value(PER_SAMPLE) * shape.batch
    local = np.ceil(shape.workers / shape.hosts)
    shared = 1 + value(SHARING) * (_bus(local) if law == "bus" else _ring(local))
    compute = straight * np.exp(parameters[:, BATCHES:] @ shape.knots.T) * shared
    gradients = _gradients(law, shape, value)
    sharpness = np.minimum(1 + value(SHARPNESS), _SHARPEST)
    hideable = _HIDING * compute
    longer, shorter = np.maximum(hideable, gradients), np.minimum(hideable, gradients)
    joined = longer * (1 + (shorter / longer) ** sharpness) ** (1 / sharpness)
    jitter = value(JITTER) * compute * slowest(shape.workers)
    return Parts(
        total=(1 - _HIDING) * compute + joined + jitter, compute=compute, gradients=gradients
    )


def _gradients(law: Law, shape: Shape, value: Callable[[int], Floats]) -> Floats:
    workers, hosts = shape.workers, shape.hosts
    many = np.where(hosts > 2, value(MANY_HOSTS), 1.0)
    inside, between = value(INSIDE), value(BETWEEN) * many
    inside_growth, between_growth = value(INSIDE_GROWTH), value(BETWEEN_GROWTH)
    # Messages between hosts, one after the other: around a ring or a tree.
    messages = 2 * np.log2(hosts) if law == "slow ring" else 2 * (hosts - 1)
    # A stated latency is as uncertain as growth is: nobody counted the messages.
    waited = shape.latency_s * messages * between_growth / GROWTH
    if law in ("hierarchical", "crowded", "bus"):
        local = np.ceil(workers / hosts)
        # Crowded: what grows is not hops but congestion, with all who send at once.
        growth = 2 * np.sqrt(workers - 1) * (hosts > 1) if law == "crowded" else hosts - 1
        passed = _bus(local) if law == "bus" else _ring(local) + inside_growth * (local - 1)
        return np.asarray(
            inside * passed + between * (_ring(hosts) + between_growth * growth) + waited
        )
    growth = _GENTLY * (workers - 1) if law == "ring" else 3 * np.log2(workers)
    return np.asarray(
        np.where(
            hosts > 1,
            between * (_ring(workers) + between_growth * growth) + waited,
            inside * (_ring(workers) + inside_growth * growth),
        )
    )


def _ring(members: Floats) -> Floats:
    """Return how often each byte of the gradients passes a link of a ring."""
    return 2 * (members - 1) / members


def _bus(members: Floats) -> Floats:
    """Return what workers add up to on something that all of a host share: a bus, its memory."""
    return members - 1


def _assumptions(
    rows: Sequence[StepRow], link: LinkSpeed | None, gradient_bytes: float | None
) -> tuple[str, ...]:
    sentences = []
    if all(row.hosts == 1 for row in rows):
        if link is None:
            sentences.append(
                "No row spans hosts and no link was stated: hosts are taken to be connected some "
                "5 times slower than workers of one host."
            )
        else:
            sentences.append(
                f"No row spans hosts: {link.name} is taken to reach about half of its rate, and a "
                f"message over it to take {duration(link.latency_s)}."
            )
            if gradient_bytes is None:
                sentences.append(
                    "Nobody said how large the gradients are: that is guessed from what workers "
                    "of one host lose, at 10 GB/s, and they are taken to go all at once, so that "
                    "latency counts once per step."
                )
    elif link is not None:
        sentences.append(f"Rows span hosts: what was measured is used in place of {link.name}.")
    if max(row.workers for row in rows) == 1:
        sentences.append(
            "Only one worker was measured: what sharing costs is taken from experience."
        )
    if len({row.batch for row in rows}) == 1:
        sentences.append(
            f"Only batch {rows[0].batch} was measured: other batches are taken to cost in "
            "proportion, beside a fixed part."
        )
    return tuple(sentences)
