"""The TCP link: a star around rank 0, which learns and tells who is lost."""

from __future__ import annotations

import socket
import struct
import threading
import time
from collections.abc import Sequence
from typing import Any

import pytest

from farandole.errors import PeerDiedError
from farandole.transport import tcp_link
from farandole.transport.tcp_link import TcpLink
from farandole.world.channel import Connection
from tests.conftest import eventually


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


def star(size: int, exchange: Any = None, names: Sequence[str] = ()) -> list[TcpLink]:
    meeting = Meeting(size)
    wires: dict[int, TcpLink] = {}

    def join(rank: int) -> None:
        def meet(payload: bytes) -> list[bytes]:
            return list((exchange or meeting.exchange)(rank, payload))

        wires[rank] = TcpLink(rank, size, meet, address="127.0.0.1", names=names)

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


def test_the_last_step_goes_before_the_next_message() -> None:
    wires = star(3)
    wires[0].last_step = 12
    assert [each.last_step for each in wires] == [12, 0, 0]
    wires[0].send(b"next")
    wires[0].send(b"after")
    for each in wires[1:]:
        got: list[tuple[int, bytes]] = []

        def both(each: TcpLink = each, got: list[tuple[int, bytes]] = got) -> bool:
            got += each.receive()
            return len(got) == 2

        eventually(both)
        assert got == [(0, b"next"), (0, b"after")]
        assert each.last_step == 12
    for each in wires:
        each.close()


def test_a_host_that_falls_silent_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where nobody closes a connection: the kernel of n2 does not answer, as rank 0's sees."""
    silent: list[str] = []
    noticing: list[int] = []

    def check_silence(connection: Connection) -> bool:
        if connection.peer in silent:
            connection._lose("it has not answered for 6 s")
        return bool(connection.lost)

    monkeypatch.setattr(tcp_link, "is_loopback", lambda address: False)
    monkeypatch.setattr(tcp_link, "_CHECK_S", 0.0)
    monkeypatch.setattr(Connection, "check_silence", check_silence)
    monkeypatch.setattr(Connection, "notice_loss", lambda _, within_s: noticing.append(within_s))
    wires = star(3, names=[f"rank {rank} on host n{rank}" for rank in range(3)])
    assert noticing == [tcp_link.SILENCE_S] * 4  # both ends of two connections
    for each in wires:
        each.check_peers()
    silent.append("rank 2 on host n2")
    lost = "Rank 0 on host n0 lost its connection to rank 2 on host n2: it has not answered for 6 s"
    with pytest.raises(PeerDiedError, match=lost):
        wires[0].check_peers()

    def told() -> bool:
        wires[1].receive()
        return bool(wires[1].loss)

    eventually(told)
    assert wires[1].loss.startswith(lost)
    for each in wires:
        each.close()


@pytest.mark.parametrize(
    ("names", "lost"),
    [
        ((), "Rank 0 lost its connection to rank 2"),
        (
            [f"rank {rank} on host n{rank}" for rank in range(3)],
            "Rank 0 on host n0 lost its connection to rank 2 on host n2",
        ),
    ],
)
def test_everybody_learns_who_is_lost(names: Sequence[str], lost: str) -> None:
    wires = star(3, names=names)
    wires[2].close()

    def missed(at: TcpLink) -> str:
        for each in wires[:2]:
            each.receive()
        try:
            at.check_peers()
        except PeerDiedError as error:
            return str(error)
        return ""

    assert lost in eventually(lambda: missed(wires[0]))
    assert lost in eventually(lambda: missed(wires[1]))
    for each in wires[:2]:
        each.check_peers(grace_s=3600)
    for each in wires[:2]:
        each.close()


def test_strangers_do_not_get_in_and_do_not_hold_up() -> None:
    """One says nothing, one talks nonsense, one claims to be a rank: the real ones get in."""
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
