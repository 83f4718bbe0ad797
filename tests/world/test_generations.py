"""Generations on the board: assignments, posts of their own, and what a worker waits for."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from farandole.errors import NotNeededError, PeerDiedError, StartError
from farandole.world.board import Board
from farandole.world.environment import read_world
from farandole.world.generations import Assignment, GenerationBoard, Membership, membership

FIRST = Assignment(number=1, workers=(0, 1, 2), hosts=(("localhost", 2), ("127.0.0.1", 1)))


@pytest.fixture
def board() -> Iterator[Board]:
    with Board.create(8) as board:
        yield board


def form(board: Board, assignment: Assignment) -> None:
    board.form(assignment.number, assignment.encode())


def test_place_in_a_generation(board: Board) -> None:
    form(board, FIRST)
    member = Membership(board, 2)
    world = member.join().world(2, read_world({}, hostname="h"))
    assert (world.rank, world.size) == (2, 3)
    assert (world.local_rank, world.local_size, world.cross_rank, world.cross_size) == (0, 1, 1, 2)
    assert world.hostname == "127.0.0.1"
    assert world.rank_hosts == ("localhost", "localhost", "127.0.0.1")
    assert world.one_host
    assert world.sharing == 3


def test_the_next_generation_is_waited_for(board: Board) -> None:
    form(board, FIRST)
    member = Membership(board, 1)
    assert board.left(1) is None
    assert member.join() == FIRST
    assert board.left(1) == 0
    # Until it is left, it stays: shutdown() and init() of a script.
    assert member.join() == FIRST
    member.leave()
    assert board.left(1) == 1
    with pytest.raises(StartError, match=r"no generation after number 1 within 0\.01 s"):
        member.join(0.01)
    form(board, replace(FIRST, number=2, workers=(0, 2), hosts=(("localhost", 2),)))
    with pytest.raises(StartError):
        member.join(0.01)
    form(board, replace(FIRST, number=3, workers=(1,), hosts=(("localhost", 1),)))
    assert member.join().number == 3
    assert member.number == 3
    assert member.worker_of(0) == 1


def test_who_is_not_needed(board: Board) -> None:
    board.dismiss(3)
    with pytest.raises(NotNeededError):
        Membership(board, 3).join()


def test_posts_of_generations_are_not_mixed_up(board: Board) -> None:
    first = GenerationBoard(board, FIRST)
    second = GenerationBoard(board, replace(FIRST, number=2, workers=(2, 0)))
    first.post(0, 0, b"old")
    assert first.posted(0, 0) == b"old"
    assert second.posted(1, 0) is None
    assert (first.rounds(0), second.rounds(1)) == (1, 0)
    second.post(1, 0, b"new")
    assert second.posted(1, 0) == b"new"
    assert first.posted(0, 0) is None
    assert second.rounds(1) == 1


def test_a_lost_worker_is_an_error_for_all_others(board: Board) -> None:
    form(board, FIRST)
    view = GenerationBoard(board, FIRST)
    view.check()
    board.note_exit(1, -9)
    board.break_generation(1)
    with pytest.raises(PeerDiedError, match=r"Rank 1 was ended by signal 9\.") as caught:
        view.check()
    assert caught.value.culprit == 1
    form(board, replace(FIRST, number=2))
    with pytest.raises(PeerDiedError):
        view.check()
    GenerationBoard(board, replace(FIRST, number=2, workers=(0, 2))).check()


def test_changes_belong_to_the_generation_in_which_they_happen(board: Board) -> None:
    form(board, FIRST)
    member = Membership(board, 0)
    member.join()
    assert member.change is None
    board.note_change(5, added=True, removed=False)
    board.note_change(7, added=False, removed=True)
    assert member.change == (7, True, True)
    form(board, replace(FIRST, number=2))
    assert member.change is None


def test_the_last_step_is_of_one_generation(board: Board) -> None:
    first, second = GenerationBoard(board, FIRST), GenerationBoard(board, replace(FIRST, number=2))
    first.last_step = 12
    assert (first.last_step, second.last_step) == (12, 0)


def test_not_elastic() -> None:
    assert membership({}) is None
