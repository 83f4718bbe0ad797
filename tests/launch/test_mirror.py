"""Boards of two hosts kept alike by hand, as agents and the head do it."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest

from farandole.errors import StartError
from farandole.launch.agent import Mirror, ended, exited
from farandole.launch.supervisor import Exited
from farandole.world.board import Board, Failure
from farandole.world.rendezvous import BoardRendezvous

HOSTS = ("n1", "n1", "n2", "n2")


@pytest.fixture
def boards() -> Iterator[tuple[Board, Board]]:
    with Board.create(4) as one, Board.create(4) as other:
        yield one, other


def test_ranks_of_two_hosts_meet(boards: tuple[Board, Board]) -> None:
    mirrors = [Mirror(boards[0], (0, 1)), Mirror(boards[1], (2, 3))]
    answers: dict[int, list[list[bytes]]] = {}

    def meet(rank: int) -> None:
        meeting = BoardRendezvous(boards[rank // 2], rank, timeout_s=20)
        # The third is longer than a post, and takes more than one round.
        payloads = [b"%d" % rank, b"", bytes([rank]) * 9000, b"last"]
        answers[rank] = [meeting.exchange(payload) for payload in payloads]

    threads = [threading.Thread(target=meet, args=(rank,)) for rank in range(4)]
    for thread in threads:
        thread.start()
    deadline = time.monotonic() + 20
    while any(thread.is_alive() for thread in threads) and time.monotonic() < deadline:
        for mirror, other in (mirrors, reversed(mirrors)):
            for post in mirror.fresh():
                other.take(post)
    for thread in threads:
        thread.join()
    expected = [
        [b"0", b"1", b"2", b"3"],
        [b""] * 4,
        [bytes([rank]) * 9000 for rank in range(4)],
        [b"last"] * 4,
    ]
    assert [answers[rank] for rank in range(4)] == [expected] * 4


def test_an_end_on_another_host_is_named(boards: tuple[Board, Board]) -> None:
    mirror = Mirror(boards[0], (0, 1))
    failure = Failure(time_ns=time.time_ns(), text="ValueError: bad loss", secondary=False)
    end = Exited(rank=3, code=1, now=0.0, time_ns=time.time_ns(), failure=failure)
    mirror.take(ended(end, step=5))
    for rank in (1, 2):
        boards[0].post(rank, 0, b".")
    meeting = BoardRendezvous(boards[0], 0, timeout_s=20, rank_hosts=HOSTS)
    with pytest.raises(StartError) as caught:
        meeting.exchange(b"")
    assert str(caught.value) == (
        "rank 3 on host n2 exited with code 1 without calling hvd.init(): ValueError: bad loss."
    )


def test_a_rank_that_does_not_come_is_named_with_its_host(boards: tuple[Board, Board]) -> None:
    boards[0].post(1, 0, b".")
    boards[0].post(2, 0, b".")
    meeting = BoardRendezvous(boards[0], 0, timeout_s=0.01, rank_hosts=HOSTS)
    with pytest.raises(StartError, match=r"rank 3 on host n2 has not called hvd.init\(\)"):
        meeting.exchange(b"")


def test_nobody_else_writes_for_ranks_of_this_host(boards: tuple[Board, Board]) -> None:
    boards[0].post(0, 0, b"mine")
    other = Mirror(boards[1], (2, 3))
    mine = Mirror(boards[0], (0, 1))
    (post,) = mine.fresh()
    mine.take(post)
    assert mine.fresh() == []
    other.take(post)
    assert boards[1].posted(0, 0) == b"mine"
    assert other.fresh() == []


def test_times_are_those_of_the_one_who_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    """A host whose clock is an hour ahead does not fail an hour later."""
    hour_ns = 3_600_000_000_000
    here_ns = time.time_ns()
    monkeypatch.setattr(time, "time_ns", lambda: here_ns + hour_ns)
    failure = Failure(time_ns=here_ns + hour_ns - 300, text="x", secondary=True, culprit=2)
    message = ended(
        Exited(rank=1, code=1, now=0.0, time_ns=here_ns + hour_ns - 100, failure=failure), 0
    )
    monkeypatch.setattr(time, "time_ns", lambda: here_ns)
    end = exited(message)
    assert end.time_ns == here_ns - 100
    assert end.failure == Failure(time_ns=here_ns - 300, text="x", secondary=True, culprit=2)


def test_the_last_step_reaches_all_hosts(boards: tuple[Board, Board]) -> None:
    first, second = Mirror(boards[0], (0, 1)), Mirror(boards[1], (2, 3))
    assert first.fresh() == []
    boards[0].last_step = 120
    (said,) = first.fresh()
    assert first.fresh() == []
    second.take(said)
    assert (boards[1].last_step, boards[1].last_recorded) == (120, 0)
    assert second.fresh() == []
