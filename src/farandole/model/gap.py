"""What a metric loses or gains between two ways of training, seed by seed, and what can be seen."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from statistics import NormalDist, fmean, variance

from farandole.model.series import series_of
from farandole.model.statistics import Estimate, t_quantile
from farandole.study.records import Launch

GAP_CONFIDENCE = 0.90
"""Two one-sided tests at 5 % each: an interval above -2 points says "loses less than 2 points"."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gap:
    """The difference of a metric's ends, over seeds that both sides have."""

    difference: Estimate
    """Mean of the differences with its 90 % interval; without bounds from one seed."""
    seeds: int
    """That count: those whose training was finite on both sides."""
    diverged: int
    """Seeds that both sides have and that ended without a finite value on either."""


def finals_by_seed(launches: Iterable[Launch], metric: str) -> dict[int, float]:
    """Return a metric at the end of each launch for accuracy, by seed; NaN where it diverged.

    A seed that was launched again counts as it was the last time.
    """
    found: dict[int, float] = {}
    for launch in launches:
        if launch.outcome != "ok" or launch.purpose not in ("accuracy", "imported"):
            continue
        series = series_of(launch).get(metric)
        if series is not None:
            found[launch.seed or 0] = series.final
    return found


def paired_gap(values: Mapping[int, float], reference: Mapping[int, float]) -> Gap | None:
    """Return how far values lie above a reference, by Student's t over the seeds' differences.

    A seed sets the weights that training begins with and the order of samples: two runs with the
    same one have their luck in common, which the difference of the two is then free of. Hence
    pairs, not two independent samples.

    Args:
        values: by seed.
        reference: what to compare with, by seed.

    Returns:
        None when no seed ended with finite values on both sides.
    """
    seeds = sorted(values.keys() & reference.keys())
    differences = [values[seed] - reference[seed] for seed in seeds]
    finite = [difference for difference in differences if math.isfinite(difference)]
    if not finite:
        return None
    centre = fmean(finite)
    low = high = None
    if len(finite) > 1:
        error = math.sqrt(variance(finite) / len(finite))
        half_width = t_quantile(len(finite) - 1, GAP_CONFIDENCE) * error
        low, high = centre - half_width, centre + half_width
    return Gap(
        difference=Estimate(value=centre, low=low, high=high),
        seeds=len(finite),
        diverged=len(differences) - len(finite),
    )


def smallest_difference(test_samples: int, accuracy: float, seeds: int) -> float:
    """Return the smallest difference of two accuracies that a test set can tell from none.

    z x sqrt(2 p (1 - p) / (n x seeds)), and at least one answer, 1 / (n x seeds): z is 1.645 (two
    sides, 90 %), p the accuracy as a share, n the number of test samples.

    The reason: if two ways of training are equally good, each gets a test sample right by the same
    chance, and each run draws anew. A count of right answers out of n then has a variance of at
    most n p (1 - p) (less where samples are of unequal difficulty: so the figure errs to the
    large side), a mean over seeds has that over the number of seeds, and a difference of two means
    has twice as much. What training itself adds from seed to seed comes on top: it is in
    `paired_gap`'s interval, and not in here.

    Args:
        test_samples: how many samples the accuracy is a share of.
        accuracy: between 0 and 1.
        seeds: runs on each side.
    """
    draws = test_samples * seeds
    chance = 2 * accuracy * (1 - accuracy) / draws
    z = NormalDist().inv_cdf(0.5 + GAP_CONFIDENCE / 2)
    return max(z * math.sqrt(max(chance, 0.0)), 1 / draws)
