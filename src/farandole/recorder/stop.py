"""When a launch has shown enough: the rule, pure; the caller brings the clock.

The median step time must be known to a given precision. Steps depend on each other, so that their
number counts for less than it seems: the interval is that of the median by order statistics, for
an effective number of steps. It is looked at when the number of steps has doubled, not at every
step: who looks often enough finds a lucky moment.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, fields
from itertools import pairwise
from statistics import fmean, median, variance

from farandole.errors import UsageError

# Student's t at 97.5 % with _BATCHES - 1 degrees of freedom.
_BATCHES = 8
_T = 2.365


@dataclass(frozen=True, slots=True, kw_only=True)
class StopRule:
    """What a study asks of one launch: FARANDOLE_STOP."""

    precision: float | None = None
    """Half-width of the 95 % interval of the median step time, as a share of it."""
    warmup_steps: int = 5
    """Steps that never count; more if the step time has not settled by then."""
    least_steps: int = 20
    fewest_steps: int = 5
    """What `enough_s` needs at least."""
    enough_s: float = 60.0
    """Seconds of steps after which a launch ends, precise or not."""
    steps: int | None = None
    """End after exactly so many steps."""
    epochs: int | None = None
    """End in the first steps after so many passes over the training data."""

    @classmethod
    def from_json(cls, text: str) -> StopRule:
        """Read the variable; raise UsageError if it is not such a rule."""
        try:
            given = json.loads(text)
            unknown = set(given) - {field.name for field in fields(cls)}
            if unknown:
                raise ValueError(f"it has no {sorted(unknown)[0]!r}")
            defaults = {"warmup_steps", "least_steps", "fewest_steps", "enough_s"}
            for name, value in given.items():
                if value is not None and (isinstance(value, bool) or not value >= 0):
                    raise ValueError(f"{name} is {value!r}")
            return cls(**{n: v for n, v in given.items() if v is not None or n not in defaults})
        except (ValueError, TypeError, AttributeError) as error:
            raise UsageError(
                f"FARANDOLE_STOP={text!r} is not a rule for ending a launch ({error}). Set a JSON "
                'object such as {"precision": 0.03}, or unset it.'
            ) from None


class Progress:
    """How far a launch is from having shown enough."""

    def __init__(self, rule: StopRule) -> None:
        self._rule = rule
        self._ends_s: list[float] = []
        # The first step has no beginning: it takes one more end than steps.
        self._look_at = rule.warmup_steps + rule.least_steps + 1

    def step(self, end_s: float, epochs: int) -> bool:
        """Take note of the end of a step; return whether it was enough."""
        rule, ends = self._rule, self._ends_s
        ends.append(end_s)
        if rule.steps is not None:
            return len(ends) >= rule.steps
        if rule.epochs is not None:
            return epochs >= rule.epochs
        if rule.precision is None:
            return False
        timed = len(ends) - 1 - rule.warmup_steps
        if timed >= max(1, rule.fewest_steps) and (
            end_s - ends[rule.warmup_steps] >= rule.enough_s
        ):
            return True
        if len(ends) < self._look_at:
            return False
        self._look_at = 2 * len(ends)
        times = [after - before for before, after in pairwise(ends)]
        return known(times, rule)


def known(times_s: Sequence[float], rule: StopRule) -> bool:
    """Say whether the median of these step times is known to the rule's precision."""
    assert rule.precision is not None
    warmup = rule.warmup_steps
    while len(times_s) - warmup >= max(rule.least_steps, 2 * _BATCHES):
        counted = times_s[warmup:]
        middle, width = median(counted), half_width(counted)
        half = len(counted) // 2
        drift = abs(median(counted[:half]) - median(counted[half:]))
        # pyperf's rule: warm-up is over when the first half looks like the second.
        if drift <= max(rule.precision * middle, width):
            return width <= rule.precision * middle
        warmup = max(1, 2 * warmup)
    return False


def half_width(times_s: Sequence[float]) -> float:
    """Return the half-width of a 95 % interval of the median of dependent figures.

    The median moves as the share of figures above it does; that share's variance is estimated by
    batch means, and not below what a process with the same neighbour correlation would have.
    """
    count = len(times_s)
    middle = median(times_s)
    above = [(value > middle) - (value < middle) for value in times_s]
    spread = fmean([sign * sign for sign in above])
    if spread == 0:
        return 0.0
    length = count // _BATCHES
    rest = count - length * _BATCHES
    batches = [fmean(above[at : at + length]) for at in range(rest, count, length)]
    by_batches = length * variance(batches)
    neighbours = fmean([a * b for a, b in pairwise(above)]) / spread
    # With few figures correlation comes out too small: by about (1 + 4 rho) / n for an AR(1).
    rho = min(0.95, max(0.0, neighbours + (1 + 4 * max(0.0, neighbours)) / count))
    by_neighbours = spread * (1 + rho) / (1 - rho)
    # A sign is worth two shares: hence the halves.
    reach = _T * math.sqrt(max(by_batches, by_neighbours) / count) / 2
    ordered = sorted(times_s)
    return (_quantile(ordered, 0.5 + reach) - _quantile(ordered, 0.5 - reach)) / 2


def _quantile(ordered: Sequence[float], share: float) -> float:
    place = min(max(share, 0.0), 1.0) * (len(ordered) - 1)
    low = math.floor(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (place - low) * (ordered[high] - ordered[low])
