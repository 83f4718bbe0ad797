from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from farandole.engine.clean_stop import CleanStop, StopTraining
from farandole.world.board import Board


@pytest.fixture
def board() -> Iterator[Board]:
    with Board.create(3) as made:
        yield made


def step(stop: CleanStop) -> bool:
    """Make a step; say whether it was the last."""
    stop.count()
    return stop.reached


def of_one_host(board: Board, rank: int) -> CleanStop:
    return CleanStop(board, rank=rank, size=3, at_once=True)


def test_nobody_stops_unasked(board: Board) -> None:
    stop = of_one_host(board, 0)
    assert not any(step(stop) for _ in range(100))
    assert board.last_step == 0


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0)])
def test_all_ranks_of_a_host_stop_at_one_step(board: Board, order: tuple[int, ...]) -> None:
    stops = {rank: of_one_host(board, rank) for rank in order}
    ended: dict[int, int] = {}
    for number in range(1, 20):
        if number == 7:
            board.ask_stop()
        for rank in order:
            if rank not in ended and step(stops[rank]):
                ended[rank] = number
    assert ended == dict.fromkeys(range(3), 9)


def test_a_rank_that_is_one_step_ahead_stops_there_too(board: Board) -> None:
    lead, other = of_one_host(board, 0), of_one_host(board, 1)
    step(other)
    board.ask_stop()
    assert [step(lead), step(other)] == [False, False]  # steps 1 and 2
    assert [step(lead), step(other)] == [False, True]  # 2 and 3
    assert step(lead)


def test_several_steps_may_be_made_before_anybody_looks(board: Board) -> None:
    """A compiled function makes four; all ranks leave behind the one with the last step in it."""
    stops = [of_one_host(board, rank) for rank in range(3)]
    left: dict[int, int] = {}
    for call in range(1, 5):
        for number in range(4):
            if (call, number) == (2, 2):
                board.ask_stop()  # at step 7: the last one is 9
            for stop in stops:
                stop.count()
        for rank, stop in enumerate(stops):
            if rank not in left and stop.reached:
                left[rank] = call
    assert left == {0: 3, 1: 3, 2: 3}


def test_one_rank_alone_stops_when_it_is_asked(board: Board) -> None:
    stop = CleanStop(board, rank=0, size=1, at_once=True)
    assert not stop.reached
    board.ask_stop()
    assert stop.reached


def leaving_two_hosts(took_s: Callable[[int], float], *, asked_at: int) -> dict[int, int]:
    """Return where ranks on two hosts stop when rank 0's word comes 0.9 s later on the other."""
    with Board.create(2) as here, Board.create(2) as there:
        now = 0.0
        lead = CleanStop(here, rank=0, size=2, at_once=False, clock=lambda: now)
        other = CleanStop(there, rank=1, size=2, at_once=False, clock=lambda: now)
        arrives, ended = None, {}
        for number in range(1, 20_000):
            now += took_s(number)
            if number == asked_at:
                here.ask_stop()
            for rank, stop in ((0, lead), (1, other)):
                if rank not in ended and step(stop):
                    ended[rank] = number
            if here.last_step and arrives is None:
                arrives = now + 0.9
            if arrives is not None and now >= arrives:
                there.last_step = here.last_step
        return ended


def test_on_several_hosts_the_word_has_time_to_arrive() -> None:
    """A second has 8 steps of an eighth."""
    assert leaving_two_hosts(lambda _: 0.125, asked_at=20) == {0: 30, 1: 30}


@pytest.mark.parametrize("asked_at", [1, 5, 40])
def test_compiling_does_not_count_as_a_step(asked_at: int) -> None:
    """The first steps take long, and the others 1/1024 s each."""
    ended = leaving_two_hosts(
        lambda number: {1: 30.0, 2: 5.0}.get(number, 1 / 1024), asked_at=asked_at
    )
    assert ended[0] == ended[1]
    assert ended[0] < 1200


def test_of_two_updates_in_a_step_one_may_come_at_once() -> None:
    ended = leaving_two_hosts(lambda number: 0.25 if number % 2 else 1 / 1024, asked_at=40)
    assert ended[0] == ended[1] == 40 + 2 + 8


def test_leaving_is_a_success_and_no_mere_exception() -> None:
    assert StopTraining().code == 0
    assert not issubclass(StopTraining, Exception)
