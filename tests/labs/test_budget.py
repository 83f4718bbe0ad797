"""A lab in a budget of time: by arithmetic, by made-up durations, and by studies made by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from farandole.errors import UsageError
from farandole.labs import budget
from farandole.labs.budget import Progress
from farandole.labs.lab import DataFacts, Planned, flag_time
from farandole.labs.plan import STUDY_S
from farandole.model.analyse import analyse
from farandole.study.folder import create_study, mark_complete, new_launch_folder, write_launch
from farandole.study.plan import make_cells, make_plan
from farandole.study.records import Cell, Launch
from farandole.study.spec import Room, Spec
from tests.labs.tiny import tiny
from tests.labs.trained import asked
from tests.model.build import make_launch, make_rank, make_steps, make_study

DATA = DataFacts(source="none", train=1000, test=100, sample="nothing")
# Efforts 0 to 3 take 200, 400, 600 and 800 s.
LAB = tiny(seconds=100.0)


def needed(studies_s: float, spent_s: float = 0.0) -> float:
    """What a budget must be for these studies."""
    return studies_s / (1 - budget.MARGIN) + budget.REPORT_S + spent_s + 0.01


@pytest.mark.parametrize(
    ("fitting", "spent_s", "effort"),
    [(200, 0, 0), (399, 0, 0), (400, 0, 1), (900, 0, 3), (600, 50, 2)],
)
def test_the_largest_plan_that_fits(fitting: float, spent_s: float, effort: int) -> None:
    given = asked("budget", budget_s=needed(fitting, spent_s))
    assert budget.fit(LAB, given, DATA, {}, spent_s=spent_s).choices[0].here == str(effort)


def test_one_study_that_fits_is_enough_and_less_is_refused_with_the_least() -> None:
    # A pilot of 1 s, one study of 100 s / 0.9 and 20 s for the report: the next whole minute.
    with pytest.raises(UsageError, match=r"--budget 1m is too short.*--budget 3m, or use --quick"):
        budget.check_budget(LAB, asked("budget", budget_s=60.0), DATA)
    enough = asked("budget", budget_s=180.0)
    budget.check_budget(LAB, enough, DATA)
    # On a machine that turns out slower the shortest one is made all the same.
    for lab in (LAB, tiny(seconds=1000.0)):
        plan = budget.fit(lab, enough, DATA, {}, spent_s=1.0)
        assert [study.name for study in plan.studies] == ["first"]
        assert plan.choices[0].here == "1 of 2"
        assert plan.choices[0].why == "--budget 3m has no room for: two workers"


def planned(name: str, seconds: float = 1.0, **options: Any) -> Planned:
    return Planned(
        name=name, title="", options=options, script="", arguments=(), estimate_s=seconds
    )


def test_limits_share_out_what_is_left() -> None:
    rest = [planned("a", 10), planned("b", 30)]
    left_s = 200 + budget.REPORT_S
    assert budget.limit_s(rest[0], rest, left_s=left_s) == pytest.approx(50)
    assert budget.limit_s(rest[1], rest[1:], left_s=left_s) == pytest.approx(200)
    assert budget.limit_s(rest[1], rest[1:], left_s=-5) == budget.LEAST_LIMIT_S
    assert budget.limit_s(planned("c", 0), [planned("c", 0)], left_s=left_s) == pytest.approx(200)


@pytest.mark.parametrize(
    ("seconds", "text"), [(900, "15m"), (90, "90s"), (89.6, "90s"), (0.2, "1s"), (3600, "60m")]
)
def test_times_as_flags_take_them(seconds: float, text: str) -> None:
    assert flag_time(seconds) == text


WALL_S = {1: 10.0, 2: 7.0}
"""By workers."""


def stands(name: str, runs: int, next_s: float) -> Progress:
    return Progress(study=planned(name), runs=runs, complete=True, next_s=next_s)


def spend(progress: list[Progress], left_s: float) -> tuple[dict[str, int], list[str], float]:
    """Take rounds as long as there are some; return runs, the order of rounds and what is left."""
    now, order = {one.study.name: one for one in progress}, []
    while chosen := budget.next_round(now.values(), left_s=left_s):
        name = chosen.study.name
        order.append(name)
        left_s -= chosen.next_s
        now[name] = stands(name, chosen.runs + 1, chosen.next_s)
    return {name: one.runs for name, one in now.items()}, order, left_s


def test_the_fewest_runs_come_first_and_what_does_not_fit_leaves_its_time() -> None:
    given = [stands("accuracy", 3, 20), stands("speedup", 2, 60), stands("order", 3, 10)]
    runs, order, _ = spend(given, left_s=budget.REPORT_S + 60 + 20 + 10 + 60)
    assert order == ["speedup", "accuracy", "speedup", "order"]
    assert runs == {"accuracy": 4, "speedup": 4, "order": 4}
    given = [stands("long", 1, 100), stands("short", 3, 30)]
    assert spend(given, budget.REPORT_S + 99)[1] == ["short"] * 3
    runs, _, left_s = spend([stands("one", 1, 1), stands("two", 3, 1)], 10_000)
    assert set(runs.values()) == {budget.MOST_RUNS}
    assert left_s > 9_000
    assert "narrower" in budget.why_no_more([stands("one", budget.MOST_RUNS, 1)])
    assert "too short" in budget.why_no_more([stands("one", budget.MOST_RUNS - 1, 1)])


def made(path: Path, *, complete: bool = True, missing: int = 0) -> None:
    """Make a study of one and two workers, 3 seeds; the last launches of it may be missing."""
    spec = Spec(
        command=("python", "train.py"),
        room=Room(cores=2, physical=2, gpus=0),
        workers=(1, 2),
        measure="accuracy",
        seeds=3,
        retry_busy=False,
        folder=str(path.parent),
    )
    study = create_study(path, label="", command=spec.command, spec=spec.to_json(), machine={})
    launches = make_plan(spec, make_cells(spec))
    for one in launches[: len(launches) - missing]:
        wall_s = WALL_S[one.cell.workers]
        about = {"purpose": one.purpose, "repeat": one.repeat, "seed": one.seed, "wall_s": wall_s}
        launch = make_launch(one.cell, outcome="ok", **about)
        write_launch(new_launch_folder(path, one.cell, one.repeat), launch, durable=False)
    mark_complete(study, complete)


def test_a_further_run_takes_what_launches_like_it_took(tmp_path: Path) -> None:
    made(tmp_path / "whole")
    found = budget.study_progress(planned("x"), tmp_path / "whole")
    assert found is not None
    assert (found.runs, found.complete) == (3, True)
    assert found.next_s == pytest.approx(sum(WALL_S.values()) + STUDY_S)
    # Of one that was cut short the first seed is whole; of the second, which goes backwards, two
    # workers have run.
    made(tmp_path / "cut", complete=False, missing=3)
    found = budget.study_progress(planned("x"), tmp_path / "cut")
    assert found is not None
    assert (found.runs, found.complete) == (1, False)
    assert found.next_s == pytest.approx(WALL_S[1] + STUDY_S)
    # One whose command cannot be given again is left as it is.
    made(tmp_path / "here" / "out")
    (tmp_path / "here" / "out").rename(tmp_path / "out")
    (tmp_path / "here").rmdir()
    assert budget.study_progress(planned("x"), tmp_path / "out") is None


@pytest.mark.parametrize(("measure", "name"), [("accuracy", "seeds"), ("speed", "repeats")])
def test_runs_are_asked_for_by_either_option(measure: str, name: str) -> None:
    study = planned("x", workers=1, measure=measure, **{name: 3})
    assert study.runs == 3
    flags = ("-np", "1", "--measure", measure, f"--{name}", "4")
    assert study.with_runs(4).flags == flags


def test_runs_made_are_those_of_the_setting_with_the_fewest() -> None:
    one, two, three = (Cell(workers=workers, threads=1) for workers in (1, 2, 4))
    launches = [make_launch(cell) for cell in (one, two, one, two, one)]
    # A batch that never fitted the memory is no setting that was run.
    launches.append(make_launch(three, outcome="out_of_memory"))
    assert (budget.runs_made(launches), budget.runs_made([])) == (2, 0)


def timed(*, workers: int = 1, step_s: float = 0.1, **changes: Any) -> Launch:
    """41 steps of 8 samples each, in a launch of 9 s."""
    steps = make_steps(step_s, 41, samples=8.0)
    ranks = [make_rank(number, steps) for number in range(workers)]
    cell = Cell(workers=workers, threads=1, batch=8)
    return make_launch(cell, ranks, outcome="stopped", wall_s=9.0, **changes)


def test_speed_and_what_lies_around_it_on_a_busy_machine_too() -> None:
    for launches in (
        [timed(), timed(workers=2, step_s=0.2)],
        [timed(busy=True, foreign_share=0.6)],
    ):
        found = make_study(launches)
        rate = budget.measured_rate(analyse(found), found)
        assert rate is not None
        assert rate.samples_per_s == pytest.approx(80.0)
        # 9 s in all, of which 40 steps of 0.1 s lie between the first and the last.
        assert rate.startup_s == pytest.approx(5.0)
    found = make_study([timed(workers=2)])
    assert budget.measured_rate(analyse(found), found) is None
