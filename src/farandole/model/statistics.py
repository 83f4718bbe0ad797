"""The arithmetic of measurements: the launch is the unit, logs are what is averaged.

Steps within one launch share its memory layout and its neighbours, so they never enter a test:
each launch gives one number, and intervals come from the spread between launches.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean, median
from typing import Literal

CONFIDENCE = 0.95
"""Of intervals of what was measured."""
PROJECTION_CONFIDENCE = 0.9
"""Of intervals of what is projected, and of the noise scale, which projections stand on."""
NORMAL_90 = 1.645
"""Standard deviations to either side of its middle that hold 90 % of a normal."""
SPEED_MARGIN = 0.03
"""Speeds that differ by less are the same for a reader: `--precision` is 3 %, too."""
ACCURACY_MARGIN = 0.01
"""One point; rates in percent use 1.0."""
LEAST_LAUNCHES = 5
"""Below, equality is not claimed: with 3 a side the t quantile is 4.3, and next to nothing is
equivalent."""
LEAST_SEEDS = 3

Relation = Literal["higher", "lower", "same", "cannot_tell"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """A value with its interval; `low` and `high` are None when one launch gives no spread."""

    value: float
    low: float | None = None
    high: float | None = None

    @property
    def half_width(self) -> float | None:
        """Half of the interval; None without one."""
        return None if self.low is None or self.high is None else (self.high - self.low) / 2


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


def geometric_mean(launches: Sequence[float], *, confidence: float = CONFIDENCE) -> Estimate:
    """Return the mean over launches in log space, with its t interval.

    A ratio of two of these is what `ratio` gives, so that a table's rows divide.
    """
    if len(launches) == 1:
        # A published figure stays as it is, to its last digit.
        return Estimate(value=launches[0])
    return _mapped(mean([math.log(v) for v in launches], confidence=confidence), math.exp)


def summarize(launches: Sequence[float]) -> Estimate:
    """Return the median over launches, with a t interval of the mean log."""
    centre = geometric_mean(launches)
    return Estimate(value=median(launches), low=centre.low, high=centre.high)


def mean(values: Sequence[float], *, confidence: float = CONFIDENCE) -> Estimate:
    """Return the mean with its t interval, for figures such as accuracies."""
    if len(values) < 2:
        return Estimate(value=values[0])
    error = math.sqrt(_variance(values) / len(values))
    half_width = t_quantile(len(values) - 1, confidence) * error
    centre = fmean(values)
    return Estimate(value=centre, low=centre - half_width, high=centre + half_width)


def ratio(
    numerator: Sequence[float], denominator: Sequence[float], *, paired: bool = False
) -> Estimate:
    """Return numerator / denominator of two sets of launches, by the t interval of their logs."""
    logs = [[math.log(value) for value in values] for values in (numerator, denominator)]
    return _mapped(difference(*logs, paired=paired), math.exp)


def difference(
    first: Sequence[float],
    second: Sequence[float],
    *,
    confidence: float = CONFIDENCE,
    paired: bool = False,
) -> Estimate:
    """Return mean(first) - mean(second) with Welch's interval, or with that of the pairs."""
    if paired:
        return mean([x - y for x, y in zip(first, second, strict=True)], confidence=confidence)
    centre = fmean(first) - fmean(second)
    if len(first) < 2 or len(second) < 2:
        return Estimate(value=centre)
    first_part = _variance(first) / len(first)
    second_part = _variance(second) / len(second)
    total = first_part + second_part
    if total == 0.0:
        return Estimate(value=centre, low=centre, high=centre)
    # Welch and Satterthwaite: the degrees of freedom of the sum of the two parts.
    freedom = total**2 / (first_part**2 / (len(first) - 1) + second_part**2 / (len(second) - 1))
    half_width = t_quantile(freedom, confidence) * math.sqrt(total)
    return Estimate(value=centre, low=centre - half_width, high=centre + half_width)


def equivalent(
    first: Sequence[float], second: Sequence[float], margin: float, *, paired: bool = False
) -> bool:
    """Tell whether two one-sided t tests at 5 % both put the difference within the margin.

    That is so exactly when the 90 % interval of the difference lies within -margin and margin.
    """
    found = difference(first, second, confidence=2 * CONFIDENCE - 1, paired=paired)
    if found.low is None or found.high is None:
        return False
    return -margin < found.low and found.high < margin


def relation(
    first: Sequence[float],
    second: Sequence[float],
    *,
    margin: float,
    least: int = LEAST_LAUNCHES,
    paired: bool = False,
) -> Relation:
    """Compare two sets of launches: same within the margin, clearly higher or lower, or neither.

    With fewer than `least` launches on a side "same" is not claimed.
    """
    enough = min(len(first), len(second)) >= least
    if enough and equivalent(first, second, margin, paired=paired):
        return "same"
    found = difference(first, second, paired=paired)
    if found.low is not None and found.low > 0:
        return "higher"
    if found.high is not None and found.high < 0:
        return "lower"
    return "cannot_tell"


def speed_relation(
    first: Sequence[float],
    second: Sequence[float],
    *,
    margin: float = SPEED_MARGIN,
    paired: bool = False,
) -> Relation:
    """Compare two sets of throughputs (or times) by their logs; the margin is relative."""
    logs = [[math.log(value) for value in values] for values in (first, second)]
    return relation(*logs, margin=math.log1p(margin), paired=paired)


def outliers(values: Sequence[float], limit: float = 3.5) -> tuple[bool, ...]:
    """Flag values whose modified z score exceeds the limit; they are kept all the same.

    Iglewicz and Hoaglin (1993) recommend 3.5. Fewer than 4 cannot tell an outlier from the rest.
    """
    if len(values) < 4:
        return (False,) * len(values)
    centre = median(values)
    spread = median(abs(value - centre) for value in values)
    # 0.6745 turns a median absolute deviation into a standard deviation of a normal.
    return tuple(spread > 0 and 0.6745 * abs(v - centre) / spread > limit for v in values)


def t_quantile(degrees_of_freedom: float, confidence: float = CONFIDENCE) -> float:
    """Return how many standard errors a two-sided t interval reaches to either side."""
    # scipy.special: importing scipy.stats takes a second.
    from scipy.special import stdtrit

    return float(stdtrit(degrees_of_freedom, 0.5 + confidence / 2))


def scaled(estimate: Estimate, factor: float) -> Estimate:
    """Multiply a value and its interval by a positive number."""
    return _mapped(estimate, lambda value: value * factor)


def quotient(numerator: Estimate, denominator: Estimate) -> Estimate:
    """Divide two independent values; their relative errors add as squares."""
    value = numerator.value / denominator.value
    widths = [
        math.log(one.high / one.low) / 2
        for one in (numerator, denominator)
        if one.low is not None and one.high is not None and one.low > 0
    ]
    if len(widths) < 2:
        return Estimate(value=value)
    factor = math.exp(math.hypot(*widths))
    return Estimate(value=value, low=value / factor, high=value * factor)


def known_mean(values: Iterable[float | None]) -> float | None:
    """Return the mean of what was measured; None when nothing was."""
    known = [value for value in values if value is not None and math.isfinite(value)]
    return fmean(known) if known else None


def _variance(values: Sequence[float]) -> float:
    """Return the sample variance; the statistics module's takes fifty times as long."""
    centre = fmean(values)
    return math.fsum((value - centre) ** 2 for value in values) / (len(values) - 1)


def _mapped(found: Estimate, rising: Callable[[float], float]) -> Estimate:
    """Apply a rising function to a value and its interval."""
    return Estimate(
        value=rising(found.value),
        low=None if found.low is None else rising(found.low),
        high=None if found.high is None else rising(found.high),
    )
