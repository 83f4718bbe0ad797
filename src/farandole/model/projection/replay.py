"""A training step replayed on paper, bucket by bucket, and fitted to what was measured.

What a replay needs is measured: when gradients are ready, what all-reduces take, how ranks scatter.
Three factors near 1 are fitted with priors, so that few launches do not mislead: how much
communication slows down beside computing, how much computing does beside communication, and how
all of it lies beside the measured times.
"""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import NormalDist

import numpy as np

from farandole.model.measured import Measured
from farandole.model.projection.allreduce import AllReduce, Cost, Network, fit_allreduce, on_link
from farandole.model.projection.intervals import Prediction, calibrated
from farandole.model.projection.question import LinkSpeed
from farandole.model.projection.steps import DDP_BUCKET_BYTES, StepRow
from farandole.study.records import Apart, Floats, GradientTimes, Link, Rank

# Workers whose training thread itself moves buckets, in the middle of backward.
_MOVES_ITSELF = "farandole"
# torch's process group works on two collectives at a time; NCCL and Farandole on one.
_GLOO_CHANNELS = 2
# What one core copies, where nobody measured it.
_MEMORY_BYTES_PER_S = 5e9
# To narrow a number reads 4 bytes and writes 2, to widen it the other way round: 6 of 4, each.
_CONVERTED_PER_BYTE = 1.5
# A maximum of N draws is resampled from at least so many times N residuals.
_PER_DRAW = 10
# Fewer residuals than this say how wide they are, but nothing of their tail.
_FEWEST_RESIDUALS = 20
_TAIL = 0.9
# Standard deviations of the logarithms of the three factors, before anything was measured.
_PRIOR_SD = np.array([0.2, 0.3, 0.1])
# Beyond these a factor stands for something else than what it is called.
_LARGEST = np.log([5.0, 10.0, 2.0])
# What the median of a launch is known to.
_ROW_SD = 0.03
# The network's speed: on paper, and measured at best.
_PAPER_SD, _LEAST_SD = 0.3, 0.03
# What no replay has, for each doubling beyond the measured workers.
_DRIFT_SD = 0.05


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
        counts = np.array([workers for workers, _ in self.measured], dtype=float)
        factors = np.array([factor for _, factor in self.measured])
        if per_host <= counts[-1]:
            return float(np.interp(per_host, counts, factors))
        over = counts[1:] - counts[0]
        slope = float(over @ (factors[1:] - factors[0]) / (over @ over)) if len(over) else 0.0
        return float(factors[-1] + slope * (per_host - counts[-1]))


def contention_of(
    apart: Iterable[Apart], pair: Callable[[Apart], tuple[float | None, float | None]]
) -> Contention | None:
    """Return how copies of a script slow each other down; None where nobody measured it.

    Args:
        apart: one for each number of workers.
        pair: what one took alone, and each took with all at once.
    """
    pairs = {one.cell.workers: pair(one) for one in apart}
    factors = {workers: both / one for workers, (one, both) in pairs.items() if one and both}
    return _slowed(factors) if factors else None


def _slowed(factors: Mapping[int, float]) -> Contention:
    """Return the contention of factors by workers; none is below 1, which only noise can make."""
    pairs = {1: 1.0} | {workers: max(1.0, factor) for workers, factor in factors.items()}
    return Contention(measured=tuple(sorted(pairs.items())))


def computing_contention(apart: Iterable[Apart]) -> Contention | None:
    """Return how much longer workers of a host compute, each for itself; None if not measured."""
    return contention_of(apart, lambda one: (one.computing_alone_s, one.computing_together_s))


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
    alone, together = [], {}
    for one in apart:
        if one.loaded_alone_per_s and one.loaded_together_per_s:
            workers = one.cell.workers
            alone.append(one.loaded_alone_per_s)
            together[workers] = max(one.loaded_together_per_s, trained.get(workers, 0.0))
    if not alone:
        return None
    alone_per_s = max(float(np.median(alone)), trained.get(1, 0.0))
    factors = {workers: alone_per_s / each for workers, each in together.items()}
    return InputRate(alone_per_s=alone_per_s, contention=_slowed(factors))


@dataclass(frozen=True, slots=True, kw_only=True)
class Bucket:
    """One gradient bucket of a step, in the order in which buckets are reduced."""

    bytes: int
    ready_s: float
    """Computing alone; from the begin of computing, forward included, unless it says otherwise."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Computing:
    """A step's computing at one batch, with so many workers on the host at once.

    Times are medians over the sampled steps, ranks and launches of a cell, in seconds from the
    moment at which the worker had its batch.
    """

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
        """What a step takes that sends nothing."""
        return self.data_s + self.end_s + self.update_s

    def slowed(self, factor: float) -> Computing:
        """Let forward and backward take so many times as long."""
        return replace(
            self,
            buckets=tuple(replace(b, ready_s=b.ready_s * factor) for b in self.buckets),
            end_s=self.end_s * factor,
        )

    def accumulated(self, passes: int) -> Computing:
        """Compute several times before gradients go; only the last pass brings them."""
        before_s = (passes - 1) * (self.end_s + self.data_s)
        return replace(
            self,
            buckets=tuple(replace(b, ready_s=b.ready_s + before_s) for b in self.buckets),
            end_s=self.end_s + before_s,
        )

    def in_half_precision(self, bytes_per_s: float) -> Computing:
        """Send half the bytes; converting takes time before a gradient goes and after all came.

        Args:
            bytes_per_s: how fast a worker reads or writes memory.
        """
        each_s = _CONVERTED_PER_BYTE / bytes_per_s
        sent = 0
        buckets = []
        for bucket in self.buckets:
            sent += bucket.bytes
            buckets.append(Bucket(bytes=bucket.bytes // 2, ready_s=bucket.ready_s + sent * each_s))
        return replace(
            self,
            buckets=tuple(buckets),
            end_s=self.end_s + sent * each_s,
            update_s=self.update_s + sent * each_s,
        )


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
        updating = contention_of(
            self.apart, lambda one: (one.update_alone_s, one.update_together_s)
        )
        # Rates: the time per sample is their inverse.
        loading = contention_of(
            self.apart, lambda one: (one.loaded_together_per_s, one.loaded_alone_per_s)
        )
        return replace(
            found.slowed(self.slowed_down(per_host)),
            per_host=per_host,
            update_s=found.update_s * self._over_base(updating, per_host),
            data_s=found.data_s * self._over_base(loading, per_host),
        )

    def slowed_down(self, per_host: int) -> float:
        """Return how much longer computing takes than with the fewest measured workers."""
        return self._over_base(self._contention(), per_host)

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
        known = computing_contention(self.apart)
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


def _at_batch(measured: Sequence[Computing], batch: int) -> Computing:
    nearest = min(measured, key=lambda one: abs(one.batch - batch))
    sizes = [bucket.bytes for bucket in nearest.buckets]
    alike = [one for one in measured if [b.bytes for b in one.buckets] == sizes]
    batches = np.array([one.batch for one in alike], dtype=float)
    if len(set(batches)) < 2:
        factor = batch / nearest.batch
        return replace(nearest.slowed(factor), batch=batch, data_s=nearest.data_s * factor)
    ready_s = _line(batches, [[b.ready_s for b in one.buckets] for one in alike], batch)
    rest = _line(batches, [[one.end_s, one.update_s, one.data_s] for one in alike], batch)
    return _computing(batch, nearest.per_host, sizes, ready_s, rest)


def _line(batches: Floats, columns: Sequence[Sequence[float]], batch: int) -> Floats:
    """Return straight lines at a batch; none of them falls, and none is below 0."""
    values = np.array(columns)
    middle = batches.mean()
    spread = batches - middle
    slopes = np.maximum(0.0, spread @ (values - values.mean(axis=0)) / (spread @ spread))
    return np.asarray(np.maximum(0.0, values.mean(axis=0) + slopes * (batch - middle)))


def _computing(
    batch: int, per_host: int, sizes: Sequence[int], ready_s: Floats, rest: Floats
) -> Computing:
    """Return the computing of buckets that come in order, and of (end, update, data)."""
    ordered_s = np.maximum.accumulate(ready_s).tolist()
    return Computing(
        batch=batch,
        per_host=per_host,
        buckets=tuple(
            Bucket(bytes=nbytes, ready_s=ready)
            for nbytes, ready in zip(sizes, ordered_s, strict=True)
        ),
        end_s=max(float(rest[0]), ordered_s[-1]),
        update_s=float(rest[1]),
        data_s=float(rest[2]),
    )


def computing_of(found: Measured) -> Computing | None:
    """Return a cell's computing; None when nobody looked when its gradients were ready."""
    samples = [
        sample
        for pace in found.paces
        for rank in pace.launch.ranks
        for times in rank.buckets
        if max(pace.warmup, 1) <= times.step < len(rank.steps) and times.bytes
        if (sample := _sample(rank, times)) is not None
    ]
    if not samples or found.worker_batch is None:
        return None
    # The order in which gradients come may differ now and then: the usual one counts.
    (usual, _), *_ = Counter(sizes for sizes, _, _ in samples).most_common(1)
    alike = [(ready, rest) for sizes, ready, rest in samples if sizes == usual]
    return _computing(
        found.worker_batch,
        max(1, found.cell.workers // found.cell.hosts),
        usual,
        np.median([ready for ready, _ in alike], axis=0),
        np.median([rest for _, rest in alike], axis=0),
    )


def _sample(
    rank: Rank, times: GradientTimes
) -> tuple[tuple[int, ...], list[float], tuple[float, float, float]] | None:
    """Return sizes, when they were ready, and (end, update, data) of one step."""
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
    arrived_s = max(end_s, finite(steps.done_s[at], last_s))
    update_s = steps.end_s[at] - arrived_s
    if ready_s[0] < 0 or update_s < 0:
        return None  # another order of things than ours: gradients before the batch
    return times.bytes, ready_s.tolist(), (end_s - begin_s - hidden_s, update_s, data_s)


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """How gradients are put together into buckets."""

    bucket_bytes: int
    """A bucket goes when it has at least so many."""
    first_bytes: int | None = None
    """Of the first bucket, where that is smaller."""


FARANDOLE_LAYOUT = Layout(bucket_bytes=8 << 20)
DDP_LAYOUT = Layout(bucket_bytes=DDP_BUCKET_BYTES, first_bytes=1 << 20)
"""DDP's default: 25 MiB, and a first bucket of 1 MiB, so that the link is not idle for long."""


def fill_buckets(pieces: Sequence[Bucket], layout: Layout) -> tuple[Bucket, ...]:
    """Fill buckets with pieces, in their order; a piece is never cut."""
    filled: list[Bucket] = []
    open_bytes = 0
    for piece in pieces:
        open_bytes += piece.bytes
        least = layout.first_bytes if layout.first_bytes and not filled else layout.bucket_bytes
        if open_bytes >= least:
            filled.append(Bucket(bytes=open_bytes, ready_s=piece.ready_s))
            open_bytes = 0
    if open_bytes:
        filled.append(Bucket(bytes=open_bytes, ready_s=pieces[-1].ready_s))
    return tuple(filled)


@dataclass(frozen=True, slots=True, kw_only=True)
class Replayed:
    """A step as it would go."""

    step_s: float
    exposed_s: float
    """What the step takes longer than computing alone: waiting, and being slowed down."""


@dataclass(slots=True)
class _Transfer:
    latency_s: float
    transfer_s: float


def replay(
    buckets: Sequence[Bucket],
    cost: Callable[[int], Cost],
    *,
    backward_s: float | None = None,
    update_s: float = 0.0,
    slowdown: float = 1.0,
    contention: float = 1.0,
    channels: int = 1,
    overlap: bool = True,
) -> Replayed:
    """Replay a step: a bucket goes as soon as it is ready and a channel is free.

    Computing and sending work at once, and each slows the other down.

    Args:
        buckets: in the order in which they go; when each is ready, computing alone.
        cost: of an all-reduce of so many bytes.
        backward_s: when computing is over, on the buckets' clock; by default with the last bucket.
        update_s: the optimizer's, and whatever else follows the last gradient.
        slowdown: of communication while computing goes on, at least 1.
        contention: of computing while communication goes on, at least 1.
        channels: buckets on their way at a time; they share the link.
        overlap: False: no bucket goes before computing is over.
    """
    computing_s = max([backward_s or 0.0, *(bucket.ready_s for bucket in buckets)])
    marks = deque(
        (bucket.ready_s if overlap else computing_s, bucket.bytes)
        for bucket in sorted(buckets, key=lambda bucket: bucket.ready_s)
    )
    done_s, now_s = 0.0, 0.0
    waiting: deque[_Transfer] = deque()
    moving: list[_Transfer] = []
    while True:
        while marks and done_s >= marks[0][0]:
            costs = cost(marks.popleft()[1])
            if costs.seconds > 0:
                waiting.append(_Transfer(costs.latency_s, costs.transfer_s))
        moving = [one for one in moving if one.latency_s > 0 or one.transfer_s > 0]
        while waiting and len(moving) < channels:
            moving.append(waiting.popleft())
        computes = done_s < computing_s
        if not computes and not moving:
            break
        mark_s = marks[0][0] if marks else computing_s
        pace = 1 / contention if moving else 1.0
        drag = slowdown if computes else 1.0
        sharing = sum(one.latency_s <= 0 for one in moving)
        spans = [one.latency_s * drag or one.transfer_s * drag * sharing for one in moving]
        if computes:
            spans.append((mark_s - done_s) / pace)
        span_s = min(spans)
        if computes:
            # Exactly, or rounding leaves a rest that no span reaches.
            reached = (mark_s - done_s) / pace <= span_s
            done_s = mark_s if reached else done_s + span_s * pace
        for one, own_s in zip(moving, spans, strict=False):
            if one.latency_s > 0:
                one.latency_s = 0.0 if own_s <= span_s else one.latency_s - span_s / drag
            else:
                moved_s = span_s / (drag * sharing)
                one.transfer_s = 0.0 if own_s <= span_s else one.transfer_s - moved_s
        now_s += span_s
    return Replayed(step_s=now_s + update_s, exposed_s=max(0.0, now_s - computing_s))


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """What is done otherwise than in the measured runs."""

    bucket_bytes: int | None = None
    half_precision: bool = False
    """Gradients are sent as float16: half the bytes, and converting them twice."""
    accumulation: int = 1
    """Backward passes per step, one exchange for all of them; the batch is that of one pass."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Factors:
    """What a replay cannot know beforehand."""

    slowdown: float = 1.0
    """Of communication while computing goes on."""
    contention: float = 1.0
    """Of computing while communication goes on."""
    correction: float = 1.0
    """Measured over replayed."""
    overlap: bool = True
    """Whether buckets go before computing is over."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayInputs:
    """All that a replay needs beside the rows that it is fitted to."""

    computing: ComputingLine
    network: Network
    layout: Layout = FARANDOLE_LAYOUT
    channels: int = 1
    """Buckets on their way at a time."""
    residuals_s: Floats = field(default_factory=lambda: np.empty(0))
    """How single workers' computing scatters, sorted; empty where nobody measured it."""
    memory_bytes_per_s: float = _MEMORY_BYTES_PER_S
    """Of one worker, for what converting gradients takes."""
    change: Change = field(default_factory=Change)
    assumptions: tuple[str, ...] = ()

    def replay(
        self, workers: int, hosts: int, batch: int, factors: Factors, network_speed: float = 1.0
    ) -> Replayed:
        """Replay one step, the wait for the slowest worker included.

        Args:
            workers: all of them.
            hosts: that they are on, evenly.
            batch: per worker, and per backward pass.
            factors: `correction` is not applied here.
            network_speed: over what the network is taken for.
        """
        each, change = self.computing.at(batch, math.ceil(workers / hosts)), self.change
        if change.half_precision:
            each = each.in_half_precision(self.memory_bytes_per_s)
        if change.accumulation > 1:
            each = each.accumulated(change.accumulation)
        layout = Layout(bucket_bytes=change.bucket_bytes) if change.bucket_bytes else self.layout

        def cost(nbytes: int) -> Cost:
            one = self.network.cost(workers, hosts, nbytes)
            return Cost(
                latency_s=one.latency_s / network_speed, transfer_s=one.transfer_s / network_speed
            )

        return replay(
            fill_buckets(each.buckets, layout),
            cost,
            backward_s=each.end_s,
            update_s=each.update_s + each.data_s + slowest_s(self.residuals_s, workers),
            slowdown=factors.slowdown,
            contention=factors.contention,
            channels=self.channels,
            overlap=factors.overlap,
        )


def replay_inputs(
    cells: Sequence[Measured],
    calibration: Link,
    *,
    link: LinkSpeed | None = None,
    apart: Sequence[Apart] = (),
) -> ReplayInputs | None:
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
    layout = FARANDOLE_LAYOUT
    if ddp:
        sizes = {rank.bucket_bytes for rank in ranks} - {None, DDP_LAYOUT.bucket_bytes}
        # Who sets a size has no small first bucket.
        layout = Layout(bucket_bytes=max(filter(None, sizes))) if sizes else DDP_LAYOUT
    law: str | None = None
    if ddp or transport in ("gloo", "nccl"):
        law = "ring" if transport == "nccl" else "gloo"
    elif len({workers for workers, _, _ in calibration.allreduce}) == 1:
        # Shared memory: with more workers at most everybody's bytes go through one bus.
        law = "bus"
    if ddp or transport == "nccl":
        shape = "flat"
    else:
        # As farandole.transport.choose: Gloo between all workers only where somebody asks for it.
        shape = "pairwise" if transport == "gloo" else "hierarchical"
    inside = fit_allreduce(
        calibration.allreduce,
        law,
        latency_s=calibration.latency_s,
        around=[bucket.bytes for bucket in fill_buckets(computing[0].buckets, layout)],
    )
    assumptions = _assumptions(calibration, link, inside)
    if inside is None:
        if link is None:
            return None
        inside = on_link(link)
    return ReplayInputs(
        computing=ComputingLine(measured=tuple(computing), apart=tuple(apart)),
        network=Network(inside=inside, link=link, shape=shape),
        layout=layout,
        channels=_GLOO_CHANNELS if ddp and transport != "nccl" else 1,
        residuals_s=_residuals(cells),
        memory_bytes_per_s=calibration.memcpy_bytes_per_s or _MEMORY_BYTES_PER_S,
        assumptions=assumptions,
    )


def times_gradients(cells: Sequence[Measured]) -> bool:
    """Tell whether it was recorded when gradients were ready."""
    return any(rank.buckets for rank in _ranks(cells))


def _ranks(cells: Sequence[Measured]) -> list[Rank]:
    return [rank for found in cells for pace in found.paces for rank in pace.launch.ranks]


def _assumptions(
    calibration: Link, link: LinkSpeed | None, inside: AllReduce | None
) -> tuple[str, ...]:
    counts = {workers for workers, _, _ in calibration.allreduce}
    if link is None:
        if len(counts) != 1:
            return ()
        return (
            f"All-reduces were measured with {counts.pop()} workers only: how they grow with more "
            "is taken from what moves the gradients.",
        )
    unmeasured = f"The link between hosts, {link.name}, was not measured: it is taken at its word."
    if inside is not None:
        return (unmeasured,)
    return (
        "Workers of one host were not measured together: they are taken as connected by "
        f"{link.name}, too.",
        unmeasured,
    )


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


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayFit:
    """A model's step time by replay; a StepFit."""

    inputs: ReplayInputs
    factors: Factors
    measured_workers: int
    """The most that rows were fitted to."""
    covariance: Floats
    """Of the logarithms of slowdown, contention and correction."""
    error: float | None
    """Root mean square of log errors on worker counts that were left out; None without any."""
    assumptions: tuple[str, ...]
    forms: tuple[tuple[str, float], ...] = (("replay", 1.0),)

    def at(self, workers: int, hosts: int, batch: int, /) -> Prediction:
        """Return the seconds of a step."""

        log_s = self._log_s(workers, hosts, batch, _logs(self.factors))
        ratio = workers / self.measured_workers
        # All of it hidden, and none of it.
        shown = self.inputs.replay(workers, hosts, batch, Factors(overlap=False))
        bounds = (math.log(shown.step_s - shown.exposed_s), math.log(shown.step_s))
        sd = math.hypot(self.spread(workers, hosts, batch), _DRIFT_SD * math.log2(max(1.0, ratio)))
        return calibrated(log_s, (sd, sd), ratio, few=True, bounds=bounds)

    def spread(self, workers: int, hosts: int, batch: int) -> float:
        """Return how well a step is known: the standard deviation of its logarithm.

        Each factor is moved by as much as the measurements leave open, and so is the network. No
        step is known better than the median of a launch.
        """
        logs = _logs(self.factors)
        base = self._log_s(workers, hosts, batch, logs)
        open_by = np.sqrt(np.diag(self.covariance))
        moved = [
            self._log_s(workers, hosts, batch, logs + open_by * (place == np.arange(3))) - base
            for place in range(3)
        ]
        slopes = np.array(moved) / open_by
        network = self.inputs.network
        on_paper = not network.inside.error or (hosts > 1 and network.link is not None)
        network_sd = _PAPER_SD if on_paper else max(_LEAST_SD, network.inside.error)
        faster, slower = (
            self._log_s(workers, hosts, batch, logs, math.exp(side * network_sd))
            for side in (1, -1)
        )
        within = float(slopes @ self.covariance @ slopes)
        return math.sqrt(within + ((slower - faster) / 2) ** 2 + _ROW_SD**2)

    def _log_s(
        self, workers: int, hosts: int, batch: int, logs: Floats, network_speed: float = 1.0
    ) -> float:
        factors = _factors(logs, self.factors.overlap)
        step_s = self.inputs.replay(workers, hosts, batch, factors, network_speed).step_s
        # One worker's step is what its computing was measured to be.
        return math.log(step_s * (factors.correction if workers > 1 else 1.0))

    def with_change(self, change: Change) -> ReplayFit:
        """Return the same with something done otherwise."""
        return replace(self, inputs=replace(self.inputs, change=change))


def fit_replay(
    inputs: ReplayInputs, rows: Sequence[StepRow], *, overlap: bool | None = None
) -> ReplayFit:
    """Fit the three factors to measured steps.

    Args:
        inputs: of the replay.
        rows: measured steps; those of one worker say nothing of communication. None at all will
            do: the priors hold then, and the intervals are wide.
        overlap: whether buckets go before computing is over; by default what suits the rows better,
            or that they do when there are none.
    """
    together = [row for row in rows if row.workers > 1]
    ways = (True, False) if overlap is None and together else (overlap is not False,)
    fits = [(*_fit_factors(inputs, together, way), way) for way in ways]
    logs, covariance, _, best = min(fits, key=lambda fit: fit[2])
    assumptions = list(inputs.assumptions)
    if not together:
        assumptions.append(
            "Nobody measured steps of several workers: how communication and computing slow each "
            "other down is taken from experience."
        )
    if len(inputs.computing.batches) == 1:
        assumptions.append(
            f"Only batch {inputs.computing.batches[0]} was measured: at others computing is taken "
            "as proportional to it."
        )
    return ReplayFit(
        inputs=inputs,
        factors=_factors(logs, best),
        measured_workers=max((row.workers for row in rows), default=1),
        covariance=covariance,
        error=_left_out_error(inputs, together, best),
        assumptions=tuple(assumptions),
    )


def _fit_factors(
    inputs: ReplayInputs, rows: Sequence[StepRow], overlap: bool
) -> tuple[Floats, Floats, float]:
    """Return the factors' logarithms, their covariance and the loss, by least squares of logs."""
    if not rows:
        return np.zeros(3), np.diag(_PRIOR_SD**2), 0.0
    from scipy.optimize import least_squares

    def residuals(logs: Floats) -> Floats:
        errors = _log_errors(inputs, rows, _factors(logs, overlap))
        return np.concatenate([errors / _ROW_SD, logs / _PRIOR_SD])

    # From the priors' middle: they make one valley of it.
    bounds = ([0.0, 0.0, -_LARGEST[2]], _LARGEST)
    found = least_squares(residuals, [0.05, 0.05, 0.0], bounds=bounds, diff_step=1e-3)
    return found.x, np.linalg.inv(found.jac.T @ found.jac), float(found.cost)


def _log_errors(inputs: ReplayInputs, rows: Sequence[StepRow], factors: Factors) -> Floats:
    """Return the logarithms of measured over replayed."""
    settings = {(row.workers, row.hosts, row.batch) for row in rows}
    replayed_s = {setting: inputs.replay(*setting, factors).step_s for setting in settings}
    return np.array(
        [
            math.log(row.step_s / replayed_s[row.workers, row.hosts, row.batch])
            - math.log(factors.correction)
            for row in rows
        ]
    )


def _left_out_error(inputs: ReplayInputs, rows: Sequence[StepRow], overlap: bool) -> float | None:
    squares: list[float] = []
    for workers in {row.workers for row in rows}:
        logs, *_ = _fit_factors(inputs, [row for row in rows if row.workers != workers], overlap)
        held = [row for row in rows if row.workers == workers]
        squares += np.square(_log_errors(inputs, held, _factors(logs, overlap))).tolist()
    return math.sqrt(math.fsum(squares) / len(squares)) if squares else None


def _factors(logs: Floats, overlap: bool) -> Factors:
    slowdown, contention, correction = (float(value) for value in np.exp(logs))
    return Factors(slowdown=slowdown, contention=contention, correction=correction, overlap=overlap)


def _logs(factors: Factors) -> Floats:
    return np.log([factors.slowdown, factors.contention, factors.correction])
