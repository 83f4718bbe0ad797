"""A training step replayed on paper, bucket by bucket: a form of step times that knows more.

What a replay needs is measured: when gradients are ready, what all-reduces take, how ranks scatter.
Factors near 1 are fitted with priors, so that few launches do not mislead: how much communication
slows down beside computing, how much computing does beside communication, how all of it lies
beside the measured times, how fast the networks are; and a cost per worker that nothing hides.
"""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from statistics import NormalDist

import numpy as np

from farandole.model.measured import Measured
from farandole.model.projection.allreduce import Cost, Network, fit_allreduce, on_link
from farandole.model.projection.question import LinkSpeed
from farandole.model.projection.steps import (
    DDP_BUCKET_BYTES,
    FORMS,
    Assumption,
    Form,
    Parts,
    Place,
    Places,
    StepFit,
    StepRow,
)
from farandole.study.records import Apart, Floats, GradientTimes, Link, Rank

# Workers whose training thread itself moves buckets, in the middle of backward.
_MOVES_ITSELF = "farandole"
# torch's process group works on two collectives at a time; NCCL and Farandole on one.
_GLOO_CHANNELS = 2
# Bytes of a bucket, and of DDP's first one, which is small so that the link is not idle for long.
FARANDOLE_BUCKETS = (8 << 20, None)
DDP_BUCKETS = (DDP_BUCKET_BYTES, 1 << 20)
# What one core copies, where nobody measured it.
_MEMORY_BYTES_PER_S = 5e9
# To narrow a number reads 4 bytes and writes 2, to widen it the other way round: 6 of 4, each.
_CONVERTED_PER_BYTE = 1.5
# A maximum of N draws is resampled from at least so many times N residuals.
_PER_DRAW = 10
# Fewer residuals than this say how wide they are, but nothing of their tail.
_FEWEST_RESIDUALS = 20
_TAIL = 0.9
OVERLAPPING = "replay"
# Of the logarithms of parameters: limits beyond which one stands for something else than what it is
# called; and of the first three, standard deviations before anything was measured.
_LIMITS = np.log([[1.0, 1.0, 0.5, 0.05, 0.05, 1e-6], [5.0, 10.0, 2.0, 20.0, 20.0, 0.5]])
_PRIOR_SD = (0.2, 0.3, 0.1)
# What each more worker makes all wait for, of computing: seldom anything.
_PER_WORKER = (math.log(5e-4), 2.0)
# The network's speed: on paper, and measured at best.
_PAPER_SD, _LEAST_SD = 0.3, 0.03
# What a replay counts where all forms err alike: it knows what others guess.
_PRIOR = 2 * sum(FORMS.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class Contention:
    """How many times as long something takes with so many workers on a host.

    Between measured numbers of workers lie straight lines. Beyond them each worker more costs as
    much as the measured ones did.
    """

    measured: tuple[tuple[int, float], ...] = ((1, 1.0),)
    """(workers, factor), from the fewest workers on."""

    def at(self, per_host: int) -> float:
        """Return the factor, over that of one worker or of the fewest measured ones."""
        counts, factors = (
            np.array(column, dtype=float) for column in zip(*self.measured, strict=True)
        )
        if per_host <= counts[-1]:
            return float(np.interp(per_host, counts, factors))
        over = counts[1:] - counts[0]
        slope = float(over @ (factors[1:] - factors[0]) / (over @ over)) if len(over) else 0.0
        return float(factors[-1] + slope * (per_host - counts[-1]))

    @classmethod
    def of(cls, factors: Mapping[int, float]) -> Contention:
        """Make it of factors by workers; none is below 1, which only noise can make."""
        pairs = {1: 1.0} | {workers: max(1.0, factor) for workers, factor in factors.items()}
        return cls(measured=tuple(sorted(pairs.items())))


def contention_of(apart: Iterable[Apart], alone: str, together: str) -> Contention | None:
    """Return how copies of a script slow each other down; None where nobody measured it.

    `alone` and `together` name what one took alone, and each took with all at once.
    """
    pairs = {one.cell.workers: (getattr(one, alone), getattr(one, together)) for one in apart}
    factors = {workers: both / one for workers, (one, both) in pairs.items() if one and both}
    return Contention.of(factors) if factors else None


def computing_contention(apart: Iterable[Apart]) -> Contention | None:
    """Return how much longer workers of a host compute, each for itself; None if not measured."""
    return contention_of(apart, "computing_alone_s", "computing_together_s")


@dataclass(frozen=True, slots=True, kw_only=True)
class InputRate:
    """How fast batches come at most: loaders with nothing beside them but each other."""

    alone_per_s: float
    """Samples per second of one worker's loader with nobody else there."""
    contention: Contention

    def at(self, per_host: int) -> float:
        """Return samples per second of one worker."""
        return self.alone_per_s / self.contention.at(per_host)


def input_rate(apart: Iterable[Apart], rows: Sequence[StepRow] = ()) -> InputRate | None:
    """Return how fast batches come; None where nobody measured it.

    Training is proof that they come as fast as it took them.
    """
    trained: dict[int, float] = {}
    for row in rows:
        if row.hosts == 1:
            trained[row.workers] = max(trained.get(row.workers, 0.0), row.batch / row.step_s)
    loaded = [one for one in apart if one.loaded_alone_per_s and one.loaded_together_per_s]
    if not loaded:
        return None
    alone_per_s = float(np.median([one.loaded_alone_per_s or 0.0 for one in loaded]))
    alone_per_s = max(alone_per_s, trained.get(1, 0.0))
    together = {one.cell.workers: one.loaded_together_per_s or 0.0 for one in loaded}
    factors = {n: alone_per_s / max(each, trained.get(n, 0.0)) for n, each in together.items()}
    return InputRate(alone_per_s=alone_per_s, contention=Contention.of(factors))


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """What is done otherwise than in the measured runs."""

    bucket_bytes: int | None = None
    half_precision: bool = False
    """Gradients are sent as float16: half the bytes, and converting them twice."""
    accumulation: int = 1
    """Backward passes per step, one exchange for all of them; the batch is that of one pass."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Computing:
    """A step's computing at one batch, with so many workers on the host at once.

    Times are medians over the sampled steps, ranks and launches of a cell, in seconds from the
    moment at which the worker had its batch.
    """

    batch: int
    per_host: int
    sizes: tuple[int, ...]
    """Bytes of gradients in up to 64 pieces, as they came; not yet put together to be sent."""
    ready_s: tuple[float, ...]
    """When each is ready, computing alone."""
    end_s: float
    """When forward and backward are over."""
    update_s: float
    """The optimizer's, and whatever else follows the last gradient."""
    data_s: float = 0.0
    """Waiting for the batch, before everything else."""

    @classmethod
    def of(cls, batch: int, per_host: int, sizes: tuple[int, ...], times_s: Floats) -> Computing:
        """Make it of when pieces are ready, then end, update and data; pieces come in order."""
        *ready_s, end_s, update_s, data_s = times_s.tolist()
        in_order = tuple(np.maximum.accumulate(ready_s).tolist())
        return cls(
            batch=batch,
            per_host=per_host,
            sizes=sizes,
            ready_s=in_order,
            end_s=max(end_s, in_order[-1]),
            update_s=update_s,
            data_s=data_s,
        )

    @property
    def step_s(self) -> float:
        """What a step takes that sends nothing."""
        return self.data_s + self.end_s + self.update_s

    def slowed(self, factor: float) -> Computing:
        """Let forward and backward take so many times as long."""
        ready_s = tuple(ready_s * factor for ready_s in self.ready_s)
        return replace(self, ready_s=ready_s, end_s=self.end_s * factor)

    def changed(self, change: Change, memory_bytes_per_s: float) -> Computing:
        """Send half the bytes, or once after several passes.

        Converting takes time before a gradient goes and after all came. Only the last pass brings
        gradients.
        """
        found = self
        if change.half_precision:
            converted_s = np.cumsum(self.sizes) * _CONVERTED_PER_BYTE / memory_bytes_per_s
            found = replace(
                self,
                sizes=tuple(size // 2 for size in self.sizes),
                ready_s=tuple((self.ready_s + converted_s).tolist()),
                end_s=self.end_s + float(converted_s[-1]),
                update_s=self.update_s + float(converted_s[-1]),
            )
        before_s = (change.accumulation - 1) * (found.end_s + found.data_s)
        ready_s = tuple(before_s + ready_s for ready_s in found.ready_s)
        return replace(found, ready_s=ready_s, end_s=before_s + found.end_s)


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
        found = self._at_batch(batch)
        updating = contention_of(self.apart, "update_alone_s", "update_together_s")
        # Rates: the time per sample is their inverse.
        loading = contention_of(self.apart, "loaded_together_per_s", "loaded_alone_per_s")
        return replace(
            found.slowed(self._over_base(self._contention(), per_host)),
            per_host=per_host,
            update_s=found.update_s * self._over_base(updating, per_host),
            data_s=found.data_s * self._over_base(loading, per_host),
        )

    @property
    def batches(self) -> tuple[int, ...]:
        """The batches that were measured."""
        return tuple(sorted({one.batch for one in self.measured}))

    @property
    def _base(self) -> int:
        return min(one.per_host for one in self.measured)

    def _over_base(self, contention: Contention | None, per_host: int) -> float:
        if contention is None:
            return 1.0
        return contention.at(per_host) / contention.at(self._base)

    def _contention(self) -> Contention:
        """Return how much longer computing takes than with the fewest measured workers."""
        known = computing_contention(self.apart)
        by_batch = {one.batch: one.end_s for one in self.measured if one.per_host == self._base}
        ratios: dict[int, list[float]] = {}
        for one in self.measured:
            if one.per_host > self._base and one.batch in by_batch:
                ratios.setdefault(one.per_host, []).append(one.end_s / by_batch[one.batch])
        of_base = 1.0 if known is None else known.at(self._base)
        found = {n: of_base * max(1.0, float(np.mean(each))) for n, each in ratios.items()}
        others = {self._base: 1.0} if known is None else dict(known.measured)
        return Contention(measured=tuple(sorted((found | others).items())))

    def _at_batch(self, batch: int) -> Computing:
        alone = [one for one in self.measured if one.per_host == self._base]
        nearest = min(alone, key=lambda one: abs(one.batch - batch))
        alike = [one for one in alone if one.sizes == nearest.sizes]
        batches = np.array([one.batch for one in alike], dtype=float)
        if len(set(batches)) < 2:
            factor = batch / nearest.batch
            found = nearest.slowed(factor)
            return replace(found, batch=batch, data_s=nearest.data_s * factor)
        # Straight lines; none of them falls, and none is below 0.
        values = np.array([(*o.ready_s, o.end_s, o.update_s, o.data_s) for o in alike])
        spread, middle_s = batches - batches.mean(), values.mean(axis=0)
        slopes = np.maximum(0.0, spread @ (values - middle_s) / (spread @ spread))
        times_s = np.maximum(0.0, middle_s + slopes * (batch - batches.mean()))
        return Computing.of(batch, nearest.per_host, nearest.sizes, times_s)


def computing_of(found: Measured) -> Computing | None:
    """Return a cell's computing; None when nobody looked when its gradients were ready."""
    samples = [
        (times.bytes, sample)
        for pace in found.paces
        for rank in pace.launch.ranks
        for times in rank.buckets
        if max(pace.warmup, 1) <= times.step < len(rank.steps) and times.bytes
        if (sample := _sample(rank, times)) is not None
    ]
    if not samples or found.worker_batch is None:
        return None
    # The order in which gradients come may differ now and then: the usual one counts.
    (usual, _), *_ = Counter(sizes for sizes, _ in samples).most_common(1)
    times_s = np.median([sample for sizes, sample in samples if sizes == usual], axis=0)
    per_host = max(1, found.cell.workers // found.cell.hosts)
    return Computing.of(found.worker_batch, per_host, usual, times_s)


def _sample(rank: Rank, times: GradientTimes) -> list[float] | None:
    """Return when gradients of a step were ready, then end, update and data."""
    steps, at = rank.steps, times.step

    def finite(value: float, default: float) -> float:
        return float(value) if np.isfinite(value) else default

    data_s = finite(steps.data_s[at], 0.0)
    begin_s = steps.end_s[at - 1] + data_s
    hidden_s = 0.0
    if rank.framework.startswith(_MOVES_ITSELF):
        hidden_s = max(0.0, finite(steps.communication_s[at] - steps.exposed_s[at], 0.0))
    shares = np.cumsum(times.bytes) / sum(times.bytes)
    ready_s = np.array(times.ready_s) - begin_s - hidden_s * shares
    last_s = times.ready_s[-1]
    end_s = max(last_s, finite(steps.ready_s[at], last_s))
    update_s = steps.end_s[at] - max(end_s, finite(steps.done_s[at], last_s))
    if ready_s[0] < 0 or update_s < 0:
        return None  # another order of things than ours: gradients before the batch
    return [*ready_s.tolist(), end_s - begin_s - hidden_s, update_s, data_s]


def slowest_s(residuals_s: Floats, workers: int) -> float:
    """Return how much longer the slowest of so many workers takes, in the mean.

    Args:
        residuals_s: what single workers took beyond the others' mean, sorted.
        workers: up to a tenth of the number of residuals it is the expected maximum of as many
            draws among them. Beyond, it grows with the logarithm of the workers, as maxima with an
            exponential tail do, whose scale is the mean excess over the upper tenth.
    """
    total = len(residuals_s)
    if workers < 2 or total < 2:
        return 0.0
    if total < _FEWEST_RESIDUALS:
        # Blom's approximation to the expected maximum of normal draws.
        spread_s = float(np.std(residuals_s))
        return spread_s * NormalDist().inv_cdf((workers - 0.375) / (workers + 0.25))
    most = max(2, total // _PER_DRAW)
    # Of N draws with replacement the largest is at most the i-th with probability (i/n)^N.
    at_most = (np.arange(total + 1) / total) ** min(workers, most)
    largest_s = float(np.sum(residuals_s * np.diff(at_most)))
    known_s = max(0.0, largest_s - float(np.mean(residuals_s)))
    if workers <= most:
        return known_s
    start_s = np.quantile(residuals_s, _TAIL)
    excess_s = float(np.mean(residuals_s[residuals_s >= start_s] - start_s))
    return known_s + excess_s * math.log(workers / most)


def residuals_of(computing_s: Floats) -> Floats:
    """Return what each rank took beyond the mean of all, of ranks x steps; of one rank nothing.

    What all ranks have in common in a step does not add up with their number. Taking their mean
    away makes the rest too small by sqrt((N - 1) / N), which is put right.
    """
    ranks = len(computing_s)
    if ranks < 2:
        return np.empty(0)
    whole = computing_s[:, np.isfinite(computing_s).all(axis=0)]
    own = (whole - whole.mean(axis=0)) * math.sqrt(ranks / (ranks - 1))
    return np.sort(own, axis=None)


def _residuals(cells: Sequence[Measured]) -> Floats:
    """Return how the ranks of the largest measured count scatter: computing, without any wait."""
    several = [found for found in cells if found.cell.workers > 1]
    for found in sorted(several, key=lambda found: -found.cell.workers):
        parts = []
        for pace in found.paces:
            ranks = [rank.steps for rank in pace.launch.ranks]
            shortest = min(map(len, ranks), default=0)
            own_s = [
                (steps.duration_s - np.nan_to_num(steps.data_s) - steps.exposed_s)[:shortest]
                for steps in ranks
            ]
            if own_s:
                parts.append(residuals_of(np.stack(own_s)[:, max(pace.warmup, 1) :]))
        if any(map(len, parts)):
            return np.sort(np.concatenate(parts))
    return np.empty(0)


def fill_buckets(
    pieces: Iterable[tuple[float, int]], bucket_bytes: int, first_bytes: int | None = None
) -> list[tuple[float, int]]:
    """Fill buckets with pieces (when ready, bytes); one goes when it has at least so many bytes."""
    filled: list[tuple[float, int]] = []
    open_bytes, at_s = 0, 0.0
    for at_s, nbytes in pieces:
        open_bytes += nbytes
        if open_bytes >= (bucket_bytes if filled or not first_bytes else first_bytes):
            filled.append((at_s, open_bytes))
            open_bytes = 0
    return [*filled, (at_s, open_bytes)] if open_bytes else filled


def replay(
    buckets: Iterable[tuple[float, Cost]],
    *,
    computing_s: float,
    slowdown: float = 1.0,
    contention: float = 1.0,
    network_speed: float = 1.0,
    channels: int = 1,
) -> float:
    """Replay a step: a bucket goes as soon as it is ready and a channel is free.

    Computing and sending work at once, and each slows the other down. Returns the seconds until
    both are over.

    Args:
        buckets: when each is ready, computing alone, and what its all-reduce takes.
        computing_s: when computing is over, on the buckets' clock.
        slowdown: of communication while computing goes on, at least 1.
        contention: of computing while communication goes on, at least 1.
        network_speed: over what the costs are reckoned with.
        channels: buckets on their way at a time; they share the link.
    """
    marks = deque(sorted(buckets, key=lambda bucket: bucket[0]))
    done_s, now_s = 0.0, 0.0
    # Of each bucket, the seconds of latency and of transfer that are left.
    waiting: deque[list[float]] = deque()
    moving: list[list[float]] = []
    while True:
        while marks and done_s >= marks[0][0]:
            cost = marks.popleft()[1]
            if cost.seconds > 0:
                left_s = [cost.latency_s / network_speed, cost.transfer_s / network_speed]
                waiting.append(left_s)
        moving = [left for left in moving if left[0] > 0 or left[1] > 0]
        while waiting and len(moving) < channels:
            moving.append(waiting.popleft())
        computes = done_s < computing_s
        if not computes and not moving:
            return now_s
        mark_s = marks[0][0] if marks else computing_s
        pace = 1 / contention if moving else 1.0
        drag = slowdown if computes else 1.0
        sharing = sum(left[0] <= 0 for left in moving)
        spans = [left[0] * drag or left[1] * drag * sharing for left in moving]
        if computes:
            spans.append((mark_s - done_s) / pace)
        span_s = min(spans)
        # What ends now ends exactly, or rounding leaves a rest that no span reaches.
        if computes:
            done_s = mark_s if spans[-1] <= span_s else done_s + span_s * pace
        for left, own_s in zip(moving, spans, strict=False):
            place, slower = (0, drag) if left[0] > 0 else (1, drag * sharing)
            left[place] = 0.0 if own_s <= span_s else left[place] - span_s / slower
        now_s += span_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Replay:
    """All that a replay needs beside the rows that it is fitted to."""

    computing: ComputingLine
    network: Network
    bucket_bytes: tuple[int, int | None] = FARANDOLE_BUCKETS
    """Of a bucket, and of the first one where that is smaller."""
    channels: int = 1
    """Buckets on their way at a time."""
    residuals_s: Floats = field(default_factory=lambda: np.empty(0))
    """How single workers' computing scatters, sorted; empty where nobody measured it."""
    memory_bytes_per_s: float = _MEMORY_BYTES_PER_S
    """Of one worker, for what converting gradients takes."""
    change: Change = field(default_factory=Change)
    assumptions: tuple[Assumption, ...] = ()

    def steps_s(
        self, place: Place, logs: Floats, *, overlap: bool = True
    ) -> tuple[list[float], float]:
        """Replay a step; return its seconds for each set of logs, and those of computing alone.

        Both have the wait for the slowest worker. A worker alone takes what it was measured to.

        Args:
            place: workers, hosts, and the batch per worker and backward pass.
            logs: of how much communication and computing slow each other down, of measured over
                replayed, of how fast the networks inside and between hosts are, and of what each
                more worker costs, of computing.
            overlap: False: no bucket goes before computing is over.
        """
        (workers, hosts, batch), change = place, self.change
        each = self.computing.at(batch, math.ceil(workers / hosts))
        each = each.changed(change, self.memory_bytes_per_s)
        sizes = (change.bucket_bytes, None) if change.bucket_bytes else self.bucket_bytes
        buckets = fill_buckets(zip(each.ready_s, each.sizes, strict=True), *sizes)
        ready_s = [at_s if overlap else each.end_s for at_s, _ in buckets]
        costs = [self.network.cost(workers, hosts, nbytes) for _, nbytes in buckets]
        rest_s = each.update_s + each.data_s + slowest_s(self.residuals_s, workers)
        crossed = hosts > 1 and self.network.link is not None
        found = []
        for factors in np.exp(np.clip(logs, *_LIMITS)).tolist():
            slowdown, contention, correction = factors[:3] if workers > 1 else (1.0, 1.0, 1.0)
            step_s = replay(
                zip(ready_s, costs, strict=True),
                computing_s=each.end_s,
                slowdown=slowdown,
                contention=contention,
                network_speed=factors[4] if crossed else factors[3],
                channels=self.channels,
            )
            serial_s = (workers - 1) * factors[5] * each.end_s
            found.append(correction * (step_s + rest_s) + serial_s)
        return found, each.end_s + rest_s

    def forms(self) -> list[Form]:
        """Return the replay as forms to fit: buckets go during backward, or after it."""
        inside_sd = max(_LEAST_SD, self.network.inside.error or _PAPER_SD)
        normals = [(0.0, sd) for sd in (*_PRIOR_SD, inside_sd, _PAPER_SD)] + [_PER_WORKER]
        return [
            Form(
                name=name,
                prior=_PRIOR,
                beliefs=[({place: 1}, normal) for place, normal in enumerate(normals)],
                starts=[{0: 0.05, 1: 0.05}],
                parts=partial(self._parts, overlap),
                knows_host=True,
            )
            for name, overlap in ((OVERLAPPING, True), ("replay, nothing hidden", False))
        ]

    def _parts(self, overlap: bool, places: Places, logs: Floats) -> Parts:
        columns = [column.astype(int).tolist() for column in places[:3]]
        rows: list[Place] = list(zip(*columns, strict=True))
        found = {}
        for place in dict.fromkeys(rows):
            shown_s, alone_s = self.steps_s(place, logs[:1], overlap=False)
            found[place] = (self.steps_s(place, logs, overlap=overlap)[0], alone_s, shown_s[0])
        total, compute, shown = zip(*map(found.__getitem__, rows), strict=True)
        return Parts(np.array(total).T, np.array([compute]), np.array([shown]))

    def ratio(self, fitted: StepFit, place: Place, change: Change) -> float:
        """Return how many times as long a step takes with a change, by the fitted replay."""
        best = max(
            (one for one in fitted.members if one.form.knows_host), key=lambda one: one.weight
        )
        logs, overlap = best.solution.parameters[None], best.form.name == OVERLAPPING
        changed = replace(self, change=change)
        (was_s,), _ = self.steps_s(place, logs, overlap=overlap)
        (is_now_s,), _ = changed.steps_s(place, logs, overlap=overlap)
        return is_now_s / was_s


def gather_replay(
    cells: Sequence[Measured],
    calibration: Link,
    *,
    link: LinkSpeed | None = None,
    apart: Sequence[Apart] = (),
) -> Replay | None:
    """Gather what a replay needs; None when gradients were not timed or nothing tells of a network.

    Args:
        cells: of one group: the same script, device and transport.
        calibration: of what connects the workers of a host.
        link: between hosts, where there is one or is to be one.
        apart: what workers of a host took each for itself.
    """
    computing = [one for found in cells if (one := computing_of(found)) is not None]
    if not computing:
        return None
    ranks = _ranks(cells)
    ddp = any(rank.framework == "ddp" for rank in ranks)
    transport = cells[0].cell.transport
    bucket_bytes: tuple[int, int | None] = FARANDOLE_BUCKETS
    if ddp:
        sizes = {rank.bucket_bytes for rank in ranks} - {None, DDP_BUCKET_BYTES}
        # Who sets a size has no small first bucket.
        bucket_bytes = (max(filter(None, sizes)), None) if sizes else DDP_BUCKETS
    counts = {workers for workers, _, _ in calibration.allreduce}
    law: str | None = None
    if ddp or transport in ("gloo", "nccl"):
        law = "ring" if transport == "nccl" else "gloo"
    elif len(counts) == 1:
        # Shared memory: with more workers at most everybody's bytes go through one bus.
        law = "bus"
    # As farandole.transport.choose: Gloo between all workers only where somebody asks for it.
    shape = "pairwise" if transport == "gloo" else "hierarchical"
    pieces = zip(computing[0].ready_s, computing[0].sizes, strict=True)
    inside = fit_allreduce(
        calibration.allreduce,
        law,
        latency_s=calibration.latency_s,
        around=[nbytes for _, nbytes in fill_buckets(pieces, *bucket_bytes)],
    )
    assumptions = []
    if link is None and len(counts) == 1:
        said = f"All-reduces were measured with {counts.pop()} workers only; their growth with "
        assumptions.append(Assumption(said + "more workers is assumed from the transport."))
    if inside is None:
        if link is None:
            return None
        inside = on_link(link)
        said = "Workers on one host were not measured together: assumed to be connected by "
        assumptions.append(Assumption(said + f"{link.name}, too.", of_link=True))
    if link is not None:
        said = f"The link between hosts, {link.name}, was not measured: assumed to be as stated."
        assumptions.append(Assumption(said, of_link=True))
    if all(found.cell.workers == 1 for found in cells):
        said = "No steps of several workers were measured: how much communication and computing "
        assumptions.append(Assumption(said + "slow each other down is a typical value."))
    line = ComputingLine(measured=tuple(computing), apart=tuple(apart))
    if len(line.batches) == 1:
        said = f"Only batch {line.batches[0]} was measured: compute time is assumed to be "
        assumptions.append(Assumption(said + "proportional to the batch."))
    return Replay(
        computing=line,
        network=Network(
            inside=inside, link=link, shape="flat" if ddp or transport == "nccl" else shape
        ),
        bucket_bytes=bucket_bytes,
        channels=_GLOO_CHANNELS if ddp and transport != "nccl" else 1,
        residuals_s=_residuals(cells),
        memory_bytes_per_s=calibration.memcpy_bytes_per_s or _MEMORY_BYTES_PER_S,
        assumptions=tuple(assumptions),
    )


def times_gradients(cells: Sequence[Measured]) -> bool:
    """Tell whether it was recorded when gradients were ready."""
    return any(rank.buckets for rank in _ranks(cells))


def _ranks(cells: Sequence[Measured]) -> list[Rank]:
    return [rank for found in cells for pace in found.paces for rank in pace.launch.ranks]
