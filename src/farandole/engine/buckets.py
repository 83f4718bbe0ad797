"""Gradient buckets on any transport: in shared memory where that is, else private."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from farandole.engine import tracing
from farandole.engine.handle import Advancing, Handle
from farandole.engine.loop import Lane
from farandole.engine.signature import Signature
from farandole.errors import CollectiveError
from farandole.recorder.ending import refuse_if_ended
from farandole.transport.protocol import Buffer, Steps, Transport
from farandole.transport.reduction import STORAGE, Array, Reduction

if TYPE_CHECKING:
    from farandole.engine.engine import Engine
    from farandole.transport.hierarchical.transport import HostBuckets
    from farandole.transport.shm.buckets import SharedBuckets


Shapes = Sequence[tuple[int, str]]

# Flags of a bucket; an odd sum of them keeps it from being reduced.
REPLAN = 1
"""This rank has gradients that the plan has no place for."""
FULL = 2
"""All gradients of the bucket are there: nobody needs to read the note."""


class BucketSet(Protocol):
    """The buckets of one plan."""

    arrays: list[Any]
    """My memory, one flat array per bucket."""

    @property
    def busy_s(self) -> float | None:
        """How long this rank has moved data so far; None where others do that for it."""

    @property
    def in_one_memory(self) -> SharedBuckets | None:
        """Everybody's buckets, where all ranks share memory; None elsewhere."""

    def submit(self, bucket: int, step: int, how: Reduction, flags: int, note: Array) -> Handle:
        """Reduce a bucket in place once every rank has submitted it.

        The handle's result lists every rank's (flags, note). If any rank's flags are odd nothing
        is reduced; where all are FULL the notes may be left out.
        """

    def begun(self, step: int) -> bool:
        """Say whether a peer has begun this step; for a rank that has joined."""

    def close(self) -> None:
        """Let go of the memory."""


def open_buckets(
    engine: Engine, name: str, shapes: Shapes, note_bytes: int, *, device: str = "cpu"
) -> BucketSet:
    """Allocate buckets; all ranks call this together, with the same arguments."""
    allocate = engine.transport.buckets if device == "cpu" else None
    memory = allocate(engine.exchange, shapes, note_bytes) if allocate else None
    if memory is None or memory.by_name:
        return _ByName(engine, name, shapes, device, memory)
    return _InSharedMemory(engine, name, memory)


class _InSharedMemory:
    """Buckets that lie where they are reduced."""

    def __init__(self, engine: Engine, name: str, buckets: SharedBuckets) -> None:
        self._name, self._step, self._buckets = name, 0, buckets
        self.arrays: list[Any] = list(buckets.arrays)
        self._engine, self._loop = engine, engine.loop
        self._closed = False
        self._lane = Lane(in_order=False, check_peers=buckets.check_peers)
        self._loop.add(self._lane)
        engine.adopt(self)

    @property
    def busy_s(self) -> float | None:
        """How long this rank has moved data so far."""
        return self._buckets.busy_s

    @property
    def in_one_memory(self) -> SharedBuckets:
        """Everybody's buckets."""
        return self._buckets

    def submit(self, bucket: int, step: int, how: Reduction, flags: int, note: Array) -> Handle:
        """Start at once: the ready word is agreement enough."""
        refuse_if_ended()
        self._loop.refuse_if_forked()
        handle, self._step = Advancing(self._loop, self._lane), step
        steps = self._buckets.allreduce(bucket, step, how, flags, note)
        if tracing.tracer is not None:
            names = [f"{self._name}.bucket.{bucket}"]
            steps = tracing.tracer.follow(steps, names, "allreduce")
        with self._loop.exclusive():
            self._lane.start(steps, handle)
            self._lane.advance()
        return handle

    def begun(self, step: int) -> bool:
        """Say whether a peer's ready word is there."""
        return self._buckets.begun(step)

    def waiting(self) -> dict[str, None]:
        """Return the step that buckets are under way of."""
        return {f"{self._name}.step.{self._step}": None} if self._lane.busy else {}

    def close(self) -> None:
        """Leave the loop and the memory; what is under way fails."""
        if self._closed:
            return
        self._closed = True
        self._engine.release(self)
        self._loop.remove(self._lane)
        self._lane.fail(CollectiveError("The buckets were closed while one was under way."))
        self._buckets.close()


class _ByName:
    """Buckets that are agreed on like any named operation, in private memory or their host's.

    Over several hosts they are so in shared memory, too: the streams between hosts carry one bucket
    after the other, and need one order everywhere.
    """

    busy_s: float | None = None
    in_one_memory: SharedBuckets | None = None

    def __init__(
        self,
        engine: Engine,
        name: str,
        shapes: Shapes,
        device: str,
        shared: HostBuckets | None,
    ) -> None:
        self._engine, self._name, self._shapes, self._device = engine, name, shapes, device
        self._shared = shared
        self.arrays: list[Any] = (
            [_allocate(count, dtype, device) for count, dtype in shapes]
            if shared is None
            else list(shared.arrays)
        )
        if shared is not None:
            engine.adopt(self)

    def submit(self, bucket: int, step: int, how: Reduction, flags: int, note: Array) -> Handle:
        """Submit under the bucket's name."""
        (count, dtype), shared = self._shapes[bucket], self._shared
        buffer = Buffer(self.arrays[bucket], dtype)

        def reduce(transport: Transport) -> Steps:
            if shared is None:
                return transport.allreduce(buffer, buffer, how)
            return shared.allreduce(bucket, how)

        signature = Signature.reducing("bucket", dtype, (count,), how, self._device)
        operation = _BucketReduce(signature, reduce, flags, note, overlaps=shared is not None)
        return self._engine.submit(f"{self._name}.bucket.{bucket}", operation)

    def begun(self, step: int) -> bool:
        """Say whether the coordinator asks for one of these."""
        return any(
            self._engine.wanted(f"{self._name}.bucket.{bucket}")
            for bucket in range(len(self._shapes))
        )

    def waiting(self) -> dict[str, None]:
        """Return nothing: they wait as the named operations that they are."""
        return {}

    def close(self) -> None:
        """Let go of the memory."""
        self.arrays.clear()
        self._engine.release(self)
        shared, self._shared = self._shared, None
        if shared is not None:
            shared.close()


class _BucketReduce:
    """A reduction in place that also passes flags and notes around."""

    def __init__(
        self,
        signature: Signature,
        reduce: Callable[[Transport], Steps],
        flags: int,
        note: Array,
        *,
        overlaps: bool,
    ) -> None:
        self.signature, self.overlaps = signature, overlaps
        self.extra = [flags, note.tobytes().hex()]
        self._reduce = reduce

    def steps(self, transport: Transport, extras: list[Any]) -> Steps:
        """Reduce unless a rank objects; return what all ranks said."""
        if not any(flags & 1 for flags, _ in extras):
            yield from self._reduce(transport)
        answers = [(flags, np.frombuffer(bytes.fromhex(note), np.uint8)) for flags, note in extras]
        return answers  # type: ignore[return-value]


def _allocate(count: int, dtype: str, device: str) -> Any:
    # Zeros: what lies between gradients must not count in a norm of the whole.
    if device == "cpu":
        return np.zeros(count, STORAGE[dtype])
    import torch

    return torch.zeros(count, dtype=getattr(torch, dtype), device=device)


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
