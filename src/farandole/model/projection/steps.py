"""A model's step time by workers, hosts and batch: forms that compete on the rows left out.

T = (1 - q) C + ((q C)^g + G^g)^(1/g) + J + S. C is computing: fixed + per sample x batch, longer
where workers share a host. G is the time of the gradients, by a ring, a hierarchy of rings or a
bus, of which q C can hide some (g = 1: none). J is what the slowest of N workers takes longer. S is
a cost of every worker that nothing hides: a serial part, or a bus that all share.

Each form is fitted to all rows by least squares of log times with priors, robust to odd rows and
without randomness. Parameters are logarithms; the prior keeps what few rows cannot tell near what
is usual, and the curvature at the solution says how well each is known. A form counts by the error
that it makes on configurations (workers and hosts) that are left out of its fit.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from statistics import fmean
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.special import ndtri

from farandole.errors import DataError
from farandole.format import plural, seconds
from farandole.model.projection.intervals import Prediction, calibrated
from farandole.model.projection.question import LinkSpeed
from farandole.model.statistics import NORMAL_90
from farandole.study.records import Floats

DDP_BUCKET_BYTES = 25 << 20
"""DDP's default size of a gradient bucket."""

Place = tuple[int, int, int]
"""Workers, hosts, batch per worker."""

FORMS: Mapping[str, float] = {
    "ring": 0.4,
    "slowly growing ring": 0.4,
    "hierarchical ring": 0.4,
    "crowded hierarchical ring": 0.5,
    "shared bus": 1.6,
    "ring, nothing hidden": 0.7,
    "tree, nothing hidden": 0.4,
    "cost per worker": 1.0,
    "growing cost per worker": 0.3,
    "straight line": 1.0,
}
"""What each counts where all err alike: the one with most freedom less. The straight line of
throughput competes where few settings were measured; many tell what it leaves out."""
_SHARED = ("shared bus", "cost per worker", "growing cost per worker")
# On public servers what few workers cost each other grows like a ring's cost where it is small, and
# with each worker where it is large. These forms count as many times less as it is less than usual,
# within limits; and where two counts of one host, four times apart, do not tell forms from each
# other, as many times more as it is more.
_USUAL_COST, _LEAST_COST, _MOST_COST = 0.12, 0.1, 5.0

# Places in a vector of parameters; deviations of single batches follow.
FIXED, PER_SAMPLE, JITTER = 0, 1, 2
INSIDE, INSIDE_GROWTH, BETWEEN, BETWEEN_GROWTH = 3, 4, 5, 6
MANY_HOSTS, SHARPNESS, SHARING = 7, 8, 9
PER_WORKER, PER_PAIR = 10, 11
BATCHES = 12

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
# Of a typical step: gradients inside of a host, and what a worker or a pair of workers adds.
_INSIDE = (math.log(0.03), 2.0)
_PER_WORKER = (math.log(0.005), 2.5)
_PER_PAIR = (math.log(0.0003), 2.5)
_GROWTH = (math.log(GROWTH), 0.5)
# Between hosts, of inside of one.
_SLOWER = (math.log(5.0), 1.5)
# Three hosts or more, of two: libraries choose other ways for two.
_MANY_HOSTS = (-0.15, 0.3)
_SHARPNESS = (math.log(2.0), 0.7)
# What two workers of a host compute slower than one alone: they share its memory and loaders.
_SHARING = (math.log(0.02), 1.5)
# What a straight line says that very many workers compute slower than one, of the same: two of them
# lose about half of that.
_LINE = 4.0
# How far computing strays from a straight line in the batch.
_BATCH = (0.0, 0.1)
_VAGUE = 3.0
# A link's rate is what is sold. NCCL and Gloo reach some half of it; where one connection may not
# have all of it, as in clouds, far less.
_REACHED = (math.log(0.55), 0.7)
# What GPUs of one host reach over PCIe; nothing better is known where bytes were not stated.
_INSIDE_BYTES_PER_S = (math.log(10e9), 0.9)

# Rows scatter less on one host, whose workers share no network with others.
_LEAST_SIGMA, _LEAST_ON_ONE_HOST = 0.04, 0.02
# How alike rows of one configuration are: they share their congestion, whatever the batch.
_ALIKE = 0.7
_WORST = 1.0
_SHARP_STARTS = (-1.0, 1.5)
# What no form has, of what is not computing: for each doubling beyond the measured workers, and
# beyond the measured workers of one host. Across hosts few settings tell little of the network.
_DRIFT, _LOCAL_DRIFT, _DRIFT_BETWEEN = 0.07, 0.25, 0.2
_FEW_SETTINGS = 20
_DRAWS = 100
# The scale on which errors make weights: a fit that errs by so much more counts 1/e as much.
_TEMPERATURE = 0.03
# Differences between gains (log throughput by log workers) that are no noise.
_NOTABLE = 0.03

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


class Assumption(NamedTuple):
    """What was not measured and had to be taken for granted, in a sentence."""

    text: str
    of_link: bool = False
    """Whether it matters only where a link between hosts is crossed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """Rows to fit, and what is believed before: `lines @ parameters` is near `mean`."""

    log_times: LogTimes
    observed: Floats
    """Log seconds."""
    weights: Floats
    """What each row counts; 1 for a row that is independent of all others."""
    lines: Floats
    mean: Floats
    sd: Floats
    sigma: float
    """How much one row scatters, as a logarithm."""

    def objectives(self, parameters: Floats) -> Floats:
        """Return what is minimised, for each set of parameters."""
        residuals = (self.observed - self.log_times(parameters)) / self.sigma
        # Pseudo-Huber: a square for small residuals, a straight line for large ones.
        losses = 2 * _ODD**2 * (np.sqrt(1 + (residuals / _ODD) ** 2) - 1)
        beliefs = (parameters @ self.lines.T - self.mean) / self.sd
        return np.asarray((losses @ self.weights + (beliefs**2).sum(axis=1)) / 2)

    def importance(self, residuals: Floats) -> Floats:
        """Return what each row pulls with, odd ones less."""
        return self.weights / np.sqrt(1 + (residuals / (_ODD * self.sigma)) ** 2) / self.sigma**2

    def curvature(self, residuals: Floats, slopes: Floats) -> Floats:
        """Return the second derivative of what is minimised, but for that of the log times."""
        lines = self.lines / self.sd[:, None]
        return (slopes * self.importance(residuals)[:, None]).T @ slopes + lines.T @ lines


@dataclass(frozen=True, slots=True, kw_only=True)
class Solution:
    """Where a fit ended, and how well that is known."""

    problem: Problem
    parameters: Floats
    curvature: Floats
    residuals: Floats
    """Observed minus fitted, of logarithms."""
    slopes: Floats
    """Of the fitted log times, rows by parameters."""
    objective: float

    def draw(self, count: int) -> tuple[Floats, Floats]:
        """Draw parameters around the solution, and say how much each draw counts, of 1.

        Draws come from the curvature, the same at every call. Its Cholesky factor changes as little
        as the rows do, so that no rounding shows. Where the rows bear a draw out less than the
        curvature has it, it counts less: gradients that hide behind computing change nothing in a
        small step, and much in a large one.
        """
        normal = np.random.default_rng(0).standard_normal((count // 2, len(self.parameters)))
        normal = np.vstack([normal, -normal])
        factor = np.linalg.cholesky(self.curvature)
        drawn = self.parameters + np.linalg.solve(factor.T, normal.T).T
        expected = (normal**2).sum(axis=1) / 2
        excess = self.problem.objectives(drawn) - self.objective - expected
        shares = np.exp(-np.clip(excess, 0.0, _UNBELIEVABLE))
        return drawn, shares / shares.sum()

    def left_out(self, labels: npt.NDArray[np.int64]) -> Floats:
        """Return residuals as if the rows of each label had not been fitted, to first order."""
        importance = self.problem.importance(self.residuals)
        found = np.empty_like(self.residuals)
        for label in np.unique(labels):
            rows = labels == label
            slopes, residuals = self.slopes[rows], self.residuals[rows]
            pulls = slopes * importance[rows, None]
            # What the other rows and the prior leave of the curvature, and how far they would move.
            moved = np.linalg.solve(self.curvature - pulls.T @ slopes, pulls.T @ residuals)
            found[rows] = residuals + slopes @ moved
        return found


def solve(problem: Problem, starts: Sequence[Floats]) -> Solution:
    """Minimise from each start and return the best end."""
    ends = [_descend(problem, np.asarray(start, dtype=np.float64)) for start in starts]
    parameters, objective = min(ends, key=lambda end: end[1])
    fitted, slopes = _slopes(problem.log_times, parameters)
    residuals = problem.observed - fitted
    return Solution(
        problem=problem,
        parameters=parameters,
        curvature=problem.curvature(residuals, slopes),
        residuals=residuals,
        slopes=slopes,
        objective=objective,
    )


def _slopes(log_times: LogTimes, parameters: Floats) -> tuple[Floats, Floats]:
    """Return log times and their slopes by parameter, rows by parameters."""
    moved = np.vstack([parameters, parameters + _STEP * np.eye(len(parameters))])
    values = log_times(moved)
    return values[0], (values[1:] - values[0]).T / _STEP


def _descend(problem: Problem, parameters: Floats) -> tuple[Floats, float]:
    """Take Levenberg and Marquardt's steps until they gain nothing."""
    value = float(problem.objectives(parameters[None])[0])
    damping = 1e-2
    for _ in range(_ITERATIONS):
        fitted, slopes = _slopes(problem.log_times, parameters)
        residuals = problem.observed - fitted
        curvature = problem.curvature(residuals, slopes)
        downhill = slopes.T @ (problem.importance(residuals) * residuals) + problem.lines.T @ (
            (problem.mean - problem.lines @ parameters) / problem.sd**2
        )
        while True:
            damped = curvature + damping * np.diag(np.diag(curvature))
            step = np.clip(np.linalg.solve(damped, downhill), -_LONGEST_STEP, _LONGEST_STEP)
            fresh = float(problem.objectives((parameters + step)[None])[0])
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


class Places(NamedTuple):
    """Settings to give step times for, one value per row."""

    workers: Floats
    hosts: Floats
    batch: Floats
    local: Floats
    """Workers that share a host."""

    @classmethod
    def of(cls, places: Iterable[Place]) -> Places:
        """Spread workers evenly on their hosts."""
        workers, hosts, batch = np.array(list(places), dtype=np.float64).T
        return cls(workers, hosts, batch, np.ceil(workers / hosts))


class Parts(NamedTuple):
    """What a step consists of, in seconds: sets of parameters by rows."""

    total: Floats
    compute: Floats
    """As one worker alone computes; the first set will do."""
    shown: Floats
    """All of it with nothing hidden; the first set will do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """A way to reckon step times, and what is believed of its parameters."""

    name: str
    prior: float
    """What it counts where all forms err alike."""
    beliefs: Sequence[tuple[Mapping[int, float], tuple[float, float]]]
    """Of weighted sums of parameters: mean and standard deviation."""
    starts: Sequence[Mapping[int, float]]
    """Where fits begin, by parameter; the others at what is believed."""
    parts: Callable[[Places, Floats], Parts]
    knows_host: bool = False
    """Whether what workers of one host cost each other was measured apart from their network."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClosedForm:
    """A form that is written in one line, and what is known beside rows and parameters."""

    name: str
    knots: Floats
    """Logs of batches at which computing may deviate from a straight line."""
    crosses_hosts: bool
    """Whether rows tell of a network."""
    contention: Callable[[int], float] | None = None
    """How many times as long so many workers of a host compute, where measured apart."""
    latency_s: float = 0.0
    """Of a message over a stated link, for all buckets together; 0 where none was needed."""

    def parts(self, places: Places, parameters: Floats) -> Parts:
        """Return what steps take, for each set of parameters."""

        def value(place: int) -> Floats:
            return np.asarray(np.exp(parameters[:, place])[:, None], dtype=np.float64)

        alone = value(FIXED) + value(PER_SAMPLE) * places.batch
        if len(self.knots):
            # Beyond the knots, the nearest one's deviation holds.
            numbers = np.arange(len(self.knots), dtype=np.float64)
            position = np.interp(np.log(places.batch), self.knots, numbers)
            shares = np.maximum(0.0, 1 - np.abs(position - numbers[:, None]))
            alone = alone * np.exp(parameters[:, BATCHES:] @ shares)
        workers, shared, serial = places.workers, alone, self.name in _COSTS
        if self.contention is not None:
            shared = alone * np.array([self.contention(int(count)) for count in places.local])
        elif not serial:
            local = np.ceil(workers / places.hosts)
            crowd = local - 1 if self.name == "shared bus" else _ring(local)
            shared = alone * (1 + value(SHARING) * crowd)
        late = value(JITTER) * alone * slowest(workers)
        if self.name == "straight line":
            # Each worker adds the same to the throughput.
            lost = _LINE * value(SHARING)
            late = alone * ((1 + lost) / (1 + lost / workers) - 1)
        elif serial:
            late = late + value(PER_WORKER) * _COSTS[self.name](workers)
            if self.name == "growing cost per worker":
                late = late + value(PER_PAIR) * workers * (workers - 1)
        gradients = self._gradients(places, value)
        sharpness = np.minimum(1 + value(SHARPNESS), _SHARPEST)
        hideable = _HIDING * shared
        longer, shorter = np.maximum(hideable, gradients), np.minimum(hideable, gradients)
        joined = longer * (1 + (shorter / longer) ** sharpness) ** (1 / sharpness)
        total = (1 - _HIDING) * shared + joined + late
        return Parts(total, alone, shared + gradients + late)

    def _gradients(self, places: Places, value: Callable[[int], Floats]) -> Floats:
        name, workers, hosts = self.name, places.workers, places.hosts
        many = np.where(hosts > 2, value(MANY_HOSTS), 1.0)
        inside, between = value(INSIDE), value(BETWEEN) * many
        inside_growth, between_growth = value(INSIDE_GROWTH), value(BETWEEN_GROWTH)
        # Messages between hosts, one after the other: around a ring or a tree.
        messages = 2 * np.log2(hosts) if name == "slowly growing ring" else 2 * (hosts - 1)
        # A stated latency is as uncertain as growth is: nobody counted the messages.
        waited = self.latency_s * messages * between_growth / GROWTH
        if name in _COSTS:
            # Rows across hosts have their network's cost among that of workers.
            return np.asarray((between * _ring(hosts) + waited) * (not self.crosses_hosts))
        if name.endswith("hierarchical ring") or name == "shared bus":
            local = np.ceil(workers / hosts)
            # Crowded: what grows is not hops but congestion, with all who send at once.
            crowded = name.startswith("crowded")
            growth = 2 * np.sqrt(workers - 1) * (hosts > 1) if crowded else hosts - 1
            passed = local - 1 if name == "shared bus" else _ring(local)
            passed = passed + inside_growth * (local - 1) * (name != "shared bus")
            return np.asarray(
                inside * passed + between * (_ring(hosts) + between_growth * growth) + waited
            )
        growth = _GENTLY * (workers - 1) if name == "ring" else 3 * np.log2(workers)
        return np.asarray(
            np.where(
                hosts > 1,
                between * (_ring(workers) + between_growth * growth) + waited,
                inside * (_ring(workers) + inside_growth * growth),
            )
        )


_COSTS: Mapping[str, Callable[[Floats], Floats]] = {
    "ring, nothing hidden": lambda workers: 6 * (workers - 1) / workers,
    "tree, nothing hidden": lambda workers: 3 * np.log2(workers),
    "cost per worker": lambda workers: workers - 1,
    "growing cost per worker": lambda workers: workers - 1,
    "straight line": lambda workers: 0 * workers,
}


def _ring(members: Floats) -> Floats:
    """Return how often each byte of the gradients passes a link of a ring."""
    return 2 * (members - 1) / members


def slowest(workers: Floats) -> Floats:
    """Return how many standard deviations the slowest of N lies above the mean (Blom)."""
    return np.asarray(ndtri((workers - 0.375) / (workers + 0.25)) * (workers > 1), dtype=np.float64)


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """One fitted form."""

    form: Form
    solution: Solution
    draws: Floats
    """The solution, and parameters as likely as the rows leave them: 1 + draws by parameters."""
    shares: Floats
    """How much each draw counts, of 1."""
    error: float
    """Root mean square of log errors on configurations that were left out."""
    weight: float = 0.0


class Spread(NamedTuple):
    """What is known of the step time at a place."""

    log_s: float
    fast_sd: float
    slow_sd: float
    """Of log seconds, to either side: of parameters and forms, of rows, of what no form has."""
    fastest_log_s: float
    """Where what workers of a host cost each other ends with the host; else the same as `log_s`."""
    at_best_log_s: float
    """What no interval is below: what a measured loss leaves."""
    bounds: tuple[float, float]
    """All hidden, and nothing: in log seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepFit:
    """A model's step time as a function of workers, hosts and batch: forms fitted to its rows."""

    members: tuple[Member, ...]
    rows: tuple[StepRow, ...]
    contention_known: bool
    """Whether what workers of a host cost each other in computing was measured apart."""
    assumptions: tuple[Assumption, ...]

    @property
    def forms(self) -> tuple[tuple[str, float], ...]:
        """Names and weights, the heaviest first."""
        ranked = sorted(self.members, key=lambda member: -member.weight)
        return tuple((member.form.name, member.weight) for member in ranked)

    @property
    def crosses_hosts(self) -> bool:
        """Whether rows tell of a network."""
        return any(row.hosts > 1 for row in self.rows)

    @property
    def measured_workers(self) -> int:
        """The most that rows were fitted to."""
        return max(row.workers for row in self.rows)

    @property
    def few(self) -> bool:
        """Whether so few settings were measured that intervals are calibrated apart.

        Launches that repeat one share what is odd about it.
        """
        return few_settings(self.rows)

    def at(self, workers: int, hosts: int, batch: int, /) -> Prediction:
        """Return the seconds of a step."""
        return self.at_each([(workers, hosts, batch)])[0]

    def at_each(self, places: Sequence[Place]) -> list[Prediction]:
        """Return the seconds of a step at several places."""
        return [
            calibrated(
                one.log_s,
                (one.fast_sd, one.slow_sd),
                place[0] / self.measured_workers,
                few=self.few,
                fastest=one.fastest_log_s,
                bounds=one.bounds,
            ).at_least(math.exp(one.at_best_log_s))
            for place, one in zip(places, self.spread(places), strict=True)
        ]

    def spread(self, settings: Sequence[Place]) -> list[Spread]:
        """Return the ensemble's mean and standard deviation at each of several places."""
        places = Places.of(settings)
        workers, hosts, _, local = places
        found = [one.form.parts(places, one.draws) for one in self.members]
        apart = [np.log(parts.total) for parts in found]
        logs = list(apart)
        if (hosts > 1).any() and not self.crosses_hosts:
            # No row tells whether what workers cost each other ends with their host: it stays, so
            # that no link makes them faster than they would be in one host.
            together = places._replace(hosts=np.ones_like(hosts))
            for place, one in enumerate(self.members):
                if not one.form.knows_host:
                    inside = one.form.parts(together, one.draws).total
                    logs[place] = np.maximum(logs[place], np.log(inside))
        weights = np.array([member.weight for member in self.members])
        compute = weights @ np.log([parts.compute[0] for parts in found])
        shown = np.log(weights @ np.array([parts.shown[0] for parts in found]))
        shares = np.concatenate([member.weight * member.shares for member in self.members])
        low, high = _weighted_quantiles(np.concatenate([one[1:] for one in logs]), shares)
        lowest, _ = _weighted_quantiles(np.concatenate([one[1:] for one in apart]), shares)
        least, at_best = self._least_log_s(places)
        mean = np.maximum(weights @ np.array([one[0] for one in logs]), least)
        fastest = weights @ np.array([one[0] for one in apart])
        fastest = np.where(mean > fastest, np.where(hosts > 1, fastest, mean), mean)
        sigma = float(weights @ [member.solution.problem.sigma for member in self.members])
        exposed = np.maximum(0.0, 1 - np.exp(compute - mean))
        farther = np.log2(np.maximum(1.0, workers / self.measured_workers))
        most_local = max(math.ceil(row.workers / row.hosts) for row in self.rows)
        fuller = np.log2(np.maximum(1.0, local / most_local))
        drift = _DRIFT_BETWEEN if self.few and self.crosses_hosts else _DRIFT
        rest = max(sigma, _LEAST_SIGMA) ** 2 + exposed**2 * (
            (drift * farther) ** 2 + (_LOCAL_DRIFT * fuller) ** 2
        )
        columns = (
            mean,
            np.hypot(np.maximum(0.0, (fastest - lowest) / NORMAL_90), np.sqrt(rest)),
            np.hypot(np.maximum(0.0, (high - mean) / NORMAL_90), np.sqrt(rest)),
            fastest,
            at_best,
        )
        bounds = np.array([np.minimum(compute, low), np.maximum(shown, high)]).T.tolist()
        rows = np.array(columns).T.tolist()
        return [Spread._make((*row, tuple(ends))) for row, ends in zip(rows, bounds, strict=True)]

    def _least_log_s(self, places: Places) -> tuple[Floats, Floats]:
        """Return what a step takes if more workers bring as much as the last ones did, and at best.

        More than that is promised only where gains rose from count to count, as they do where the
        second worker already pays for most of a ring, or where a replay of measured all-reduces
        says so. Where the last workers made all slower, more will not be faster.
        """
        workers, hosts, batch, _ = places
        none = np.full(len(workers), -np.inf)
        curve = {row.workers: row for row in self.rows}
        settings = {(row.workers, row.hosts, row.batch) for row in self.rows}
        if len(curve) < 2 or len(settings) > len(curve):
            return none, none
        *_, before, last = sorted(curve)
        # Log throughput of all workers together.
        speed = {
            n: math.log(n * curve[n].batch)
            - fmean(math.log(row.step_s) for row in self.rows if row.workers == n)
            for n in curve
        }
        gains = [(speed[b] - speed[a]) / math.log(b / a) for a, b in pairwise(sorted(curve))]
        local = last / curve[last].hosts
        if curve[last].hosts == 1:
            # What workers cost each other stays on several hosts, unless it was measured apart.
            alike = (hosts == 1) | (not self.contention_known)
        else:
            # The first network is a price that the next host does not pay again.
            same = curve[before].hosts > 1 and before / curve[before].hosts == local
            alike = same & (workers / hosts == local)
        usual = (batch == curve[last].batch) | (batch * workers == last * curve[last].batch)
        alike = alike & usual & (workers > last)
        samples = np.log(workers * batch)
        promised = samples - (speed[last] + gains[-1] * np.log(workers / last))
        rising = len(gains) > 1 and gains[-1] > gains[-2] + _NOTABLE
        replayed = sum(member.weight for member in self.members if member.form.knows_host) > 0.5
        lost = alike & (hosts == curve[last].hosts) & (gains[-1] < -_NOTABLE)
        return (
            none if rising or replayed else np.where(alike, promised, -np.inf),
            np.where(lost, samples - speed[last], -np.inf),
        )


def fit_steps(
    rows: Sequence[StepRow],
    *,
    link: LinkSpeed | None = None,
    gradient_bytes: float | None = None,
    contention: Callable[[int], float] | None = None,
    replays: Sequence[Form] = (),
    assumptions: Iterable[Assumption] = (),
) -> StepFit:
    """Fit step times of one model.

    Args:
        rows: Measured steps, one per launch; of one host or several, of one batch or several.
        link: What connects hosts; used where no row spans hosts.
        gradient_bytes: What is averaged in each step, where known; used with `link`.
        contention: How many times as long computing takes with so many workers on a host, where
            that was measured without communication.
        replays: Forms that know more than rows; alone where one number of workers was measured.
        assumptions: Of the replays.

    Raises:
        DataError: There is no row, or one has a time or count that cannot be.
    """
    _check(rows)
    forms = list(replays)
    said = list(assumptions)
    if not replays or len({row.workers for row in rows}) > 1:
        forms = [*_closed_forms(rows, link, gradient_bytes, contention), *forms]
        said = [*_assumptions(rows, link, gradient_bytes, contention), *said]
    configurations = sorted({(row.workers, row.hosts) for row in rows})
    labels = np.array([configurations.index((row.workers, row.hosts)) for row in rows])
    # Rows that alone tell what a worker computes, or what a network costs: no form can do without.
    alone = labels == 0
    if sum(count > 1 for _, count in configurations) == 1:
        alone |= np.array([row.hosts > 1 for row in rows])
    members = [_fit_form(form, rows, labels, alone) for form in forms]
    errors = np.array([one.error for one in members])
    told = len(configurations) - len(set(labels[alone])) > 1
    if not told:
        # What a closed form misses at the one count that is left out tells of its prior, not of it.
        errors = np.where([form.knows_host for form in forms], errors, errors.mean())
    crowded = _crowding(rows, told=told)
    priors = [form.prior * (crowded if form.name in _SHARED else 1.0) for form in forms]
    weights = priors * np.exp((errors.min() - errors) / _TEMPERATURE)
    return StepFit(
        members=tuple(
            replace(member, weight=float(weight))
            for member, weight in zip(members, weights / weights.sum(), strict=True)
        ),
        rows=tuple(rows),
        contention_known=contention is not None,
        assumptions=tuple(said),
    )


def few_settings(rows: Iterable[StepRow]) -> bool:
    """Tell whether so few settings were measured that intervals are calibrated apart."""
    return len({(row.workers, row.hosts, row.batch) for row in rows}) < _FEW_SETTINGS


def _crowding(rows: Sequence[StepRow], *, told: bool) -> float:
    """Return how many times as much a bus or a cost per worker counts, by what workers cost."""
    counts = sorted({row.workers for row in rows})
    fewest, most = (
        fmean(math.log(row.step_s / row.batch) for row in rows if row.workers == count)
        for count in (counts[0], counts[-1])
    )
    one_host = all(row.hosts == 1 for row in rows)
    limit = _MOST_COST if one_host and not told and counts[-1] >= 4 * counts[0] else 1.0
    return min(max(math.expm1(most - fewest) / _USUAL_COST, _LEAST_COST), limit)


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


def _fit_form(
    form: Form,
    rows: Sequence[StepRow],
    labels: npt.NDArray[np.int64],
    alone: npt.NDArray[np.bool_],
) -> Member:
    places = Places.of((row.workers, row.hosts, row.batch) for row in rows)
    mean, sd = np.array([belief for _, belief in form.beliefs]).T
    lines = np.zeros((len(mean), 1 + max(place for line, _ in form.beliefs for place in line)))
    for number, (line, _) in enumerate(form.beliefs):
        for place, factor in line.items():
            lines[number, place] = factor
    least = _LEAST_SIGMA if any(row.hosts > 1 for row in rows) else _LEAST_ON_ONE_HOST
    problem = Problem(
        log_times=lambda parameters: np.log(form.parts(places, parameters).total),
        observed=np.log([row.step_s for row in rows]),
        weights=1 / (1 + (np.bincount(labels)[labels] - 1) * _ALIKE),
        sigma=2 * least,
        lines=lines,
        mean=mean,
        sd=sd,
    )
    guess = np.linalg.lstsq(lines, mean, rcond=None)[0]
    starts = [np.array(guess) for _ in form.starts]
    for start, changes in zip(starts, form.starts, strict=True):
        start[list(changes)] = list(changes.values())
    first = solve(problem, starts)
    # 1.4826 turns a median absolute deviation into a standard deviation.
    scatter = 1.4826 * float(np.median(np.abs(first.residuals)))
    solution = solve(replace(problem, sigma=max(least, scatter)), [first.parameters])
    residuals = np.where(alone, solution.residuals, solution.left_out(labels))
    squares = np.clip(residuals, -_WORST, _WORST) ** 2
    squares = np.bincount(labels, weights=squares) / np.bincount(labels)
    draws, shares = solution.draw(_DRAWS)
    return Member(
        form=form,
        solution=solution,
        draws=np.vstack([solution.parameters, draws]),
        shares=shares,
        error=math.sqrt(float(np.mean(squares))),
    )


def _weighted_quantiles(logs: Floats, shares: Floats) -> tuple[Floats, Floats]:
    """Return the 5 and 95 % quantiles of draws (draws by places), which count by their shares."""
    order = np.argsort(logs, axis=0)
    ranked = np.take_along_axis(logs, order, axis=0)
    reached = np.cumsum(shares[order], axis=0)
    low, high = (np.argmax(reached >= share, axis=0) for share in (0.05, 0.95))
    places = np.arange(logs.shape[1])
    return ranked[low, places], ranked[high, places]


def _closed_forms(
    rows: Sequence[StepRow],
    link: LinkSpeed | None,
    gradient_bytes: float | None,
    contention: Callable[[int], float] | None,
) -> list[Form]:
    """Return the forms of FORMS, with what holds for any model, on the scale of this one."""
    most = max(row.workers for row in rows)
    scale = math.log(np.median([row.step_s for row in rows if row.workers == most]))
    typical_batch = float(np.median([row.batch for row in rows]))
    knots, crosses_hosts = _choose_knots(rows), any(row.hosts > 1 for row in rows)
    between: tuple[dict[int, float], tuple[float, float]] = ({BETWEEN: 1, INSIDE: -1}, _SLOWER)
    latency_s = 0.0
    if link is not None and not crosses_hosts:
        # Averaged one after the other; one where nobody knows the bytes.
        num_buckets = max(1, math.ceil((gradient_bytes or 0) / DDP_BUCKET_BYTES))
        latency_s = link.latency_s * num_buckets
        reached = math.log(link.bytes_per_s) + _REACHED[0]
        if gradient_bytes is not None:
            between = ({BETWEEN: 1}, (math.log(gradient_bytes) - reached, _REACHED[1]))
        else:
            spread = math.hypot(_INSIDE_BYTES_PER_S[1], _REACHED[1])
            between = (between[0], (_INSIDE_BYTES_PER_S[0] - reached, spread))
    beliefs: list[tuple[Mapping[int, float], tuple[float, float]]] = [
        ({FIXED: 1}, (math.log(0.3) + scale, _VAGUE)),
        ({PER_SAMPLE: 1}, (math.log(0.7 / typical_batch) + scale, _VAGUE)),
        ({JITTER: 1}, _JITTER),
        ({INSIDE: 1}, (_INSIDE[0] + scale, _INSIDE[1])),
        ({INSIDE_GROWTH: 1}, _GROWTH),
        ({BETWEEN_GROWTH: 1}, _GROWTH),
        ({MANY_HOSTS: 1}, _MANY_HOSTS),
        ({SHARPNESS: 1}, _SHARPNESS),
        ({SHARING: 1}, _SHARING),
        ({PER_WORKER: 1}, (_PER_WORKER[0] + scale, _PER_WORKER[1])),
        ({PER_PAIR: 1}, (_PER_PAIR[0] + scale, _PER_PAIR[1])),
        *(({BATCHES + knot: 1}, _BATCH) for knot in range(len(knots))),
        between,
    ]
    forms = []
    few = few_settings(rows)
    for name, prior in FORMS.items():
        if name == "straight line" and not few:
            continue
        closed = ClosedForm(
            name=name,
            knots=knots,
            crosses_hosts=crosses_hosts,
            contention=contention,
            latency_s=latency_s,
        )
        starts = [{SHARPNESS: sharpness} for sharpness in _SHARP_STARTS]
        parts = closed.parts
        forms.append(Form(name=name, prior=prior, beliefs=beliefs, starts=starts, parts=parts))
    return forms


def _choose_knots(rows: Sequence[StepRow]) -> Floats:
    """Return the logarithms of batches at which computing may deviate from a straight line.

    Where each configuration has a batch of its own, as with a fixed global batch, there are none:
    what workers cost would be taken for the batch's.
    """
    settings = {(row.workers, row.hosts, row.batch) for row in rows}
    if len(settings) == len({setting[:2] for setting in settings}):
        return np.empty(0)
    logs = np.log(sorted({row.batch for row in rows}))
    if len(logs) <= _MOST_KNOTS:
        return np.asarray(logs)
    return np.quantile(logs, np.linspace(0, 1, _MOST_KNOTS))


def _assumptions(
    rows: Sequence[StepRow],
    link: LinkSpeed | None,
    gradient_bytes: float | None,
    contention: Callable[[int], float] | None,
) -> Iterator[Assumption]:
    fewest, most = (
        fmean(math.log(row.step_s / row.batch) for row in rows if row.workers == count)
        for count in (min(row.workers for row in rows), max(row.workers for row in rows))
    )
    of_links = []
    if any(row.hosts > 1 for row in rows):
        if link is not None:
            of_links.append(
                f"Rows span hosts, so their measured network is used in place of {link.name}."
            )
    elif link is None:
        of_links.append(
            "No row spans hosts and no link was given: the network between hosts is assumed to "
            "be about 5 times slower than within one."
        )
    else:
        of_links.append(
            f"No row spans hosts: {link.name} is assumed to reach about half its rate, with "
            f"{seconds(link.latency_s)} per message."
        )
        if contention is None and most > fewest + _NOTABLE:
            of_links.append(
                "The slowdown measured within one host is assumed to remain across hosts; the "
                "lower end of the interval is without it. Measure the same workers on two hosts, "
                "or run a study with calibration, to find out."
            )
        if gradient_bytes is None:
            of_links.append(
                "The size of the gradients is unknown: it is estimated from the slowdown within "
                "one host at 10 GB/s, and they are assumed to be sent at once, so latency counts "
                "once per step."
            )
    yield from (Assumption(said, of_link=True) for said in of_links)
    if len({row.batch for row in rows}) == 1:
        yield Assumption(
            f"Only batch {rows[0].batch} was measured: step time is assumed to be a fixed part "
            "plus one proportional to the batch."
        )
