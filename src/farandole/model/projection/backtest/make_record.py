"""From measured steps to the track record: errors by distance, and factors for intervals.

Each model is fitted at several limits of workers and scored beyond each. A factor is how many
standard deviations of the fit the errors reach: the quantile of the model that was hit worst, since
the next model comes from another cluster, and never less than nearer by.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from itertools import pairwise
from typing import Any

import numpy as np

from farandole.errors import DataError
from farandole.model.projection.intervals import FARTHEST
from farandole.model.projection.records import LEAST_ROWS, StepRow
from farandole.model.projection.steps.ensemble import fit_steps
from farandole.model.projection.track_record import Reach
from farandole.model.statistics import PROJECTION_CONFIDENCE
from farandole.study.records import Floats

SCHEMA = 1
_LIMITS = (3, 4, 6, 8, 12)
_EDGES = (1.0, 2.0, 4.0, 8.0, FARTHEST)
_LEAST_FACTOR = 1.0
_LEAST_MODELS = 2

Key = tuple[str, str]


class Missed:
    """What fits of one model missed by, one value per scored row."""

    def __init__(self) -> None:
        self.ratio: Floats = np.empty(0)
        self.error: Floats = np.empty(0)
        """Log of measured over projected."""
        self.score: Floats = np.empty(0)
        """The same, in standard deviations of its side."""

    def add(self, small: Sequence[StepRow], large: Sequence[StepRow]) -> None:
        """Fit the small rows and compare with the large ones."""
        fit = fit_steps(small)
        places = [(row.workers, row.hosts, row.batch) for row in large]
        spread = fit.spread(places)
        error = np.log([row.step_s for row in large]) - spread.log_s
        score = error / np.where(error > 0, spread.slow_sd, spread.fast_sd)
        ratio = np.array([row.workers for row in large]) / fit.measured_workers
        self.ratio = np.concatenate([self.ratio, ratio])
        self.error = np.concatenate([self.error, error])
        self.score = np.concatenate([self.score, score])

    def between(self, low: float, high: float) -> tuple[Floats, Floats]:
        """Return errors and scores of rows at that distance."""
        chosen = (self.ratio > low) & (self.ratio <= high)
        return self.error[chosen], self.score[chosen]


def make_record(groups: Mapping[Key, Sequence[StepRow]]) -> dict[str, Any]:
    """Return the content of `track_record.json`.

    Raises:
        DataError: Fewer than two models reach beyond what is fitted.
    """
    missed = {key: _missed(rows) for key, rows in groups.items()}
    missed = {key: found for key, found in missed.items() if len(found.ratio)}
    if len(missed) < _LEAST_MODELS:
        raise DataError(
            f"{len(missed)} models have rows to fit and larger ones to score. Factors come from "
            f"at least {_LEAST_MODELS}: add a table."
        )
    factors = _factors(missed)
    others = {
        key: _factors({other: found for other, found in missed.items() if other != key})
        for key in missed
    }
    reaches = []
    for place, (low, high) in enumerate(pairwise(_EDGES)):
        parts = {key: found.between(low, high) for key, found in missed.items()}
        parts = {key: part for key, part in parts.items() if len(part[0])}
        if not parts:
            continue
        reaches.append(_reach(low, high, parts, factors[place], [others[k][place] for k in parts]))
    return {
        "schema": SCHEMA,
        "made_by": "farandole backtest FILE.csv ... --write-track-record FILE",
        "clusters": sorted({cluster for cluster, _ in missed}),
        "models": sorted(" ".join(filter(None, key)) for key in missed),
        "fit_workers": list(_LIMITS),
        "reaches": [asdict(reach) for reach in reaches],
    }


def _missed(rows: Sequence[StepRow]) -> Missed:
    found = Missed()
    for limit in _LIMITS:
        small = [row for row in rows if row.workers <= limit]
        most = max((row.workers for row in small), default=0)
        large = [row for row in rows if limit < row.workers <= FARTHEST * most]
        if len(small) >= LEAST_ROWS and large:
            found.add(small, large)
    return found


def _factors(missed: Mapping[Key, Missed]) -> list[tuple[float, float]]:
    """Return factors to the fast and the slow side, by distance."""
    tail = (1 - PROJECTION_CONFIDENCE) / 2
    fast = slow = _LEAST_FACTOR
    found = []
    for low, high in pairwise(_EDGES):
        for one in missed.values():
            _, score = one.between(low, high)
            if len(score):
                fast = max(fast, -float(np.quantile(score, tail)))
                slow = max(slow, float(np.quantile(score, 1 - tail)))
        found.append((fast, slow))
    return found


def _reach(
    low: float,
    high: float,
    parts: Mapping[Key, tuple[Floats, Floats]],
    factors: tuple[float, float],
    others: Sequence[tuple[float, float]],
) -> Reach:
    errors = [100 * (np.exp(-error) - 1) for error, _ in parts.values()]
    covered = [
        float(np.mean((score >= -fast) & (score <= slow)))
        for (_, score), (fast, slow) in zip(parts.values(), others, strict=True)
    ]
    pooled = np.abs(np.concatenate(errors))
    return Reach(
        beyond=low,
        up_to=high,
        rows=len(pooled),
        models=len(parts),
        mean_abs_pct=_rounded(np.mean([np.abs(error).mean() for error in errors])),
        median_abs_pct=_rounded(np.median(pooled)),
        p90_abs_pct=_rounded(np.quantile(pooled, 0.9)),
        bias_pct=_rounded(np.mean([error.mean() for error in errors])),
        coverage_left_out=_rounded(np.mean(covered)),
        fast=_rounded(factors[0]),
        slow=_rounded(factors[1]),
    )


def _rounded(value: Any) -> float:
    return round(float(value), 3)
