"""Authenticated messages: what is forged, replayed, cut short or too long is refused."""

from __future__ import annotations

import random
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator

import pytest

from farandole.errors import StartError
from farandole.world import channel
from farandole.world.channel import MOST_BYTES, Connection, Door, call
from tests.conftest import eventually

SECRET = b"k" * 32
OPENING_BYTES = 12 + 32
HEAD_BYTES = 4 + 16


def tcp_pair() -> tuple[socket.socket, socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        one = socket.create_connection(listener.getsockname())
        other, _ = listener.accept()
    for end in (one, other):
        # Or a second small piece waits 40 ms for the first to be acknowledged.
        end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return one, other


class Tapped:
    """Two connected ends with an eavesdropper between them, after both have proved themselves."""

    def __init__(self) -> None:
        mine, self.to_sender = tcp_pair()
        self.to_receiver, theirs = tcp_pair()
        self.sender = Connection(mine, SECRET, caller=True, me="rank 1", peer="rank 0")
        self.receiver = Connection(theirs, SECRET, caller=False, me="rank 0", peer="rank 1")
        self.openings: list[bytes] = []
        """What was said before the first message: the sender's part, then the receiver's."""
        self._pass_on(OPENING_BYTES)
        self._pass_on(HEAD_BYTES)
        assert self.sender.proven
        assert self.receiver.proven

    def overheard(self, message: bytes) -> bytes:
        """Send a message and catch its frame."""
        self.sender.send(message)
        return self.to_sender.recv(HEAD_BYTES + len(message), socket.MSG_WAITALL)

    def close(self) -> None:
        self.sender.close()
        self.receiver.close()
        self.to_sender.close()
        self.to_receiver.close()

    def _pass_on(self, count: int) -> None:
        for source, target, reader in (
            (self.to_sender, self.to_receiver, self.receiver),
            (self.to_receiver, self.to_sender, self.sender),
        ):
            words = source.recv(count, socket.MSG_WAITALL)
            self.openings.append(words)
            target.sendall(words)
            before = reader.proven, reader._key
            eventually(lambda r=reader, b=before: [r.advance(), (r.proven, r._key) != b][1])


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


def test_messages_can_be_taken_one_by_one(tapped: Tapped) -> None:
    tapped.to_receiver.sendall(tapped.overheard(b"one") + tapped.overheard(b"two"))
    assert eventually(tapped.receiver.receive_one) == b"one"
    assert eventually(tapped.receiver.receive_one) == b"two"
    assert tapped.receiver.receive_one() is None


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


def test_a_frame_of_another_connection_is_refused(tapped: Tapped) -> None:
    other = Tapped()
    # The same secret, but another connection: both nonces differ.
    tapped.to_receiver.sendall(other.overheard(b"trust me"))
    assert "wrong digest" in refused(tapped.receiver)
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


def test_large_messages_need_not_be_read_at_once() -> None:
    mine, theirs = tcp_pair()
    one = Connection(mine, SECRET, caller=True)
    other = Connection(theirs, SECRET, caller=False)
    message = bytes(20_000_000)
    one.send(message)
    got: list[bytes] = []

    def arrived() -> bool:
        one.advance()
        got.extend(other.receive())
        return bool(got)

    eventually(arrived)
    assert got == [message]
    one.close()
    other.close()


def test_sending_to_one_who_has_gone_does_not_raise(tapped: Tapped) -> None:
    tapped.to_sender.close()
    eventually(lambda: [tapped.sender.send(b"x"), tapped.sender._gone][1])
    # What came before the end can still be read: only then is the connection lost.
    eventually(lambda: [tapped.sender.receive(), tapped.sender.lost][1])
    tapped.sender.send(b"x")
    assert not tapped.sender.backed_up


def test_a_recorded_conversation_is_worth_nothing_later(tapped: Tapped) -> None:
    opening, _, proof, _ = tapped.openings
    recorded = opening + proof + tapped.overheard(b"delete it all")
    with_door(lambda door: [shout(door, recorded), turned_away(door, "secret")][1])


def test_both_ends_learn_that_secrets_differ() -> None:
    mine, theirs = tcp_pair()
    one = Connection(mine, b"mine", caller=True, me="rank 1", peer="rank 0")
    other = Connection(theirs, b"yours", caller=False, me="rank 0", peer="rank 1")
    eventually(lambda: [one.advance(), other.advance(), one.lost and other.lost][2])
    assert one.lost == (
        "rank 1 lost its connection to rank 0: it does not know the secret of this job."
    )
    assert "does not know the secret" in other.lost
    one.close()
    other.close()


def test_one_who_has_proved_nothing_may_not_send_a_message() -> None:
    """A length that a proof does not have is refused before anything is read for it."""
    words = channel._OPENING + bytes(32) + struct.pack("<I16s", 1, b"")
    with_door(lambda door: [shout(door, words), turned_away(door, "1 bytes was refused")][1])


def test_little_is_read_of_a_stranger() -> None:
    mine, theirs = tcp_pair()
    connection = Connection(theirs, SECRET, caller=False)
    mine.sendall(channel._OPENING + bytes(100_000))
    eventually(lambda: [connection.advance(), connection._key][1])
    assert len(connection._incoming) <= HEAD_BYTES
    connection.close()
    mine.close()


def test_another_protocol_is_named() -> None:
    words = b"GET / HTTP/1.1\r\n\r\n"
    with_door(lambda door: [shout(door, words), turned_away(door, "protocol")][1])


def test_a_silent_caller_is_turned_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(channel, "PROOF_TIMEOUT_S", 0.05)
    with_door(lambda door: [shout(door, b"far"), turned_away(door, "proved nothing")][1])


def test_many_strangers_make_room_for_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(channel, "_MOST_STRANGERS", 3)

    def crowd(door: Door) -> None:
        streams = [socket.create_connection((door.address, door.port)) for _ in range(5)]
        eventually(lambda: [door.accept(), len(door.refused) == 2][1])
        assert len(door.strangers) == 3
        for stream in streams:
            stream.close()

    with_door(crowd)


def silent(stream: socket.socket) -> None:
    """Say nothing."""


def rubbish(stream: socket.socket) -> None:
    stream.sendall(b"GET / HTTP/1.1\r\n\r\n")


def half(stream: socket.socket) -> None:
    """Begin as one who knows the secret would, and stop there."""
    stream.sendall(channel._OPENING + bytes(32))


@pytest.mark.parametrize("source", ["127.0.0.1", "127.0.0.2"])
@pytest.mark.parametrize("say", [silent, rubbish, half, socket.socket.close])
def test_a_crowd_of_strangers_keeps_nobody_out(
    source: str, say: Callable[[socket.socket], None]
) -> None:
    """All call at once, before the door looks; the one who knows the secret is the oldest."""

    def flood(door: Door) -> None:
        caller = Connection(
            socket.create_connection((door.address, door.port)), SECRET, caller=True
        )
        caller.send(b"let me in")
        streams = []
        for _ in range(400):
            streams.append(
                socket.create_connection((door.address, door.port), source_address=(source, 0))
            )
            say(streams[-1])
        guests: list[bytes] = []
        eventually(
            lambda: [caller.advance(), guests.extend(first for _, first in accepted(door)), guests][
                2
            ]
        )
        assert guests == [b"let me in"]
        assert not caller.lost
        assert len(door.strangers) <= channel._MOST_FROM_ONE
        caller.close()
        for stream in streams:
            stream.close()

    with_door(flood)


def accepted(door: Door) -> list[tuple[Connection, bytes]]:
    guests = door.accept()
    for guest, _ in guests:
        guest.close()
    return guests


def test_who_is_turned_away_before_a_proof_calls_again() -> None:
    """The listener hangs up on the first call, as on one of many."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address, port = listener.getsockname()
        found: list[Connection] = []

        def serve() -> None:
            listener.accept()[0].close()
            stream, _ = listener.accept()
            answer = Connection(stream, SECRET, caller=False)
            found.append(answer)
            eventually(lambda: [answer.advance(), answer.proven][1])

        thread = threading.Thread(target=serve)
        thread.start()
        caller = call(address, port, SECRET, timeout_s=20)
        thread.join()
        assert caller.proven
        caller.close()
        found[0].close()


def test_a_door_without_descriptors_says_so() -> None:
    """In place of waiting for callers that it cannot take."""
    done = subprocess.run(
        [sys.executable, "-c", NO_DESCRIPTORS], capture_output=True, text=True, timeout=60
    )
    assert done.stdout.startswith("rank 0 is out of file descriptors (ulimit -n 64)"), done.stderr


NO_DESCRIPTORS = """
import os, resource, socket
from farandole.errors import StartError
from farandole.world.channel import Door
door = Door("127.0.0.1", b"secret", me="rank 0")
caller = socket.create_connection((door.address, door.port))
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
try:
    while True:
        os.dup(0)
except OSError:
    pass
try:
    door.accept()
except StartError as error:
    print(error)
"""


def test_a_call_is_let_in_with_its_first_message_and_keeps_the_rest() -> None:
    def meet(door: Door) -> None:
        guests: list[tuple[Connection, bytes]] = []

        def serve() -> None:
            eventually(lambda: [guests.extend(door.accept()), guests][1])

        thread = threading.Thread(target=serve)
        thread.start()
        caller = call(door.address, door.port, SECRET, timeout_s=10)
        caller.send(b"first")
        caller.send(b"second")
        thread.join()
        ((guest, first),) = guests
        assert first == b"first"
        assert eventually(guest.receive) == [b"second"]
        guest.send(b"back")
        assert eventually(caller.receive) == [b"back"]
        assert caller.local_address == "127.0.0.1"
        guest.close()
        caller.close()

    with_door(meet)


def test_a_call_with_another_secret_says_so() -> None:
    def meet(door: Door) -> None:
        stop = threading.Event()

        def serve() -> None:
            while not stop.is_set():
                assert door.accept() == []

        thread = threading.Thread(target=serve)
        thread.start()
        with pytest.raises(StartError, match="rank 0: it does not know the secret"):
            call(door.address, door.port, b"other", timeout_s=10, me="rank 1", peer="rank 0")
        stop.set()
        thread.join()

    with_door(meet)


def test_an_end_whose_kernel_answers_is_not_silent(tapped: Tapped) -> None:
    tapped.sender.notice_loss(5)
    tapped.sender.check_silence()
    assert tapped.sender.lost == ""
    # A limit that every kernel is over: nothing has come for more than no time.
    tapped.sender._silence_s = 1e-9  # type: ignore[assignment]
    eventually(lambda: [tapped.sender.check_silence(), tapped.sender.lost][1])
    assert "it has not answered for" in tapped.sender.lost


def test_a_call_to_nobody_says_so() -> None:
    door = Door("127.0.0.1", SECRET)
    door.close()
    with pytest.raises(StartError, match="cannot reach the head: Connection refused"):
        call("127.0.0.1", door.port, SECRET, timeout_s=5, peer="the head")


def test_no_forged_message_is_taken() -> None:
    """Whatever a stranger changes, repeats, cuts or adds: nothing but the genuine is taken."""
    assert hostile_rounds(300, seed=1) == 300


@pytest.mark.soak
def test_ten_thousand_forged_messages_are_refused() -> None:
    assert hostile_rounds(10_000, seed=2) == 10_000


def hostile_rounds(count: int, *, seed: int) -> int:
    """Send so many hostile messages, each on a connection that was genuine until then."""
    chance = random.Random(seed)
    refusals = 0
    earlier = b""
    for _ in range(count):
        tapped = Tapped()
        genuine = tapped.overheard(b'{"kind": "end", "rank": 1}')
        kind, hostile = _hostile(chance, genuine, earlier)
        tapped.to_receiver.sendall(hostile)
        if kind == "cut":
            tapped.to_receiver.close()
        expected = [genuine[HEAD_BYTES:]] if kind == "repeated" else []
        got = received(tapped.receiver, len(expected) + 1)
        assert got == expected, kind
        assert tapped.receiver.lost, kind
        refusals += 1
        earlier = genuine
        tapped.close()
    return refusals


def _hostile(chance: random.Random, genuine: bytes, earlier: bytes) -> tuple[str, bytes]:
    kind = chance.choice(["changed", "repeated", "cut", "oversized", "earlier", "noise"])
    if kind == "changed":
        at = chance.randrange(4, len(genuine))
        changed = bytes([genuine[at] ^ (1 << chance.randrange(8))])
        return kind, genuine[:at] + changed + genuine[at + 1 :]
    if kind == "repeated":
        return kind, genuine * 2
    if kind == "cut":
        return kind, genuine[: chance.randrange(len(genuine))]
    if kind == "oversized":
        length = chance.randrange(MOST_BYTES + 1, 1 << 32)
        return kind, struct.pack("<I", length) + genuine[4:]
    if kind == "earlier" and earlier:
        return kind, earlier
    length = chance.randrange(100)
    return kind, struct.pack("<I", length) + chance.randbytes(16 + length)


def with_door(visit: Callable[[Door], None]) -> None:
    door = Door("127.0.0.1", SECRET, me="the head")
    try:
        visit(door)
    finally:
        door.close()


def shout(door: Door, words: bytes) -> None:
    """Call, say something, and stay on the line until the door is closed."""
    stream = socket.create_connection((door.address, door.port))
    stream.sendall(words)
    _LINES.append(stream)


def turned_away(door: Door, why: str) -> None:
    try:
        eventually(lambda: [door.accept(), door.refused][1])
        assert why in door.refused[0]
        assert not door.strangers
    finally:
        while _LINES:
            _LINES.pop().close()


_LINES: list[socket.socket] = []
