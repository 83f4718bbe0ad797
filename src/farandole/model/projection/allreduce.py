"""How long an all-reduce takes, by what moves and by how many: laws, and their fit to a sweep.

A law says how many messages one worker sends one after the other and how many bytes cross its link.
Time is a fixed part, a time per message and a time per byte:

    T(N, S) = setup + messages(N, S) x latency + bytes(N, S) x seconds per byte

The laws: a ring (Patarasuk and Yuan 2009), Gloo's ring with its chunks, a binary tree there and
back, and a bus that everybody's bytes go through, which is what the memory of one host is.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from farandole.model.projection.question import LinkSpeed
from farandole.study.records import Floats

Sweep = Sequence[tuple[int, int, float]]
"""(workers, bytes, seconds), as a calibration has them."""

# Gloo cuts each worker's share into at least two segments of at most this size, so that one is
# added while the next one arrives (gloo/allreduce.cc).
_GLOO_SEGMENT_BYTES = 1 << 20
_GLOO_FEWEST_SEGMENTS = 2
# What a worker sends with each message beside its data: headers, Gloo's own word before the data
# and its note that a peer may send, acknowledgements. 335 to 353 bytes in 3.7 to 4 frames, counted
# at an interface with 2 and 4 workers, all-reduces of 4 to 32 KiB; 412 at most, with 256 KiB.
_GLOO_BYTES_PER_MESSAGE = 340
# One number of workers says nothing of others: laws differ by a factor of two from 2 to 8.
_ONE_COUNT_ERROR = 0.3


def _ring(workers: int, nbytes: float) -> tuple[float, float]:
    return 2.0 * (workers - 1), 2.0 * (workers - 1) / workers * nbytes


def _gloo(workers: int, nbytes: float) -> tuple[float, float]:
    messages, moved = _ring(workers, nbytes)
    segments = math.ceil(nbytes / (workers * _GLOO_SEGMENT_BYTES))
    messages *= max(_GLOO_FEWEST_SEGMENTS, segments)
    return messages, moved + messages * _GLOO_BYTES_PER_MESSAGE


def _tree(workers: int, nbytes: float) -> tuple[float, float]:
    return 2.0 * math.log2(workers), 2.0 * nbytes if workers > 1 else 0.0


def _bus(workers: int, nbytes: float) -> tuple[float, float]:
    return float(workers - 1), workers * nbytes if workers > 1 else 0.0


LAWS: Mapping[str, Callable[[int, float], tuple[float, float]]] = {
    "ring": _ring,
    "gloo": _gloo,
    "tree": _tree,
    "bus": _bus,
}
"""By name: messages one after the other, and bytes over one link, of N workers and S bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """What one all-reduce takes: messages that find the link empty, and bytes that fill it."""

    latency_s: float
    transfer_s: float

    @property
    def seconds(self) -> float:
        """Both together."""
        return self.latency_s + self.transfer_s


@dataclass(frozen=True, slots=True, kw_only=True)
class AllReduce:
    """A law with its figures: all-reduces between workers of one kind of place."""

    law: str
    setup_s: float
    latency_s: float
    """Of one message."""
    seconds_per_byte: float
    error: float = 0.0
    """Of the fit: root mean square of the relative residuals; more where one count was measured."""
    shape: tuple[tuple[float, float], ...] = ()
    """(bytes, factor): how measured times lie beside the law by size; caches make the difference.
    Between sizes the factor is interpolated in logs."""

    def cost(self, workers: int, nbytes: float) -> Cost:
        """Return what an all-reduce of so many bytes by so many workers takes."""
        if workers < 2:
            return Cost(latency_s=0.0, transfer_s=0.0)
        messages, moved = LAWS[self.law](workers, nbytes)
        factor = 1.0
        if self.shape and nbytes > 0:
            sizes, factors = zip(*self.shape, strict=True)
            factor = math.exp(np.interp(math.log(nbytes), np.log(sizes), np.log(factors)))
        return Cost(
            latency_s=(self.setup_s + messages * self.latency_s) * factor,
            transfer_s=moved * self.seconds_per_byte * factor,
        )


def on_link(link: LinkSpeed) -> AllReduce:
    """Return what a link promises on paper, where nothing was measured."""
    return AllReduce(
        law="ring", setup_s=0.0, latency_s=link.latency_s, seconds_per_byte=1 / link.bytes_per_s
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Network:
    """Workers on one host or several: what is measured within one, and a link between them."""

    inside: AllReduce
    link: LinkSpeed | None = None
    """Of one host; None: all workers are like those that were measured, wherever they are."""
    shape: str = "flat"
    """How gradients go across hosts. "flat": one ring through all workers, as NCCL reckons it.
    "pairwise": each worker sends each other one its part, twice; the parts for other hosts share
    the link. "hierarchical": workers of a host fold in its memory, and one of them exchanges the
    result with the other hosts; windows follow each other, so that the slower of the two sets the
    pace."""

    def cost(self, workers: int, hosts: int, nbytes: float) -> Cost:
        """Return what an all-reduce takes, workers being evenly on the hosts."""
        inside, link = self.inside, self.link
        if hosts < 2 or link is None:
            return inside.cost(workers, nbytes)
        each = workers / hosts
        if self.shape == "hierarchical":
            within = inside.cost(math.ceil(each), nbytes)
            crossing_s = 2.0 * (hosts - 1) / hosts * nbytes / link.bytes_per_s
            return Cost(
                latency_s=within.latency_s + 2.0 * (hosts - 1) * link.latency_s,
                transfer_s=max(within.transfer_s, crossing_s),
            )
        segments = max(1.0, LAWS[inside.law](workers, nbytes)[0] / (2.0 * (workers - 1)))
        far = 2.0 * (hosts - 1)
        near = 2.0 * (workers - 1) - far
        moved = 2.0 * (workers - 1) / workers * nbytes
        if self.shape == "pairwise":
            moved = 2.0 * each * (workers - each) / workers * nbytes
        return Cost(
            latency_s=inside.setup_s + segments * (near * inside.latency_s + far * link.latency_s),
            transfer_s=moved / link.bytes_per_s,
        )


def usable(sweep: Sweep) -> Sweep:
    """Return the points with several workers and a time."""
    return [point for point in sweep if point[0] > 1 and point[1] > 0 and point[2] > 0]


def fit_allreduce(
    sweep: Sweep,
    law: str | None = None,
    *,
    latency_s: float | None = None,
    around: Sequence[int] = (),
) -> AllReduce | None:
    """Fit a law to measured all-reduces; None when there are none.

    Relative residuals are minimised, with no figure below 0. Where all have the same number of
    workers, a fixed part and messages cannot be told apart: the time of a message is `latency_s`
    then, measured from one worker to another, or else all is taken for messages.

    Args:
        sweep: (workers, bytes, seconds); what has one worker or no time is left out.
        law: one of LAWS; by default the one that foretells the most workers best from the fewer,
            or "ring" when there is only one number of workers.
        latency_s: of a message between two workers.
        around: bytes that matter; sizes four times as large or small count a fourth, and so on.
    """
    points = usable(sweep)
    if not points:
        return None
    if law is None:
        most = max(workers for workers, _, _ in points)
        fewer = [point for point in points if point[0] < most]
        largest = [point for point in points if point[0] == most]
        laws = LAWS if fewer else ("ring",)
        errors = {
            name: _error(_fit(fewer, name, latency_s, around), largest, around) if fewer else 0.0
            for name in laws
        }
        law = min(errors, key=errors.__getitem__)
    return _fit(points, law, latency_s, around)


def _fit(points: Sweep, law: str, latency_s: float | None, around: Sequence[int]) -> AllReduce:
    from scipy.optimize import nnls

    messages, moved = np.array([LAWS[law](workers, nbytes) for workers, nbytes, _ in points]).T
    seconds = np.array([second for _, _, second in points])
    known_s = 0.0
    one_count = len({workers for workers, _, _ in points}) == 1
    columns = [np.ones_like(seconds), messages, moved]
    if one_count:
        known_s = min(latency_s or 0.0, float(np.min(seconds / messages)))
        columns[1] = np.zeros_like(seconds)
        if not known_s:
            columns[0], columns[1] = columns[1], messages
    weights = np.sqrt(_weights(points, around))
    matrix = np.stack(columns, axis=1) * (weights / seconds)[:, None]
    target = weights * (1.0 - messages * known_s / seconds)
    # Columns of seconds and of bytes differ by nine digits: scaled, or the solver stops early.
    scale = np.where(matrix.max(axis=0) > 0, matrix.max(axis=0), 1.0)
    setup_s, message_s, byte_s = (nnls(matrix / scale, target)[0] / scale).tolist()
    plain = AllReduce(
        law=law, setup_s=setup_s, latency_s=message_s + known_s, seconds_per_byte=byte_s
    )
    # By size, how measured times lie beside the law, the same for all worker counts.
    beside: dict[int, list[float]] = {}
    for workers, nbytes, second in points:
        if (expected_s := plain.cost(workers, nbytes).seconds) > 0:
            beside.setdefault(nbytes, []).append(math.log(second / expected_s))
    shape = ((float(size), math.exp(np.mean(logs))) for size, logs in sorted(beside.items()))
    fitted = replace(plain, shape=tuple(shape))
    error = _error(fitted, points, around)
    return replace(fitted, error=max(error, _ONE_COUNT_ERROR) if one_count else error)


def _error(law: AllReduce, points: Sweep, around: Sequence[int]) -> float:
    residuals = [law.cost(w, nbytes).seconds / seconds - 1 for w, nbytes, seconds in points]
    return float(np.sqrt(np.average(np.square(residuals), weights=_weights(points, around))))


def _weights(points: Sweep, around: Sequence[int]) -> Floats:
    sizes = np.array([nbytes for _, nbytes, _ in points], dtype=np.float64)
    if not around:
        return np.ones_like(sizes)
    away = np.abs(np.log(sizes[:, None] / np.array(around, dtype=np.float64)))
    return np.asarray(np.exp(-away.min(axis=1)), dtype=np.float64)
