"""When a metric has become stable, or has reached a target: by rule, not by eye."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median, stdev

from farandole.model.series import Series

WINDOW = 3
"""Evaluations whose median must hold."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reached:
    """When one launch got there; None, and `censored_at` then, when it did not."""

    epoch: float | None
    time_s: float | None
    censored_at: float
    """Its last epoch."""


def evaluation_spread(values: Sequence[float]) -> float:
    """Return the standard deviation between evaluations, apart from the trend.

    From differences of neighbours in the second half: sd(differences) / sqrt(2). The evaluation
    set itself is not recorded, so it cannot be bootstrapped.
    """
    late = values[len(values) // 2 :]
    if len(late) < 3:
        return 0.0
    return stdev([b - a for a, b in pairwise(late)]) / math.sqrt(2)


def plateau(values: Sequence[float], *, higher: bool) -> float:
    """Return where a metric ends up: the median of its last three, less its own noise."""
    spread = evaluation_spread(values)
    level = median(values[-WINDOW:])
    return level - spread if higher else level + spread


def reach(series: Series, target: float, *, higher: bool) -> Reached:
    """Find the first evaluation from which the target holds.

    That is the first whose window of three (it and the next two) has a median at the target or
    better, with no value of the window more than two standard deviations worse than the target.
    A launch too short for a whole window from there on has not shown that it holds.
    """
    sign = 1.0 if higher else -1.0
    values = [sign * value for value in series.values]
    finite = [value for value in values if math.isfinite(value)]
    tolerance = 2 * evaluation_spread(finite) if finite else 0.0
    goal = sign * target
    for start in range(len(values) - WINDOW + 1):
        window = values[start : start + WINDOW]
        if not all(math.isfinite(value) for value in window):
            continue
        if median(window) >= goal and min(window) >= goal - tolerance:
            return Reached(
                epoch=series.epochs[start],
                time_s=series.times_s[start],
                censored_at=series.epochs[-1],
            )
    return Reached(epoch=None, time_s=None, censored_at=series.epochs[-1])


def kaplan_meier_median(reached: Sequence[Reached]) -> float | None:
    """Return the median of the epochs over seeds, some of which may never have got there.

    The first epoch at which the share of seeds that have not got there falls to a half or less
    (Kaplan and Meier 1958); None when it never does.
    """
    at_risk, survival = len(reached), 1.0
    events = sorted(
        (one.censored_at if one.epoch is None else one.epoch, one.epoch is None) for one in reached
    )
    for epoch, censored in events:
        if not censored:
            survival *= 1 - 1 / at_risk
            # 0.5 as a product of fractions may come out a hair above.
            if survival <= 0.5 + 1e-9:
                return epoch
        at_risk -= 1
    return None
