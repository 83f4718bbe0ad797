"""Fake worlds: real ranks that call functions, meet, fail and die."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from typing import Any

import pytest

from farandole.testing import FakeWorld, Member, Nursery, RankError

pytestmark = pytest.mark.ranks


@pytest.fixture
def world(nursery: Nursery) -> Iterator[FakeWorld]:
    with FakeWorld(3, nursery=nursery) as world:
        yield world


def test_values_come_in_rank_order(world: FakeWorld) -> None:
    assert world.run(lambda member, x: (member.rank, member.size, x), "x") == [
        (rank, 3, "x") for rank in range(3)
    ]


def test_ranks_are_processes_of_their_own(world: FakeWorld) -> None:
    assert world.run(lambda member: os.getpid()) == world.pids
    assert len({os.getpid(), *world.pids}) == 4


def test_ranks_meet(world: FakeWorld) -> None:
    def meet(member: Member) -> list[bytes]:
        return member.exchange(bytes([member.rank]))

    assert world.run(meet) == [[b"\0", b"\1", b"\2"]] * 3


def test_state_stays(world: FakeWorld) -> None:
    def count(member: Member) -> int:
        member.state["calls"] = calls = member.state.get("calls", 0) + 1
        return calls

    assert world.run(count) == [1, 1, 1]
    assert world.run(count) == [2, 2, 2]


def test_horovods_api_works_in_a_rank(world: FakeWorld) -> None:
    def reduce(member: Member) -> Any:
        import torch

        import farandole.torch as hvd

        hvd.init()
        return hvd.rank(), hvd.allreduce(torch.tensor([2.0]), op=hvd.Sum).item()

    assert world.run(reduce) == [(0, 6.0), (1, 6.0), (2, 6.0)]


def test_an_exception_comes_back_with_rank_and_traceback(world: FakeWorld) -> None:
    def fail(member: Member) -> None:
        if member.rank == 1:
            raise ValueError("bad loss")

    with pytest.raises(RankError, match="bad loss") as caught:
        world.run(fail)
    assert str(caught.value).startswith("rank 1:\nTraceback")
    assert world.run(lambda member: member.rank) == [0, 1, 2]


def test_a_killed_rank_is_missed(world: FakeWorld) -> None:
    world.start(lambda member: signal.pause() if member.rank == 2 else None)
    world.kill(2)
    assert world.finish([0, 1]) == [None, None]
    with pytest.raises(RankError, match="rank 2:\nit has ended"):
        world.finish([2])


def test_who_does_not_finish_is_named_and_ended(
    world: FakeWorld, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(TimeoutError, match=r"\[1\]"):
        world.run(lambda member: member.rank == 1 and time.sleep(60), timeout_s=0.5)


def test_a_world_of_its_own_nursery() -> None:
    with FakeWorld(1) as world:
        assert world.run(lambda member: member.size) == [1]
