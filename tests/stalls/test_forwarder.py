"""What forwarders of three hosts carry, over wires and on pages that a test has made."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

from farandole.stalls import pages as module
from farandole.stalls.pages import Forwarder, Key, Note, Page

ALL = (0, 1, 2, 3)
HOSTS = ((0, 1), (2,), (3,))


class Wires:
    """A star: what the first host sends goes to the others, what they send goes to it."""

    def __init__(self) -> None:
        self.boxes: list[list[tuple[int, bytes]]] = [[] for _ in HOSTS]
        self.sent = 0

    def of(self, host: int) -> TcpLink:
        return TcpLink(self, host)


class TcpLink:
    def __init__(self, wires: Wires, host: int) -> None:
        self.wires, self.host = wires, host
        self.loss = ""
        self.closed = False

    def send(self, message: bytes) -> None:
        self.wires.sent += 1
        for other in range(1, len(HOSTS)) if self.host == 0 else (0,):
            self.wires.boxes[other].append((self.host, message))

    def receive(self) -> list[tuple[int, bytes]]:
        messages, self.wires.boxes[self.host] = self.wires.boxes[self.host], []
        return messages

    def close(self) -> None:
        self.closed = True


class Pages:
    """The pages of one host."""

    def __init__(self, host: int) -> None:
        self.here = list(HOSTS[host])
        self.abroad = [rank for rank in ALL if rank not in self.here]
        self.words = {rank: memoryview(bytearray(8 * 8)).cast("q") for rank in ALL}
        self.texts = {rank: np.zeros(4096, np.uint8) for rank in ALL}
        for rank in self.here:
            self.page(rank).write(Note(stack=f"of {rank}"))

    def page(self, rank: int) -> Page:
        return Page(self.words[rank], self.texts[rank])

    def note(self, rank: int) -> Note | None:
        found = self.page(rank).read()
        return None if found is None else found[1]


class Scene:
    """Three hosts, whose forwarders take turns."""

    def __init__(self) -> None:
        self.wires = Wires()
        self.pages = [Pages(host) for host in range(len(HOSTS))]
        self.links: list[Any] = [self.wires.of(host) for host in range(len(HOSTS))]
        pages: list[Any] = list(self.pages)
        self.forwarders = [
            Forwarder(pages[host], self.links[host], hub=host == 0) for host in range(len(HOSTS))
        ]

    def turns(self, count: int) -> None:
        for _ in range(count):
            for forwarder in self.forwarders:
                forwarder.turn()


@pytest.fixture
def scene(monkeypatch: pytest.MonkeyPatch) -> Scene:
    monkeypatch.setattr(module.stack, "ask", lambda path: [f"stack {path}"])
    return Scene()


def test_all_pages_get_everywhere_and_then_nothing_is_sent(scene: Scene) -> None:
    scene.turns(3)
    for pages in scene.pages:
        notes = {rank: pages.note(rank) for rank in ALL}
        assert {rank: note.stack for rank, note in notes.items() if note is not None} == {
            rank: f"of {rank}" for rank in ALL
        }
    before = scene.wires.sent
    scene.turns(5)
    assert scene.wires.sent == before


def test_changes_and_looks_are_told(scene: Scene) -> None:
    scene.turns(3)
    page = scene.pages[1].page(2)
    key = Key(ALL, "x")
    for _ in range(4):
        page.write(Note(waiting=(key,), blocked=True))
    scene.turns(2)
    seen = [pages.page(2).read() for pages in scene.pages]
    for found in seen:
        assert found is not None
        said, _ = found
        assert (said.waiting, said.blocked, said.looks) == (frozenset([key]), True, 5)
    # A look without a change leaves the version, by which others tell that nothing has changed.
    page.write(Note(waiting=(key,), blocked=True))
    scene.turns(2)
    for before, after in zip(seen, [pages.page(2).read() for pages in scene.pages], strict=True):
        assert before is not None
        assert after is not None
        assert after[0].version == before[0].version
        assert after[0].looks == before[0].looks + 1


@pytest.mark.parametrize(("asker", "asked"), [(2, 3), (2, 1), (1, 3)], ids=str)
def test_a_stack_is_asked_for_and_comes_back(scene: Scene, asker: int, asked: int) -> None:
    """Between two hosts that know each other by the first one; of that one; and by that one."""
    scene.turns(3)
    host = next(number for number, ranks in enumerate(HOSTS) if asker in ranks)
    scene.pages[host].page(asker).write(Note(wanted=(asked,)))
    scene.turns(4)
    note = scene.pages[host].note(asked)
    assert note is not None
    assert (note.answer, note.lines) == (1, (f"stack of {asked}",))
    # What follows keeps it: others may be waiting for it still.
    owner = next(number for number, ranks in enumerate(HOSTS) if asked in ranks)
    scene.pages[owner].page(asked).write(Note(blocked=True))
    scene.turns(2)
    after = scene.pages[host].note(asked)
    assert after is not None
    assert (after.blocked, after.answer) == (True, 1)


def test_nothing_is_believed_after_a_loss(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_FORWARD_EVERY_S", 0.001)
    scene.turns(3)
    forwarder, link, pages = scene.forwarders[1], scene.links[1], scene.pages[1]
    link.loss = "h0 is lost"
    forwarder._thread.start()
    forwarder._thread.join(timeout=30)
    assert [rank for rank in ALL if pages.note(rank) is not None] == [2]
    forwarder.close()
    assert link.closed
    assert not [each for each in threading.enumerate() if each.name == "farandole-forwarder"]
