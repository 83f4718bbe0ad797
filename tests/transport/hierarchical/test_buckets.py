"""Gradient buckets of ranks on several hosts, as the engine sees them."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from farandole.engine.buckets import FULL, REPLAN, open_buckets
from farandole.testing import FakeWorld, Member, Nursery
from farandole.transport.reduction import AVERAGE
from tests.engine.ranks import close_engine, open_engine
from tests.transport.reference import reduced_by_hosts, same_bits, values

pytestmark = pytest.mark.ranks

HOSTS = [[0, 2], [1], [3]]
SHAPES = [(700_001, "float32"), (5, "float64"), (300_000, "bfloat16"), (1, "int32")]
"""More than a window of a megabyte, and less than one share."""
MEMORY = "memfd:farandole ("
"""How the kernel shows a segment; the board of the test is called otherwise."""


@pytest.fixture(scope="module")
def world(nursery: Nursery) -> Iterator[FakeWorld]:
    with FakeWorld(4, nursery=nursery) as world:
        world.run(open_engine, "hierarchical", None, HOSTS)
        world.run(prepare)
        yield world
        world.run(close_engine)


def prepare(member: Member) -> None:
    engine = member.state["engine"]
    member.state["buckets"] = open_buckets(engine, "test", SHAPES, note_bytes=1)


def fill(member: Member, step: int) -> None:
    for bucket, (count, dtype) in enumerate(SHAPES):
        data = values(dtype, count, 100 * step + 10 * bucket + member.rank)
        member.state["buckets"].arrays[bucket][...] = data


def reduce_all(member: Member, step: int, flags: int = FULL) -> list[Any]:
    """Submit all buckets, each rank in another order; change mine at once when it is done."""
    fill(member, step)
    buckets, engine = member.state["buckets"], member.state["engine"]
    note = np.array([member.rank], np.uint8)
    order = np.roll(range(len(SHAPES)), member.rank)
    handles = {i: buckets.submit(i, step, AVERAGE, flags, note) for i in order}
    found = []
    for bucket in range(len(SHAPES)):
        answers = engine.wait(handles[bucket])
        assert [(f, n.tolist()) for f, n in answers] == [(flags, [r]) for r in range(member.size)]
        found.append(buckets.arrays[bucket].copy())
        # As clipping would: nobody may read this rank's any more.
        buckets.arrays[bucket][...] = 0
    return found


def test_buckets_are_averaged_over_all_hosts(world: FakeWorld) -> None:
    for step in (1, 2, 3):
        found = world.run(reduce_all, step)
        for bucket, (count, dtype) in enumerate(SHAPES):
            sources = [values(dtype, count, 100 * step + 10 * bucket + r) for r in range(4)]
            right = reduced_by_hosts(sources, HOSTS, dtype, AVERAGE)
            for rank in range(4):
                assert same_bits(found[rank][bucket], right), (step, bucket, rank)


def test_nothing_is_reduced_when_a_rank_objects(world: FakeWorld) -> None:
    found = world.run(reduce_all, 4, REPLAN)
    for rank in range(4):
        assert same_bits(found[rank][0], values("float32", SHAPES[0][0], 400 + rank))


def test_they_lie_in_the_memory_of_the_host(world: FakeWorld) -> None:
    def shared(member: Member) -> bool:
        address = member.state["buckets"].arrays[0].ctypes.data
        for line in Path("/proc/self/maps").read_text().splitlines():
            low, high = (int(end, 16) for end in line.split()[0].split("-"))
            if low <= address < high:
                return MEMORY in line
        return False

    assert world.run(shared) == [True] * 4


def test_they_end_with_the_engine(nursery: Nursery) -> None:
    def leave(member: Member) -> list[str]:
        open_engine(member, "hierarchical", None, [[0, 1], [2]])
        prepare(member)
        close_engine(member)
        member.state.pop("buckets").close()
        gc.collect()
        return [line for line in Path("/proc/self/maps").read_text().splitlines() if MEMORY in line]

    with FakeWorld(3, nursery=nursery) as world:
        assert world.run(leave) == [[]] * 3
