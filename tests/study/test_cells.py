from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from farandole.errors import UsageError
from farandole.study.cells import is_void_for_speed, make_cells
from farandole.study.spec import Room, Spec

SPEC = Spec(
    command=("python", "t.py", "{batch}"),
    room=Room(cores=4, physical=4),
    workers=(1, 2, 4),
    batches=(128,),
)


def grid(**changes: Any) -> list[tuple[int, int | None]]:
    cells = make_cells(replace(SPEC, **changes))
    return sorted((cell.workers, cell.batch) for cell in cells if not cell.today)


def test_weak_keeps_the_batch_per_worker() -> None:
    assert grid(scaling="weak") == [(1, 128), (2, 128), (4, 128)]


def test_strong_shares_it() -> None:
    assert grid(scaling="strong") == [(1, 128), (2, 64), (4, 32)]


def test_both_have_no_cell_twice() -> None:
    assert grid(scaling="both") == [(1, 128), (2, 64), (2, 128), (4, 32), (4, 128)]
    # One grid serves both: these nine cells hold all three curves of either kind.
    found = grid(scaling="both", batches=(32, 64, 128), workers=(1, 2))
    assert len(found) == len(set(found))
    assert {(1, 32), (2, 16), (2, 32), (2, 64), (1, 128)} <= set(found)


def test_a_global_batch_is_shared_whatever_the_scaling() -> None:
    assert grid(batches=(), global_batches=(64,), scaling="strong") == [(1, 64), (2, 32), (4, 16)]


def test_the_largest_that_fits_joins() -> None:
    cells = make_cells(replace(SPEC, find_max=True), max_batch=300)
    assert {cell.batch for cell in cells} == {128, 300}


def test_without_a_batch() -> None:
    assert grid(batches=()) == [(1, None), (2, None), (4, None)]


def test_factors_multiply() -> None:
    cells = make_cells(
        replace(
            SPEC,
            workers=(1, 2),
            params=(("lr", ("0.1", "0.2")), ("opt", ("sgd",))),
            transports=("shm", "gloo"),
            threads=(1, 2),
            today=False,
        )
    )
    assert len(cells) == len(set(cells)) == 2 * 2 * 2 * 2
    assert cells[0].params == (("lr", "0.1"), ("opt", "sgd"))


def test_splits_go_together() -> None:
    cells = make_cells(replace(SPEC, split=True, workers=(1, 2, 4), threads=(4, 2, 1)))
    assert [(cell.workers, cell.threads) for cell in cells] == [(1, 4), (2, 2), (4, 1)]


def test_one_extra_cell_is_what_the_user_has_today() -> None:
    *grid, today = make_cells(SPEC)
    assert (today.today, today.workers, today.threads, today.batch) == (True, 1, 4, 128)
    assert not any(cell.today for cell in grid)


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
    assert not any(cell.today for cell in make_cells(replace(SPEC, **changes)))


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
        make_cells(replace(SPEC, **changes))


def test_more_ranks_than_cores_are_void_for_speed() -> None:
    cells = make_cells(replace(SPEC, workers=(4, 8), today=False))
    assert [is_void_for_speed(SPEC, cell) for cell in cells] == [False, True]
    on_gpus = replace(SPEC, room=Room(cores=64, physical=64, gpus=2))
    assert is_void_for_speed(on_gpus, cells[0])


def test_hosts_and_workers_of_each_place() -> None:
    spec = replace(
        SPEC,
        room=Room(cores=4, physical=4, hosts=2),
        workers=(4, 8),
        places=((4, 1), (8, 1), (8, 2)),
        today=False,
    )
    cells = make_cells(spec)
    assert [cell.placement for cell in cells] == ["1x4", "1x8", "2x4"]
    # Eight ranks on four cores take turns; four on each of two hosts do not.
    assert [is_void_for_speed(spec, cell) for cell in cells] == [False, True, False]


def test_places_that_hosts_cannot_share_evenly() -> None:
    (cell,) = make_cells(replace(SPEC, workers=(7,), places=((7, 2),), today=False))
    assert cell.placement == "7 on 2 hosts"
