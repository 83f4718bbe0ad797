"""A model's step time by workers, hosts and batch: several forms, weighted by how well they do.

Each form is fitted to all rows. Its weight comes from the error that it makes on configurations
(workers and hosts) that are left out of the fit, so that a form which merely bends well has none.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from farandole.errors import DataError
from farandole.model.projection import words
from farandole.model.projection.intervals import FARTHEST, floor_sides
from farandole.model.projection.records import LinkSpeed, Projected, StepRow
from farandole.model.projection.replay.whatif import DDP_LAYOUT
from farandole.model.projection.steps import forms
from farandole.model.projection.steps.forms import Form
from farandole.model.projection.steps.least_squares import (
    Prior,
    Problem,
    Solution,
    draw,
    left_out,
    solve,
)
from farandole.model.projection.steps.priors import make_prior
from farandole.model.projection.steps.weights import weigh
from farandole.model.projection.track_record import track_record
from farandole.model.statistics import NORMAL_90
from farandole.study.records import Floats

Place = tuple[int, int, int]
"""Workers, hosts, batch per worker."""

# Gradients hide behind backward, two thirds of computing, and behind what runs beside it.
_HIDING = 0.8
FORMS = (
    Form(name="ring", law="ring", hidden=_HIDING),
    Form(name="slowly growing ring", law="slow ring", hidden=_HIDING),
    Form(name="hierarchical ring", law="hierarchical", hidden=_HIDING),
    Form(name="crowded hierarchical ring", law="crowded", hidden=_HIDING),
    Form(name="shared bus", law="bus", hidden=_HIDING),
)
_FIRST_SIGMA, _LEAST_SIGMA = 0.08, 0.04
# How alike rows of one configuration are: they share their congestion, whatever the batch.
_ALIKE = 0.7
_WORST = 1.0
_SHARP_STARTS = (-1.0, 1.5)
# What no form has, of what is not computing: for each doubling beyond the measured size.
_DRIFT = 0.07
# The track record's factors come from fits to 30 settings (workers, hosts, batch) and more, of one
# cluster: fewer than about as many may not be surer than the floors (docs/backtest.md).
_FEW_SETTINGS = 20
_DRAWS = 100
# Places at a time: draws of all of them are in memory at once.
_AT_ONCE = 2000


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """One fitted form."""

    form: Form
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
    """What is known of step times, one value per place asked for."""

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
        """Return names and weights, the heaviest first."""
        ranked = sorted(self.members, key=lambda member: -member.weight)
        return tuple((member.form.name, member.weight) for member in ranked)

    def at(self, workers: int, hosts: int, batch: int) -> Projected:
        """Return the seconds of a step."""
        return self.at_each([(workers, hosts, batch)])[0]

    def at_each(self, places: Sequence[Place]) -> list[Projected]:
        """Return the seconds of a step at several places."""
        found = []
        for first in range(0, len(places), _AT_ONCE):
            some = places[first : first + _AT_ONCE]
            spread = self.spread(some)
            found += [self._projected(place, spread, index) for index, place in enumerate(some)]
        return found

    def spread(self, places: Sequence[Place]) -> Spread:
        """Return the ensemble's mean and standard deviation at several places."""
        columns = np.array(places, dtype=np.float64).T
        shape = forms.make_shape(
            columns[0], columns[1], columns[2], self.knots, latency_s=self.latency_s
        )
        weights = np.array([member.weight for member in self.members])[:, None]
        found = [
            forms.parts(member.form, shape, np.vstack([member.solution.parameters, member.draws]))
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

    def _projected(self, place: Place, spread: Spread, index: int) -> Projected:
        ratio = place[0] / self.measured_workers
        reach = track_record().at(ratio)
        value = math.exp(float(spread.log_s[index]))
        fast = reach.fast * float(spread.fast_sd[index])
        slow = reach.slow * float(spread.slow_sd[index])
        if ratio > 1 and self.settings < _FEW_SETTINGS:
            least_fast, least_slow = floor_sides(ratio)
            fast, slow = max(fast, least_fast), max(slow, least_slow)
        low, high = value * math.exp(-fast), value * math.exp(slow)
        if ratio > FARTHEST:
            compute, gradients = float(spread.compute_s[index]), float(spread.gradients_s[index])
            # All of it hidden, and none of it.
            low, high = min(low, compute), max(high, compute + gradients)
        return Projected(value=value, low=low, high=high, ratio=ratio, indicative=ratio > FARTHEST)


def fit_steps(
    rows: Sequence[StepRow],
    *,
    link: LinkSpeed | None = None,
    gradient_bytes: float | None = None,
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
    return EnsembleFit(
        members=_weighted([_fit_form(form, table, prior) for form in FORMS]),
        knots=table.knots,
        measured_workers=int(table.workers.max()),
        # Launches that repeat a setting share what is odd about it.
        settings=len({(row.workers, row.hosts, row.batch) for row in rows}),
        assumptions=_assumptions(rows, link, gradient_bytes),
        # Rows of one host have no message between hosts: what they were fitted with holds.
        latency_s=0.0 if needed is None else needed.latency_s * _buckets(gradient_bytes),
    )


def _buckets(gradient_bytes: float | None) -> int:
    """Count what is averaged one after the other; one where nobody knows the bytes."""
    return max(1, math.ceil((gradient_bytes or 0) / DDP_LAYOUT.bucket_bytes))


class _Table:
    """Rows as columns."""

    def __init__(self, rows: Sequence[StepRow]) -> None:
        self.workers = np.array([row.workers for row in rows], dtype=np.float64)
        self.hosts = np.array([row.hosts for row in rows], dtype=np.float64)
        self.batch = np.array([row.batch for row in rows], dtype=np.float64)
        self.seconds = np.array([row.step_s for row in rows], dtype=np.float64)
        self.knots = forms.choose_knots(self.batch)
        self.shape = forms.make_shape(self.workers, self.hosts, self.batch, self.knots)
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
                f"A step of {row.workers} workers takes {row.step_s:g} s, but must take more than "
                "0. Correct or remove that row."
            )
        if row.workers < 1 or row.batch < 1 or not 1 <= row.hosts <= row.workers:
            raise DataError(
                f"A row has {row.workers} workers on {row.hosts} hosts with a batch of "
                f"{row.batch}. Correct or remove it."
            )


def _fit_form(form: Form, table: _Table, prior: Prior) -> Member:
    problem = Problem(
        log_times=forms.log_times(form, table.shape),
        observed=np.log(table.seconds),
        weights=table.weights,
        prior=prior,
        sigma=_FIRST_SIGMA,
    )
    guess = np.linalg.lstsq(prior.lines, prior.mean, rcond=None)[0]
    starts = [np.array(guess, dtype=np.float64) for _ in _SHARP_STARTS]
    for start, sharpness in zip(starts, _SHARP_STARTS, strict=True):
        start[forms.SHARPNESS] = sharpness
    first = solve(problem, starts)
    # 1.4826 turns a median absolute deviation into a standard deviation.
    scatter = 1.4826 * float(np.median(np.abs(first.residuals)))
    solution = solve(replace(problem, sigma=max(_LEAST_SIGMA, scatter)), [first.parameters])
    missed = np.clip(left_out(solution, table.labels), -_WORST, _WORST)
    sums = np.bincount(table.labels, weights=missed**2)
    error = math.sqrt(float(np.mean(sums / np.bincount(table.labels))))
    draws, shares = draw(solution, _DRAWS)
    return Member(
        form=form, solution=solution, draws=draws, shares=shares / shares.sum(), error=error
    )


def _weighted_quantiles(logs: Floats, shares: Floats) -> tuple[Floats, Floats]:
    """Return the 5 and 95 % quantiles of draws (draws by places), which count by their shares."""
    order = np.argsort(logs, axis=0)
    ranked = np.take_along_axis(logs, order, axis=0)
    reached = np.cumsum(shares[order], axis=0)
    low, high = (np.argmax(reached >= share, axis=0) for share in (0.05, 0.95))
    places = np.arange(logs.shape[1])
    return ranked[low, places], ranked[high, places]


def _weighted(members: Sequence[Member]) -> tuple[Member, ...]:
    weights = weigh([member.error for member in members])
    return tuple(
        replace(member, weight=weight) for member, weight in zip(members, weights, strict=True)
    )


def _assumptions(
    rows: Sequence[StepRow], link: LinkSpeed | None, gradient_bytes: float | None
) -> tuple[str, ...]:
    told = []
    if all(row.hosts == 1 for row in rows):
        if link is None:
            told.append(
                "No row spans hosts and no link was stated: hosts are taken to be connected some "
                "5 times slower than workers of one host."
            )
        else:
            told.append(
                f"No row spans hosts: {link.name} is taken to reach about half of its rate, and a "
                f"message over it to take {words.time(link.latency_s)}."
            )
            if gradient_bytes is None:
                told.append(
                    "Nobody said how large the gradients are: that is guessed from what workers "
                    "of one host lose, at 10 GB/s, and they are taken to go all at once, so that "
                    "latency counts once per step."
                )
    elif link is not None:
        told.append(f"Rows span hosts: what was measured is used in place of {link.name}.")
    if max(row.workers for row in rows) == 1:
        told.append("Only one worker was measured: what sharing costs is taken from experience.")
    if len({row.batch for row in rows}) == 1:
        told.append(
            f"Only batch {rows[0].batch} was measured: other batches are taken to cost in "
            "proportion, beside a fixed part."
        )
    return tuple(told)
