"""A launch's metrics as series over epochs: their ends, when they are stable, gaps by seed."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from statistics import NormalDist, fmean, median, stdev

from farandole.model.measured import STATED
from farandole.model.statistics import Estimate, mean
from farandole.study.records import Launch, Metric

_HIGHER = ("acc", "auc", "f1", "score", "precision", "recall", "iou", "map", "bleu", "r2", "top")
_LOWER = ("loss", "error", "err", "mae", "mse", "rmse", "perplexity", "ppl", "wer", "cer")
_PREFERRED = (
    *("val_accuracy", "val_acc", "validation_accuracy", "test_accuracy", "test_acc"),
    *("accuracy", "acc", "val_loss", "validation_loss", "test_loss", "loss"),
)
_HELD_OUT = ("val_", "valid_", "validation_", "test_", "eval_")
_LAST_STEPS = 10
"""A value per step is noisy: the median of so many stands for the last one."""
WINDOW = 3
"""Evaluations whose median must hold."""
GAP_CONFIDENCE = 0.90
"""Two one-sided tests at 5 % each: an interval above -2 points says "loses less than 2 points"."""
_Z = NormalDist().inv_cdf(0.5 + GAP_CONFIDENCE / 2)


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """One metric of one launch, by epoch (or by step where no epoch is known)."""

    epochs: tuple[float, ...]
    values: tuple[float, ...]
    times_s: tuple[float | None, ...]
    by_step: bool

    @property
    def final(self) -> float:
        """The value at the end; NaN when training diverged."""
        if not self.by_step or not math.isfinite(self.values[-1]):
            return self.values[-1]
        last = [value for value in self.values[-_LAST_STEPS:] if math.isfinite(value)]
        return median(last)


def series_of(launch: Launch) -> dict[str, Series]:
    """Collect a launch's metrics by name.

    Values of several ranks or steps in one epoch are averaged, as the script's author would. Epochs
    say how many are done: 1 after the first, also where a script calls that one 0. A metric among
    an imported table's figures is a series of one point.
    """
    by_name: dict[str, list[Metric]] = {}
    ranks: Iterable[Metric] = (metric for rank in launch.ranks for metric in rank.metrics)
    for metric in (*launch.metrics, *ranks):
        if metric.name not in STATED:
            by_name.setdefault(metric.name, []).append(metric)
    first = _number_of_first(launch)
    found = {name: _series(metrics, 1.0 - first) for name, metrics in by_name.items()}
    for name, value in launch.figures.items():
        if name not in found and higher_is_better(name) is not None:
            epoch = float(launch.figures.get("epochs", 1.0))
            found[name] = Series(
                epochs=(epoch,), values=(float(value),), times_s=(None,), by_step=False
            )
    return found


def higher_is_better(name: str) -> bool | None:
    """Tell a metric's direction by its name; None when the name does not tell."""
    words = _plain(name).split("_")
    if any(word.startswith(_LOWER) or word.endswith("loss") for word in words):
        return False
    return True if any(word.startswith(_HIGHER) for word in words) else None


def mean_of_seeds(name: str, values: Sequence[float]) -> Estimate:
    """Return a metric's mean, with an interval within what it can be: 0 to 1, or 0 and more."""
    found, higher = mean(values), higher_is_better(name)
    if found.low is None or found.high is None or higher is None or min(values) < 0:
        return found
    top = 1.0 if higher and max(values) <= 1 else math.inf
    return replace(found, low=max(0.0, found.low), high=min(top, found.high))


def held_out(name: str) -> bool:
    """Tell whether a metric is of data that the model was not trained on."""
    return _plain(name).startswith(_HELD_OUT)


def _plain(name: str) -> str:
    return re.sub("[-/ ]", "_", name.lower())


def main_metric(names: Iterable[str]) -> str | None:
    """Choose the metric that stands for accuracy: validation before training, accuracy first."""
    names = set(names)
    lowered = {_plain(name): name for name in sorted(names)}
    if preferred := [lowered[name] for name in _PREFERRED if name in lowered]:
        return preferred[0]
    known = [name for name in sorted(names) if higher_is_better(name) is not None]
    return min(known, key=lambda n: (not held_out(n), not higher_is_better(n)), default=None)


def training_partner(name: str, names: Iterable[str]) -> str | None:
    """Return the training metric that belongs to a held-out one: val_loss has loss."""
    if not held_out(name):
        return None
    lowered = {_plain(other): other for other in names}
    bare = _plain(name).split("_", 1)[1]
    found = (lowered.get(other) for other in (f"train_{bare}", f"training_{bare}", bare))
    return next(filter(None, found), None)


def _number_of_first(launch: Launch) -> float:
    """Return what a launch calls its first epoch: 0, as Keras and range() do, or 1.

    A 0 stands for a look before training where as many epochs were made as the last one's number.
    """
    ranks = (metric for rank in launch.ranks for metric in rank.metrics)
    told = [one.epoch for one in (*launch.metrics, *ranks) if one.epoch is not None]
    if not told or min(told) != 0 or any(epoch != int(epoch) for epoch in told):
        return 1.0
    made = max((len(rank.epochs) for rank in launch.ranks), default=0)
    return 1.0 if made and max(told) >= made else 0.0


def _series(metrics: list[Metric], later: float) -> Series:
    by_step = all(metric.epoch is None for metric in metrics)
    keyed: dict[float, list[Metric]] = {}
    counters: dict[int | None, int] = {}
    for metric in metrics:
        if metric.epoch is not None:
            key = float(metric.epoch) + later
        elif by_step and metric.step is not None:
            key = float(metric.step)
        else:
            # Neither: the n-th value that this rank reported.
            counters[metric.rank] = counters.get(metric.rank, 0) + 1
            key = float(counters[metric.rank])
        keyed.setdefault(key, []).append(metric)
    order = sorted(keyed)
    times = [[m.time_s for m in keyed[key] if m.time_s is not None] for key in order]
    return Series(
        epochs=tuple(order),
        values=tuple(fmean(metric.value for metric in keyed[key]) for key in order),
        times_s=tuple(max(known) if known else None for known in times),
        by_step=by_step and any(metric.step is not None for metric in metrics),
    )


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
    goal = sign * target
    tolerance = 2 * evaluation_spread([value for value in values if math.isfinite(value)])
    for start in range(len(values) - WINDOW + 1):
        window = values[start : start + WINDOW]
        holds = all(map(math.isfinite, window)) and median(window) >= goal
        if holds and min(window) >= goal - tolerance:
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
    """Return how far values lie above a reference, both by seed, by Student's t over differences.

    A seed sets the weights that training begins with and the order of samples: two runs with the
    same one have their luck in common, which the difference of the two is then free of. Hence
    pairs, not two independent samples. None when no seed ended with finite values on both sides.
    """
    differences = [values[seed] - reference[seed] for seed in sorted(values.keys() & reference)]
    finite = [difference for difference in differences if math.isfinite(difference)]
    if not finite:
        return None
    return Gap(
        difference=mean(finite, confidence=GAP_CONFIDENCE),
        seeds=len(finite),
        diverged=len(differences) - len(finite),
    )


def smallest_difference(test_samples: int, accuracy: float, seeds: int) -> float:
    """Return the smallest difference of two accuracies that a test set can tell from none.

    z x sqrt(2 p (1 - p) / (n x seeds)), and at least one answer, 1 / (n x seeds): z is 1.645 (two
    sides, 90 %), p the accuracy as a share, n the number of test samples, with so many seeds on
    each side.

    If two ways of training are equally good, each gets a test sample right by the same chance, and
    each run draws anew. A count of right answers then has a variance of at most n p (1 - p) (less
    where samples are of unequal difficulty), a mean over seeds has that over the number of seeds,
    and a difference of two means twice as much. What training itself adds from seed to seed is in
    `paired_gap`'s interval, and not in here.
    """
    draws = test_samples * seeds
    chance = 2 * accuracy * (1 - accuracy) / draws
    return max(_Z * math.sqrt(max(chance, 0.0)), 1 / draws)


def smallest_error_change(test_samples: int, seeds: int) -> float:
    """Return the smallest relative difference of two mean squared errors that a test set can tell.

    z x sqrt(4 / (n x seeds)), with z = 1.645 (two sides, 90 %): a squared error that is normally
    distributed before squaring deviates by sqrt(2) of its mean, a mean over n of them by
    sqrt(2 / n), and a difference of two such means by sqrt(2) times that.
    """
    return _Z * math.sqrt(4 / (test_samples * seeds))
