"""Verdicts of a whole study."""

from __future__ import annotations

from farandole.model.analyse import analyse
from farandole.model.findings import condense
from farandole.model.verdicts import Verdict
from farandole.study.records import Cell, Launch
from tests.model.build import (
    make_launch,
    make_rank,
    make_steps,
    make_study,
    repeated,
    table_launch,
    timed_launch,
)


def kinds_of(launches: list[Launch], **changes: object) -> set[str]:
    return {verdict.kind for verdict in analyse(make_study(launches, **changes)).verdicts}


def test_a_few_of_a_kind_are_enough() -> None:
    alike = [
        Verdict(kind="fixed_cost", severity="warn", sentence=f"{n}.", action="", evidence={})
        for n in range(10)
    ]
    assert [found.sentence for found in condense(alike)] == [
        "0.",
        "1.",
        "2. (And 7 more like this.)",
    ]
    assert condense(alike[:3]) == alike[:3]
    assert condense([]) == []


def test_warnings_come_first() -> None:
    launches = [
        timed_launch(Cell(workers=n, batch=8, threads=1), t) for n, t in ((1, 0.1), (2, 0.06))
    ]
    verdicts = analyse(make_study(launches)).verdicts
    order = {"void": 0, "warn": 1, "note": 2, "good": 3}
    found = [order[verdict.severity] for verdict in verdicts]
    assert found == sorted(found)
    assert verdicts[0].kind == "more_than_linear"


def test_a_step_is_judged_at_the_largest_count() -> None:
    def launch(workers: int, exposed_s: float) -> Launch:
        steps = make_steps(0.1, data_s=0.0, exposed_s=exposed_s, samples=8.0)
        return make_launch(
            Cell(workers=workers, batch=8), [make_rank(n, steps) for n in range(workers)]
        )

    launches = [launch(1, 0.0), launch(2, 0.01), launch(4, 0.05)]
    found = [
        verdict
        for verdict in analyse(make_study(launches)).verdicts
        if verdict.kind in ("communication_bound", "compute_bound")
    ]
    assert [(verdict.kind, verdict.labels) for verdict in found] == [
        ("communication_bound", ("4 workers",))
    ]


def test_threads_that_outnumber_cores() -> None:
    cells = [Cell(workers=n, batch=8, threads=4) for n in (1, 4)]
    launches = [timed_launch(cell, 0.1) for cell in cells]
    info = analyse(make_study(launches))
    assert "oversubscription" in {verdict.kind for verdict in info.verdicts}
    assert info.answer.limited_by == "oversubscription"


def test_equal_speeds_are_said_with_enough_launches() -> None:
    few = repeated(Cell(workers=1, batch=8), [0.1, 0.1002, 0.0998, 0.1001, 0.0999])
    many = repeated(Cell(workers=2, batch=8), [0.2, 0.2004, 0.1996, 0.2002, 0.1998])
    assert "no_significant_difference" in kinds_of(few + many)
    assert "no_significant_difference" not in kinds_of(few[:3] + many[:3])


def test_small_data_are_found_by_the_data_sets_size() -> None:
    launches = [timed_launch(Cell(workers=n, batch=32), 0.1) for n in (1, 8)]
    assert "data_too_small" in kinds_of(launches, spec={"dataset_size": 3000})
    assert "data_too_small" not in kinds_of(launches, spec={"dataset_size": 30000})
    assert "data_too_small" not in kinds_of(launches)


def test_devices_of_one_study_are_compared() -> None:
    launches = [
        table_launch(Cell(workers=4, batch=32, device=device), epoch_s=seconds)
        for device, seconds in (("T4", 81.0), ("V100", 80.0))
    ]
    assert "faster_device_gains_nothing" in kinds_of(launches)


def test_void_cells_have_no_verdict_about_speed() -> None:
    apart = [
        make_rank(n, make_steps(0.02, samples=8.0), bytes_sent={"gradients": 0}) for n in (0, 1)
    ]
    launches = [
        timed_launch(Cell(workers=1, batch=8), 0.1),
        make_launch(Cell(workers=2, batch=8), apart),
    ]
    assert kinds_of(launches) <= {"compute_bound"}
