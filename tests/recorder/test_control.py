from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from farandole.recorder.ending import BoardControl, Control, Stopper, StopRule, make_stopper
from farandole.world.board import Board
from farandole.world.environment import read_world

ENOUGH_AT_26 = StopRule(precision=0.03, warmup_steps=5, least_steps=20)


def stoppers(tmp_path: Path, rule: StopRule, size: int) -> list[Stopper]:
    path = str(tmp_path / "control")
    return [
        Stopper(rule, Control(path, rank=rank, size=size), rank=rank, size=size)
        for rank in range(size)
    ]


def test_all_ranks_end_at_one_step(tmp_path: Path) -> None:
    ranks = stoppers(tmp_path, ENOUGH_AT_26, 3)
    ended = [0, 0, 0]
    for number in range(1, 40):
        # Rank 0 is the last to end each step: the others have published it by then.
        for rank in (2, 1, 0):
            if not ended[rank] and ranks[rank].step(number, 0.02 * number, 0):
                ended[rank] = number
    assert ended == [28, 28, 28]
    for rank in ranks:
        rank.close()


def test_a_rank_far_ahead_ends_at_its_next_step(tmp_path: Path) -> None:
    lead, other = stoppers(tmp_path, ENOUGH_AT_26, 2)
    for number in range(1, 101):
        assert not other.step(number, 0.01 * number, 0)
    for number in range(1, 27):
        assert not lead.step(number, 0.02 * number, 0)
    assert not other.step(101, 1.01, 0)
    assert other.step(102, 1.02, 0)
    lead.close()
    other.close()


def test_one_worker_ends_at_once(tmp_path: Path) -> None:
    (alone,) = stoppers(tmp_path, ENOUGH_AT_26, 1)
    assert [n for n in range(1, 27) if alone.step(n, 0.02 * n, 0)] == [26]
    alone.close()


def test_a_number_of_steps_needs_no_agreement(tmp_path: Path) -> None:
    ranks = stoppers(tmp_path, StopRule(steps=3), 2)
    for rank in ranks:
        assert [rank.step(number, float(number), 0) for number in (1, 2, 3)] == [False, False, True]
        rank.close()


def test_the_first_to_end_waits_for_the_others(tmp_path: Path) -> None:
    path, naps = str(tmp_path / "control"), 0
    others = [Control(path, rank=rank, size=4) for rank in (1, 2, 3)]
    others[0].publish(6)
    others[1].publish(7)  # ended; rank 3 never trains

    def nap(_seconds: float) -> None:
        nonlocal naps
        naps += 1
        if naps == 3:
            others[0].publish(7)

    first = Stopper(StopRule(steps=7), Control(path, rank=0, size=4), rank=0, size=4, sleep=nap)
    first.step(7, 1.0, 0)
    first.wait_for_others(7)
    assert naps == 3
    for one in (*others, first):
        one.close()


def test_a_rank_that_has_left_is_not_waited_for(tmp_path: Path) -> None:
    path = str(tmp_path / "control")
    other = Control(path, rank=1, size=2)
    other.publish(3)
    other.close()
    first = Stopper(
        StopRule(steps=7),
        Control(path, rank=0, size=2),
        rank=0,
        size=2,
        sleep=lambda _: pytest.fail("waited for a rank that has left"),
    )
    first.wait_for_others(7)
    first.close()


def test_patience_ends(tmp_path: Path) -> None:
    path, now_s = str(tmp_path / "control"), [0.0]
    slow = Control(path, rank=1, size=2)
    slow.publish(1)

    def nap(seconds: float) -> None:
        now_s[0] += 1000 * seconds

    first = Stopper(
        StopRule(steps=7),
        Control(path, rank=0, size=2),
        rank=0,
        size=2,
        sleep=nap,
        clock=lambda: now_s[0],
    )
    first.wait_for_others(7)
    assert 5 < now_s[0] < 60
    first.close()
    slow.close()


def test_on_several_hosts_rank_0s_word_comes_by_the_board() -> None:
    naps: list[float] = []
    with Board.create(2) as here, Board.create(2) as there:
        controls = [BoardControl(board.path, sleep=naps.append) for board in (here, there)]
        lead, other = (
            Stopper(ENOUGH_AT_26, control, rank=rank, size=2)
            for rank, control in enumerate(controls)
        )
        ended: dict[int, int] = {}
        for number in range(1, 100):
            if here.last_recorded and number == 26 + 49:
                # An agent carries it, 49 steps of 20 ms later.
                there.last_recorded = here.last_recorded
            for rank, stopper in enumerate((lead, other)):
                if rank not in ended and stopper.step(number, 0.02 * number, 0):
                    ended[rank] = number
        assert ended == {0: 78, 1: 78}
        lead.close()
        other.close()
    # What was sent last gets the time to arrive.
    assert len(naps) == 2


def test_where_ranks_of_several_hosts_agree(tmp_path: Path) -> None:
    far = {"RANK": "0", "WORLD_SIZE": "4", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "2"}
    world, folder = read_world(far), str(tmp_path)
    # Nobody would carry a word to the other host.
    assert make_stopper('{"precision": 0.03}', folder, world, rank=0, size=4) is None
    assert not (tmp_path / "control").exists()
    counted = make_stopper('{"steps": 2}', folder, world, rank=0, size=4)
    assert counted is not None
    assert [counted.step(number, 1.0 * number, 0) for number in (1, 2)] == [False, True]
    counted.close()
    with Board.create(4) as board:
        carried = make_stopper(
            '{"epochs": 1}', folder, replace(world, board=board.path), rank=0, size=4
        )
        assert carried is not None
        carried.step(1, 0.5, 1)
        assert board.last_recorded > 1
        carried.close()
