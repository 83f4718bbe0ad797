"""What init() opens for long waits, on real ranks of two hosts."""

from __future__ import annotations

import contextlib
import io
import os
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from farandole.errors import PeerDiedError
from farandole.stalls.inspector import open_watch
from farandole.testing import FakeWorld, Member, Nursery
from farandole.transport.protocol import LOOPBACK
from farandole.world.board import Board
from farandole.world.environment import read_world
from farandole.world.rendezvous import BoardRendezvous


def two_hosts(member: Member, told: Path) -> str:
    """Ranks 1 and 2 wait, each the neighbour of one who does not; return what they say."""
    os.environ["FARANDOLE_STALL_WARNING"] = "3"
    place = read_world(os.environ)
    world = replace(place, hostname=f"h{member.rank // 2}", local_size=2)
    meeting: Any = SimpleNamespace(exchange=member.exchange)
    watch = open_watch(world, meeting, LOOPBACK)
    said = io.StringIO()
    if member.rank in (1, 2):
        names = {"x": None}
        watch.follow(SimpleNamespace(ranks=(0, 1, 2, 3), waiting=lambda: names))  # type: ignore[arg-type]
        with contextlib.redirect_stderr(said):
            while not told.exists():
                watch.look(blocked=True)
                if "3: [x]" in said.getvalue():
                    told.touch()
        watch.leave()
    member.exchange(b"")
    watch.close()
    return said.getvalue()


def failing(member: Member) -> str:
    with Board.open(os.environ["FARANDOLE_BOARD"]) as board:
        meeting = BoardRendezvous(board, member.rank, timeout_s=30)
        watch = open_watch(read_world(os.environ), meeting, LOOPBACK)
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
def test_stacks_of_ranks_on_both_hosts(nursery: Nursery, tmp_path: Path) -> None:
    with FakeWorld(4, nursery=nursery) as world:
        _, said, other, _ = world.run(two_hosts, tmp_path / "told")
        assert said.startswith(
            "farandole: ranks 0 and 3 have not submitted x, for which ranks 1 and 2"
        )
        assert "Missing ranks:\n0: [x]\n3: [x]\n" in said
        assert "rank 0 is here (most recent call first):\n" in said
        assert "rank 3 is here (most recent call first):\n" in said
        assert said.count(" in two_hosts\n") == 2
        assert "cannot be seen" not in said
        assert other == "", "once is enough"
        assert world.run(failing) == [
            "Rank 1 failed: ValueError: bad. Rank 0 was waiting for it.",
            "",
            "",
            "",
        ]
