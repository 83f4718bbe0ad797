"""The ring of messages: longer than the ring, around its end, slow readers."""

from __future__ import annotations

import random

import numpy as np
import pytest

from farandole.transport.shm.transport import REGION, RING_BYTES, Mailbox

Array = np.ndarray[tuple[int], np.dtype[np.uint8]]


class OneProcess:
    """A fabric whose ranks all live in this process: the mailbox sees only memory."""

    def __init__(self, rank: int, memory: list[Array]) -> None:
        self.rank, self.size = rank, len(memory)
        self.peers = [(rank + i) % self.size for i in range(1, self.size)]
        self._memory = memory

    def words(self, rank: int, region: str, offset: int, count: int) -> memoryview:
        assert region == REGION
        return memoryview(self._memory[rank])[offset : offset + 8 * count].cast("q")

    def bytes(self, rank: int, region: str, offset: int, nbytes: int) -> Array:
        assert region == REGION
        return self._memory[rank][offset : offset + nbytes]


def mailboxes(size: int) -> list[Mailbox]:
    memory = [np.zeros(Mailbox.nbytes(size), np.uint8) for _ in range(size)]
    return [Mailbox(OneProcess(rank, memory)) for rank in range(size)]  # type: ignore[arg-type]


@pytest.fixture
def three() -> list[Mailbox]:
    return mailboxes(3)


def test_rank_0_speaks_to_all_and_the_others_to_it(three: list[Mailbox]) -> None:
    three[0].send(b"to all")
    three[1].send(b"from 1")
    three[2].send(b"from 2")
    assert three[1].receive() == three[2].receive() == [(0, b"to all")]
    assert sorted(three[0].receive()) == [(1, b"from 1"), (2, b"from 2")]
    assert [box.receive() for box in three] == [[], [], []]


def test_messages_keep_their_order_and_may_be_empty(three: list[Mailbox]) -> None:
    sent = [b"", b"a", b"", b"b" * 1000]
    for message in sent:
        three[1].send(message)
    assert three[0].receive() == [(1, message) for message in sent]


@pytest.mark.parametrize("length", [RING_BYTES - 4, RING_BYTES, 3 * RING_BYTES + 17])
def test_a_message_longer_than_the_ring(three: list[Mailbox], length: int) -> None:
    message = random.Random(length).randbytes(length)
    three[0].send(message)
    got: dict[int, list[tuple[int, bytes]]] = {1: [], 2: []}
    for _ in range(100):
        for rank in got:
            got[rank] += three[rank].receive()
        # The writer pushes the rest when it looks for messages itself.
        three[0].receive()
    assert got == {1: [(0, message)], 2: [(0, message)]}


def test_the_ring_waits_for_its_slowest_reader(three: list[Mailbox]) -> None:
    sent = [bytes([n]) * 50_000 for n in range(40)]
    quick: list[tuple[int, bytes]] = []
    for message in sent:
        three[0].send(message)
        quick += three[1].receive()
    # The other reader has not looked once: at most a ring's worth can have come through.
    assert sum(len(message) for _, message in quick) <= RING_BYTES
    slow: list[tuple[int, bytes]] = []
    for _ in range(200):
        three[0].receive()
        quick += three[1].receive()
        slow += three[2].receive()
    assert quick == slow == [(0, message) for message in sent]


def test_many_times_around_the_ring() -> None:
    zero, one = mailboxes(2)
    rng = random.Random(0)
    sent, got = [], []
    for _ in range(2000):
        message = rng.randbytes(rng.choice([0, 1, 7, 100, 5000]))
        sent.append(message)
        one.send(message)
        if rng.random() < 0.5:
            got += [message for _, message in zero.receive()]
    for _ in range(100):
        got += [message for _, message in zero.receive()]
        one.receive()
    assert got == sent
    assert sum(map(len, sent)) > 4 * RING_BYTES
