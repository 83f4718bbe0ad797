"""The labs on transfer learning, fruits and caltech, from launches made by hand.

What the runs end with follows from formulas; tests/frozen has the reports of recorded ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from itertools import pairwise
from typing import Any

import pytest

from farandole.labs.caltech import CALTECH
from farandole.labs.caltech import LAB as CALTECH_LAB
from farandole.labs.fruits import LAB as FRUITS_LAB
from farandole.labs.lab import Answered, Found, Lab, Planned
from farandole.labs.rows import Row, judge
from farandole.labs.transfer import overfits, steadiness
from farandole.model.projection.advice import project
from farandole.model.projection.question import Question as Asking
from farandole.study.records import Launch, Metric, Study
from tests.labs.trained import (
    asked,
    facts,
    flag,
    found_of,
    here,
    speed,
    training_study,
)

LABS: dict[str, Lab] = {"fruits": FRUITS_LAB, "caltech": CALTECH_LAB}
EPOCHS = 14
GAP = 0.08
"""Training ends above validation by so much."""
ALONE = 0.9
"""Validation accuracy of one worker, seed 0."""
LOST = 0.02
"""By each further worker with recipe linear."""


def end(workers: int, recipe: str, seed: int) -> float:
    """Return the validation accuracy at the end; seeds differ alike in all settings."""
    if recipe == "original":
        return 0.2 + 0.001 * seed
    lost = LOST * (workers - 1) if recipe == "linear" else 0.0
    return ALONE - lost + 0.002 * seed


def curve(workers: int, last: float) -> list[float]:
    """Return an accuracy by epoch: it rises until it is stable, one epoch later per worker."""
    rising = 2 + workers
    return [last * min(1.0, (epoch + 1) / rising) for epoch in range(EPOCHS)]


def study(
    workers: Sequence[int], recipes: Sequence[str], *, seeds: int = 2, batch: int = 32
) -> Study:
    """Return a study whose launches tell both accuracies by epoch, counted from 0 as Keras does."""
    made = training_study(workers, recipes, {}, batch=batch, seeds=seeds, epochs=EPOCHS)
    return replace(made, launches=tuple(_scored(launch) for launch in made.launches))


def _scored(launch: Launch) -> Launch:
    recipe = dict(launch.cell.params)["recipe"]
    last = end(launch.cell.workers, recipe, launch.seed or 0)
    loss = float("nan") if recipe == "original" else 0.1
    ranks = []
    for rank in launch.ranks:
        metrics = []
        for epoch, value in enumerate(curve(launch.cell.workers, last)):
            # The lab's own timing: 5 s to start, epochs as long as their steps.
            when = {"epoch": float(epoch), "time_s": rank.epochs[epoch][1] - 100.0}
            told = {"val_accuracy": value, "accuracy": value + GAP, "loss": loss}
            metrics += [Metric(name=name, value=told[name], **when) for name in told]
        ranks.append(replace(rank, metrics=tuple(metrics)))
    return replace(launch, ranks=tuple(ranks))


def not_wrapped(made: Study) -> Study:
    """Return the same single launch as if nobody had wrapped the optimizer."""
    (launch,) = made.launches
    ranks = [
        replace(rank, weights=f"of rank {rank.rank}", bytes_sent={"gradients": 0})
        for rank in launch.ranks
    ]
    return replace(made, launches=(replace(launch, ranks=tuple(ranks)),))


def studies(seeds: int = 2) -> dict[str, Study]:
    """Return what a lab plans, as launches."""
    return {
        "workers": study((1, 2, 4), ("linear",), seeds=seeds),
        "recipes": study((2, 4), ("warmup", "fixed"), seeds=seeds),
        "original": study((1, 2), ("original",), seeds=seeds),
        "same_batch": study((2,), ("fixed",), seeds=seeds, batch=16),
        "unwrapped": not_wrapped(study((2,), ("fixed",), seeds=1)),
    }


@cache
def found(name: str = "fruits", seeds: int = 2) -> Found:
    """Return what a lab finds; without seeds none of its studies could be made."""
    return found_of(LABS[name], studies(seeds) if seeds else {})


@cache
def answers(name: str, seeds: int = 2) -> dict[str, Answered]:
    """Return a lab's answers, once for all tests."""
    return {one.question.key: one for one in LABS[name].answer(found(name, seeds))}


def lookup(answered: Answered, *keys: str) -> dict[Any, dict[str, Any]]:
    """Return the rows of an answer's table by some of their cells."""
    return {tuple(row[key] for key in keys): row for row in answered.tables[0].records()}


BOTH = pytest.mark.parametrize("name", LABS)


# Both labs as a whole.


# Plans.

FEW = facts(1200, 240)


def planned(name: str, *args: Any, data: Any = FEW, **wanted: Any) -> dict[str, Planned]:
    plan = LABS[name].plan(asked(*args, **wanted), data, {}, 0)
    return {study.name: study for study in plan.studies}


def test_both_readings_of_the_unnamed_optimizer_are_run() -> None:
    studies = planned("caltech")
    read = {key: flag(studies[key].arguments, "--optimizer") for key in CALTECH.original_studies}
    assert read == {"original": "adadelta", "original_adam": "adam"}
    assert {flag(studies[key].arguments, "--lr") for key in read} == {"1"}
    # Alone, the one that trains is the study of workers.
    alone = planned("caltech", recipes=("original",))
    assert set(alone) == {"workers", "original_adam", "unwrapped"}
    assert flag(alone["workers"].arguments, "--optimizer") == "adadelta"
    assert "--optimizer" not in alone["unwrapped"].arguments


def test_two_workers_share_the_batch_of_one_at_a_fixed_rate() -> None:
    studies = planned("fruits", "full")
    shared = studies["same_batch"]
    assert (flag(shared.flags, "-np"), flag(shared.flags, "-L")) == ("2", "batch=16")
    assert "recipe=fixed" in shared.flags
    assert flag(shared.arguments, "--epochs") == flag(studies["workers"].arguments, "--epochs")
    for first in ("original", "longer"):
        assert "same_batch" not in planned("fruits", "full", recipes=(first,))


@BOTH
@pytest.mark.parametrize("weights", ["none", None])
def test_data_image_size_and_weights_reach_every_script(name: str, weights: str | None) -> None:
    lab, wanted = LABS[name], asked("budget", data=here(), weights=weights)
    commands = [*lab.pilot(wanted), *lab.plan(wanted, FEW, {}, lab.efforts - 1).studies]
    for one in commands:
        assert flag(one.arguments, "--data") == str(here())
        assert flag(one.arguments, "--image-size") == "96"
        given = [b for a, b in pairwise(one.arguments) if a == "--weights"]
        assert given == ([] if weights is None else [weights])


# Times, accuracy and utilisation.


def test_times_here_beside_both_devices_of_the_lab() -> None:
    rows = lookup(answers("caltech")["times"], "source", "device", "workers")
    # Over the fewest workers of the same device: 209 / 81, 80 / 44.
    assert rows["the lab", "T4", 4]["epoch_speedup"] == pytest.approx(209 / 81)
    assert rows["the lab", "V100", 8]["epoch_speedup"] == pytest.approx(80 / 44)
    measured = rows["here", "CPU", 2]["epoch_speedup"]
    assert measured == pytest.approx(speed(2) / speed(1), rel=0.05)
    # 30 x 209 s is more than the job of 2 T4: a contradiction, not a fixed cost.
    assert rows["the lab", "T4", 2]["fixed_share"] is None
    assert rows["the lab", "T4", 4]["fixed_share"] == pytest.approx(1 - 30 * 81 / 2594)
    # More workers than cores have no time.
    assert rows["here", "CPU", 4]["job_s"] is None
    said = answers("caltech")["times"].sentences
    assert f"With 2 workers an epoch is {speed(2) / speed(1):.2f}x as fast as with 1" in said[0]
    # 24,486 / (4 x 81) and 24,486 / (4 x 80).
    assert said[4].startswith("Each GPU trained 76 images/s on 4 T4 and 77 images/s on 4 V100;")


def test_the_largest_fall_of_training_accuracy_is_found() -> None:
    (launch,) = study((1,), ("linear",), seeds=1).launches
    (rank,) = launch.ranks
    told = [
        replace(one, value=0.5) if (one.name, one.epoch) == ("accuracy", 7.0) else one
        for one in rank.metrics
    ]
    fallen = replace(launch, ranks=(replace(rank, metrics=tuple(told)),))
    # From 0.98 to 0.5 in the eighth epoch.
    assert steadiness(Row(records=[fallen])).fall == "48.00 points (epoch 8)"


@pytest.mark.parametrize(
    ("few", "many", "least", "said"),
    [
        ([0.9], [0.8], 0.0, "cannot be told from 1 run each; 3 or more would."),
        ([0.9, 0.91, 0.9], [0.8, 0.81, 0.8], 0.0, "With 4 workers, it is lower than with 1."),
        ([0.9, 0.91, 0.9], [0.8, 0.81, 0.8], 0.2, "more seeds or test samples would."),
        ([0.9, 0.901, 0.9], [0.9, 0.9, 0.901], 0.0, "With 4 workers, it is the same as with 1."),
    ],
)
def test_differences_are_claimed_where_runs_and_samples_show_them(
    few: list[float], many: list[float], least: float, said: str
) -> None:
    rows = [Row(workers=1, values=few), Row(workers=4, values=many)]
    assert judge("it", rows, "values", least=least).endswith(said)


# Overfitting and stability.


@pytest.mark.parametrize(
    ("gaps", "least", "verdict"),
    [
        ([], 0.01, "not known"),
        ([0.3], 0.01, "cannot tell"),
        ([0.17, 0.18, 0.19], 0.01, "yes"),
        ([0.17, 0.18, 0.19], 0.14, "cannot tell"),
        ([0.0, 0.2, 0.1], 0.01, "cannot tell"),
        ([0.01, 0.012, 0.011], 0.01, "no"),
    ],
)
def test_overfitting_is_claimed_where_runs_and_samples_show_it(
    gaps: list[float], least: float, verdict: str
) -> None:
    assert overfits(gaps, least) == verdict


def test_epochs_to_stability_are_those_that_were_trained_not_keras_numbers() -> None:
    rows = lookup(answers("fruits")["stable"], "source", "workers")
    assert [rows["here", workers]["epochs"] for workers in (1, 2, 4)] == [3, 4, 6]
    assert answers("fruits")["stable"].sentences[1].startswith("With 4 workers, the number of")
    once = answers("fruits", seeds=1)["stable"].sentences[1]
    assert once.endswith("cannot be told from 1 run each; 3 or more would.")


def test_the_soonest_here_and_in_the_lab() -> None:
    answered = answers("caltech")["soonest"]
    reached = {row["configuration"]: row["reached_s"] for row in answered.tables[0].records()}
    # 25 x 44 s are less than 20 x 80, 19 x 81 and 15 x 209.
    assert reached["the lab, 8 V100"] == pytest.approx(1100)
    # 3 epochs of 1000 samples at 100 a second; 4 of them at speed(2).
    assert reached["here, 1 worker"] == pytest.approx(3 * 1024 / speed(1), rel=0.05)
    assert reached["here, 2 workers"] == pytest.approx(4 * 1024 / speed(2), rel=0.05)
    assert reached["here, 4 workers"] is None
    assert "8 V100, 18 min 20 s (25 epochs); last: 2 T4, 52 min" in answered.sentences[1]


# The lab's rate, and the wrapper.


def test_what_the_labs_rate_loses_is_paired_by_seeds() -> None:
    rows = lookup(answers("fruits")["original"], "recipe", "workers")
    # Seeds differ by 0.002 with one rate and by 0.001 with the other.
    expected = [end(2, "original", seed) - end(2, "linear", seed) for seed in (0, 1)]
    assert rows["original", 2]["lost"].value == pytest.approx(sum(expected) / 2)
    assert rows["linear", 2]["lost"] is None
    assert (rows["original", 2]["diverged"], rows["linear", 2]["diverged"]) == (2, 0)
    assert (
        answers("fruits", seeds=0)["original"].sentences[0] == "The lab's rate was not tried here."
    )


def test_wrapped_and_unwrapped_runs_by_bytes_and_fingerprints() -> None:
    answered = answers("fruits")["wrapped"]
    rows = lookup(answered, "optimizer", "workers")
    # Ranks made by hand send 4,000 bytes in every step.
    wrapped, unwrapped = rows["wrapped", 2], rows["not wrapped", 2]
    assert (wrapped["gradient_bytes"], wrapped["fingerprints"]) == (4000, 1)
    assert (unwrapped["gradient_bytes"], unwrapped["fingerprints"]) == (0, 2)
    shared = rows["wrapped, sharing one worker's batch", 2]
    assert shared["global_batch"] == rows["wrapped", 1]["global_batch"] == 32
    assert "2 different sets of weights" in answered.sentences[1]
    # Two workers that make the steps of one end where it does.
    assert "end +0.00 points (+0.00 to +0.00) away from one worker" in answered.sentences[2]


# What 16 workers would do.


def sixteen(name: str, seeds: int = 2) -> dict[Any, dict[str, Any]]:
    return lookup(answers(name, seeds)["sixteen"], "source", "workers", "kind", "link")


def test_sixteen_v100_are_projected_as_farandole_project_does() -> None:
    made = found("caltech", seeds=0)
    study, info = made.published_records["caltech"], made.published["caltech"]
    expected = project(study, info, Asking(workers=(16,), only=(("device", "V100"),))).rows
    rows = sixteen("caltech", seeds=0)
    for one in (row for row in expected if not row.measured):
        row = rows["the lab, V100", 16, "projected", one.link]
        assert row["epoch_s"].value == one.epoch_s.value
        # 23:07 less 30 x 44 s are 67 s.
        assert row["job_s"].value == pytest.approx(30 * one.epoch_s.value + 67)
        # Never faster than 44 s on 8, over 2; the author's job of 690 s would be.
        assert row["epoch_s"].low >= 22
    # 209 s on 2 T4 contradicts its own job time: nothing is projected from it.
    assert not [key for key in rows if "T4" in key[0]]
    guess = rows["the author's guess, V100", 16, "guessed", ""]
    assert [guess[key].value for key in ("epoch_s", "epochs", "job_s")] == [22.0, 30.0, 690.0]
    assert rows["the lab, V100", 8, "measured", ""]["validation"].value == 0.6719
    said = answers("caltech", seeds=0)["sixteen"].sentences
    assert said[0].startswith("16 V100 would take 2")
    assert said[1].endswith("against these intervals: epoch inside, epochs inside, job outside.")
    assert said[-1] == "No projection from the runs here: there is no study."


# Corrections.
