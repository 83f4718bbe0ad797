"""What every transport must do: one class of tests that each implementation passes.

A subclass says how a rank opens the transport. All ranks of a class are started once; each test
sends them a function that runs many cases and compares to the last bit with the plain reference.
"""

from __future__ import annotations

import itertools
import os
import random
import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any, ClassVar

import numpy as np
import pytest

from farandole.testing import FakeWorld, Member, Nursery
from farandole.transport.protocol import Buffer, Steps, Transport
from farandole.transport.reduction import OPERATIONS, STORAGE, Reduction
from tests.transport.reference import (
    Array,
    allows,
    reduced,
    reduced_by_hosts,
    same_bits,
    values,
)

SMALL = (0, 1, 1001)
# More than the four slots of 256 KB that shared memory has, and not a whole number of them.
LARGE_BYTES = 6 * 256 * 1024 + 13 * 16
LARGE_TYPES = ("float32", "bfloat16", "complex128")


class TransportConformance:
    """Tests of a Transport; subclasses set `opener`."""

    opener: ClassVar[Callable[[Member], Transport]]
    hosts: ClassVar[dict[int, list[list[int]]]] = {}
    """By number of ranks, those of each host, where sums fold over hosts' ranks, then hosts."""

    @pytest.fixture(scope="class")
    @classmethod
    def world(cls, request: pytest.FixtureRequest, nursery: Nursery) -> Iterator[FakeWorld]:
        with FakeWorld(request.param, nursery=nursery) as world:
            world.run(open_transport, cls.opener, cls.hosts.get(world.size))
            yield world
            world.run(lambda member: member.state["transport"].close())

    def test_it_knows_its_place(self, world: FakeWorld) -> None:
        def place(member: Member) -> Any:
            transport: Transport = member.state["transport"]
            return transport.rank, transport.size, bool(transport.name)

        assert world.run(place) == [(rank, world.size, True) for rank in range(world.size)]

    def test_buckets_where_it_has_its_own(self, world: FakeWorld) -> None:
        def allocated(member: Member) -> Any:
            allocate = member.state["transport"].buckets
            if allocate is None:
                return None
            buckets = allocate(member.exchange, [(5, "float32"), (3, "bfloat16")], 1)
            try:
                return [(len(array), array.dtype.name) for array in buckets.arrays]
            finally:
                buckets.close()

        shapes = [(5, "float32"), (3, "uint16")]
        assert world.run(allocated) in ([None] * world.size, [shapes] * world.size)

    def test_allreduce(self, world: FakeWorld) -> None:
        assert world.run(for_every_type, allreduces) == [{}] * world.size

    def test_allreduce_of_many_windows(self, world: FakeWorld) -> None:
        assert world.run(for_every_type, large_allreduces) == [{}] * world.size

    def test_not_a_number_and_infinity(self, world: FakeWorld) -> None:
        assert world.run(unusual_allreduces) == [[]] * world.size

    def test_broadcast(self, world: FakeWorld) -> None:
        assert world.run(for_every_type, broadcasts) == [{}] * world.size

    def test_allgather(self, world: FakeWorld) -> None:
        assert world.run(for_every_type, allgathers) == [{}] * world.size

    def test_reducescatter(self, world: FakeWorld) -> None:
        assert world.run(for_every_type, reducescatters) == [{}] * world.size

    def test_alltoall(self, world: FakeWorld) -> None:
        assert world.run(for_every_type, alltoalls) == [{}] * world.size

    def test_many_in_a_row(self, world: FakeWorld) -> None:
        assert world.run(many) == [[]] * world.size

    def test_operations_return_while_a_peer_is_not_there(self, world: FakeWorld) -> None:
        """A step never blocks: the others get through many while rank 0 sleeps."""
        steps = world.run(steps_until_slow_rank)
        assert all(count > 3 for count in steps[1:])

    def test_messages_go_between_rank_0_and_the_others(self, world: FakeWorld) -> None:
        assert world.run(messages) == [[]] * world.size

    def test_living_peers_are_not_missed(self, world: FakeWorld) -> None:
        world.run(lambda member: member.state["transport"].check_peers())


def sized(sizes: tuple[int, ...]) -> pytest.MarkDecorator:
    """Run a conformance class with each of these numbers of ranks."""
    return pytest.mark.parametrize("world", sizes, indirect=True, ids="{}ranks".format)


# What follows runs on the ranks. Each returns the cases that went wrong.


def open_transport(
    member: Member, opener: Callable[[Member], Transport], hosts: list[list[int]] | None = None
) -> None:
    warnings.simplefilter("error")
    member.state["hosts"] = hosts
    member.state["transport"] = opener(member)


def wanted(member: Member, sources: list[Array], dtype: str, how: Reduction) -> Array:
    """What the transport under test should make of these."""
    hosts = member.state["hosts"]
    return (
        reduced(sources, dtype, how)
        if hosts is None
        else reduced_by_hosts(sources, hosts, dtype, how)
    )


def for_every_type(
    member: Member, cases: Callable[[Member, str], list[Any]]
) -> dict[str, list[Any]]:
    """Run cases with every type; return those with which some went wrong."""
    return {dtype: wrong for dtype in STORAGE if (wrong := cases(member, dtype))}


def large(dtype: str) -> list[int]:
    """A number of elements that takes several windows, for some of the types."""
    return [LARGE_BYTES // STORAGE[dtype].itemsize] if dtype in LARGE_TYPES else []


def drive(steps: Steps, deadline_s: float = 10.0) -> int:
    """Run an operation to its end; return how often it had to wait."""
    deadline = time.monotonic() + deadline_s
    waits = 0
    for _ in steps:
        waits += 1
        os.sched_yield() if waits < 100 else time.sleep(0.0002)
        assert time.monotonic() < deadline, "an operation does not end"
    return waits


def seed(*numbers: int) -> int:
    return sum(number * prime for number, prime in zip(numbers, (1, 1009, 15013), strict=False))


def reductions(dtype: str) -> Iterator[Reduction]:
    scales = [(1.0, 1.0), (0.25, 3.0)]
    for op, (pre, post) in itertools.product(OPERATIONS, scales):
        how = Reduction(op=op, prescale=pre, postscale=post)
        if allows(dtype, how):
            yield how


def check_allreduce(
    member: Member, dtype: str, sources: list[Array], how: Reduction, in_place: bool
) -> bool:
    mine = sources[member.rank].copy()
    target = mine if in_place else np.zeros_like(mine)
    drive(member.state["transport"].allreduce(Buffer(mine, dtype), Buffer(target, dtype), how))
    untouched = in_place or same_bits(mine, sources[member.rank])
    right = wanted(member, sources, dtype, how)
    if how.op == "product" and dtype.startswith("complex"):
        # NumPy multiplies a single complex number in place without the fused multiply-add that it
        # uses elsewhere.
        return untouched and np.allclose(target, right, rtol=1e-5, atol=0)
    return untouched and same_bits(target, right)


def allreduces(member: Member, dtype: str) -> list[Any]:
    wrong = []
    for how, count in itertools.product(reductions(dtype), SMALL):
        sources = [values(dtype, count, seed(r, count)) for r in range(member.size)]
        wrong += [
            (how, count, in_place)
            for in_place in (False, True)
            if not check_allreduce(member, dtype, sources, how, in_place)
        ]
    return wrong


def large_allreduces(member: Member, dtype: str) -> list[Any]:
    wrong = []
    for count in large(dtype):
        sources = [values(dtype, count, seed(r, 7)) for r in range(member.size)]
        for how, in_place in ((Reduction(), True), (Reduction(op="average", prescale=0.5), False)):
            if not check_allreduce(member, dtype, sources, how, in_place):
                wrong.append((how, in_place))
    return wrong


def unusual_allreduces(member: Member) -> list[Any]:
    unusual = np.array([np.nan, np.inf, -np.inf, 3e38, -0.0, 0.0], np.float32)
    sources = [np.roll(unusual, r) for r in range(member.size)]
    return [
        op
        for op in OPERATIONS
        if not check_allreduce(member, "float32", sources, Reduction(op=op), False)
    ]


def broadcasts(member: Member, dtype: str) -> list[Any]:
    wrong = []
    counts = (*SMALL, *large(dtype))
    for root, count in itertools.product(range(member.size), counts):
        data = values(dtype, count, seed(member.rank, count))
        drive(member.state["transport"].broadcast(Buffer(data, dtype), root))
        if not same_bits(data, values(dtype, count, seed(root, count))):
            wrong.append((root, count))
    return wrong


def uneven(size: int, dtype: str) -> list[list[int]]:
    """How many elements each rank has: equal, none, some none, some very many."""
    return [
        [5] * size,
        [0] * size,
        [0] * (size - 1) + [7],
        [3] + [0] * (size - 1),
        [r * 11 for r in range(size)],
        *([count if r == size - 1 else r for r in range(size)] for count in large(dtype)),
    ]


def allgathers(member: Member, dtype: str) -> list[Any]:
    wrong = []
    for counts in uneven(member.size, dtype):
        sources = [values(dtype, count, seed(r, count)) for r, count in enumerate(counts)]
        target = np.zeros(sum(counts), STORAGE[dtype])
        source = Buffer(sources[member.rank].copy(), dtype)
        drive(member.state["transport"].allgather(source, Buffer(target, dtype), counts))
        if not same_bits(target, np.concatenate(sources)):
            wrong.append(counts)
    return wrong


def reducescatters(member: Member, dtype: str) -> list[Any]:
    wrong = []
    hows = [h for h in (Reduction(), Reduction(op="average", postscale=3.0)) if allows(dtype, h)]
    for how, counts in itertools.product(hows, uneven(member.size, dtype)):
        sources = [values(dtype, sum(counts), seed(r, 3)) for r in range(member.size)]
        target = np.zeros(counts[member.rank], STORAGE[dtype])
        drive(
            member.state["transport"].reducescatter(
                Buffer(sources[member.rank].copy(), dtype), Buffer(target, dtype), counts, how
            )
        )
        start = sum(counts[: member.rank])
        stretch = slice(start, start + counts[member.rank])
        if not same_bits(target, wanted(member, [s[stretch] for s in sources], dtype, how)):
            wrong.append((how, counts))
    return wrong


def alltoalls(member: Member, dtype: str) -> list[Any]:
    wrong = []
    size = member.size
    matrices = [
        [[4] * size] * size,
        [[0] * size] * size,
        [[(i + j) % 3 for j in range(size)] for i in range(size)],
        [[9 if (i, j) == (size - 1, 0) else 0 for j in range(size)] for i in range(size)],
        *(
            [
                [count if (i, j) == (0, size - 1) else i + j for j in range(size)]
                for i in range(size)
            ]
            for count in large(dtype)
        ),
    ]
    for counts in matrices:
        sources = [values(dtype, sum(row), seed(r, 5)) for r, row in enumerate(counts)]
        parts = []
        for source, row in zip(sources, counts, strict=True):
            start = sum(row[: member.rank])
            parts.append(source[start : start + row[member.rank]])
        target = np.zeros(sum(map(len, parts)), STORAGE[dtype])
        source = Buffer(sources[member.rank].copy(), dtype)
        drive(member.state["transport"].alltoall(source, Buffer(target, dtype), counts))
        if not same_bits(target, np.concatenate(parts)):
            wrong.append(counts)
    return wrong


def many(member: Member, rounds: int = 200) -> list[Any]:
    """Operations of all kinds, types and sizes one behind the other, in one random order."""
    same, own = random.Random(1), random.Random(member.rank)
    wrong = []
    for number in range(rounds):
        kind = same.choice(["allreduce", "broadcast", "allgather"])
        dtype = same.choice(["float32", "float16", "int64", "uint8"])
        count = same.choice([1, 3, 100, 5000, 40_000])
        sources = [values(dtype, count, seed(r, number)) for r in range(member.size)]
        if own.random() < 0.1:
            time.sleep(own.random() * 1e-3)
        if kind == "allreduce":
            right = check_allreduce(member, dtype, sources, Reduction(), same.random() < 0.5)
        elif kind == "broadcast":
            root = same.randrange(member.size)
            data = sources[member.rank].copy()
            drive(member.state["transport"].broadcast(Buffer(data, dtype), root))
            right = same_bits(data, sources[root])
        else:
            target = np.zeros(count * member.size, STORAGE[dtype])
            source = Buffer(sources[member.rank].copy(), dtype)
            counts = [count] * member.size
            drive(member.state["transport"].allgather(source, Buffer(target, dtype), counts))
            right = same_bits(target, np.concatenate(sources))
        if not right:
            wrong.append((number, kind, dtype, count))
    return wrong


def steps_until_slow_rank(member: Member) -> int:
    member.exchange(b"")
    if member.rank == 0:
        time.sleep(0.2)
    data = np.ones(10, np.float32)
    buffer = Buffer(data, "float32")
    return drive(member.state["transport"].allreduce(buffer, buffer, Reduction()))


def messages(member: Member) -> list[Any]:
    link = member.state["transport"].link
    peers = range(1, member.size) if member.rank == 0 else [0]
    lengths = [0, 1, 1000, 300_000, 5, 700_000]
    sent = {p: [bytes([p, n]) * length for n, length in enumerate(lengths)] for p in peers}
    got: dict[int, list[bytes]] = {peer: [] for peer in peers}
    deadline = time.monotonic() + 10

    def collect(count: int) -> None:
        """Receive until every peer has sent so many; this also pushes what is queued here."""
        while min((len(received) for received in got.values()), default=count) < count:
            assert time.monotonic() < deadline, "messages do not arrive"
            for peer, message in link.receive():
                got[peer].append(message)
            time.sleep(0.0002)

    for n, length in enumerate(lengths):
        link.send(bytes([member.rank, n]) * length)
    collect(len(lengths))
    # Nobody may stop pushing before everybody has everything; rank 0 knows when that is.
    if member.rank == 0:
        collect(len(lengths) + 1)
        link.send(b"bye")
        collect(len(lengths) + 2)
    else:
        link.send(b"all here")
        collect(len(lengths) + 1)
        link.send(b"bye")
    return [peer for peer in peers if got[peer][: len(lengths)] != sent[peer]]
