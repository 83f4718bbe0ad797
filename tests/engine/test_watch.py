"""What init() opens for long waits, on real ranks of two hosts."""

from __future__ import annotations

import contextlib
import io
import os
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from farandole.engine.watch import open_watch
from farandole.errors import PeerDiedError
from farandole.testing import FakeWorld, Member, Nursery
from farandole.world.board import Board
from farandole.world.environment import read_world
from farandole.world.rendezvous import BoardRendezvous


def two_hosts(member: Member) -> str:
    """Rank 0 waits for ranks 1 and 3, one of them on its host, as the coordinator knows."""
    os.environ["FARANDOLE_STALL_WARNING"] = "0.2"
    place = read_world(os.environ)
    world = replace(place, hostname=f"h{member.rank // 2}", local_size=2)
    meeting: Any = SimpleNamespace(exchange=member.exchange)
    watch = open_watch(world, meeting)
    said = io.StringIO()
    if member.rank == 0:
        names = {"x": [1, 3]}
        watch.follow(SimpleNamespace(ranks=(0, 1, 2, 3), waiting=lambda: names))  # type: ignore[arg-type]
        with contextlib.redirect_stderr(said):
            while not said.getvalue():
                watch.look(blocked=True)
        watch.leave()
    member.exchange(b"")
    watch.close()
    return said.getvalue()


def failing(member: Member) -> str:
    with Board.open(os.environ["FARANDOLE_BOARD"]) as board:
        meeting = BoardRendezvous(board, member.rank, timeout_s=30)
        watch = open_watch(read_world(os.environ), meeting)
        if member.rank == 1:
            board.note_failure(1, "ValueError: bad", time_ns=1)
        member.exchange(b"")
        try:
            watch.look(blocked=False)
            if member.rank == 0:
                watch.look(blocked=True)
        except PeerDiedError as error:
            return str(error)
        finally:
            member.exchange(b"")
            watch.close()
    return ""


@pytest.mark.ranks
def test_stacks_are_of_ones_own_host(nursery: Nursery) -> None:
    with FakeWorld(4, nursery=nursery) as world:
        said, *others = world.run(two_hosts)
        assert "Missing ranks:\n1: [x]\n3: [x]\n" in said
        assert "rank 1 is here (most recent call first):\n" in said
        assert " in two_hosts\n" in said
        assert "where rank 3 is cannot be seen from here" in said
        assert others == [""] * 3
        assert world.run(failing) == [
            "Rank 1 failed: ValueError: bad. Rank 0 was waiting for it.",
            "",
            "",
            "",
        ]
