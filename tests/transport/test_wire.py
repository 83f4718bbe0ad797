"""The authenticated wire: what is forged, replayed, cut short or too long is refused."""

from __future__ import annotations

import socket
import struct
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from farandole.errors import PeerDiedError
from farandole.transport import wire
from farandole.transport.wire import MOST_BYTES, Connection, Wire
from tests.conftest import eventually

KEY = b"k" * 32


def tcp_pair() -> tuple[socket.socket, socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        one = socket.create_connection(listener.getsockname())
        other, _ = listener.accept()
    return one, other


class Tapped:
    """Two connected ends with an eavesdropper between them."""

    def __init__(self) -> None:
        mine, self.to_sender = tcp_pair()
        self.to_receiver, theirs = tcp_pair()
        self.sender = Connection(mine, KEY, rank=1, peer=0)
        self.receiver = Connection(theirs, KEY, rank=0, peer=1)

    def overheard(self, message: bytes) -> bytes:
        """Send a message and catch its frame."""
        self.sender.send(message)
        return self.to_sender.recv(4 + 16 + len(message), socket.MSG_WAITALL)

    def close(self) -> None:
        self.sender.close()
        self.receiver.close()
        self.to_sender.close()
        self.to_receiver.close()


@pytest.fixture
def tapped() -> Iterator[Tapped]:
    between = Tapped()
    yield between
    between.close()


def received(connection: Connection, count: int) -> list[bytes]:
    messages: list[bytes] = []

    def enough() -> bool:
        messages.extend(connection.receive())
        return len(messages) >= count or bool(connection.lost)

    eventually(enough)
    return messages


def refused(connection: Connection) -> str:
    assert received(connection, 1) == []
    assert connection.receive() == []
    return connection.lost


def test_frames_arrive_in_order(tapped: Tapped) -> None:
    frames = [tapped.overheard(message) for message in (b"one", b"", b"three")]
    tapped.to_receiver.sendall(b"".join(frames))
    assert received(tapped.receiver, 3) == [b"one", b"", b"three"]


def test_a_frame_may_come_byte_by_byte(tapped: Tapped) -> None:
    frame = tapped.overheard(b"slow")
    for at in range(len(frame)):
        assert tapped.receiver.receive() == []
        tapped.to_receiver.sendall(frame[at : at + 1])
    assert received(tapped.receiver, 1) == [b"slow"]


def test_a_changed_frame_is_refused(tapped: Tapped) -> None:
    frame = bytearray(tapped.overheard(b"pay 1"))
    frame[-1] += 1
    tapped.to_receiver.sendall(frame)
    assert "wrong digest" in refused(tapped.receiver)


def test_a_replayed_frame_is_refused(tapped: Tapped) -> None:
    frame = tapped.overheard(b"again")
    tapped.to_receiver.sendall(frame + frame)
    assert received(tapped.receiver, 2) == [b"again"]
    assert "wrong digest" in tapped.receiver.lost


def test_reordered_frames_are_refused(tapped: Tapped) -> None:
    first, second = tapped.overheard(b"first"), tapped.overheard(b"second")
    tapped.to_receiver.sendall(second + first)
    assert "wrong digest" in refused(tapped.receiver)


def test_a_frame_sent_back_to_its_sender_is_refused(tapped: Tapped) -> None:
    tapped.to_sender.sendall(tapped.overheard(b"mirror"))
    assert "wrong digest" in refused(tapped.sender)


def test_a_frame_under_another_key_is_refused(tapped: Tapped) -> None:
    mine, other = tcp_pair()
    forger = Connection(mine, b"x" * 32, rank=1, peer=0)
    forger.send(b"trust me")
    tapped.to_receiver.sendall(other.recv(4 + 16 + 8, socket.MSG_WAITALL))
    assert "wrong digest" in refused(tapped.receiver)
    forger.close()
    other.close()


def test_nothing_is_taken_after_a_bad_frame(tapped: Tapped) -> None:
    bad, good = bytearray(tapped.overheard(b"bad")), tapped.overheard(b"good")
    bad[-1] += 1
    tapped.to_receiver.sendall(bytes(bad) + good)
    assert refused(tapped.receiver)


def test_a_frame_that_is_too_long_is_refused_unread(tapped: Tapped) -> None:
    tapped.to_receiver.sendall(struct.pack("<I16s", MOST_BYTES + 1, b""))
    assert str(MOST_BYTES + 1) in refused(tapped.receiver)


def test_a_frame_cut_short_is_a_lost_connection(tapped: Tapped) -> None:
    tapped.to_receiver.sendall(tapped.overheard(b"whole")[:-2])
    tapped.to_receiver.close()
    assert "rank 1" in refused(tapped.receiver)


def test_large_messages_need_not_be_read_at_once(tapped: Tapped) -> None:
    mine, theirs = tcp_pair()
    one = Connection(mine, KEY, rank=0, peer=1)
    other = Connection(theirs, KEY, rank=1, peer=0)
    message = bytes(20_000_000)
    one.send(message)
    got: list[bytes] = []

    def arrived() -> bool:
        one.flush()
        got.extend(other.receive())
        return bool(got)

    eventually(arrived)
    assert got == [message]
    one.close()
    other.close()


def test_sending_to_one_who_has_gone_does_not_raise(tapped: Tapped) -> None:
    tapped.to_sender.close()
    eventually(lambda: [tapped.sender.send(b"x"), tapped.sender.lost][1])


class Meeting:
    """A rendezvous of threads."""

    def __init__(self, size: int) -> None:
        self._barrier = threading.Barrier(size)
        self._said = [b""] * size

    def exchange(self, rank: int, payload: bytes) -> list[bytes]:
        self._said[rank] = payload
        self._barrier.wait()
        answers = list(self._said)
        self._barrier.wait()
        return answers


def star(size: int, exchange: Any = None) -> list[Wire]:
    meeting = Meeting(size)
    wires: dict[int, Wire] = {}

    def join(rank: int) -> None:
        def meet(payload: bytes) -> list[bytes]:
            return list((exchange or meeting.exchange)(rank, payload))

        wires[rank] = Wire(rank, size, meet, address="127.0.0.1")

    threads = [threading.Thread(target=join, args=(rank,)) for rank in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return [wires[rank] for rank in range(size)]


def test_a_star_around_rank_0() -> None:
    wires = star(3)
    wires[0].send(b"to all")
    wires[1].send(b"from 1")
    wires[2].send(b"from 2")
    assert eventually(wires[1].receive) == eventually(wires[2].receive) == [(0, b"to all")]
    got: list[tuple[int, bytes]] = []
    eventually(lambda: got.extend(wires[0].receive()) or len(got) == 2)
    assert sorted(got) == [(1, b"from 1"), (2, b"from 2")]
    for wire_ in wires:
        wire_.check_peers()
        wire_.close()


def test_everybody_learns_who_is_lost() -> None:
    wires = star(3)
    wires[2].close()

    def missed(at: Wire) -> str:
        for each in wires[:2]:
            each.receive()
        try:
            at.check_peers()
        except PeerDiedError as error:
            return str(error)
        return ""

    assert "rank 2" in eventually(lambda: missed(wires[0]))
    assert "rank 2" in eventually(lambda: missed(wires[1]))
    for each in wires[:2]:
        each.close()


def test_strangers_do_not_get_in_and_do_not_hold_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """One says nothing, one talks nonsense, one claims to be a rank: the real ones get in."""
    monkeypatch.setattr(wire, "_GREETING_TIMEOUT_S", 0.2)
    meeting = Meeting(2)
    strangers: list[socket.socket] = []

    def exchange(rank: int, payload: bytes) -> list[bytes]:
        if rank == 0 and payload:
            import json

            host, port, _ = json.loads(payload)
            for words in (b"", b"GET / HTTP/1.1\r\n\r\n", struct.pack("<I", 1)):
                stranger = socket.create_connection((host, port))
                stranger.sendall(words)
                strangers.append(stranger)
        return meeting.exchange(rank, payload)

    before = time.monotonic()
    wires = star(2, exchange)
    assert time.monotonic() - before < 10
    wires[1].send(b"me")
    assert eventually(wires[0].receive) == [(1, b"me")]
    for each in (*wires, *strangers):
        each.close()
