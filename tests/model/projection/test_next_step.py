"""What to measure next."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from farandole.model.analyse import analyse
from farandole.model.measured import measure
from farandole.model.projection.next_step import choose_next
from farandole.model.projection.outlook import Goal, NextStep, Outlook
from farandole.model.projection.records import EpochRow
from farandole.model.projection.rows import Basis, collect
from farandole.study.records import Cell
from tests.model.build import make_study, repeated
from tests.model.projection.known import figure, outlook

TARGET = Goal(kind="target", words="to accuracy 0.9", metric="accuracy", value=0.9)
RUNS = [EpochRow(global_batch=16, epochs=10.0), EpochRow(global_batch=32, epochs=12.0)]


def basis(counts: Mapping[int, int]) -> Basis:
    study = make_study(
        launch
        for workers, launches in counts.items()
        for launch in repeated(Cell(workers=workers, batch=16), [0.1] * launches)
    )
    return collect(study, analyse(study), measure(study)[0])


def chosen(
    counts: Mapping[int, int],
    goal: Goal | None = TARGET,
    runs: list[EpochRow] = RUNS,
    rows: tuple[Outlook, ...] = (),
    **changes: object,
) -> NextStep:
    given: dict[str, object] = {"imported": False, "link_unknown": False}
    given |= changes
    return choose_next(basis(counts), goal, runs, rows, {"seeds": 3}, **given)  # type: ignore[arg-type]


def test_one_count_needs_a_second() -> None:
    assert chosen({2: 3}).spec == {"workers": [2, 4]}


def test_a_link_costs_nothing_to_look_up() -> None:
    flags = ["-np", "16", "--only", "model=a b"]
    found = chosen({1: 3, 2: 3}, rows=(outlook(16, 1.0),), link_unknown=True, flags=flags)
    assert found.spec is None
    assert found.command == "farandole project DIR -np 16 --only 'model=a b' --link 25Gbit"


def test_repeats_come_before_distance() -> None:
    assert chosen({1: 3, 2: 1}).spec == {"repeats": 3}


def test_epochs_that_nobody_measured() -> None:
    found = chosen({1: 3, 2: 3}, goal=None, runs=[])
    assert found.spec == {"measure": "both"}


def test_epochs_of_one_batch_need_a_larger_one() -> None:
    found = chosen({1: 3, 2: 3}, runs=RUNS[:1])
    assert found.spec == {"measure": "both", "batches": [16, 64]}


def test_a_schedule_that_decays_asks_for_the_batch_in_question() -> None:
    untold = tuple(replace(outlook(n, 1.0, global_batch=16 * n), time_s=None) for n in (64, 8))
    found = chosen({1: 3, 2: 3}, runs=RUNS[:1], rows=untold, decays=True)
    # 8 workers of batch 16: 128, which 2 workers have at 64 each.
    assert found.spec == {"measure": "both", "batches": [16, 64]}
    assert "2 workers trained to the end at global batch 128 tell those of 8" in found.sentence


def test_a_schedule_that_decays_leaves_nothing_to_extrapolate() -> None:
    told = outlook(16, 1.0, epochs=figure(20.0, width=1.01))
    assert chosen({1: 3, 2: 3}, runs=RUNS[:1], rows=(told,), decays=True).spec == {
        "workers": [1, 2, 4]
    }
    unknown = replace(outlook(16, 1.0, global_batch=None), time_s=None)
    found = chosen({1: 3, 2: 3}, runs=RUNS[:1], rows=(unknown,), decays=True)
    assert "runs at a constant rate" in found.sentence


def test_the_wider_half_is_narrowed() -> None:
    epochs = outlook(16, 1.0, epochs=figure(20.0, width=1.5))
    assert chosen({1: 3, 2: 3}, rows=(epochs,)).spec == {"measure": "both", "seeds": 6}
    steps = outlook(16, 1.0, epochs=figure(20.0, width=1.01))
    assert chosen({1: 3, 2: 3}, rows=(steps,)).spec == {"workers": [1, 2, 4]}


def test_a_table_is_imported_again() -> None:
    found = chosen({1: 3, 2: 1}, imported=True)
    assert found.spec is None
    assert "farandole study import" in found.command


def test_a_host_without_room_asks_for_two() -> None:
    # 8 cores: 8 workers of one thread fill them.
    steps = outlook(64, 1.0, epochs=figure(20.0, width=1.01))
    found = chosen({4: 3, 8: 3}, rows=(steps,))
    assert found.spec is None
    assert "16 workers on two such hosts" in found.sentence
