"""The driving lab: its answers from launches made by hand, and its corrections."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from farandole.labs import driving
from farandole.labs.driving import LAB, tagged_lines
from farandole.labs.lab import Found
from farandole.labs.questions import Question, answer
from farandole.labs.rows import HERE
from farandole.model.jobs import Speed, break_even
from farandole.model.metrics import smallest_error_change
from tests.labs.driving_studies import CONSTANT, SIZES, found, loss, nothing, studies
from tests.labs.trained import found_of, speed, training_study

OUTPUT = """\
[0]<stderr>: a warning
[0]<stdout>: rank 0, epoch 1: loss 0.5
[1]<stdout>: rank 1, epoch 1: loss 0.6
no tag, loss 1
"""


def rows_of(question: Question, made: Found | None = None, *, table: int = 0) -> list[Any]:
    """Return a table of a question as records by key."""
    return answer(question, made or found()).tables[table].records()


def said(question: Question, made: Found | None = None) -> tuple[str, ...]:
    return answer(question, made or found()).sentences


def with_losses(*losses: float, samples: int = 4000) -> Found:
    """Return a lab whose two counts of workers end with these losses, over seeds of one spread."""

    def ends(workers: int, recipe: str, seed: int) -> float:
        return losses[workers // 2] * (1 + 0.001 * seed)

    scores = {"val_loss": ends, "constant_mse": lambda *_: CONSTANT}
    study = training_study((1, 2), ("linear",), scores, batch=32, samples=samples, seeds=3)
    return found_of(LAB, {"workers": study})


def test_losses_stand_beside_that_of_a_constant() -> None:
    rows = {(row["recipe"], row["workers"]): row for row in rows_of(driving.WORKERS)}
    mean = (loss(4, "linear", 0) + loss(4, "linear", 1)) / 2
    four = rows["linear", 4]
    assert four["loss"].value == pytest.approx(mean)
    assert four["constant_mse"] == CONSTANT
    assert four["share"] == pytest.approx(mean / CONSTANT)
    assert [rows["linear", count]["steps_per_epoch"] for count in (1, 2, 4)] == [32, 16, 8]
    # More workers than cores have no time.
    assert four["job_s"] is None
    assert rows["linear", 2]["job_s"].value < rows["linear", 1]["job_s"].value
    assert any("4 workers share 2 cores" in one for one in said(driving.WORKERS))


@pytest.mark.parametrize(
    ("losses", "learned"),
    [
        ((0.02, 0.5), ["better than the constant", "worse than the constant"]),
        # 0.01612 against 0.01615 is nothing, whatever the seeds.
        (
            (CONSTANT * 0.998, CONSTANT),
            ["not shown to beat the constant"] * 2,
        ),
    ],
)
def test_a_loss_is_judged_by_what_test_samples_and_seeds_resolve(
    losses: tuple[float, float], learned: list[str]
) -> None:
    rows = rows_of(driving.WORKERS, with_losses(*losses))
    assert [row["learned"] for row in rows if row["source"] == HERE] == learned
    # 200 test samples and 3 seeds: 1.645 x sqrt(4 / 600).
    assert smallest_error_change(200, 3) == pytest.approx(0.1343, abs=1e-4)
    once = rows_of(driving.WORKERS, found(seeds=1))
    assert once[0]["learned"] == "cannot tell from one run"


def test_the_verdict_follows_from_intervals_of_time_and_loss() -> None:
    rules = {(row["study"], row["rule"]) for row in rows_of(driving.VERDICT, table=1)}
    assert rules == {("workers", "data_too_small"), ("lab", "fixed_cost")}
    first = said(driving.VERDICT, with_losses(0.02, 0.08))[0]
    assert first.startswith("Mixed: 2 workers take ")
    assert first.endswith("the loss goes from 0.0200 to 0.0801, more than chance.")
    first = said(driving.VERDICT, with_losses(0.02, 0.02))[0]
    assert first.startswith("Adding workers pays in time: 2 workers take ")
    assert "a change that these runs cannot resolve" in first
    diverged = said(driving.VERDICT, with_losses(0.02, math.nan))[0]
    assert diverged.endswith("the loss goes from 0.0200 to no finite value, training diverged.")
    once = said(driving.VERDICT, found(seeds=1))[0]
    assert once.startswith("Cannot tell whether adding workers pays: 2 workers take ")
    made = studies()
    launches = tuple(
        replace(launch, wall_s=(launch.wall_s or 0) + (100 if launch.cell.workers > 1 else 0))
        for launch in made["workers"].launches
    )
    made["workers"] = replace(made["workers"], launches=launches)
    slower = said(driving.VERDICT, found_of(LAB, made))[0]
    assert slower.startswith("Adding workers does not pay in time: 2 workers take ")
    assert "more time than 1 worker (25 % less would pay)" in slower


def test_the_steps_of_eight_workers_tell_why_the_loss_jumps() -> None:
    rows = rows_of(driving.DIVERGENCE)
    assert [(row["batch"], row["rate"], row["loss"].value) for row in rows] == [
        (256, 0.005, 0.04),
        (256, 0.04, 0.3),
    ]
    first = said(driving.DIVERGENCE)[0]
    assert said(driving.DIVERGENCE, nothing())[0].startswith("It was not run")
    assert (
        "0.0400 at a rate of 0.005, and at 0.300 at 8 times that rate; a constant gets 0.100"
        in first
    )


def test_the_size_follows_from_fixed_time_and_speed() -> None:
    one, two, four = rows_of(driving.SIZE)
    assert all(four[key] is None for key in ("fixed_s", "samples_per_s", "even", "time"))
    assert two["samples_per_s"] == pytest.approx(speed(2))
    expected = break_even(
        Speed(workers=1, fixed_s=one["fixed_s"], samples_per_s=speed(1)),
        Speed(workers=2, fixed_s=two["fixed_s"], samples_per_s=speed(2)),
        epochs=3,
        batch=32,
    )
    for key in ("even", "time", "steps", "samples"):
        assert two[key] == getattr(expected, key)
    # 20 steps at a global batch of 64.
    assert two["samples"] == 1280
    assert "two numbers of workers" in said(driving.SIZE, nothing())[0]
    check = rows_of(driving.SIZE, table=1)
    assert {(row["workers"], row["samples"]) for row in check} == {
        (n, size) for n in (1, 2) for size in SIZES
    }
    for row in check:
        # The last batch of an epoch is smaller; a launch made by hand takes a whole step for it.
        assert row["computed_s"] == pytest.approx(row["job_s"].value, rel=0.1)


def test_every_rank_and_epoch_of_the_launch_with_most_workers(tmp_path: Path) -> None:
    rows = rows_of(driving.RANKS)
    assert [(row["workers"], row["epoch"], row["rank"]) for row in rows] == [
        (4, epoch, rank) for epoch in (1, 2, 3) for rank in range(4)
    ]
    assert rows[-1]["rank_loss"] == pytest.approx(1 / 3 + 0.03)
    assert "own losses are 0.333, 0.343, 0.353 and 0.363" in said(driving.RANKS)[0]
    used = rows_of(driving.BUSY)
    assert [(row["workers"], row["rank"]) for row in used][:3] == [(1, 0), (2, 0), (2, 1)]
    assert used[2]["cpu"] == pytest.approx(0.51)
    assert tagged_lines(OUTPUT) == (
        "[0]<stdout>: rank 0, epoch 1: loss 0.5",
        "[1]<stdout>: rank 1, epoch 1: loss 0.6",
    )
    assert tagged_lines(OUTPUT, most=1) == ("[1]<stdout>: rank 1, epoch 1: loss 0.6",)
    assert tagged_lines("[0]<stdout>: hello\n") == ("[0]<stdout>: hello",)
    made = studies()
    last = max(made["workers"].launches, key=lambda launch: launch.cell.workers)
    for launch in made["workers"].launches:
        folder = tmp_path / "launches" / launch.id
        folder.mkdir(parents=True)
        folder.joinpath("output.txt").write_text(OUTPUT if launch is last else "[0]: other\n")
    made["workers"] = replace(made["workers"], path=str(tmp_path))
    shown = rows_of(driving.RANKS, found_of(LAB, made), table=1)
    assert [row["line"] for row in shown] == list(tagged_lines(OUTPUT))
