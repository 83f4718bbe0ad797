"""What would be if: other buckets, half precision on the wire, accumulation; on paper."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from farandole.model.projection.records import Bucket
from farandole.model.projection.replay.computing import Computing

# To narrow a number reads 4 bytes and writes 2, to widen it the other way round: 6 of 4, each.
_CONVERTED_PER_BYTE = 1.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """How gradients are put together into buckets."""

    bucket_bytes: int
    """A bucket goes when it has at least so many."""
    first_bytes: int | None = None
    """Of the first bucket, where that is smaller."""


FARANDOLE_LAYOUT = Layout(bucket_bytes=8 << 20)
DDP_LAYOUT = Layout(bucket_bytes=25 << 20, first_bytes=1 << 20)
"""DDP's default: 25 MiB, and a first bucket of 1 MiB, so that the link is not idle for long."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """What is done otherwise than in the measured runs."""

    bucket_bytes: int | None = None
    half_precision: bool = False
    """Gradients are sent as float16: half the bytes, and converting them twice."""
    accumulation: int = 1
    """Backward passes per step, one exchange for all of them; the batch is that of one pass."""


def put_together(buckets: Sequence[Bucket], layout: Layout) -> tuple[Bucket, ...]:
    """Fill buckets with pieces, in their order; a piece is never cut."""
    filled: list[Bucket] = []
    open_bytes = 0
    for piece in buckets:
        open_bytes += piece.bytes
        least = layout.first_bytes if layout.first_bytes and not filled else layout.bucket_bytes
        if open_bytes >= least:
            filled.append(Bucket(bytes=open_bytes, ready_s=piece.ready_s))
            open_bytes = 0
    if open_bytes:
        filled.append(Bucket(bytes=open_bytes, ready_s=buckets[-1].ready_s))
    return tuple(filled)


def accumulated(computing: Computing, passes: int) -> Computing:
    """Compute several times before gradients go; only the last pass brings them."""
    before_s = (passes - 1) * (computing.end_s + computing.data_s)
    return replace(
        computing,
        buckets=tuple(replace(b, ready_s=b.ready_s + before_s) for b in computing.buckets),
        end_s=computing.end_s + before_s,
    )


def halved(computing: Computing, bytes_per_s: float) -> Computing:
    """Send half the bytes; converting takes time before a gradient goes and after all have come.

    Args:
        computing: as measured, with float32.
        bytes_per_s: how fast a worker reads or writes memory.
    """
    each_s = _CONVERTED_PER_BYTE / bytes_per_s
    gone = 0
    buckets = []
    for bucket in computing.buckets:
        gone += bucket.bytes
        half = Bucket(bytes=bucket.bytes // 2, ready_s=bucket.ready_s + gone * each_s)
        buckets.append(half)
    return replace(
        computing,
        buckets=tuple(buckets),
        end_s=computing.end_s + gone * each_s,
        update_s=computing.update_s + gone * each_s,
    )
