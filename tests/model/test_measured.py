"""One number per launch, which launches count for speed, and what cells are called."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from farandole.model.measured import (
    label_cells,
    measure,
    pace,
    usable_cores,
    warmup_steps,
)
from farandole.study.records import Cell, Launch
from tests.model.build import (
    make_launch,
    make_rank,
    make_steps,
    make_study,
    table_launch,
    timed_launch,
)

NAN = float("nan")
ONE = Cell(workers=1, batch=8)


def launch_of(*durations: float | list[float], **changes: Any) -> Launch:
    ranks = [make_rank(n, make_steps(steps), **changes) for n, steps in enumerate(durations)]
    return make_launch(Cell(workers=len(durations)), ranks)


def test_a_step_takes_as_long_as_its_slowest_rank_and_all_must_have_it() -> None:
    found = pace(launch_of([1.0, 1.0, 3.0, 1.0], [1.0, 2.0, 1.0, 1.0, 1.0]))
    assert (found.steps, found.step_s) == (3, pytest.approx(2.0))  # of 2, 3 and 1 s
    assert pace(launch_of([1.0] * 30, [])).step_s is None


@pytest.mark.parametrize(
    ("launch", "rates"),
    [
        (timed_launch(Cell(workers=4, batch=32), 0.5), {"samples/s": 256.0, "batches/s": 8.0}),
        # The script accumulates over two batches: 64 samples per optimizer step.
        (
            make_launch(Cell(workers=1, batch=32), [make_rank(0, make_steps(0.5, samples=64.0))]),
            {"samples/s": 128.0, "batches/s": 2.0},
        ),
        (launch_of([0.5] * 9, [0.5] * 9), {"batches/s": 4.0}),
        (launch_of([0.5] * 9, batch_seen=16), {"samples/s": 32.0, "batches/s": 2.0}),
        (table_launch(Cell(workers=2, batch=32), throughput=99.0), {"samples/s": 99.0}),
        (
            table_launch(Cell(workers=2, batch=32), step_s=0.25),
            {"samples/s": 256.0, "batches/s": 8.0},
        ),
        (table_launch(ONE, epoch_s=20.0, job_s=400.0), {"epochs/s": 0.05, "jobs/s": 0.0025}),
        (table_launch(ONE, epoch_s=NAN, throughput=0.0), {}),
    ],
)
def test_throughput_is_all_ranks_samples_per_step_time(
    launch: Launch, rates: dict[str, float]
) -> None:
    assert dict(pace(launch).rates) == pytest.approx(rates)


def test_typical_steps_are_the_middle_half_and_of_few_steps_some() -> None:
    typical = pace(launch_of([1.0, *np.linspace(1.0, 1.04, 41).tolist()])).typical
    assert (len(typical), typical.min(), typical.max()) == (21, 11, 31)
    for count in (1, 2, 3):
        assert len(pace(launch_of([5.0, *np.linspace(1.0, 1.2, count).tolist()])).typical) >= 1


@pytest.mark.parametrize(
    ("durations", "expected"),
    [
        ([], 0),
        ([NAN], 1),
        ([NAN, 1.0, 1.0], 1),
        ([NAN, *[1.0] * 30], 1),
        # Three slow steps: the median of the window settles with the second step of the rest.
        ([NAN, 9.0, 8.0, 7.0, *[1.0] * 30], 3),
        # One hiccup at the begin is not worth a warm-up; the launch's median does not see it.
        ([NAN, 9.0, *[1.0] * 30], 1),
        # A hiccup later does not prolong it.
        ([NAN, 1.0, 1.0, 9.0, *[1.0] * 30], 1),
        # Slower by less than 5 % is not warm-up.
        ([NAN, *[1.04] * 5, *[1.0] * 30], 1),
        # Never more than half.
        ([NAN, *[2.0] * 14, *[1.0] * 15], 14),
        ([NAN, *[2.0] * 10, *[1.0] * 5], 8),
    ],
)
def test_warmup(durations: list[float], expected: int) -> None:
    assert warmup_steps(np.asarray(durations, dtype=np.float64)) == expected


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({}, ""),
        ({"outcome": "ok"}, ""),
        ({"outcome": "failed", "reason": "no module named x"}, "no module named x"),
        ({"outcome": "out_of_memory"}, "out of memory"),
        ({"ranks": ()}, "recorded neither a step nor a figure"),
    ],
)
def test_what_is_left_out_says_why(changes: dict[str, Any], why: str) -> None:
    launch = timed_launch(ONE, 0.1)
    (cell,), (row,) = measure(make_study([make_launch(ONE, **{"ranks": launch.ranks, **changes})]))
    assert (row.why, row.kept, len(cell.paces)) == (why, why == "", int(why == ""))
    assert cell.failed == (why if "outcome" in changes and why else "")


def test_a_rank_that_never_steps_is_named() -> None:
    ranks = [make_rank(0, make_steps(0.1, 20), stopped=True), make_rank(1, make_steps(0.1, 0))]
    launch = make_launch(
        Cell(workers=2), ranks, outcome="failed", reason="rank 1: Connection closed by peer"
    )
    (cell,), _ = measure(make_study([launch]))
    assert cell.failed == "rank 1 never called optimizer.step(), the others 20 times"


def test_a_busy_launch_counts_where_there_is_no_quiet_one() -> None:
    busy = timed_launch(ONE, 0.2, busy=True, foreign_share=0.12, steal_share=0.01)
    (alone,), (row,) = measure(make_study([busy]))
    assert row.kept
    assert alone.disturbance == pytest.approx(0.13)
    (both,), rows = measure(make_study([busy, timed_launch(ONE, 0.1)]))
    assert [row.kept for row in rows] == [False, True]
    assert rows[0].why == "the machine was busy: other programs took 13 % of the cores"
    assert (both.disturbance, both.step_s.value) == (None, pytest.approx(0.1))


@pytest.mark.parametrize(
    ("cell", "void"),
    [
        (Cell(workers=16), "more ranks than cores (16 on 8): valid for accuracy, void for speed"),
        (Cell(workers=16, hosts=2), ""),
        (Cell(workers=16, device="cuda"), ""),
        (Cell(workers=8), ""),
    ],
)
def test_more_ranks_than_cores_are_void_for_speed(cell: Cell, void: str) -> None:
    (found,), (row,) = measure(make_study([timed_launch(cell, 0.1)]))
    assert (found.void_for_speed, row.why, bool(found.paces)) == (void, void, not void)
    # The cores of an imported table are not this machine's.
    cells, _ = measure(make_study([table_launch(cell, throughput=9.0)]))
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
    accuracy = timed_launch(ONE, 0.2, purpose="accuracy", outcome="ok")
    (alone,), _ = measure(make_study([accuracy]))
    (both,), rows = measure(make_study([accuracy, timed_launch(ONE, 0.1)]))
    assert [alone.step_s.value, both.step_s.value] == pytest.approx([0.2, 0.1])
    assert rows[0].why == "made for accuracy"


def test_an_outlier_is_flagged_and_kept() -> None:
    times = (0.1, 0.101, 0.099, 0.1005, 0.3)
    (found,), rows = measure(make_study([timed_launch(ONE, time_s) for time_s in times]))
    assert [row.outlier for row in rows] == [False, False, False, False, True]
    assert len(found.paces) == 5


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


def test_a_failure_before_the_batch_was_seen_belongs_to_the_cell_that_was_mended() -> None:
    failed = make_launch(Cell(workers=2, threads=1), [], outcome="failed", reason="no module")
    mended = timed_launch(Cell(workers=2, threads=1, batch=8), 0.1)
    (cell,), rows = measure(make_study([failed, mended]))
    assert (cell.failed, len(cell.launches), len(cell.paces)) == ("", 2, 1)
    assert [row.kept for row in rows] == [False, True]
