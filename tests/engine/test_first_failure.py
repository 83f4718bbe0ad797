"""Why a peer is gone."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from farandole.errors import PeerDiedError
from farandole.stalls.inspector import FirstFailure
from farandole.testing import FakeWorld, Member, Nursery
from farandole.world.board import Board

GONE = PeerDiedError("Rank 1 (process 7) has ended while rank 0 was waiting for it.")


@pytest.fixture
def board() -> Iterator[Board]:
    with Board.create(4) as board:
        yield board


def test_the_first_of_all_failures_counts(board: Board) -> None:
    board.note_failure(3, "ValueError: late", time_ns=30)
    board.note_failure(2, "ValueError: bad loss (train.py:12)", time_ns=20)
    board.note_failure(1, "PeerDiedError: rank 2 is gone", time_ns=10, secondary=True)
    found = FirstFailure(board, 0)
    assert str(found.explain(GONE)) == (
        f"{GONE} Rank 2 failed: ValueError: bad loss (train.py:12)."
    )
    with pytest.raises(PeerDiedError, match="Rank 2 failed: ValueError: bad loss") as caught:
        found.check()
    assert found.explain(caught.value) is caught.value, "it is said already"
    assert caught.value.culprit == 2


def test_ones_own_failure_is_no_reason(board: Board) -> None:
    board.note_failure(0, "ValueError: mine", time_ns=1)
    found = FirstFailure(board, 0)
    found.check()
    assert found.explain(GONE) is GONE


@pytest.mark.parametrize(
    ("codes", "words"),
    [
        ({1: -9}, "Rank 1 was ended by signal 9."),
        ({1: 3}, "Rank 1 exited with code 3."),
        ({1: 0}, "Rank 1 has come to the end of its script."),
        ({1: 0, 2: 5}, "Rank 2 exited with code 5."),
    ],
)
def test_who_said_nothing(board: Board, codes: dict[int, int], words: str) -> None:
    for rank, code in codes.items():
        board.note_exit(rank, code)
    assert str(FirstFailure(board, 0).explain(GONE)) == f"{GONE} {words}"


def fails(member: Member) -> str:
    """Rank 1 fails but does not end, as one whose threads go on; return what others hear."""
    import torch

    import farandole.torch as hvd

    hvd.init()
    if member.rank == 1:
        with Board.open(os.environ["FARANDOLE_BOARD"]) as board:
            board.note_failure(1, "ValueError: bad loss (train.py:12)", time_ns=1)
        member.exchange(b"")
        return ""
    try:
        hvd.allreduce(torch.ones(3))
    except PeerDiedError as error:
        return str(error)
    finally:
        member.exchange(b"")
    return "no error"


@pytest.mark.ranks
def test_an_exception_reaches_the_others_with_rank_and_message(nursery: Nursery) -> None:
    with FakeWorld(3, nursery=nursery) as world:
        first, _, last = world.run(fails)
    for rank, text in ((0, first), (2, last)):
        assert text.startswith("Rank 1 failed: ValueError: bad loss (train.py:12).")
        assert f"Rank {rank} was waiting for it." in text
