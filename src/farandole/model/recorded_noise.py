"""The gradient noise scale of launches, from the norms that each of their ranks recorded."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

import numpy as np

from farandole.model.info.noise import NoiseRow
from farandole.model.measured import Measured
from farandole.model.noise import NoiseScale, NoiseSums, noise_by_bucket, noise_scale
from farandole.study.records import Launch, Noise


def noise_of(launch: Launch) -> NoiseScale | None:
    """Return a launch's noise scale; None when too few steps were sampled, or nothing scatters.

    One worker has a noise scale where it sums several batches in an update.
    """
    sums = noise_sums(launch)
    return None if sums is None else noise_scale([sums], dataset_size=_dataset_size([launch]))


def cell_noise(found: Measured) -> NoiseRow | None:
    """Return the noise scale of a cell, over all its launches that ended well."""
    joined = [(one, sums) for one in found.ended_well if (sums := noise_sums(one)) is not None]
    launches, runs = [one for one, _ in joined], [sums for _, sums in joined]
    size = _dataset_size(launches)
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


def _dataset_size(launches: Sequence[Launch]) -> int | None:
    """Return how many samples all workers share; None where they do not say the same."""
    sizes = {rank.dataset_size for launch in launches for rank in launch.ranks}
    return sizes.pop() if len(sizes) == 1 else None
