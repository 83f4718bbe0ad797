"""The mnist lab: its plans, its answers from launches made by hand, and its corrections.

What holds for the driving lab as well is tested for both, at the top.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from farandole.errors import DataError
from farandole.labs import driving, mnist
from farandole.labs.lab import DataFacts, Found, Lab, Rate, published_path
from farandole.labs.mnist import FULL, LADDER, full_steps, length
from farandole.labs.questions import Question, answer
from farandole.labs.rows import HERE
from farandole.labs.rows import LAB as THE_LAB
from farandole.study.records import Launch
from tests.labs import driving_studies, mnist_studies
from tests.labs.mnist_studies import BATCHES, accuracy, found, nothing, step_s, studies
from tests.labs.trained import asked, estimates, facts, flag, found_of, here, speed
from tests.model.build import make_utilisation

LABS = (mnist.LAB, driving.LAB)
RATES = {name: Rate(samples_per_s=300.0, startup_s=7.0) for name in ("mnist", "driving")}
MNIST, DIGITS = facts(60_000, 10_000), facts(1437, 360)
MADE = {"mnist": mnist_studies, "driving": driving_studies}


def rows_of(question: Question, source: str = "", made: Found | None = None) -> list[Any]:
    """Return a question's table as records by key."""
    rows = answer(question, made or found()).tables[0].records()
    return [row for row in rows if not source or row["source"] == source]


def said(question: Question, made: Found | None = None) -> tuple[str, ...]:
    return answer(question, made or found()).sentences


# Both labs.


@pytest.mark.parametrize("lab", LABS, ids=lambda lab: lab.name)
@pytest.mark.parametrize("data", [MNIST, DIGITS, facts(300, 60)], ids=lambda data: str(data.train))
@pytest.mark.parametrize("wanted", [{}, {"workers": (1, 8)}, {"recipes": ("longer", "fixed")}])
def test_a_larger_effort_never_takes_less_time(
    lab: Lab, data: DataFacts, wanted: dict[str, Any]
) -> None:
    found = estimates(lab, data, RATES, **wanted)
    assert found == sorted(found)
    slow = {name: Rate(samples_per_s=30.0, startup_s=7.0) for name in RATES}
    pairs = zip(estimates(lab, data, slow, **wanted), found, strict=True)
    assert all(first > second for first, second in pairs)


@pytest.mark.parametrize("lab", LABS, ids=lambda lab: lab.name)
def test_quick_is_about_a_minute_of_one_and_two_workers(lab: Lab) -> None:
    plan = lab.plan(asked(), DIGITS, {}, 0)
    assert plan.estimate_s < 90
    flags = {study.name: study.flags for study in plan.studies}
    assert (flag(flags["workers"], "-np"), flag(flags["workers"], "--seeds")) == ("1,2", "1")
    assert flag(flags["recipes"], "-np") == "2"


@pytest.mark.parametrize("lab", LABS, ids=lambda lab: lab.name)
def test_only_what_was_asked_for_and_the_data_folder_everywhere(lab: Lab) -> None:
    wanted = asked("budget", recipes=("warmup",), workers=(2, 1), data=here())
    plan = lab.plan(wanted, MNIST, RATES, 5)
    flags = {study.name: study.flags for study in plan.studies}
    assert flag(flags["workers"], "-np") == "1,2"
    assert "recipe=warmup" in flags["workers"]
    assert "recipes" not in flags
    commands = [*lab.pilot(wanted), *plan.studies]
    assert {flag(one.arguments, "--data") for one in commands} == {str(here())}
    (pilot,) = lab.pilot(asked("budget"))
    assert "--data" not in pilot.arguments
    assert (flag(pilot.flags, "-np"), flag(pilot.flags, "--threads")) == ("1", "1")


@pytest.mark.parametrize("lab", LABS, ids=lambda lab: lab.name)
def test_every_question_has_a_sentence_and_a_table_with_figures(lab: Lab) -> None:
    assert all(published_path(name).is_file() for name in lab.published)
    for one in lab.answer(MADE[lab.name].found()):
        assert one.sentences, one.question.key
        assert one.tables[0].name == one.question.key
        assert one.tables[0].rows, one.question.key
        assert all(figure.spec for figure in one.figures), one.question.key
    answered = lab.answer(MADE[lab.name].nothing())
    assert [one.question for one in answered] == list(lab.questions)
    assert all(one.sentences for one in answered)
    assert lab.corrections(MADE[lab.name].nothing())
    once = [text for one in lab.answer(MADE[lab.name].found(seeds=1)) for text in one.sentences]
    assert "One run per setting: differences may be noise." in once
    with pytest.raises(DataError, match="there is nothing"):
        lab.data(here("nowhere"))


# The plan of mnist.


def test_full_is_the_labs_protocol() -> None:
    plan = mnist.plan(asked("full"), MNIST, {}, 0)
    study = next(study for study in plan.studies if study.name == "workers")
    wanted = {"--epochs": "40", "--samples": "0", "--lr": "0.001"}
    assert {name: flag(study.arguments, name) for name in wanted} == wanted
    assert {"batch=128", "recipe=linear"} < set(study.flags)
    assert {1, 2, 4} < set(FULL.workers)
    differing = {choice.what for choice in plan.choices}
    assert ("training samples" in differing, "hosts" in differing) == (False, True)


def test_data_smaller_than_the_effort_are_taken_whole_and_batches_fit_them() -> None:
    plan = mnist.plan(asked("budget"), DIGITS, RATES, len(LADDER) - 1)
    assert {flag(study.arguments, "--samples") for study in plan.studies} == {"0"}
    (sweep,) = (study for study in plan.studies if study.name == "batch")
    batches = flag(sweep.flags, "-L").removeprefix("batch=").split(",")
    assert max(map(int, batches)) <= DIGITS.train / 4
    # One worker is trained once, whatever the recipes.
    (recipes,) = (study for study in plan.studies if study.name == "recipes")
    assert "1" not in flag(recipes.flags, "-np").split(",")
    choices = {one.what: one for one in mnist.plan(asked("budget"), MNIST, RATES, 2).choices}
    assert choices["training samples"].here == f"{length(LADDER[2], 60_000)[0]:,} of 60,000"
    assert "4 share 2 cores" in choices["workers"].why


def test_small_data_are_seen_more_often_and_large_data_at_least_three_times() -> None:
    for effort in LADDER:
        assert effort.visits is not None
        samples, epochs = length(effort, 60_000)
        assert samples * epochs <= effort.visits
        assert epochs >= 3
    assert length(LADDER[6], 1437) == (1437, 12_288 // 1437)
    assert length(FULL, 1437) == length(LADDER[-1], 1437) == (1437, 40)


# The questions of mnist.


def test_utilisation_by_batch_beside_the_labs() -> None:
    rows = rows_of(mnist.UTILISATION, HERE)
    assert [row["batch"] for row in rows] == list(BATCHES)
    # 1.0, 1.4 and 1.8 cores of two.
    assert [row["utilisation"] for row in rows] == pytest.approx([0.5, 0.7, 0.9])
    speeds = [row["samples_per_s"].value for row in rows]
    assert speeds == pytest.approx([batch / step_s(batch) for batch in BATCHES])
    words = said(mnist.UTILISATION)
    assert words[0].startswith("One worker kept its cores busy 50 % at batch 32, 70 %")
    assert words[1].startswith("Which batch is fastest takes repeats")


def test_counted_steps_are_whole_ones_and_the_labs_two_nodes_had_six_workers() -> None:
    rows = rows_of(mnist.STEPS, HERE)
    counted = {(row["recipe"], row["workers"]): row["counted"] for row in rows}
    # 3 epochs of 1000 samples at 128: 7.8 steps are 8, on 4 workers 1.95 are 2.
    assert [counted["linear", n] for n in (1, 2, 4)] == [24, 12, 6]
    assert [counted["longer", n] for n in (2, 4)] == [24, 12]
    assert all(row["whole_steps"] == row["counted"] for row in rows)
    lab = rows_of(mnist.STEPS, THE_LAB)
    assert [row["formula"] for row in lab] == [18_750, 9_375, 9_375, 4_687.5]
    assert [row["counted"] for row in lab] == [None, None, 3120, None]
    assert [n for n in range(1, 17) if full_steps(40, 60_000, 128, n) == 3120] == [6]
    assert mnist.likely_gpus() == 6


def test_speedup_is_that_of_training_and_the_job_gains_less() -> None:
    one, two, four = rows_of(mnist.WORKERS, HERE)
    assert two["speedup"].value == pytest.approx(speed(2) / speed(1))
    assert two["efficiency"].value == pytest.approx(speed(2) / speed(1) / 2)
    assert two["job_speedup"] == pytest.approx(one["job_s"].value / two["job_s"].value)
    assert 1 < two["job_speedup"] < two["speedup"].value
    # More workers than cores have an accuracy and no speed.
    for key in ("job_s", "job_speedup", "samples_per_s", "speedup", "efficiency"):
        assert four[key] is None
    mean = sum(accuracy(4, "linear", seed) for seed in range(2)) / 2
    assert four["accuracy"].value == pytest.approx(mean)
    lab = rows_of(mnist.WORKERS, THE_LAB)
    times = (456.14687, 379.69139, 152.0235, 203.63445)
    assert [row["job_speedup"] for row in lab] == pytest.approx([times[0] / one for one in times])


def test_differences_of_epochs_are_gated_by_what_test_samples_resolve() -> None:
    lab = rows_of(mnist.EPOCHS, THE_LAB)
    differences = [(0.9827, 0.9854), (0.9862, 0.9922), (0.9903, 0.992), (0.9854, 0.9854)]
    assert [row["change"] for row in lab] == pytest.approx([b - a for b, a in differences])
    assert lab[-1]["loss"].value == 15.59
    assert "Only on 2 GPUs is that more than 10,000 test samples resolve" in said(mnist.EPOCHS)[0]


def test_bottlenecks_have_a_row_per_rank_and_name_an_idle_one() -> None:
    rows = rows_of(mnist.BOTTLENECKS)
    assert [(row["setting"], row["rank"]) for row in rows] == [
        *(("1 worker", 0), ("2 workers", 0), ("2 workers", 1)),
        *(("4 workers", rank) for rank in range(4)),
    ]
    assert rows[2]["cpu"] == pytest.approx(0.51)
    equal = "Utilisation and memory of the workers differ by less than a fifth."
    assert equal in said(mnist.BOTTLENECKS)

    def idle(launch: Launch) -> Launch:
        one, used = launch.ranks, make_utilisation([0.1] * 4)
        return replace(launch, ranks=(*one[:1], *(replace(r, utilisation=used) for r in one[1:])))

    made = studies()
    launches = tuple(map(idle, made["workers"].launches))
    made["workers"] = replace(made["workers"], launches=launches)
    words = said(mnist.BOTTLENECKS, found_of(mnist.LAB, made))
    assert any("Unequal utilisation" in sentence and "rank 1" in sentence for sentence in words)
    assert equal not in words


def test_size_counts_the_workers_of_all_nodes() -> None:
    rows = {(row["nodes"], row["per_node"]): row for row in rows_of(mnist.TWO_NODES)}
    one, two = rows[1, 4], rows[2, 4]
    assert (one["workers"], two["workers"]) == (4, 8)
    assert two["global_batch"] == 2 * one["global_batch"] == 1024
    assert two["steps_per_epoch"] == pytest.approx(one["steps_per_epoch"] / 2)
    assert two["rate"] == pytest.approx(0.008)
    lab = {key: (row["lab_job_s"], row["lab_accuracy"]) for key, row in rows.items()}
    # As published: two GPUs.
    assert (lab[2, 1], lab[2, 3], lab[2, 4]) == (
        (152.0235, 0.9902),
        (None, 0.9905),
        (None, 0.9879),
    )


def test_the_best_count_is_named_only_where_runs_can_tell() -> None:
    words = said(mnist.BEST)
    assert words[0].startswith("The highest accuracy here is 0.9510, with 1 worker; whether 2 and ")
    # 1.645 x sqrt(2 x 0.9905 x 0.0095 / 10,000) = 0.00226: 8 workers lie 0.0026 below, in one run.
    assert (
        "0.9905, with 6 workers; whether 2 and 8 do as well cannot be told from 1 run" in words[1]
    )
    assert "resolve 0.23 points" in words[1]


def test_corrections_are_shown_by_arithmetic_and_by_counts() -> None:
    speedups, size, gpus, loss, twice = mnist.LAB.corrections(found())
    assert "1.20 times as fast and 1.86 times" in speedups.right
    assert "203.63445 / 379.69139 is 0.536" in speedups.shown_by
    assert "190 on 2 workers" in speedups.shown_by
    assert "6 steps on 4 workers" in size.shown_by
    assert gpus.right == "It very likely had 6 GPUs in all."
    assert "40 x 78 = 3,120" in gpus.shown_by
    # 0.9854 x ln 10 + 0.0146 x 16.1.
    assert "at most 2.50" in loss.shown_by
    assert "456.1468 s" in twice.right
    assert "samples/s: not measured." in mnist.LAB.corrections(nothing())[0].shown_by
