from __future__ import annotations

from farandole.launch import control
from farandole.launch.control import ROOM_BYTES, Outbox


class Line:
    """A connection that keeps what it is given."""

    def __init__(self) -> None:
        self.sent: list[bytes] = []
        self.backed_up = False

    def send(self, message: bytes) -> None:
        self.sent.append(message)


def test_what_the_head_has_no_room_for_waits_in_order() -> None:
    line = Line()
    outbox = Outbox(line)  # type: ignore[arg-type]
    messages = [
        control.Output(rank=0, stream="stdout", data=bytes([65 + number]) * 10_000)
        for number in range(20)
    ]
    for message in messages:
        outbox.send(message)
    sent = sum(map(len, line.sent))
    assert ROOM_BYTES <= sent < ROOM_BYTES + 11_000
    assert outbox.backlog_bytes == sum(len(control.encode(m)) for m in messages) - sent
    assert not outbox.empty
    while outbox.backlog_bytes:
        before = len(line.sent)
        outbox.heard(sum(map(len, line.sent)))
        assert len(line.sent) > before
    assert outbox.empty
    assert [control.decode(data) for data in line.sent] == messages


def test_one_message_may_be_longer_than_the_room() -> None:
    line = Line()
    outbox = Outbox(line)  # type: ignore[arg-type]
    outbox.send(control.Piece(name="x", data=b"a" * (3 * ROOM_BYTES)))
    outbox.send(control.Leaving(reason=""))
    assert len(line.sent) == 1
    outbox.heard(len(line.sent[0]))
    assert len(line.sent) == 2
