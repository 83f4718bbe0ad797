from __future__ import annotations

from collections.abc import Iterator

import pytest

from farandole.engine.clean_stop import CleanStop, StopTraining
from farandole.world.board import Board


@pytest.fixture
def board() -> Iterator[Board]:
    with Board.create(3) as made:
        yield made


def test_nobody_stops_unasked(board: Board) -> None:
    stop = CleanStop(board, rank=0, one_host=True)
    assert not any(stop.reached() for _ in range(100))
    assert board.last_step == 0


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0)])
def test_all_ranks_of_a_host_stop_at_one_step(board: Board, order: tuple[int, ...]) -> None:
    stops = {rank: CleanStop(board, rank=rank, one_host=True) for rank in order}
    ended: dict[int, int] = {}
    for number in range(1, 20):
        if number == 7:
            board.ask_stop()
        for rank in order:
            if rank not in ended and stops[rank].reached():
                ended[rank] = number
    assert ended == dict.fromkeys(range(3), 9)


def test_a_rank_that_is_one_step_ahead_stops_there_too(board: Board) -> None:
    lead = CleanStop(board, rank=0, one_host=True)
    other = CleanStop(board, rank=1, one_host=True)
    other.reached()
    board.ask_stop()
    assert [lead.reached(), other.reached()] == [False, False]  # steps 1 and 2
    assert [lead.reached(), other.reached()] == [False, True]  # 2 and 3
    assert lead.reached()


def test_on_several_hosts_the_word_has_time_to_arrive() -> None:
    """Rank 0's word comes a second later on the other host: by 10 steps of 0.1 s."""
    with Board.create(2) as here, Board.create(2) as there:
        now = 0.0
        lead = CleanStop(here, rank=0, one_host=False, clock=lambda: now)
        other = CleanStop(there, rank=1, one_host=False, clock=lambda: now)
        arrives, ended = None, {}
        for number in range(1, 60):
            now = 0.1 * number
            if number == 20:
                here.ask_stop()
            for rank, stop in ((0, lead), (1, other)):
                if rank not in ended and stop.reached():
                    ended[rank] = number
            if here.last_step and arrives is None:
                arrives = now + 0.9
            if arrives is not None and now >= arrives:
                there.last_step = here.last_step
        assert ended == {0: 32, 1: 32}


def test_leaving_is_a_success_and_no_mere_exception() -> None:
    assert StopTraining().code == 0
    assert not issubclass(StopTraining, Exception)
