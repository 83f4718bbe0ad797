"""Goals, and the epochs that runs took to get there."""

from __future__ import annotations

import pytest

from farandole.errors import UsageError
from farandole.model.analyse import analyse
from farandole.model.measured import measure
from farandole.model.projection.goals import choose_goal, epoch_rows, stable_words
from farandole.model.projection.outlook import Goal
from farandole.study.records import Cell, Launch, Study
from tests.model.build import make_study, table_launch, trained_launch


def chosen(study: Study, target: tuple[str, float] | None = None) -> Goal | None:
    return choose_goal(measure(study)[0], analyse(study), target)


def rising(workers: int, pace: float, epochs: int = 12) -> list[Launch]:
    """Return two seeds whose accuracy is 1 - pace^epoch."""
    cell = Cell(workers=workers, batch=8)
    values = [1 - pace**epoch for epoch in range(1, epochs + 1)]
    return [trained_launch(cell, seed, values) for seed in (0, 1)]


def test_epochs_to_a_target() -> None:
    study = make_study([*rising(1, 0.5), *rising(2, 0.7)])
    goal = chosen(study, ("val_accuracy", 0.9))
    assert goal is not None
    assert goal.words == "to val_accuracy 0.9"
    rows = epoch_rows(measure(study)[0], goal)
    # 0.5^4 < 0.1 < 0.5^3; 0.7^7 < 0.1 < 0.7^6.
    assert {(row.global_batch, row.epochs, row.reached) for row in rows} == {
        (8, 4.0, True),
        (16, 7.0, True),
    }


def test_runs_that_end_before_the_target_are_lower_bounds() -> None:
    study = make_study([*rising(1, 0.5), *rising(2, 0.9)])
    goal = chosen(study, ("val_accuracy", 0.9))
    assert goal is not None
    late = [row for row in epoch_rows(measure(study)[0], goal) if row.global_batch == 16]
    assert all(not row.reached and row.epochs == 12.0 for row in late)


def test_a_target_that_nobody_reached() -> None:
    study = make_study(rising(1, 0.9))
    goal = chosen(study, ("val_accuracy", 0.99))
    assert goal is not None
    best = 1 - 0.9**12
    with pytest.raises(UsageError, match=rf"the best is {best:g} \(1 worker, epoch 12\)"):
        epoch_rows(measure(study)[0], goal)


def test_a_target_that_was_touched_and_not_held() -> None:
    study = make_study([trained_launch(Cell(workers=1, batch=8), 0, [0.5, 0.95, 0.5, 0.5, 0.5])])
    goal = chosen(study, ("val_accuracy", 0.9))
    assert goal is not None
    with pytest.raises(UsageError, match="was not held in any run"):
        epoch_rows(measure(study)[0], goal)


def test_a_target_without_a_metric() -> None:
    with pytest.raises(UsageError, match=r"recorded val_accuracy\. Choose one of these"):
        chosen(make_study(rising(1, 0.5)), ("f1", 0.9))
    bare = make_study([table_launch(Cell(workers=1, batch=8), step_s=0.1)])
    with pytest.raises(UsageError, match=r"this study recorded no metric at all.*--measure both"):
        chosen(bare, ("accuracy", 0.9))


def test_stable_epochs_of_a_table() -> None:
    study = make_study(
        table_launch(
            Cell(workers=n, batch=32), {"val_accuracy": 0.7, "stable_epoch": epoch}, epoch_s=80.0
        )
        for n, epoch in ((4, 20.0), (8, 25.0))
    )
    goal = chosen(study)
    assert goal is not None
    assert (goal.kind, goal.words) == ("stable", "to a stable val_accuracy")
    rows = epoch_rows(measure(study)[0], goal)
    assert {(row.global_batch, row.epochs) for row in rows} == {(128, 20.0), (256, 25.0)}
    assert "as the table states them" in stable_words(measure(study)[0], goal)


def test_stable_is_one_level_for_all_batches() -> None:
    # Both rise by halves and are flat in the end: the small batch at 0.9, the large one at 0.6.
    small, large = ([end * (1 - 0.5**e) for e in range(1, 21)] for end in (0.9, 0.6))
    study = make_study(
        trained_launch(Cell(workers=n, batch=8), seed, values)
        for n, values in ((1, small), (2, large))
        for seed in (0, 1)
    )
    goal = chosen(study)
    assert goal is not None
    assert goal.kind == "stable"
    assert goal.value == pytest.approx(0.9, abs=1e-3)
    rows = epoch_rows(measure(study)[0], goal)
    assert {(row.global_batch, row.reached) for row in rows} == {(8, True), (16, False)}
    assert all(row.epochs == 20.0 for row in rows if not row.reached)
    said = stable_words(measure(study)[0], goal)
    assert said.startswith(f"Stable means val_accuracy {goal.value:.4g} at every batch")
    assert "global batch 8, the smallest" in said


def test_every_run_of_the_smallest_batch_becomes_stable() -> None:
    ends = {0: 0.9, 1: 0.85}
    study = make_study(
        trained_launch(Cell(workers=1, batch=8), seed, [end * (1 - 0.5**e) for e in range(1, 21)])
        for seed, end in ends.items()
    )
    goal = chosen(study)
    assert goal is not None
    assert goal.value == pytest.approx(0.85, abs=1e-3)
    assert all(row.reached for row in epoch_rows(measure(study)[0], goal))


def test_without_a_metric_the_epochs_of_the_job_are_the_goal() -> None:
    cell = Cell(workers=1, batch=8)
    study = make_study([table_launch(cell, job_s=100.0, epochs=40)])
    goal = chosen(study)
    assert goal is not None
    assert (goal.kind, goal.epochs, goal.words) == ("epochs", 40.0, "for 40 epochs")
    assert epoch_rows(measure(study)[0], goal) == []
    once = chosen(make_study([table_launch(cell, epoch_s=100.0)]))
    assert once is not None
    assert once.kind == "epoch"
    assert chosen(make_study([table_launch(cell, throughput=100.0)])) is None
