"""What one worker computes in a step, as recorded: when its gradients are ready, and what follows.

Times are medians over the sampled steps, ranks and launches of a cell, in seconds from the moment
at which the worker had its batch.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from farandole.model.measured import Measured
from farandole.model.pace import Pace
from farandole.model.projection.contention import (
    Contention,
    loading_alone_s,
    loading_together_s,
    of_apart,
)
from farandole.model.projection.records import Bucket
from farandole.study.records import Apart, Floats, GradientTimes, Rank

# Workers whose training thread itself moves buckets, in the middle of backward.
_MOVES_ITSELF = "farandole"


@dataclass(frozen=True, slots=True, kw_only=True)
class Computing:
    """A step's computing at one batch, with so many workers on the host at once."""

    batch: int
    per_host: int
    buckets: tuple[Bucket, ...]
    """As they came, in up to 64 pieces; not yet put together as they are sent."""
    end_s: float
    """When forward and backward are over."""
    update_s: float
    """The optimizer's, and whatever else follows the last gradient."""
    data_s: float = 0.0
    """Waiting for the batch, before everything else."""

    @property
    def step_s(self) -> float:
        """Return what a step takes that sends nothing."""
        return self.data_s + self.end_s + self.update_s


@dataclass(frozen=True, slots=True, kw_only=True)
class ComputingLine:
    """Computing at any batch and any number of workers on a host: straight lines through both.

    One batch alone is taken as proportional to its samples, but for the update. How workers of a
    host slow each other down is what copies of the script did that sent each other nothing, or
    else what cells of several workers say.
    """

    measured: tuple[Computing, ...]
    apart: tuple[Apart, ...] = ()

    def at(self, batch: int, per_host: int) -> Computing:
        """Return the computing of a step."""
        alone = [one for one in self.measured if one.per_host == self._base]
        found = _at_batch(alone, batch)
        factor = self.slowed_down(per_host)
        updating = of_apart(
            self.apart, lambda one: one.update_alone_s, lambda one: one.update_together_s
        )
        loading = of_apart(self.apart, loading_alone_s, loading_together_s)
        return replace(
            found,
            per_host=per_host,
            buckets=tuple(replace(b, ready_s=b.ready_s * factor) for b in found.buckets),
            end_s=found.end_s * factor,
            update_s=found.update_s * self._over_base(updating, per_host),
            data_s=found.data_s * self._over_base(loading, per_host),
        )

    def slowed_down(self, per_host: int) -> float:
        """Return how much longer computing takes with so many workers on a host.

        It is over that with as many as the fewest measured.
        """
        return self._over_base(self._contention(), per_host)

    @property
    def _base(self) -> int:
        return min(one.per_host for one in self.measured)

    def _over_base(self, contention: Contention | None, per_host: int) -> float:
        if contention is None:
            return 1.0
        return contention.at(per_host) / contention.at(self._base)

    def _contention(self) -> Contention:
        known = of_apart(
            self.apart, lambda one: one.computing_alone_s, lambda one: one.computing_together_s
        )
        by_batch = {one.batch: one.end_s for one in self.measured if one.per_host == self._base}
        ratios: dict[int, list[float]] = {}
        for one in self.measured:
            if one.per_host > self._base and one.batch in by_batch:
                ratios.setdefault(one.per_host, []).append(one.end_s / by_batch[one.batch])
        found = {count: max(1.0, float(np.mean(several))) for count, several in ratios.items()}
        if known is None:
            return Contention(measured=((self._base, 1.0), *sorted(found.items())))
        of_base = known.at(self._base)
        from_cells = {count: factor * of_base for count, factor in found.items()}
        return Contention(measured=tuple(sorted((from_cells | dict(known.measured)).items())))

    @property
    def batches(self) -> tuple[int, ...]:
        """Return the batches that were measured."""
        return tuple(sorted({one.batch for one in self.measured}))


def computing_of(found: Measured) -> Computing | None:
    """Return a cell's computing; None when nobody looked when its gradients were ready."""
    samples = [one for pace in found.paces for one in _samples(pace)]
    if not samples or found.batch is None:
        return None
    # The order in which gradients come may differ now and then: the usual one counts.
    (usual, _), *_ = Counter(sizes for sizes, _, _ in samples).most_common(1)
    alike = [(ready, rest) for sizes, ready, rest in samples if sizes == usual]
    ready_s = np.maximum.accumulate(np.median([ready for ready, _ in alike], axis=0))
    end_s, update_s, data_s = np.median([rest for _, rest in alike], axis=0)
    return Computing(
        batch=found.batch,
        per_host=max(1, found.cell.workers // found.cell.hosts),
        buckets=tuple(
            Bucket(bytes=nbytes, ready_s=float(ready))
            for nbytes, ready in zip(usual, ready_s, strict=True)
        ),
        end_s=max(float(end_s), float(ready_s[-1])),
        update_s=float(update_s),
        data_s=float(data_s),
    )


_Sample = tuple[tuple[int, ...], Sequence[float], tuple[float, float, float]]
"""Sizes, when they were ready, and (end, update, data)."""


def _samples(pace: Pace) -> list[_Sample]:
    found = []
    for rank in pace.launch.ranks:
        for times in rank.buckets:
            if max(pace.warmup, 1) <= times.step < len(rank.steps) and times.bytes:
                sample = _sample(rank, times)
                if sample is not None:
                    found.append(sample)
    return found


def _sample(rank: Rank, times: GradientTimes) -> _Sample | None:
    steps, at = rank.steps, times.step
    data_s = _or(steps.data_s[at], 0.0)
    begin_s = steps.end_s[at - 1] + data_s
    hidden_s = 0.0
    if rank.framework.startswith(_MOVES_ITSELF):
        hidden_s = max(0.0, _or(steps.communication_s[at] - steps.exposed_s[at], 0.0))
    shares = np.cumsum(times.bytes) / sum(times.bytes)
    ready_s = np.array(times.ready_s) - begin_s - hidden_s * shares
    last_s = times.ready_s[-1]
    end_s = max(last_s, _or(steps.ready_s[at], last_s))
    arrived_s = max(end_s, _or(steps.done_s[at], last_s))
    update_s = steps.end_s[at] - arrived_s
    if ready_s[0] < 0 or update_s < 0:
        return None  # another order of things than ours: gradients before the batch
    rest = (end_s - begin_s - hidden_s, update_s, data_s)
    return times.bytes, ready_s.tolist(), rest


def _or(value: float, default: float) -> float:
    return float(value) if np.isfinite(value) else default


def _at_batch(measured: Sequence[Computing], batch: int) -> Computing:
    nearest = min(measured, key=lambda one: abs(one.batch - batch))
    sizes = [bucket.bytes for bucket in nearest.buckets]
    alike = [one for one in measured if [b.bytes for b in one.buckets] == sizes]
    batches = np.array([one.batch for one in alike], dtype=float)
    if len(set(batches)) < 2:
        factor = batch / nearest.batch
        return replace(
            nearest,
            batch=batch,
            buckets=tuple(replace(b, ready_s=b.ready_s * factor) for b in nearest.buckets),
            end_s=nearest.end_s * factor,
            data_s=nearest.data_s * factor,
        )
    ready_s = _line(batches, [[b.ready_s for b in one.buckets] for one in alike], batch)
    rest = _line(batches, [[one.end_s, one.update_s, one.data_s] for one in alike], batch)
    ready_s = np.maximum.accumulate(ready_s)
    return replace(
        nearest,
        batch=batch,
        buckets=tuple(
            Bucket(bytes=nbytes, ready_s=float(ready))
            for nbytes, ready in zip(sizes, ready_s, strict=True)
        ),
        end_s=max(float(rest[0]), float(ready_s[-1])),
        update_s=float(rest[1]),
        data_s=float(rest[2]),
    )


def _line(batches: Floats, columns: Sequence[Sequence[float]], batch: int) -> Floats:
    """Return straight lines at a batch; none of them falls, and none is below 0."""
    values = np.array(columns)
    middle = batches.mean()
    spread = batches - middle
    slopes = np.maximum(0.0, spread @ (values - values.mean(axis=0)) / (spread @ spread))
    return np.asarray(np.maximum(0.0, values.mean(axis=0) + slopes * (batch - middle)))
