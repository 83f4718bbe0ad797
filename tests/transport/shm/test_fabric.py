"""Segments and fabrics: what cannot be had is an error on every rank alike, and leaks nothing."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from farandole.testing import FakeWorld, Member, Nursery
from farandole.transport.choose import open_transport
from farandole.transport.shm.segment import Fabric, Segment, SegmentError, round_up
from farandole.world.environment import read_world


def descriptors() -> set[str]:
    return set(os.listdir("/proc/self/fd"))  # noqa: PTH208 - names are enough


def test_what_one_writes_the_other_reads() -> None:
    mine = Segment.create(8192)
    theirs = Segment.attach(mine.path, 8192)
    mine.array(64, 3, np.dtype(np.float32))[...] = [1, 2, 3]
    mine.words(0, 2)[1] = -5
    assert theirs.array(64, 3, np.dtype(np.float32)).tolist() == [1, 2, 3]
    assert theirs.words(0, 2).tolist() == [0, -5]
    mine.close()
    theirs.close()
    theirs.close()


def test_memory_outlives_close_while_somebody_looks_at_it() -> None:
    segment = Segment.create(4096)
    view = segment.bytes(0, 10)
    segment.close()
    view[...] = 7
    assert view.tolist() == [7] * 10


def test_what_cannot_be_had_is_an_error_and_leaks_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    # Never ask for too much in earnest: the kernel would end processes before it says no.
    monkeypatch.setattr(os, "posix_fallocate", full)
    before = descriptors()
    with pytest.raises(SegmentError, match=r"3\.0 MB were asked for .*No space left"):
        Segment.create(3_000_000)
    with pytest.raises(SegmentError, match="cannot be opened"):
        Segment.attach("/proc/self/fd/99999", 4096)
    assert descriptors() == before


def test_rounding() -> None:
    assert [round_up(n) for n in (0, 1, 64, 65)] == [0, 64, 64, 128]


@pytest.fixture
def world(nursery: Nursery) -> Iterator[FakeWorld]:
    with FakeWorld(3, nursery=nursery) as world:
        yield world


@pytest.mark.ranks
def test_fabrics_share_what_tells_of_a_peers_end(world: FakeWorld) -> None:
    def opened(member: Member) -> Any:
        before = len(descriptors())
        fabrics = [
            Fabric.open(member.rank, member.size, member.exchange, {"x": 100}) for _ in range(4)
        ]
        fabrics[0].words(member.rank, "x", 0, 1)[0] = 7
        member.exchange(b"")
        used, seen = len(descriptors()) - before, fabrics[0].words(0, "x", 0, 1)[0]
        fabrics.pop().close()
        member.exchange(b"")
        fabrics[0].check_peers()
        member.exchange(b"")
        for fabric in fabrics:
            fabric.close()
        return used, seen, len(descriptors()) - before

    # One for each peer, however many fabrics there are, and one for each fabric's own segment.
    assert world.run(opened) == [(2 + 4, 7, 0)] * 3


@pytest.mark.ranks
@pytest.mark.parametrize("broken", ["create", "attach"])
def test_one_rank_without_shared_memory_is_an_error_on_all(world: FakeWorld, broken: str) -> None:
    def attempt(member: Member) -> Any:
        if member.rank == 1:
            setattr(Segment, broken, refuse)
        before = descriptors()
        try:
            Fabric.open(member.rank, member.size, member.exchange, {"x": 100})
        except SegmentError as error:
            text = str(error)
        return text, descriptors() == before

    assert world.run(attempt) == [("Rank 1: none here", True)] * 3


@pytest.mark.ranks
def test_ranks_that_lay_memory_out_differently_are_told(world: FakeWorld) -> None:
    def attempt(member: Member) -> str:
        regions = {"x": 5000 if member.rank == 1 else 100}
        with pytest.raises(SegmentError) as caught:
            Fabric.open(member.rank, member.size, member.exchange, regions)
        return str(caught.value)

    words = "Rank 0: ranks 0, 1, 2 lay out their shared memory differently, in 8192, 12288, 8192"
    assert all(said.startswith(words) for said in world.run(attempt))


@pytest.mark.ranks
def test_memory_that_is_not_the_announced_one_is_refused(world: FakeWorld) -> None:
    def attempt(member: Member) -> str:
        others = Segment.create(1 << 20)

        def exchange(payload: bytes) -> list[bytes]:
            # Its path leads elsewhere, as where a process number was given out again.
            mine, error = json.loads(payload)
            if member.rank == 1 and "path" in mine:
                payload = json.dumps([mine | {"path": others.path}, error]).encode()
            return member.exchange(payload)

        with pytest.raises(SegmentError) as caught:
            Fabric.open(member.rank, member.size, exchange, {"x": 100})
        others.close()
        return str(caught.value)

    words = world.run(attempt)
    assert "is not the shared memory that a peer announced" in words[0]
    assert words == [words[0]] * 3


def refuse(*_: Any) -> Segment:
    raise SegmentError("none here")


@pytest.mark.ranks
def test_then_gloo_is_taken_and_says_so(world: FakeWorld) -> None:
    def opened(member: Member) -> Any:
        if member.rank == 1:
            Segment.create = refuse  # type: ignore[method-assign]
        found = open_transport(read_world(os.environ), member.exchange)
        found.transport.close()
        return found.transport.name, found.remark

    assert world.run(opened) == [("gloo", "Rank 1: none here Using gloo instead.")] * 3
