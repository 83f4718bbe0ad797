"""The arithmetic of a benchmark: the launch is the unit, logs are what is averaged.

Steps within one launch share its memory layout and its neighbours, so they never enter a test:
each launch gives one number, and intervals come from the spread between launches.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, median, variance

CONFIDENCE = 0.95


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """A value with its interval; `low` and `high` are None when one launch gives no spread."""

    value: float
    low: float | None
    high: float | None


def slowest_rank(samples_by_rank: Sequence[Sequence[float]]) -> list[float]:
    """Return, step by step, the time of the rank that took longest.

    Raises:
        ValueError: when the ranks did not report the same number of steps.
    """
    return [max(step) for step in zip(*samples_by_rank, strict=True)]


def launch_value(samples: Sequence[float]) -> float:
    """Return the one number that stands for a launch: its median in log space.

    For an even count the logs of the two middle samples are averaged, not the samples.
    """
    return math.exp(median(math.log(sample) for sample in samples))


def summarize(launches: Sequence[float]) -> Estimate:
    """Return the median over launches, with a t interval of the mean log.

    Args:
        launches: one positive value per launch.
    """
    logs = [math.log(value) for value in launches]
    if len(logs) < 2:
        return Estimate(value=median(launches), low=None, high=None)
    half_width = _t_quantile(len(logs) - 1) * math.sqrt(variance(logs) / len(logs))
    centre = fmean(logs)
    return Estimate(
        value=median(launches),
        low=math.exp(centre - half_width),
        high=math.exp(centre + half_width),
    )


def ratio(numerator: Sequence[float], denominator: Sequence[float]) -> Estimate:
    """Return numerator / denominator of two sets of launches, by Welch's t on logs."""
    logs = welch([math.log(v) for v in numerator], [math.log(v) for v in denominator])
    return Estimate(
        value=math.exp(logs.value),
        low=None if logs.low is None else math.exp(logs.low),
        high=None if logs.high is None else math.exp(logs.high),
    )


def welch(first: Sequence[float], second: Sequence[float]) -> Estimate:
    """Return mean(first) - mean(second) with Welch's interval for unequal variances."""
    difference = fmean(first) - fmean(second)
    if len(first) < 2 or len(second) < 2:
        return Estimate(value=difference, low=None, high=None)
    first_part = variance(first) / len(first)
    second_part = variance(second) / len(second)
    total = first_part + second_part
    if total == 0.0:
        return Estimate(value=difference, low=difference, high=difference)
    # Welch and Satterthwaite: the degrees of freedom of the sum of the two parts.
    freedom = total**2 / (first_part**2 / (len(first) - 1) + second_part**2 / (len(second) - 1))
    half_width = _t_quantile(freedom) * math.sqrt(total)
    return Estimate(value=difference, low=difference - half_width, high=difference + half_width)


def _t_quantile(degrees_of_freedom: float) -> float:
    from scipy.stats import t

    return float(t.ppf(0.5 + CONFIDENCE / 2, degrees_of_freedom))
