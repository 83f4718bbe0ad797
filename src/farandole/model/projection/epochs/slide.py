"""Accuracy at a fixed number of epochs with a larger batch: slide along a measured curve.

After e epochs at batch B training is as far as after e E(B_ref) / E(B) epochs at B_ref, where E(B)
are the epochs to a target. That holds for runs whose rate does not decay: a point inside of a
decaying schedule is not the end of a shorter one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, stdev

import numpy as np

from farandole.model.projection.epochs.schedule import Schedule
from farandole.model.projection.intervals import FARTHEST
from farandole.model.projection.records import EpochFit, Projected
from farandole.model.series import Series
from farandole.model.stability import evaluation_spread
from farandole.model.statistics import NORMAL_90, PROJECTION_CONFIDENCE, t_quantile

# Between the ends of an interval of epochs a metric may turn: it is looked at so many times.
_LOOKS = 33


@dataclass(frozen=True, slots=True, kw_only=True)
class ReferenceRuns:
    """A metric by epochs done, of runs that differ in their seeds only."""

    global_batch: int
    seeds: tuple[Series, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class NotProjectable:
    """Why a question has no answer from these runs."""

    reason: str


def project_accuracy(
    references: Sequence[ReferenceRuns],
    fit: EpochFit,
    *,
    global_batch: int,
    epochs: float,
    schedule: Schedule,
) -> Projected | NotProjectable:
    """Return a metric after so many epochs at a global batch that nobody has trained with.

    Args:
        references: measured curves; the one with the nearest batch that reaches far enough is used.
        fit: epochs to a target by batch.
        global_batch: of the run in question.
        epochs: that it would have.
        schedule: what the measured runs did with the learning rate.
    """
    if schedule.kind == "decaying":
        return NotProjectable(
            reason=f"Not projectable from this run: {schedule.detail}, and a point inside of a "
            "decaying schedule is not the end of a shorter one. Train with a constant rate, or "
            "with a schedule for each batch."
        )
    usable = [
        ReferenceRuns(global_batch=runs.global_batch, seeds=seeds)
        for runs in references
        if (seeds := _distinct(runs.seeds))
    ]
    if not usable:
        return NotProjectable(
            reason="Not projectable from this run: no metric was recorded by epoch. Record it with "
            "farandole.record(val_accuracy=..., epoch=...)."
        )
    reached = [(runs, _equal_epochs(runs, fit, global_batch, epochs)) for runs in usable]
    inside = [(runs, at) for runs, at in reached if _begin(runs) <= at.value <= _end(runs)]
    if not inside:
        runs, at = min(reached, key=lambda pair: _distance(pair[0], global_batch))
        return NotProjectable(reason=_outside(runs, at, global_batch, epochs))
    runs, at = min(inside, key=lambda pair: _distance(pair[0], global_batch))
    ratio = global_batch / max(one.global_batch for one in usable)
    found = _slide(runs, at, ratio)
    if not (math.isfinite(found.low) and math.isfinite(found.high)):
        return NotProjectable(reason=_outside(runs, at, global_batch, epochs))
    return found


def _equal_epochs(
    runs: ReferenceRuns, fit: EpochFit, global_batch: int, epochs: float
) -> Projected:
    """Return how many epochs of the reference are worth the run in question.

    At best a larger batch needs the epochs of a smaller one, at worst as many steps.
    """
    if runs.global_batch == global_batch:
        return Projected(value=epochs, low=epochs, high=epochs, ratio=1.0)
    needed, known = fit.at(global_batch), fit.at(runs.global_batch)
    value = epochs * known.value / needed.value
    least, most = sorted((epochs, epochs * runs.global_batch / global_batch))
    return Projected(
        value=value,
        low=min(value, max(least, epochs * known.value / needed.high)),
        high=max(value, min(most, epochs * known.value / needed.low)),
        ratio=needed.ratio,
    )


def _slide(runs: ReferenceRuns, at: Projected, ratio: float) -> Projected:
    """Read a curve where it is worth as much; a side to which it does not reach is left open."""
    values = [_value(series, at.value) for series in runs.seeds]
    centre = fmean(values)
    low, high = max(at.low, _begin(runs)), min(at.high, _end(runs))
    means = [
        fmean(_value(series, place) for series in runs.seeds)
        for place in np.linspace(low, max(low, high), _LOOKS).tolist()
    ]
    half = _half_width(runs, values)
    seen = [value for series in runs.seeds for value in series.values]
    # What is never below 0 stays so; what grows and is never above 1 is a share.
    grows = all(series.values[-1] >= series.values[0] for series in runs.seeds)
    least = 0.0 if min(seen) >= 0.0 else -math.inf
    most = 1.0 if grows and max(seen) <= 1.0 else math.inf
    below, above = min(centre, *means) - half, max(centre, *means) + half
    # Before a rising curve begins the metric is lower, and who knows how much; and so on.
    early, late = at.low < _begin(runs), at.high > _end(runs)
    rises = all(series.values[-1] > series.values[0] for series in runs.seeds)
    falls = all(series.values[-1] < series.values[0] for series in runs.seeds)
    if (early and not falls) or (late and not rises):
        below = -math.inf
    if (early and not rises) or (late and not falls):
        above = math.inf
    return Projected(
        value=centre,
        low=max(below, least),
        high=min(above, most),
        ratio=ratio,
        indicative=ratio > FARTHEST,
    )


def _half_width(runs: ReferenceRuns, values: Sequence[float]) -> float:
    """Return how well the mean over seeds is known; by single evaluations where there is one."""
    if len(values) > 1:
        error = stdev(values) / math.sqrt(len(values))
        return t_quantile(len(values) - 1, PROJECTION_CONFIDENCE) * error
    return NORMAL_90 * evaluation_spread(runs.seeds[0].values)


def _value(series: Series, epoch: float) -> float:
    return float(np.interp(epoch, series.epochs, series.values))


def _distinct(seeds: Sequence[Series]) -> tuple[Series, ...]:
    """Return the curves that count: a seed without any effect is the same run once more."""
    curves = (curve for curve in map(_finite, seeds) if curve is not None)
    return tuple({curve.values: curve for curve in curves}.values())


def _finite(series: Series) -> Series | None:
    """Return a curve by epochs without the evaluations that diverged; None when none is left."""
    kept = [place for place, value in enumerate(series.values) if math.isfinite(value)]
    if series.by_step or not kept or not math.isfinite(series.values[-1]):
        return None
    return Series(
        epochs=tuple(series.epochs[place] for place in kept),
        values=tuple(series.values[place] for place in kept),
        times_s=tuple(series.times_s[place] for place in kept),
        by_step=False,
    )


def _begin(runs: ReferenceRuns) -> float:
    return max(series.epochs[0] for series in runs.seeds)


def _end(runs: ReferenceRuns) -> float:
    return min(series.epochs[-1] for series in runs.seeds)


def _distance(runs: ReferenceRuns, global_batch: int) -> float:
    return abs(math.log(runs.global_batch / global_batch))


def _outside(runs: ReferenceRuns, at: Projected, global_batch: int, epochs: float) -> str:
    begin, end = _begin(runs), _end(runs)
    about = f"about {at.value:.2g}"
    if begin <= at.value <= end:
        about = f"{at.low:.2g} to {at.high:.2g}"
    worth = (
        f"Not projectable from this run: {epochs:g} epochs at global batch {global_batch} are "
        f"worth {about} at {runs.global_batch}, and the metric was recorded from epoch {begin:g} "
        f"to {end:g} there."
    )
    if at.value < begin or (at.value <= end and at.low < begin):
        return f"{worth} Record it more often, or ask for more epochs."
    return f"{worth} Train longer, or ask for fewer epochs."
