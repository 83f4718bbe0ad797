"""The workers of one host, without a supervisor."""

from __future__ import annotations

import os
import selectors
import sys
from collections.abc import Iterator

import pytest

from farandole.launch.local_workers import LocalWorkers
from farandole.launch.output import Stream
from farandole.world.board import Board
from tests.conftest import eventually

pytestmark = pytest.mark.ranks


class Hosted:
    """A workers, and what its workers wrote."""

    def __init__(self, board: Board) -> None:
        self.selector = selectors.DefaultSelector()
        self.board = board
        self.written = b""
        self.workers = LocalWorkers(board, self.selector, self._feed)

    def start(self, rank: int, code: str) -> None:
        self.workers.start(rank, [sys.executable, "-S", "-c", code], environ=os.environ)

    def turn(self) -> None:
        for key, _ in self.selector.select(0.01):
            key.data()

    def _feed(self, rank: int, stream: Stream, data: bytes) -> None:
        self.written += data


@pytest.fixture
def hosted() -> Iterator[Hosted]:
    with Board.create(2) as board:
        hosted = Hosted(board)
        yield hosted
        hosted.workers.close()
        hosted.selector.close()


def test_ends_are_noted_and_told_once(hosted: Hosted) -> None:
    hosted.start(0, "print('out'); raise SystemExit(3)")
    hosted.start(1, "import time; time.sleep(60)")
    (end,) = eventually(lambda: [hosted.turn(), hosted.workers.exits()][1])
    assert (end.rank, end.code, end.lost) == (0, 3, "")
    assert hosted.board.exit_code(0) == 3
    assert hosted.board.pid(1) == hosted.workers.pids([1])[0]
    assert hosted.workers.exits() == []
    hosted.workers.send(1, 9)
    (end,) = eventually(lambda: [hosted.turn(), hosted.workers.exits()][1])
    assert (end.rank, end.code) == (1, -9)
    assert hosted.written == b"out\n"


def test_output_waits_while_paused(hosted: Hosted) -> None:
    hosted.workers.pause(True)
    hosted.start(0, "print('x' * 1000)")
    eventually(lambda: [hosted.turn(), hosted.workers.exits()][1])
    assert hosted.written == b""
    hosted.workers.pause(False)
    eventually(lambda: [hosted.turn(), len(hosted.written) == 1001][1])


def test_a_wish_to_stop_is_on_the_board(hosted: Hosted) -> None:
    assert not hosted.board.stop_asked
    hosted.workers.ask_stop()
    assert hosted.board.stop_asked
