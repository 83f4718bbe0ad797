"""Which launches count for speed, and what cells are called."""

from __future__ import annotations

from typing import Any

import pytest

from farandole.model.measured import figure, label_cells, measure, usable_cores
from farandole.study.records import Cell
from tests.model.build import (
    make_launch,
    make_rank,
    make_steps,
    make_study,
    table_launch,
    timed_launch,
)


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({}, ""),
        ({"outcome": "ok"}, ""),
        ({"outcome": "failed", "reason": "no module named x"}, "failed: no module named x"),
        ({"outcome": "out_of_memory"}, "out of memory"),
        ({"outcome": "interrupted"}, "interrupted"),
        ({"busy": True}, "the machine was busy"),
        (
            {"busy": True, "foreign_share": 0.31},
            "the machine was busy: other programs took 31 % of the cores",
        ),
    ],
)
def test_what_is_left_out_says_why(changes: dict[str, Any], why: str) -> None:
    cells, rows = measure(make_study([timed_launch(Cell(workers=1, batch=8), 0.1, **changes)]))
    assert rows[0].why == why
    assert rows[0].kept is (why == "")
    assert len(cells[0].paces) == (why == "")


def test_a_busy_launch_counts_where_there_is_no_quiet_one() -> None:
    cell = Cell(workers=1, batch=8)
    busy = timed_launch(cell, 0.2, busy=True, foreign_share=0.12, steal_share=0.01)
    (alone,), (row,) = measure(make_study([busy]))
    assert row.kept
    assert alone.disturbance == pytest.approx(0.13)
    (both,), rows = measure(make_study([busy, timed_launch(cell, 0.1)]))
    assert [row.kept for row in rows] == [False, True]
    assert rows[0].why == "the machine was busy: other programs took 13 % of the cores"
    assert both.disturbance is None
    assert both.step_s is not None
    assert both.step_s.value == pytest.approx(0.1)


def test_a_launch_on_a_very_busy_machine_counts_for_rough_figures_only() -> None:
    busy = timed_launch(Cell(workers=1, batch=8), 0.2, busy=True, foreign_share=0.26)
    assert [measure(make_study([busy]), rough=rough)[1][0].kept for rough in (False, True)] == [
        False,
        True,
    ]


def test_more_ranks_than_cores_are_void_for_speed() -> None:
    study = make_study([timed_launch(Cell(workers=16, batch=8), 0.1)])
    (cell,), (row,) = measure(study)
    assert cell.void_for_speed == (
        "more ranks than cores (16 on 8): valid for accuracy, void for speed"
    )
    assert row.why == cell.void_for_speed
    assert not cell.paces


@pytest.mark.parametrize(
    "cell", [Cell(workers=16, hosts=2), Cell(workers=16, device="cuda"), Cell(workers=8)]
)
def test_ranks_that_have_their_own_cores_count(cell: Cell) -> None:
    assert measure(make_study([timed_launch(cell, 0.1)]))[0][0].void_for_speed == ""


def test_an_imported_tables_cores_are_not_this_machines() -> None:
    cells, _ = measure(make_study([table_launch(Cell(workers=64), throughput=9.0)]))
    assert cells[0].void_for_speed == ""


@pytest.mark.parametrize(
    ("machine", "cores"),
    [
        ({}, None),
        ({"cores": 8}, 8.0),
        ({"cores": 8, "quota": 2.0}, 2.0),
        ({"cores": 2, "quota": 4.0}, 2.0),
    ],
)
def test_a_quota_limits_the_cores(machine: dict[str, object], cores: float | None) -> None:
    assert usable_cores(machine) == cores


def test_accuracy_launches_stand_in_only_where_there_is_nothing_else() -> None:
    cell = Cell(workers=1, batch=8)
    accuracy = timed_launch(cell, 0.2, purpose="accuracy", outcome="ok")
    (alone,), _ = measure(make_study([accuracy]))
    assert alone.step_s is not None
    assert alone.step_s.value == pytest.approx(0.2)
    (both,), rows = measure(make_study([accuracy, timed_launch(cell, 0.1)]))
    assert both.step_s is not None
    assert both.step_s.value == pytest.approx(0.1)
    assert rows[0].why == "made for accuracy"


def test_a_launch_without_steps_and_figures_says_so() -> None:
    _, rows = measure(make_study([make_launch(Cell(workers=1))]))
    assert rows[0].why == "recorded neither a step nor a figure"


def test_an_outlier_is_flagged_and_kept() -> None:
    cell = Cell(workers=1, batch=8)
    times = (0.1, 0.101, 0.099, 0.1005, 0.3)
    (found,), rows = measure(make_study([timed_launch(cell, time_s) for time_s in times]))
    assert [row.outlier for row in rows] == [False, False, False, False, True]
    assert all(row.kept for row in rows)
    assert len(found.paces) == 5


def test_a_cell_that_failed_keeps_its_reason() -> None:
    cell = Cell(workers=1, batch=2048)
    launch = make_launch(cell, outcome="out_of_memory", reason="killed at 80 % of the memory")
    (found,), _ = measure(make_study([launch]))
    assert found.failed == "out of memory: killed at 80 % of the memory"


def test_labels_name_what_differs_and_nothing_else() -> None:
    plain = [Cell(workers=1, batch=8, threads=1), Cell(workers=2, batch=8, threads=1)]
    assert list(label_cells(plain).values()) == ["1 worker", "2 workers"]
    cells = [
        Cell(workers=1, batch=8, params=(("model", "vgg"),)),
        Cell(workers=2, batch=16, params=(("model", "resnet"),), device="cuda", hosts=2),
        Cell(workers=1, batch=8, threads=8, today=True),
    ]
    assert list(label_cells(cells).values()) == [
        "1 worker, batch 8, 1 host, cpu, model=vgg",
        "2 workers, batch 16, 2 hosts, cuda, model=resnet",
        "today: 1 process, all cores, batch 8, 1 host, cpu",
    ]


def test_labels_are_unique() -> None:
    cells = [
        Cell(workers=workers, batch=batch, threads=threads, transport=transport)
        for workers in (1, 2)
        for batch in (8, 16)
        for threads in (1, 2)
        for transport in ("shm", "gloo")
    ]
    assert len(set(label_cells(cells).values())) == len(cells)


def test_figures_of_sentences_have_no_exponent() -> None:
    assert [figure(value) for value in (0.8398, 62.66, 187.34, 1050.4, 11878.2, 2.5e6)] == [
        "0.8398",
        "62.66",
        "187.3",
        "1,050",
        "11,878",
        "2,500,000",
    ]


def test_a_failure_before_the_batch_was_seen_belongs_to_the_cell_that_was_mended() -> None:
    failed = make_launch(Cell(workers=2, threads=1), [], outcome="failed", reason="no module")
    mended = timed_launch(Cell(workers=2, threads=1, batch=8), 0.1)
    (cell,), rows = measure(make_study([failed, mended]))
    assert (cell.failed, len(cell.launches), len(cell.paces)) == ("", 2, 1)
    assert [row.kept for row in rows] == [False, True]
    (alone,), _ = measure(make_study([failed]))
    assert alone.failed == "failed: no module"


def test_a_launch_of_20_steps_has_20_steps() -> None:
    slow_begin = [0.5] * 6 + [0.1] * 14
    cell = Cell(workers=1, batch=8)
    launch = make_launch(cell, [make_rank(0, make_steps(slow_begin, samples=8))])
    _, (row,) = measure(make_study([launch]))
    assert row.steps == 20
    assert row.warmup_steps > 1
    assert row.counted_steps == 20 - row.warmup_steps
