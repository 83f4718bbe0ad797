"""Spending what is left of a budget: by made-up durations, and by studies made by hand."""

from __future__ import annotations

from pathlib import Path

import pytest

from farandole.labs import rounds
from farandole.labs.budget import REPORT_S
from farandole.labs.duration import STUDY_S
from farandole.labs.lab import Planned
from farandole.labs.rounds import MOST_RUNS, Standing
from farandole.study.cells import make_cells
from farandole.study.plan import make_plan
from farandole.study.records import Cell
from farandole.study.spec import Room, Spec
from farandole.study.write import create_study, mark_complete, new_launch_folder, write_launch
from tests.model.build import make_launch

WALL_S = {1: 10.0, 2: 7.0}
"""By workers."""


def planned(name: str, *flags: str) -> Planned:
    return Planned(name=name, title="", flags=flags, script="", arguments=(), estimate_s=1.0)


def stands(name: str, runs: int, next_s: float) -> Standing:
    return Standing(study=planned(name), runs=runs, complete=True, next_s=next_s)


def spend(standings: list[Standing], left_s: float) -> tuple[dict[str, int], list[str], float]:
    """Take rounds as long as there are some; return runs, the order of rounds and what is left."""
    now, order = {one.study.name: one for one in standings}, []
    while chosen := rounds.next_round(now.values(), left_s=left_s):
        name = chosen.study.name
        order.append(name)
        left_s -= chosen.next_s
        now[name] = stands(name, chosen.runs + 1, chosen.next_s)
    return {name: one.runs for name, one in now.items()}, order, left_s


def test_the_fewest_runs_come_first_then_the_order_of_the_plan() -> None:
    given = [stands("accuracy", 3, 20), stands("speedup", 2, 60), stands("order", 3, 10)]
    runs, order, _ = spend(given, left_s=REPORT_S + 60 + 20 + 10 + 60)
    assert order == ["speedup", "accuracy", "speedup", "order"]
    assert runs == {"accuracy": 4, "speedup": 4, "order": 4}


@pytest.mark.parametrize("faster", [0.5, 1.0, 3.0, 20.0])
@pytest.mark.parametrize("left_s", [0.0, 25.0, 256.0, 600.0])
def test_a_machine_of_any_speed_uses_what_is_left_and_no_more(faster: float, left_s: float) -> None:
    seconds = {"speedup": 62.0, "baseline": 11.0, "accuracy": 88.0, "norm": 24.0, "order": 11.0}
    given = [stands(name, 3, second / faster) for name, second in seconds.items()]
    runs, _, after_s = spend(given, left_s)
    shortest_s = min((one.next_s for one in given if runs[one.study.name] < MOST_RUNS), default=0)
    assert after_s == left_s or after_s >= REPORT_S
    assert not shortest_s or after_s - REPORT_S < shortest_s


def test_what_does_not_fit_leaves_its_time_to_shorter_ones() -> None:
    given = [stands("long", 1, 100), stands("short", 3, 30)]
    assert spend(given, REPORT_S + 99)[1] == ["short"] * 3
    assert spend(given, REPORT_S + 29)[1] == []


def test_there_is_an_end_to_what_further_runs_gain() -> None:
    runs, _, left_s = spend([stands("one", 1, 1), stands("two", 3, 1)], 10_000)
    assert runs == {"one": MOST_RUNS, "two": MOST_RUNS}
    assert left_s > 9_000
    assert "narrower" in rounds.why_no_more([stands("one", MOST_RUNS, 1)])
    assert "too short" in rounds.why_no_more([stands("one", MOST_RUNS - 1, 1)])


def made(path: Path, *, seeds: int, complete: bool = True, missing: int = 0) -> None:
    """Make a study of one and two workers; the last launches of it may be missing."""
    spec = Spec(
        command=("python", "train.py"),
        room=Room(cores=2, physical=2, gpus=0),
        workers=(1, 2),
        measure="accuracy",
        seeds=seeds,
        retry_busy=False,
        folder=str(path.parent),
    )
    study = create_study(path, label="", command=spec.command, spec=spec.to_json(), machine={})
    launches = make_plan(spec, make_cells(spec))
    for one in launches[: len(launches) - missing]:
        launch = make_launch(
            one.cell,
            purpose=one.purpose,
            repeat=one.repeat,
            seed=one.seed,
            outcome="ok",
            wall_s=WALL_S[one.cell.workers],
        )
        write_launch(new_launch_folder(path, one.cell, one.repeat), launch, durable=False)
    mark_complete(study, complete)


def test_a_further_run_takes_what_launches_like_it_took(tmp_path: Path) -> None:
    made(tmp_path / "out", seeds=3)
    found = rounds.standing(planned("x"), tmp_path / "out")
    assert found is not None
    assert (found.runs, found.complete) == (3, True)
    assert found.next_s == pytest.approx(sum(WALL_S.values()) + STUDY_S)


def test_a_study_that_was_cut_short_gets_its_missing_launches_first(tmp_path: Path) -> None:
    made(tmp_path / "out", seeds=3, complete=False, missing=3)
    found = rounds.standing(planned("x"), tmp_path / "out")
    assert found is not None
    # The first seed is whole; of the second one worker has run.
    assert (found.runs, found.complete) == (1, False)
    assert found.next_s == pytest.approx(WALL_S[2] + STUDY_S)


def test_a_study_whose_folder_is_gone_is_left_as_it_is(tmp_path: Path) -> None:
    made(tmp_path / "here" / "out", seeds=1)
    (tmp_path / "here" / "out").rename(tmp_path / "out")
    (tmp_path / "here").rmdir()
    assert rounds.standing(planned("x"), tmp_path / "out") is None


def test_runs_are_asked_for_by_either_flag() -> None:
    for flag in ("--seeds", "--repeats"):
        study = planned("x", "-np", "1", flag, "3", "--keep-busy")
        assert rounds.runs_planned(study) == 3
        more = rounds.with_runs(study, 4)
        assert more.flags == ("-np", "1", flag, "4", "--keep-busy")


def test_runs_made_are_those_of_the_setting_with_the_fewest() -> None:
    one, two, three = (Cell(workers=workers, threads=1) for workers in (1, 2, 4))
    launches = [make_launch(cell) for cell in (one, two, one, two, one)]
    # A batch that never fitted the memory is no setting that was run.
    launches.append(make_launch(three, outcome="out_of_memory"))
    assert rounds.runs_made(launches) == 2
    assert rounds.runs_made([]) == 0
