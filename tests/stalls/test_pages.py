"""Pages that ranks of one host read, on real ranks of two hosts."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from farandole.stalls import pages as module
from farandole.stalls.pages import Key, Note, Pages
from farandole.testing import FakeWorld, Member, Nursery
from farandole.transport.hosts import hosts_of

pytestmark = pytest.mark.ranks

ALL = (0, 1, 2, 3)
HOSTS = hosts_of(["h0", "h1", "h0", "h1"])


@pytest.fixture(scope="module")
def world(nursery: Nursery) -> Iterator[FakeWorld]:
    with FakeWorld(4, nursery=nursery) as world:
        yield world


def opened(member: Member) -> Pages:
    return Pages.open(HOSTS, member.rank, member.exchange, f"of {member.rank}")


def neighbours(member: Member) -> Any:
    """Say something, and hear what the others of this host say."""
    pages = opened(member)
    pages.publish([Key(ALL, f"x{member.rank}"), Key((0, 2), "é")], blocked=member.rank > 1)
    member.exchange(b"")
    said = pages.read()
    names = {rank: sorted(key.name for key in each.waiting) for rank, each in said.items()}
    stacks = [note.stack for rank in pages.here for _, note in [pages.page(rank).read()]]
    blocked = [rank for rank, each in said.items() if each.blocked]
    member.exchange(b"")
    pages.close()
    return names, stacks, blocked


def mirrored(member: Member) -> Any:
    """Let the lowest rank of each host write what one elsewhere says, and take it back."""
    pages = opened(member)
    stranger = 1 - member.rank % 2 + 2  # on the other host, and not its lowest
    page = pages.page(stranger)
    if member.rank in HOSTS.leaders:
        page.write(Note(waiting=(Key(ALL, "y"),), blocked=True), looks=7)
    member.exchange(b"")
    seen = pages.read()
    member.exchange(b"")
    if member.rank in HOSTS.leaders:
        page.wipe()
    member.exchange(b"")
    after = sorted(pages.read())
    member.exchange(b"")
    pages.close()
    said = seen[stranger]
    names = [key.name for key in said.waiting]
    return sorted(seen), (names, said.blocked, said.looks), after


def test_ranks_elsewhere_are_seen_by_all_of_a_host(world: FakeWorld) -> None:
    for rank, (seen, said, after) in enumerate(world.run(mirrored)):
        host = list(HOSTS.ranks[rank % 2])
        assert seen == sorted([*host, 1 - rank % 2 + 2])
        assert said == (["y"], True, 7)
        assert after == host


def test_ranks_see_those_of_their_host(world: FakeWorld) -> None:
    for rank, (names, stacks, blocked) in enumerate(world.run(neighbours)):
        host = HOSTS.ranks[rank % 2]
        assert names == {other: sorted([f"x{other}", "é"]) for other in host}
        assert stacks == [f"of {other}" for other in host]
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
        page, text = pages.page(member.rank), Note(waiting=(Key(ALL, "b"),)).encode(1000)
        page._text[: len(text)] = memoryview(text)
        page._words[module._VERSION] += 1
    member.exchange(b"")
    seen.append(pages.read())
    member.exchange(b"")
    pages.close()
    other = HOSTS.ranks[member.rank % 2][1]
    return [sorted(key.name for key in said[other].waiting) for said in seen]


def test_a_note_keeps_the_oldest_and_the_innermost() -> None:
    waiting = tuple(Key(ALL, f"x{number}") for number in range(100))
    lines = tuple(f"  File {number}" for number in range(100))
    note = Note(waiting=waiting, wanted=(3,), answer=5, lines=lines)
    assert Note.from_json(json.loads(note.encode(10_000))) == note
    some = Note.from_json(json.loads(note.encode(2_000)))
    assert (some.waiting[:2], some.complete, some.lines) == (waiting[:2], False, lines)
    few = Note.from_json(json.loads(note.encode(1_000)))
    assert few.waiting == ()
    assert few.lines == lines[:50]


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
