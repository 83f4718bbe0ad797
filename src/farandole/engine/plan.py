"""Which gradient lies where: the layout of buckets, pure and the same on every rank."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

BUCKET_BYTES = 8 * 1024 * 1024

# Every gradient starts on a cache line, so that copying into a bucket never straddles two.
_ALIGN_BYTES = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Gradient:
    """A gradient to be placed."""

    index: int
    """Which parameter, by its place in the optimizer."""
    count: int
    """Elements."""
    dtype: str
    itemsize: int
    group: int | None = None
    """Those of one group and type share a bucket, however large it gets."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a gradient lies."""

    bucket: int
    offset: int
    """Elements from the start of the bucket."""
    position: int
    """Its number among the gradients of its bucket."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The buckets, in the order in which backward fills them."""

    shapes: tuple[tuple[int, str], ...]
    """Elements and type of each bucket."""
    members: tuple[tuple[int, ...], ...]
    """Indices of the parameters in each bucket."""
    places: dict[int, Place]
    """By parameter index."""


def make_plan(gradients: Sequence[Gradient], bucket_bytes: int = BUCKET_BYTES) -> Plan:
    """Fill buckets with gradients in the order given; a bucket holds one type, of one group."""
    shapes: list[list[int | str]] = []
    members: list[list[int]] = []
    places: dict[int, Place] = {}
    open_bucket: dict[tuple[str, int | None], int] = {}
    for gradient in gradients:
        unit = max(_ALIGN_BYTES // gradient.itemsize, 1)
        kind = (gradient.dtype, gradient.group)
        bucket = open_bucket.get(kind)
        if bucket is None:
            bucket = open_bucket[kind] = len(shapes)
            shapes.append([0, gradient.dtype])
            members.append([])
        offset = int(shapes[bucket][0])
        places[gradient.index] = Place(bucket=bucket, offset=offset, position=len(members[bucket]))
        members[bucket].append(gradient.index)
        shapes[bucket][0] = offset + -(-gradient.count // unit) * unit
        full = int(shapes[bucket][0]) * gradient.itemsize >= bucket_bytes
        if full and gradient.group is None:
            del open_bucket[kind]
    return Plan(
        shapes=tuple((int(count), str(dtype)) for count, dtype in shapes),
        members=tuple(tuple(group) for group in members),
        places=places,
    )
