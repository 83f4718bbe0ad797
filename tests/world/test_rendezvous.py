"""One conformance class that every meeting place passes."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from farandole.errors import StartError, UsageError
from farandole.world.board import Board
from farandole.world.environment import read_world
from farandole.world.rendezvous import (
    BoardRendezvous,
    Rendezvous,
    SoloRendezvous,
    connect,
    wait_until,
)
from farandole.world.store import StoreRendezvous

SIZE = 3
Join = Callable[[int], Rendezvous]


@pytest.fixture
def board() -> Iterator[Board]:
    with Board.create(SIZE) as made:
        yield made


@pytest.fixture(params=["board", "tcp", "file", "hash"])
def join(request: pytest.FixtureRequest, board: Board, tmp_path: Path) -> Iterator[Join]:
    """A function that lets one rank join; ranks are threads here, which the places cannot tell."""
    if request.param == "board":
        yield lambda rank: BoardRendezvous(board, rank, timeout_s=20)
        return
    dist = pytest.importorskip("torch.distributed")
    if request.param == "tcp":
        server = dist.TCPStore("127.0.0.1", 0, None, True, timedelta(seconds=20))

        def store() -> object:
            return dist.TCPStore("127.0.0.1", server.port, None, False, timedelta(seconds=20))

    elif request.param == "file":

        def store() -> object:
            return dist.FileStore(str(tmp_path / "store"), SIZE)

    else:
        shared = dist.HashStore()

        def store() -> object:
            return dist.PrefixStore("group", shared)

    yield lambda rank: StoreRendezvous(store(), rank, SIZE, timeout_s=20)


def everywhere(work: Callable[[int], object]) -> list[object]:
    with ThreadPoolExecutor(SIZE) as pool:
        return list(pool.map(work, range(SIZE)))


class TestEveryPlace:
    def test_payloads_come_in_rank_order(self, join: Join) -> None:
        def work(rank: int) -> list[bytes]:
            return join(rank).exchange(bytes([rank]) * rank)

        assert everywhere(work) == [[b"", b"\1", b"\2\2"]] * SIZE

    def test_many_rounds_with_ranks_out_of_step(self, join: Join) -> None:
        def work(rank: int) -> None:
            dice = random.Random(rank)
            meeting = join(rank)
            for number in range(40):
                if dice.random() < 0.2:
                    time.sleep(dice.random() * 0.002)
                answers = meeting.exchange(f"{rank}/{number}".encode())
                assert answers == [f"{peer}/{number}".encode() for peer in range(SIZE)]

        everywhere(work)

    def test_long_payloads_of_different_lengths(self, join: Join) -> None:
        def work(rank: int) -> list[int]:
            meeting = join(rank)
            lengths = [len(payload) for payload in meeting.exchange(b"x" * 5000 * rank)]
            return lengths + [len(payload) for payload in meeting.exchange(b"y" * 4095)]

        assert everywhere(work) == [[0, 5000, 10000, 4095, 4095, 4095]] * SIZE

    def test_a_second_meeting_does_not_see_the_first(self, join: Join) -> None:
        def work(rank: int) -> None:
            for visit in range(3):
                meeting = join(rank)
                for number in range(visit + 1):
                    text = f"{visit}.{number}".encode()
                    assert meeting.exchange(text) == [text] * SIZE

        everywhere(work)

    def test_missing_ranks_are_named_at_the_time_out(self, join: Join) -> None:
        def work(rank: int) -> str:
            if rank == 1:
                return ""
            with pytest.raises(StartError) as caught:
                join(rank).exchange(b"", timeout_s=0.1)
            return str(caught.value)

        first, _, third = everywhere(work)
        for text in (first, third):
            assert "rank 1 has not called hvd.init()" in str(text)
            assert "FARANDOLE_START_TIMEOUT" in str(text)


class TestBoard:
    def test_a_running_rank_is_named_with_its_process(self, board: Board) -> None:
        board.note_pid(1, 4242)
        board.post(2, 0, b".")
        with pytest.raises(
            StartError, match=r"rank 1 \(pid 4242\) is running but has not called hvd.init\(\)"
        ):
            BoardRendezvous(board, 0, timeout_s=0.05).exchange(b"")

    @pytest.mark.parametrize(
        ("code", "says"),
        [
            (0, "rank 1 exited with code 0 without calling hvd.init()"),
            (-9, "rank 1 was ended by signal 9 without calling hvd.init()"),
        ],
    )
    def test_an_ended_rank_is_named_at_once(self, board: Board, code: int, says: str) -> None:
        board.note_exit(1, code)
        with pytest.raises(StartError) as caught:
            BoardRendezvous(board, 0, timeout_s=600).exchange(b"")
        assert says in str(caught.value)

    def test_the_reason_of_an_end_is_passed_on(self, board: Board) -> None:
        board.note_failure(1, "ValueError: bad", time_ns=1)
        board.note_exit(1, 1)
        with pytest.raises(StartError, match="ValueError: bad"):
            BoardRendezvous(board, 0, timeout_s=600).exchange(b"")

    def test_who_posted_and_ended_was_there(self, board: Board) -> None:
        for rank in (1, 2):
            board.post(rank, 0, b".%d" % rank)
            board.note_exit(rank, 0)
        assert BoardRendezvous(board, 0, timeout_s=600).exchange(b"0") == [b"0", b"1", b"2"]

    def test_later_rounds_do_not_speak_of_init(self, board: Board) -> None:
        for rank in (1, 2):
            board.post(rank, 0, b".")
        meeting = BoardRendezvous(board, 0, timeout_s=0.05)
        meeting.exchange(b"")
        with pytest.raises(StartError, match="has not come to the exchange"):
            meeting.exchange(b"")


class TestConnect:
    def test_one_worker_needs_nobody(self) -> None:
        meeting = connect(read_world({}))
        assert isinstance(meeting, SoloRendezvous)
        assert meeting.exchange(b"mine") == [b"mine"]

    def test_the_launchers_board_comes_first(self, board: Board) -> None:
        world = replace(read_world({}), size=SIZE, local_size=SIZE, board=board.path)
        meeting = connect(world)
        assert isinstance(meeting, BoardRendezvous)
        meeting.board.close()

    def test_a_board_for_another_size_is_refused(self, board: Board) -> None:
        with pytest.raises(StartError, match="FARANDOLE_SIZE=1, but the launcher's board is for 3"):
            connect(replace(read_world({}), board=board.path))

    def test_ranks_of_ours_without_a_board_are_refused(self) -> None:
        world = read_world({"FARANDOLE_RANK": "0", "FARANDOLE_SIZE": "2"})
        with pytest.raises(UsageError, match="FARANDOLE_BOARD is not"):
            connect(world)


def test_wait_until_gives_up_at_the_deadline() -> None:
    looks: list[int] = []
    assert not wait_until(lambda: bool(looks.append(1)), time.monotonic() + 0.01)
    assert len(looks) > 1
    assert wait_until(lambda: True, time.monotonic())
