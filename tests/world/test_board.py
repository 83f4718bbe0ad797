from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from farandole.errors import StartError, UsageError
from farandole.world.board import FAILURE_BYTES, POST_BYTES, Board


def test_the_launchers_words() -> None:
    with Board.create(3) as board, Board.open(board.path) as worker:
        assert (worker.size, worker.pid(1), worker.exit_code(1)) == (3, None, None)
        board.note_pid(1, 4242)
        assert worker.pid(1) == 4242
        for code in (0, 3, 255, -9):
            board.note_exit(2, code)
            assert worker.exit_code(2) == code
        assert worker.exit_code(1) is None


def test_posts_alternate_between_two_places() -> None:
    with Board.create(2) as board, Board.open(board.path) as peer:
        assert peer.posted(0, 0) is None
        board.post(0, 0, b"zero")
        board.post(0, 1, b"")
        assert (peer.posted(0, 0), peer.posted(0, 1)) == (b"zero", b"")
        board.post(0, 2, b"x" * POST_BYTES)
        assert peer.posted(0, 0) is None
        assert peer.posted(0, 1) == b""
        assert peer.posted(0, 2) == b"x" * POST_BYTES
        assert peer.posted(1, 0) is None
        assert (peer.rounds(0), peer.rounds(1)) == (3, 0)


def test_the_number_of_a_new_round_does_not_revive_an_older_post() -> None:
    with Board.create(1) as board:
        board.post(0, 0, b"of round 0")
        # As a processor may show it that does not keep the order of stores: the round's word alone.
        board._words[board._post(0, 2)] = 3
        assert board.posted(0, 2) is None
        board.post(0, 2, b"of round 2")
        assert board.posted(0, 2) == b"of round 2"


def test_failure_notes() -> None:
    with Board.create(2) as board:
        assert board.failure(1) is None
        board.note_failure(1, "ValueError: bad loss (train.py:12)", time_ns=5, secondary=True)
        board.note_failure(1, "a consequence", time_ns=6)
        failure = board.failure(1)
        assert failure is not None
        assert failure.text == "ValueError: bad loss (train.py:12)"
        assert (failure.time_ns, failure.secondary) == (5, True)


def test_a_long_failure_is_cut_between_letters() -> None:
    with Board.create(1) as board:
        board.note_failure(0, "x" + "é" * FAILURE_BYTES, time_ns=1)
        failure = board.failure(0)
        assert failure is not None
        assert failure.text == "x" + "é" * ((FAILURE_BYTES - 1) // 2)


def test_steps() -> None:
    with Board.create(2) as board:
        assert board.step(1) == 0
        board.note_step(1, 120)
        assert (board.step(0), board.step(1)) == (0, 120)


@pytest.mark.parametrize("rank", [-1, 2])
def test_only_ranks_of_the_job_have_a_place(rank: int) -> None:
    with Board.create(2) as board, pytest.raises(UsageError, match="no place"):
        board.step(rank)


def test_a_post_that_is_too_long_is_refused() -> None:
    with Board.create(1) as board, pytest.raises(UsageError, match="longer than"):
        board.post(0, 0, b"x" * (POST_BYTES + 1))


def test_a_board_ends_with_its_launcher() -> None:
    board = Board.create(1)
    path = board.path
    board.close()
    board.close()
    with pytest.raises(StartError, match="cannot be opened"):
        Board.open(path)


def test_foreign_files_are_no_boards(tmp_path: Path) -> None:
    for content in (b"", b"x" * 8192):
        (tmp_path / "file").write_bytes(content)
        with pytest.raises(StartError, match="is not a board"):
            Board.open(str(tmp_path / "file"))


def test_opening_leaves_no_descriptor() -> None:
    def count() -> int:
        return len(os.listdir("/proc/self/fd"))  # noqa: PTH208

    with Board.create(1) as board:
        before = count()
        opened = Board.open(board.path)
        # The mapping has a descriptor of its own (mmap duplicates it), which closing returns.
        opened.close()
        assert count() == before


def test_another_process_reads_and_writes() -> None:
    code = (
        "import sys; from farandole.world.board import Board\n"
        "with Board.open(sys.argv[1]) as board: board.post(1, 0, b'from afar')"
    )
    with Board.create(2) as board:
        subprocess.run([sys.executable, "-c", code, board.path], check=True, timeout=30)
        assert board.posted(1, 0) == b"from afar"
