"""Pages that ranks of one host read, on real ranks of two hosts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from farandole.engine.stalls import pages as module
from farandole.engine.stalls.judge import Key
from farandole.engine.stalls.pages import Pages
from farandole.testing import FakeWorld, Member, Nursery

pytestmark = pytest.mark.ranks

ALL = (0, 1, 2, 3)
HOSTS = ((0, 2), (1, 3))


@pytest.fixture(scope="module")
def world(nursery: Nursery) -> Iterator[FakeWorld]:
    with FakeWorld(4, nursery=nursery) as world:
        yield world


def opened(member: Member) -> Pages:
    return Pages.open(HOSTS[member.rank % 2], member.rank, member.exchange, f"of {member.rank}")


def neighbours(member: Member) -> Any:
    """Say something, and hear what the others of this host say."""
    pages = opened(member)
    pages.publish([Key(ALL, f"x{member.rank}"), Key((0, 2), "é")], blocked=member.rank > 1)
    member.exchange(b"")
    said = pages.read()
    names = {rank: sorted(key.name for key in each.waiting) for rank, each in said.items()}
    stacks = [pages.stack(rank) for rank in ALL]
    blocked = [rank for rank, each in said.items() if each.blocked]
    member.exchange(b"")
    pages.close()
    return names, stacks, blocked


def test_ranks_see_those_of_their_host(world: FakeWorld) -> None:
    for rank, (names, stacks, blocked) in enumerate(world.run(neighbours)):
        host = HOSTS[rank % 2]
        assert names == {other: sorted([f"x{other}", "é"]) for other in host}
        assert stacks == [f"of {other}" if other in host else "" for other in ALL]
        assert blocked == [other for other in host if other > 1]


def changes(member: Member) -> Any:
    """Say the same twice, then something else, then more than fits; return versions and looks."""
    pages = opened(member)
    seen = []
    many = [Key(ALL, f"allreduce.a.rather.long.name.of.a.parameter.{n}") for n in range(5_000)]
    for waiting in ([], [Key(ALL, "a")], [Key(ALL, "a")], many):
        pages.publish(waiting, blocked=False)
        said = pages.read()[member.rank]
        seen.append((said.version, said.looks, len(said.waiting), said.complete))
    first = many[0] in said.waiting
    member.exchange(b"")
    pages.close()
    return seen, first


def torn(member: Member) -> Any:
    """Read a neighbour's page while it is being written; return what it seems to wait for."""
    pages = opened(member)
    pages.publish([Key(ALL, "a")], blocked=False)
    member.exchange(b"")
    seen = [pages.read()]
    member.exchange(b"")
    if member.rank > 1:
        # The text has changed, what says that it is whole has not.
        text, _ = module._encode([Key(ALL, "b")], "")
        pages._text[pages._me][: len(text)] = memoryview(text)
        pages._words[pages._me][module._VERSION] += 1
    member.exchange(b"")
    seen.append(pages.read())
    member.exchange(b"")
    pages.close()
    other = HOSTS[member.rank % 2][1]
    return [sorted(key.name for key in said[other].waiting) for said in seen]


def test_who_is_just_writing_counts_as_before(world: FakeWorld) -> None:
    for seen in world.run(torn):
        assert seen == [["a"], ["a"]]


def test_versions_count_changes_and_looks_count_looks(world: FakeWorld) -> None:
    for seen, first in world.run(changes):
        versions, looks, counts, complete = zip(*seen, strict=True)
        assert [v - versions[0] for v in versions] == [0, 1, 1, 2]
        assert [n - looks[0] for n in looks] == [0, 1, 2, 3]
        assert counts[:3] == (0, 1, 1)
        assert 100 < counts[3] < 5_000
        assert complete == (True, True, True, False)
        assert first, "the oldest are kept"
