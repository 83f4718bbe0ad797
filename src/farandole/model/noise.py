"""The gradient noise scale from squared norms that were recorded before and after averaging.

Gradients of parts (workers, or micro-batches of one) scatter around the true gradient G by the
noise of single samples, whose covariance is Sigma. How much they scatter tells tr(Sigma), how long
their average is tells |G|^2; the ratio is the batch at which noise and gradient are alike
(McCandlish et al. 2018, https://arxiv.org/abs/1812.06162).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import reduce

import numpy as np

from farandole.model.measured import Measured
from farandole.model.statistics import PROJECTION_CONFIDENCE, t_quantile
from farandole.study.records import Cell, Floats, Launch, Noise

LEAST_MEASUREMENTS = 8
"""Fewer give no interval that is worth its name."""
_BLOCK = 50
"""Measurements within which the noise scale counts as constant: it grows as training goes on."""
_BATCHES = 10
"""Of neighbouring measurements in a block, whose means count as independent."""
_LEAST_FREEDOM = 0.05
_Run = tuple[Floats, Floats, Floats]
"""Unbiased estimates of one run, by measurement: tr(Sigma) and |G|^2, and its samples."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NoiseRow:
    """How far the gradients of a cell's workers scatter."""

    cell: Cell
    label: str
    noise: NoiseScale
    global_batch: float
    """Mean samples per step, of all workers."""
    launches: int
    buckets: tuple[NoiseScale | None, ...]
    """Of each gradient bucket alone; None where too few steps were sampled."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NoiseScale:
    """The gradient noise scale of a run: tr(Sigma) / |G|^2, in samples."""

    value: float | None
    """None when |G|^2 cannot be told from 0: `low` is a lower bound then."""
    low: float
    high: float | None
    """None: no upper bound."""
    trace: float
    """tr(Sigma), of one sample's gradient."""
    squared_norm: float
    """|G|^2."""
    measurements: int
    """Steps that were sampled."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NoiseSums:
    """Sums over the parts of each step that was sampled in one run, in order.

    Part i has b_i samples and the mean gradient g_i of these; B is the sum of the b_i.
    """

    parts: Floats
    """How many there were in the step: workers, or micro-batches."""
    samples: Floats
    """B."""
    before: Floats
    """Steps by buckets: the sum of b_i |g_i|^2."""
    after: Floats
    """Steps by buckets: B |g|^2 of the average g that all workers got."""
    shares: Floats | None = None
    """The sum of w_i^2 / b_i for an average with weights w_i: 1 / B, the default, for weights in
    proportion to samples; where unequal parts are averaged plainly, mean(1 / b_i) / N."""


def noise_scale(runs: Sequence[NoiseSums], *, dataset_size: int | None = None) -> NoiseScale | None:
    """Estimate the noise scale of one run, or of several; None when too few steps were sampled.

    Give the data set's size if an epoch takes every sample once: parts of one epoch never share a
    sample, which makes their average look shorter than it is.
    """
    return _estimate([_pairs(run, dataset_size) for run in runs])


def noise_by_bucket(
    runs: Sequence[NoiseSums], *, dataset_size: int | None = None
) -> tuple[NoiseScale | None, ...]:
    """Estimate the noise scale of each gradient bucket alone; empty when runs differ in theirs."""
    buckets = {run.before.shape[1] for run in runs}
    if len(buckets) != 1:
        return ()
    parts = (
        [replace(run, before=run.before[:, [n]], after=run.after[:, [n]]) for run in runs]
        for n in range(buckets.pop())
    )
    return tuple(noise_scale(part, dataset_size=dataset_size) for part in parts)


def _pairs(run: NoiseSums, dataset_size: int | None) -> _Run:
    """Return tr(Sigma) and |G|^2 of each step, unbiased for unequal parts.

    With h = sum of w_i^2 / b_i: E[before] = B |G|^2 + N tr(Sigma), E[after / B] = |G|^2 +
    h tr(Sigma). Without replacement from D samples both have |G|^2 - tr(Sigma) / D in its place.
    """
    before, after = run.before.sum(axis=1), run.after.sum(axis=1)
    shares = 1.0 / run.samples if run.shares is None else run.shares
    freedom = run.parts - run.samples * shares
    # One part does not scatter. Very unequal ones, averaged plainly, may scatter so that the two
    # sums say the same. And an overflow of float16 is no measurement.
    usable = (np.abs(freedom) > _LEAST_FREEDOM) & np.isfinite(before) & np.isfinite(after)
    before, after, shares = before[usable], after[usable], shares[usable]
    samples = run.samples[usable]
    trace = (before - after) / freedom[usable]
    squared_norm = after / samples - shares * trace
    if dataset_size is not None:
        squared_norm = squared_norm + trace / dataset_size
    return trace, squared_norm, samples


def _estimate(runs: Sequence[_Run]) -> NoiseScale | None:
    """Average 1 / (noise scale + batch) over each run, then over runs.

    A run at batch B0 whose noise scale is B_t in block t would need mean((B_t + B) / (B_t + B0))
    times its epochs at batch B. That is a straight line in B, and so is what one noise scale gives
    that satisfies 1 / (value + B0) = mean(1 / (B_t + B0)). The mean's terms, |G|^2 / (tr(Sigma) +
    B0 |G|^2), have a safe denominator also where |G|^2 is lost in noise.
    """
    runs = [run for run in runs if len(run[0]) >= LEAST_MEASUREMENTS]
    if not runs:
        return None
    trace, squared_norm, batch = (
        float(np.mean([run[place].mean() for run in runs])) for place in range(3)
    )
    means, variances, freedom = zip(*(_inverse(run, batch) for run in runs), strict=True)
    centre = float(np.mean(means))
    error = math.sqrt(sum(variances)) / len(runs)
    half = t_quantile(sum(freedom), PROJECTION_CONFIDENCE) * error
    # Where the whole interval lies below 0, chance or a bias put it there: one error is kept.
    low = _scale_of(max(centre + half, error), batch)
    resolved = centre - half > 0
    return NoiseScale(
        value=_scale_of(centre, batch) if resolved else None,
        low=low,
        high=_scale_of(centre - half, batch) if resolved else None,
        trace=trace,
        squared_norm=squared_norm,
        measurements=sum(len(run[0]) for run in runs),
    )


def _inverse(run: _Run, batch: float) -> tuple[float, float, int]:
    """Return a run's mean of 1 / (noise scale + batch), its variance and degrees of freedom.

    Within a block it is a ratio of averages, never an average of ratios; its error is that of the
    linearised ratio, by batch means, since neighbouring steps are alike.
    """
    blocks = np.array_split(np.stack(run[:2]), max(1, len(run[0]) // _BLOCK), axis=1)
    total, variance, freedom = 0.0, 0.0, 0
    for trace, squared_norm in blocks:
        whole = trace + batch * squared_norm
        # Near the mean of B |g|^2, which is 0 only where all gradients are.
        scale = max(float(whole.mean()), np.finfo(float).tiny)
        ratio = float(squared_norm.mean()) / scale
        errors = (squared_norm - ratio * whole) / scale
        parts = np.array_split(errors, min(_BATCHES, len(trace) // 2))
        batches = np.array([part.mean() for part in parts])
        total += ratio
        variance += float(batches.var(ddof=1)) / len(batches)
        freedom += len(batches) - 1
    return total / len(blocks), variance / len(blocks) ** 2, freedom


def _scale_of(inverse: float, batch: float) -> float:
    # Equal parts scatter by chance less than nothing at times.
    return max(1.0 / inverse - batch, 0.0)


def cell_noise(found: Measured) -> NoiseRow | None:
    """Return the noise scale of a cell, over all its launches that ended well."""
    sums = {one.id: noise_sums(one) for one in found.ended_well}
    runs = [run for run in sums.values() if run is not None]
    # Samples that all workers share; where they do not say the same, nobody knows.
    launches = [one for one in found.ended_well if sums[one.id]]
    sizes = {rank.dataset_size for launch in launches for rank in launch.ranks}
    size = sizes.pop() if len(sizes) == 1 else None
    noise = noise_scale(runs, dataset_size=size)
    if noise is None:
        return None
    return NoiseRow(
        cell=found.cell,
        label=found.label,
        noise=noise,
        global_batch=float(np.mean(np.concatenate([run.samples for run in runs]))),
        launches=len(runs),
        buckets=noise_by_bucket(runs, dataset_size=size),
    )


def noise_sums(launch: Launch) -> NoiseSums | None:
    """Join what a launch's ranks recorded by the updates that all of them have sampled.

    Where several optimizers train (or one, in buckets that were laid out anew), the one that moved
    most gradients counts.
    """
    if not launch.ranks or len(launch.ranks) != launch.cell.workers:
        return None
    by_rank = [{(one.optimizer, one.bucket_bytes): one for one in r.noise} for r in launch.ranks]
    shared = set.intersection(*(set(found) for found in by_rank))
    joined = {
        key: sums
        for key in shared
        if (sums := _join([found[key] for found in by_rank], launch.cell.batch)) is not None
    }
    if not joined:
        return None
    # By its number, too, so that the answer does not depend on the order of a set.
    return joined[max(joined, key=lambda key: (sum(key[1]) * len(joined[key].parts), -key[0]))]


def _join(ranks: Sequence[Noise], batch: int | None) -> NoiseSums | None:
    """Sum over ranks; None when no update is left of which all that is needed is known.

    Workers' gradients are averaged plainly, also where some have fewer samples than others.
    """
    parts = sum(rank.parts for rank in ranks)
    if parts < 2:
        return None
    updates = reduce(np.intersect1d, [rank.update for rank in ranks])
    rows = [np.searchsorted(rank.update, updates) for rank in ranks]
    samples = np.stack([rank.samples[row] for rank, row in zip(ranks, rows, strict=True)])
    if batch is not None:
        samples = np.where(np.isnan(samples), float(batch), samples)
    known = (samples > 0).all(axis=0)
    if not known.any():
        return None
    samples = samples[:, known]
    before = np.stack([r.before[row[known]] for r, row in zip(ranks, rows, strict=True)])
    after = np.stack([r.after[row[known]] for r, row in zip(ranks, rows, strict=True)])
    total = samples.sum(axis=0)
    return NoiseSums(
        parts=np.full(samples.shape[1], float(parts)),
        samples=total,
        before=(samples[:, :, None] * before).sum(axis=0),
        after=total[:, None] * after.sum(axis=0),
        shares=(1.0 / samples).mean(axis=0) / len(ranks),
    )
