from __future__ import annotations

import json
import random

import pytest

from farandole.launch import control

MESSAGES = [
    control.Started(),
    control.Refused(reason="no folder"),
    control.Output(rank=1, stream="stdout", data=bytes(range(256))),
    control.Post(rank=0, round=7, payload=b""),
    control.Ended(
        rank=3,
        code=-9,
        ago_ns=5,
        step=2,
        failure="ValueError: ä\ud800",
        failure_ago_ns=6,
        secondary=True,
        culprit=-1,
    ),
    control.Status(steps={"0": 4, "12": 0}, stopped=[1], exiting=[0]),
    control.LastSteps(last_step=12, last_recorded=0),
    control.AskStop(),
    control.Signal(rank=2, signum=15),
    control.Finish(patient=False),
    control.Piece(name="rank-0.jsonl", data=b"{}\n"),
    control.Leaving(reason=""),
]


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: type(message).__name__)
def test_what_is_said_is_heard(message: control.Message) -> None:
    assert control.decode(control.encode(message)) == message


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"", "not JSON"),
        (b"\xff\xfe", "not JSON"),
        (b"[" * 100_000, "not JSON"),
        (b"{}", "neither a kind nor values"),
        (b'["Signal"]', "neither a kind nor values"),
        (b'["Share2", {}]', "an unknown kind"),
        (b'[["Signal"], {}]', "an unknown kind"),
        (b'["Signal", {"rank": 1}]', "Signal with other fields"),
        (b'["Signal", {"rank": 1, "signum": 9, "more": 1}]', "Signal with other fields"),
        (b'["Signal", {"rank": true, "signum": 9}]', "a value of another type"),
        (b'["Signal", {"rank": 1.0, "signum": 9}]', "a value of another type"),
        (b'["Signal", {"rank": "1", "signum": 9}]', "a value of another type"),
        (
            b'["Status", {"steps": {"0": "x"}, "stopped": [], "exiting": []}]',
            "a value of another type",
        ),
        (b'["Status", {"steps": [], "stopped": [], "exiting": []}]', "a value of another type"),
        (b'["Piece", {"name": "x", "data": "\xe2\x82\xac"}]', "letters that are no bytes"),
    ],
)
def test_what_is_no_message_is_refused(data: bytes, says: str) -> None:
    with pytest.raises(control.MessageError, match=says):
        control.decode(data)


def test_damaged_messages_are_messages_or_refused() -> None:
    """No change of bytes leads to anything but a message or a refusal."""
    chance = random.Random(3)
    for _ in range(2000):
        data = bytearray(control.encode(chance.choice(MESSAGES)))
        for _ in range(chance.randrange(1, 4)):
            data[chance.randrange(len(data))] = chance.randrange(256)
        try:
            control.decode(bytes(data))
        except control.MessageError:
            continue


def test_a_message_is_plain_json() -> None:
    text = control.encode(control.Signal(rank=2, signum=15))
    assert json.loads(text) == ["Signal", {"rank": 2, "signum": 15}]
