"""A peer dies, or leaves, while the others wait for it: they learn soon who it was."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from farandole.engine.buckets import open_buckets
from farandole.errors import CollectiveError, PeerDiedError
from farandole.testing import FakeWorld, Member, Nursery
from farandole.transport.reduction import SUM
from tests.engine.ranks import close_engine, in_step, ones, open_engine, summing, total

pytestmark = pytest.mark.ranks

DEADLINE_S = 10.0
"""For a crowded machine; on a quiet one it takes milliseconds."""
LARGE = 5_000_000


@pytest.fixture(params=[("shm", 3), ("gloo", 3), ("hierarchical", 3)], ids=lambda p: p[0])
def world(request: pytest.FixtureRequest, nursery: Nursery) -> Iterator[FakeWorld]:
    name, size = request.param
    with FakeWorld(size, nursery=nursery) as world:
        world.run(open_engine, name)
        world.run(lambda member: member.state.update(transport=name))
        yield world


def large_operation(member: Member) -> None:
    member.state["engine"].run("large", summing(member.state["data"]))


def small_operation(member: Member) -> None:
    total(member, "small")


def bucket(member: Member) -> None:
    member.state["step"] = step = member.state.get("step", 0) + 1
    note = np.zeros(1, np.uint8)
    engine = member.state["engine"]
    engine.wait(member.state["buckets"].submit(0, step, SUM, 2, note))


def prepare(member: Member) -> None:
    member.state["data"] = ones(LARGE)
    member.state["buckets"] = open_buckets(
        member.state["engine"], "test", [(LARGE, "float32")], note_bytes=1
    )


def until_error(member: Member, operation: Callable[[Member], None]) -> tuple[str, float]:
    """Operate again and again; return the error, and when it came."""
    try:
        while True:
            operation(member)
    except PeerDiedError as error:
        return str(error), time.time()


def close_within(member: Member) -> tuple[float, list[str]]:
    """Shut down; return how long it took and which threads of ours are left."""
    before = time.monotonic()
    close_engine(member)
    left = [t.name for t in threading.enumerate() if t.name.startswith("farandole")]
    return time.monotonic() - before, left


@pytest.mark.parametrize("operation", [large_operation, small_operation, bucket])
@pytest.mark.parametrize("victim", [0, 2])
def test_a_killed_rank_is_named(
    world: FakeWorld, operation: Callable[[Member], None], victim: int
) -> None:
    if operation is not small_operation:
        world.run(prepare)
    # Once for all, so that everything is imported and agreed on when it counts.
    world.run(operation)
    others = [rank for rank in range(world.size) if rank != victim]
    world.start(until_error, operation)
    time.sleep(0.2)
    killed_at = time.time()
    world.kill(victim)
    for text, when in world.finish(others, timeout_s=30):
        assert f"ank {victim}" in text
        assert when - killed_at < DEADLINE_S
    world.start(close_within, ranks=others)
    for seconds, left in world.finish(others):
        assert seconds < DEADLINE_S
        assert left == []


def test_a_rank_that_leaves_is_named(world: FakeWorld) -> None:
    def leave(member: Member) -> str:
        total(member, "before")
        if member.rank == 1:
            close_engine(member)
            return ""
        try:
            total(member, "after")
        except PeerDiedError as error:
            return str(error)
        return "no error"

    texts = world.run(leave)
    assert "ank 1" in texts[0]
    assert "ank 1" in texts[2]


def test_who_has_done_its_part_may_leave(world: FakeWorld) -> None:
    """A rank that ends right after an operation is not missed by those who still finish it."""

    def part(member: Member, round: int) -> float:
        value = total(member, f"last.{round}", count=50_000)
        value += total(member, "small")
        close_engine(member)
        return value

    for round in range(5):
        if round:
            world.run(lambda member: open_engine(member, member.state["transport"]))
        assert world.run(part, round) == [12.0] * world.size


def test_what_is_under_way_at_shutdown_fails(world: FakeWorld) -> None:
    def forget(member: Member) -> Any:
        engine = member.state["engine"]
        total(member, "again")
        in_step(member)
        handles = []
        if member.rank == 0:
            handles = [
                engine.submit("again", summing(ones(4))),
                engine.submit("new", summing(ones(4))),
                engine.submit("large", summing(ones(100_000))),
            ]
        close_engine(member)
        return [(handle.done, type(handle.error).__name__) for handle in handles]

    assert world.run(forget) == [[(True, CollectiveError.__name__)] * 3, [], []]
