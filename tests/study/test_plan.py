from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from farandole.errors import UsageError
from farandole.study.plan import (
    Planned,
    estimate,
    fits,
    fitting,
    largest,
    left_out,
    make_cells,
    make_plan,
    next_trial,
    pending,
    seconds_of,
)
from farandole.study.records import Launch
from farandole.study.spec import Room, Spec

GRID = Spec(
    command=("python", "t.py", "{batch}"),
    room=Room(cores=4, physical=4),
    workers=(1, 2, 4),
    batches=(128,),
)


def grid(**changes: Any) -> list[tuple[int, int | None]]:
    cells = make_cells(replace(GRID, **changes))
    return sorted((cell.workers, cell.batch) for cell in cells if not cell.today)


def test_both_have_no_cell_twice() -> None:
    assert grid(scaling="both") == [(1, 128), (2, 64), (2, 128), (4, 32), (4, 128)]
    # One grid serves both: these nine cells hold all three curves of either kind.
    found = grid(scaling="both", batches=(32, 64, 128), workers=(1, 2))
    assert len(found) == len(set(found))
    assert {(1, 32), (2, 16), (2, 32), (2, 64), (1, 128)} <= set(found)


def test_factors_multiply() -> None:
    cells = make_cells(
        replace(
            GRID,
            workers=(1, 2),
            params=(("lr", ("0.1", "0.2")), ("opt", ("sgd",))),
            transports=("shm", "gloo"),
            threads=(1, 2),
            today=False,
        )
    )
    assert len(cells) == len(set(cells)) == 2 * 2 * 2 * 2
    assert cells[0].params == (("lr", "0.1"), ("opt", "sgd"))


@pytest.mark.parametrize(
    "changes",
    [
        {"threads": (4,)},
        {"today": False},
        {"measure": "accuracy"},
        {"launcher": "torchrun"},
        {"room": Room(cores=4, physical=4, gpus=4)},
    ],
)
def test_there_is_none_where_the_grid_has_it_or_nobody_asks(changes: dict[str, Any]) -> None:
    assert not any(cell.today for cell in make_cells(replace(GRID, **changes)))


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"batches": (100,), "workers": (1, 3), "scaling": "strong"}, "3 workers.*100.*99 or 102"),
        ({"batches": (2,), "workers": (4,), "scaling": "both"}, "4 workers.*Use 4, which 4"),
        ({"batches": (), "global_batches": (10,), "workers": (2, 4)}, "global_batch=10.*8 or 12"),
    ],
)
def test_a_batch_that_workers_cannot_share_is_refused(changes: dict[str, Any], says: str) -> None:
    with pytest.raises(UsageError, match=says):
        make_cells(replace(GRID, **changes))


def find(most: int, start: int = 32) -> tuple[int | None, list[int]]:
    tried: dict[int, bool] = {}
    while (batch := next_trial(start, tried)) is not None:
        assert batch not in tried
        tried[batch] = batch <= most
    return largest(tried), list(tried)


@pytest.mark.parametrize("most", [1, 3, 31, 32, 33, 100, 1000, 5000])
def test_it_finds_the_largest_within_an_eighth(most: int) -> None:
    found, tried = find(most)
    assert found is not None
    assert found <= most <= found + max(1, found // 8)
    assert len(tried) <= 20


SPEC = Spec(
    command=("python", "t.py", "{batch}"),
    room=Room(cores=2, physical=2),
    workers=(1, 2),
    batches=(32,),
    repeats=2,
    today=False,
)


def planned(spec: Spec) -> list[Planned]:
    return make_plan(spec, make_cells(spec))


def made(one: Planned, **changes: Any) -> Launch:
    return Launch(
        id="x",
        cell=one.cell,
        repeat=one.repeat,
        seed=one.seed,
        purpose=one.purpose,
        **{"outcome": "stopped", "wall_s": 10.0, **changes},
    )


def words(ones: list[Planned]) -> list[str]:
    return [f"{one.purpose[0]}{one.cell.workers}.{one.repeat}" for one in ones]


def test_cells_take_turns_back_and_forth_and_an_epoch_comes_after_the_first_round() -> None:
    assert words(planned(SPEC)) == ["s1.0", "s2.0", "e1.0", "e2.0", "s2.1", "s1.1"]
    learning = replace(SPEC, measure="accuracy", seeds=3)
    assert words(planned(learning)) == ["a1.0", "a2.0", "a2.1", "a1.1", "a1.2", "a2.2"]


def test_more_ranks_than_cores_are_for_accuracy_only() -> None:
    spec = replace(SPEC, workers=(2, 4), measure="both", repeats=1, seeds=1)
    assert words(planned(spec)) == ["s2.0", "a2.0", "a4.0"]
    (line,) = left_out(spec, make_cells(spec))
    assert line.startswith("4 workers on 2 cores take turns: not measured for speed")
    assert "accuracy only" in line
    assert "left out" in left_out(replace(spec, measure="speed"), make_cells(spec))[0]
    assert left_out(SPEC, make_cells(SPEC)) == []


def test_what_failed_in_an_earlier_session_is_tried_again_for_it_may_have_been_mended() -> None:
    plan = planned(SPEC)
    done = [made(plan[0]), made(plan[1], outcome="failed"), made(plan[2])]
    again = pending(SPEC, plan, done, earlier=len(done))
    assert words(again) == ["s2.0", "e2.0", "s2.1", "s1.1"]
    done.append(made(again[0], outcome="failed"))
    assert words(pending(SPEC, plan, done, earlier=len(done) - 1)) == ["s1.1"]


def test_a_script_that_came_to_its_end_takes_as_long_for_every_purpose() -> None:
    plan = planned(replace(SPEC, measure="both"))
    accuracy = next(one for one in plan if one.purpose == "accuracy" and one.cell.workers == 2)
    ended = [replace(made(one, outcome="ok"), wall_s=9.0 * one.cell.workers) for one in plan[:2]]
    assert seconds_of(SPEC, accuracy, ended) == (18.0, False)
    assert seconds_of(SPEC, accuracy, ended[:1]) == (9.0, False)
    stopped = [replace(launch, outcome="stopped") for launch in ended]
    assert seconds_of(SPEC, accuracy, stopped) == (300.0, True)


def test_what_others_disturbed_is_tried_again() -> None:
    spec = replace(SPEC, epoch_launches=False)
    plan = planned(spec)
    done = [made(one, busy=one.cell.workers == 2) for one in plan]
    again = pending(spec, plan, done)
    # A fifth of four launches is one: a session makes no more tries.
    assert words(again) == ["s2.2"]
    done.append(made(again[0], busy=True))
    assert pending(spec, plan, done) == []
    assert words(pending(spec, plan, done, earlier=len(done))) == ["s2.3"]
    done += [made(Planned(cell=again[0].cell, purpose="speed", repeat=repeat)) for repeat in (3, 4)]
    assert pending(spec, plan, done, earlier=len(done)) == []
    assert pending(replace(spec, retry_busy=False), plan, done[:4]) == []


def test_estimates_come_from_launches_like_these() -> None:
    plan = planned(SPEC)
    assert seconds_of(SPEC, plan[0], []) == (20.0, True)
    done = [made(plan[0], wall_s=8.0), made(plan[1], wall_s=12.0)]
    assert seconds_of(SPEC, plan[4], done) == (12.0, False)
    assert seconds_of(SPEC, plan[5], done) == (8.0, False)
    whole = estimate(SPEC, plan[4:], done)
    assert (whole.launches, whole.seconds, whole.guessed) == (2, 20.0, 0)
    assert whole.worker_hours == pytest.approx((8 + 2 * 12) / 3600)
    assert estimate(SPEC, plan[2:4], done).guessed == 2


def test_how_many_launches_a_time_limit_has_room_for() -> None:
    plan = planned(replace(SPEC, epoch_launches=False))
    done = [made(one) for one in plan]  # 10 s each
    rooms = [fitting(SPEC, plan, done, left_s=left_s) for left_s in (5.0, 15.0, 39.0, 40.0, 99.0)]
    # The second round has both cells or none.
    assert rooms == [0, 1, 2, 4, 4]
    assert fitting(SPEC, [], done, left_s=5.0) == 0


def test_a_round_is_begun_only_if_all_of_it_fits() -> None:
    plan = planned(replace(SPEC, epoch_launches=False))
    done = [made(plan[0], wall_s=8.0), made(plan[1], wall_s=12.0)]
    rest = pending(SPEC, plan, done)
    assert fits(SPEC, rest, done, left_s=20.0)
    assert not fits(SPEC, rest, done, left_s=19.0)
    # The first round is worth a start in any case: without it there is nothing to report.
    assert fits(SPEC, plan, [], left_s=1.0)
    assert not fits(SPEC, plan, [], left_s=0.0)


def test_a_first_training_is_begun_on_a_guess_and_left_out_on_knowledge() -> None:
    spec = replace(SPEC, measure="accuracy", seeds=2)
    plan = planned(spec)
    # The guess of 300 s is no reason to make nothing at all.
    assert fits(spec, plan, [], left_s=60.0)
    assert not fits(spec, plan, [], left_s=0.0)
    # In the first round each cell counts for itself...
    done = [made(plan[0], wall_s=50.0, outcome="ok")]
    assert fits(spec, plan[1:], done, left_s=60.0)
    assert not fits(spec, plan[1:], done, left_s=40.0)
    # ... and the second is made as a whole.
    done.append(made(plan[1], wall_s=50.0, outcome="ok"))
    assert fits(spec, plan[2:], done, left_s=100.0)
    assert not fits(spec, plan[2:], done, left_s=99.0)
