"""Runs to a target as points: what each global batch needed, and how well that is known."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean

from farandole.errors import DataError
from farandole.model.projection.records import EpochRow

# Median over public workloads of the spread between runs of one batch, and how many
# repetitions one's own must have to weigh as much.
_USUAL_SPREAD = 0.05
_USUAL_WEIGHT = 2.0
_ROUNDS = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One global batch of which runs reached the target."""

    global_batch: int
    log_epochs: float
    """Of the mean over runs."""
    variance: float
    """Of that log: by the spread between runs, and by how coarsely epochs were counted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """One global batch of which no run reached the target: it needs more than this."""

    global_batch: int
    log_epochs: float
    spread: float
    """Of a single run, relative."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Points:
    """All batches of a workload, ascending."""

    reached: tuple[Point, ...]
    bounds: tuple[Bound, ...]
    repeated: bool
    """Whether the spread between runs was seen."""
    cut_short: int
    """Runs that ended before the target."""


def points_of(rows: Sequence[EpochRow]) -> Points:
    """Gather runs by batch.

    Raises:
        DataError: a row is not positive, or no run reached the target.
    """
    for row in rows:
        if row.global_batch < 1 or not (math.isfinite(row.epochs) and row.epochs > 0):
            raise DataError(
                f"A run at global batch {row.global_batch} has {row.epochs:g} epochs to the "
                "target. Both must be above 0: correct or leave out this row."
            )
    by_batch: dict[int, list[EpochRow]] = {}
    for row in sorted(rows, key=lambda row: row.global_batch):
        by_batch.setdefault(row.global_batch, []).append(row)
    whole = [
        [row.epochs for row in group]
        for group in by_batch.values()
        if all(row.reached for row in group)
    ]
    reached_at_all = [group for group in by_batch.values() if any(row.reached for row in group)]
    if not reached_at_all:
        raise DataError(
            f"None of {len(rows)} runs reached the target, so that nothing tells how many epochs "
            "it takes. Train longer, or choose a target that the runs reach."
        )
    spread = _spread(whole)
    grain = grain_of([row.epochs for row in rows if row.reached])
    points, bounds = [], []
    for batch, group in by_batch.items():
        ends = [row.epochs for row in group if row.reached]
        if not ends:
            latest = max(row.epochs for row in group)
            bounds.append(Bound(global_batch=batch, log_epochs=math.log(latest), spread=spread))
            continue
        cut = [row.epochs for row in group if not row.reached]
        centre = _censored_mean(ends, cut, spread) if cut else math.log(fmean(ends))
        # Counting in whole epochs rounds all runs alike: more of them do not make it finer.
        coarse = (grain / math.exp(centre)) ** 2 / 12
        points.append(
            Point(
                global_batch=batch,
                log_epochs=centre,
                variance=spread**2 / len(ends) + coarse,
            )
        )
    return Points(
        reached=tuple(points),
        bounds=tuple(bounds),
        repeated=any(len(group) > 1 for group in whole),
        cut_short=sum(not row.reached for row in rows),
    )


def grain_of(values: Iterable[float]) -> float:
    """Return the step in which epochs were counted (1, or 0.05 of an epoch); 0 when none shows."""
    distinct = sorted({round(value, 9) for value in values})
    whole = all(math.isclose(value, round(value), abs_tol=1e-9) for value in distinct)
    if len(distinct) < 3:
        # The distance of two values is a multiple of any grain.
        return 1.0 if whole else 0.0
    least = min(b - a for a, b in pairwise(distinct))
    multiples = (value / least for value in distinct)
    return least if all(math.isclose(m, round(m), rel_tol=1e-6) for m in multiples) else 0.0


def _spread(groups: Sequence[Sequence[float]]) -> float:
    """Return the relative spread of runs of one batch, pooled, and drawn to what is usual."""
    squares, freedom = 0.0, 0
    for group in groups:
        centre = fmean(group)
        squares += math.fsum((value / centre - 1) ** 2 for value in group)
        freedom += len(group) - 1
    return math.sqrt((_USUAL_WEIGHT * _USUAL_SPREAD**2 + squares) / (_USUAL_WEIGHT + freedom))


def _censored_mean(ends: Sequence[float], cut: Sequence[float], spread: float) -> float:
    """Return the log of the mean when some runs are known to need more than they had (Tobit)."""
    from scipy.special import log_ndtr

    logs, limits = [math.log(end) for end in ends], [math.log(end) for end in cut]
    centre = fmean([*logs, *limits])
    for _ in range(_ROUNDS):
        beyond = []
        for limit in limits:
            at = (limit - centre) / spread
            # The mean of a normal above a limit, in a form that does not underflow.
            hazard = math.exp(-0.5 * at * at - 0.5 * math.log(2 * math.pi) - float(log_ndtr(-at)))
            beyond.append(centre + spread * hazard)
        renewed = fmean([*logs, *beyond])
        if abs(renewed - centre) < 1e-9:
            break
        centre = renewed
    return centre + spread**2 / 2
