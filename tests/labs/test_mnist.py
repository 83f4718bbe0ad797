"""The mnist lab: its plans, its answers from launches made by hand, and its corrections."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from farandole.errors import DataError
from farandole.labs import mnist
from farandole.labs.lab import DataFacts, Found, Rate, published_path
from farandole.labs.mnist import FULL, LAB, LADDER, full_steps, length
from farandole.labs.questions import Question, answer
from farandole.labs.rows import HERE
from farandole.labs.rows import LAB as THE_LAB
from farandole.study.records import Cell, Launch
from tests.labs.mnist_studies import BATCHES, accuracy, found, nothing, step_s, studies
from tests.labs.trained import MACHINE, asked, estimates, facts, flag, found_of, here, speed
from tests.model.build import make_study, make_utilisation, timed_launch

RATES = {"mnist": Rate(samples_per_s=300.0, startup_s=7.0)}
MNIST, DIGITS = facts(60_000, 10_000), facts(1437, 360)


def rows_of(question: Question, source: str = "", made: Found | None = None) -> list[Any]:
    """Return a question's table as records by key."""
    table = answer(question, made or found()).tables[0]
    keys = [column.key for column in table.columns]
    rows = [dict(zip(keys, row, strict=True)) for row in table.rows]
    return [row for row in rows if not source or row["source"] == source]


def said(question: Question, made: Found | None = None) -> tuple[str, ...]:
    return answer(question, made or found()).sentences


def used(launch: Launch, cores: float, *, rank: int | None = None) -> Launch:
    """Return the launch with so many busy cores on one rank, or on all."""
    ranks = tuple(
        replace(one, utilisation=make_utilisation([cores] * 4)) if rank in (None, one.rank) else one
        for one in launch.ranks
    )
    return replace(launch, ranks=ranks)


# The plan.


@pytest.mark.parametrize("data", [MNIST, DIGITS])
@pytest.mark.parametrize("wanted", [{}, {"workers": (1, 8)}, {"recipes": ("longer", "fixed")}])
def test_a_larger_effort_never_takes_less_time(data: DataFacts, wanted: dict[str, Any]) -> None:
    found = estimates(LAB, data, RATES, **wanted)
    assert found == sorted(found)
    assert found[0] < 900 < found[-1] or data is DIGITS


def test_a_slower_machine_is_expected_to_take_longer() -> None:
    slow = {"mnist": Rate(samples_per_s=30.0, startup_s=7.0)}
    pairs = zip(estimates(LAB, MNIST, slow), estimates(LAB, MNIST, RATES), strict=True)
    assert all(first > second for first, second in pairs)


def test_quick_is_about_a_minute_of_one_and_two_workers() -> None:
    plan = LAB.plan(asked(), DIGITS, {}, 0)
    assert plan.estimate_s < 90
    flags = {study.name: study.flags for study in plan.studies}
    assert flag(flags["workers"], "-np") == "1,2"
    assert flag(flags["recipes"], "-np") == "2"
    assert flag(flags["workers"], "--seeds") == "1"
    assert len(flag(flags["batch"], "-L").split(",")) > 1


def test_full_is_the_labs_protocol() -> None:
    plan = LAB.plan(asked("full"), MNIST, {}, 0)
    study = next(study for study in plan.studies if study.name == "workers")
    assert flag(study.arguments, "--epochs") == "40"
    assert flag(study.arguments, "--samples") == "0"
    assert flag(study.arguments, "--lr") == "0.001"
    assert flag(study.flags, "-L") == "batch=128"
    assert "recipe=linear" in study.flags
    assert {1, 2, 4} < set(FULL.workers)
    differing = {choice.what for choice in plan.choices}
    assert "training samples" not in differing
    assert "hosts" in differing


def test_one_worker_is_trained_once_whatever_the_recipes() -> None:
    plan = LAB.plan(asked("budget"), MNIST, RATES, len(LADDER) - 1)
    flags = {study.name: study.flags for study in plan.studies}
    assert "1" in flag(flags["workers"], "-np").split(",")
    assert "1" not in flag(flags["recipes"], "-np").split(",")


def test_only_recipes_and_counts_that_were_asked_for() -> None:
    plan = LAB.plan(asked("budget", recipes=("warmup",), workers=(2, 1)), MNIST, RATES, 5)
    flags = {study.name: study.flags for study in plan.studies}
    assert flag(flags["workers"], "-np") == "1,2"
    assert "recipe=warmup" in flags["workers"]
    assert "recipes" not in flags


def test_data_smaller_than_the_effort_are_taken_whole_and_batches_fit_them() -> None:
    plan = LAB.plan(asked("budget"), DIGITS, RATES, len(LADDER) - 1)
    assert {flag(study.arguments, "--samples") for study in plan.studies} == {"0"}
    (sweep,) = (study for study in plan.studies if study.name == "batch")
    batches = flag(sweep.flags, "-L").removeprefix("batch=").split(",")
    assert max(map(int, batches)) <= DIGITS.train / 4


def test_choices_give_their_reasons() -> None:
    choices = {choice.what: choice for choice in LAB.plan(asked("budget"), MNIST, RATES, 2).choices}
    subset = choices["training samples"]
    assert (subset.lab, subset.here) == ("60,000", f"{length(LADDER[2], 60_000)[0]:,} of 60,000")
    assert subset.why
    assert "4 share 2 cores" in choices["workers"].why


def test_the_data_folder_reaches_every_script() -> None:
    wanted = asked("budget", data=here())
    commands = [*LAB.pilot(wanted), *LAB.plan(wanted, MNIST, RATES, 3).studies]
    assert {flag(one.arguments, "--data") for one in commands} == {str(here())}
    (pilot,) = LAB.pilot(asked("budget"))
    assert "--data" not in pilot.arguments
    assert pilot.name in RATES
    assert (flag(pilot.flags, "-np"), flag(pilot.flags, "--threads")) == ("1", "1")


def test_small_data_are_seen_more_often_and_large_data_at_least_three_times() -> None:
    for effort in LADDER:
        assert effort.visits is not None
        samples, epochs = length(effort, 60_000)
        assert samples * epochs <= effort.visits
        assert epochs >= 3
    assert length(LADDER[6], 1437) == (1437, 12_288 // 1437)
    assert length(FULL, 1437) == length(LADDER[-1], 1437) == (1437, 40)


# The lab as a whole.


def test_the_published_tables_are_there_and_a_missing_folder_is_refused() -> None:
    keys = [question.key for question in LAB.questions]
    assert len(set(keys)) == len(keys)
    assert set(LAB.leading) < set(keys)
    assert all(published_path(name).is_file() for name in LAB.published)
    with pytest.raises(DataError, match="there is nothing"):
        LAB.data(here("nowhere"))


def test_every_question_has_a_sentence_and_a_table_with_figures() -> None:
    answered = LAB.answer(found())
    assert [one.question for one in answered] == list(LAB.questions)
    for one in answered:
        assert one.sentences, one.question.key
        assert one.tables[0].name == one.question.key
        assert one.tables[0].rows, one.question.key
        assert all(figure.spec for figure in one.figures), one.question.key


def test_one_seed_is_said_to_have_no_intervals() -> None:
    answered = {one.question.key: one for one in LAB.answer(found(seeds=1))}
    for key in ("utilisation", "workers"):
        assert "One run per setting: differences may be noise." in answered[key].sentences, key


def test_without_studies_every_answer_says_what_is_missing() -> None:
    answered = LAB.answer(nothing())
    assert [one.question for one in answered] == list(LAB.questions)
    assert all(one.sentences for one in answered)


# Its questions.


def test_utilisation_by_batch_beside_the_labs() -> None:
    rows = rows_of(mnist.UTILISATION, HERE)
    assert [row["batch"] for row in rows] == list(BATCHES)
    # 1.0, 1.4 and 1.8 cores of two.
    assert [row["utilisation"] for row in rows] == pytest.approx([0.5, 0.7, 0.9])
    speeds = [row["samples_per_s"].value for row in rows]
    assert speeds == pytest.approx([batch / step_s(batch) for batch in BATCHES])
    lab = rows_of(mnist.UTILISATION, THE_LAB)
    assert [(row["batch"], row["utilisation"]) for row in lab] == [(128, 0.20), (1024, 0.54)]
    first = said(mnist.UTILISATION)[0]
    assert first.startswith("Utilisation rises as the batch grows: 50 % at batch 32, 70 %")


def test_a_fall_by_single_launches_is_called_none() -> None:
    cells = [Cell(workers=1, threads=2, batch=batch) for batch in BATCHES]
    launches = [
        used(timed_launch(cell, step_s(cell.batch or 0)), 2.0 - 0.2 * place)
        for place, cell in enumerate(cells)
    ]
    made = found_of(LAB, {"batch": make_study(launches, machine=MACHINE)})
    assert said(mnist.UTILISATION, made)[0].startswith("Utilisation does not rise as the batch")


def test_counted_steps_are_whole_ones() -> None:
    rows = rows_of(mnist.STEPS, HERE)
    counted = {(row["recipe"], row["workers"]): row["counted"] for row in rows}
    # 3 epochs of 1000 samples at 128: 7.8 steps are 8, on 4 workers 1.95 are 2.
    assert [counted["linear", n] for n in (1, 2, 4)] == [24, 12, 6]
    assert [counted["longer", n] for n in (2, 4)] == [24, 12]
    assert all(row["whole_steps"] == row["counted"] for row in rows)
    formula = next(row["formula"] for row in rows if row["workers"] == 4)
    assert formula == pytest.approx(3 * 1000 / 512)


def test_the_labs_steps_on_two_nodes_are_those_of_six_workers() -> None:
    assert [n for n in range(1, 17) if full_steps(40, 60_000, 128, n) == 3120] == [6]
    lab = rows_of(mnist.STEPS, THE_LAB)
    assert [row["formula"] for row in lab] == [18_750, 9_375, 4_687.5, 3_125]
    assert (lab[-1]["whole_steps"], lab[-1]["counted"]) == (3120, 3120)


def test_speedup_is_that_of_training_and_the_job_gains_less() -> None:
    one, two, _ = rows_of(mnist.WORKERS, HERE)
    assert two["speedup"].value == pytest.approx(speed(2) / speed(1))
    assert two["efficiency"].value == pytest.approx(speed(2) / speed(1) / 2)
    assert two["job_speedup"] == pytest.approx(one["job_s"].value / two["job_s"].value)
    assert 1 < two["job_speedup"] < two["speedup"].value


def test_more_workers_than_cores_have_an_accuracy_and_no_speed() -> None:
    four = rows_of(mnist.WORKERS, HERE)[2]
    for key in ("job_s", "job_speedup", "samples_per_s", "speedup", "efficiency"):
        assert four[key] is None
    mean = sum(accuracy(4, "linear", seed) for seed in range(2)) / 2
    assert four["accuracy"].value == pytest.approx(mean)
    assert "void for speed" in four["speed"]
    assert any("4 workers share 2 cores" in sentence for sentence in said(mnist.WORKERS))


def test_the_labs_speedups_are_quotients_of_its_times() -> None:
    lab = rows_of(mnist.WORKERS, THE_LAB)
    times = (456.14687, 379.69139, 203.63445, 152.0235)
    assert [row["job_speedup"] for row in lab] == pytest.approx([times[0] / one for one in times])


def test_bottlenecks_have_a_row_per_rank_and_name_an_idle_one() -> None:
    rows = rows_of(mnist.BOTTLENECKS)
    assert [(row["setting"], row["rank"]) for row in rows] == [
        *(("1 worker", 0), ("2 workers", 0), ("2 workers", 1)),
        *(("4 workers", rank) for rank in range(4)),
    ]
    assert rows[2]["cpu"] == pytest.approx(0.51)
    equal = "Utilisation and memory of the workers differ by less than a fifth."
    assert equal in said(mnist.BOTTLENECKS)
    made = studies()
    idle = tuple(used(launch, 0.1, rank=1) for launch in made["workers"].launches)
    made["workers"] = replace(made["workers"], launches=idle)
    words = said(mnist.BOTTLENECKS, found_of(LAB, made))
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
    assert lab[2, 3] == (152.0235, 0.9906)
    assert (lab[2, 1], lab[2, 4]) == ((None, 0.9902), (None, 0.9879))
    assert any(one.startswith("A lab runs on one host") for one in said(mnist.TWO_NODES))


def test_the_best_count_and_whether_the_test_set_can_tell() -> None:
    lab = [(row["workers"], row["accuracy"].value) for row in rows_of(mnist.BEST, THE_LAB)]
    assert lab == [(2, 0.9902), (6, 0.9905), (8, 0.9879)]
    words = said(mnist.BEST)
    assert words[0].startswith("The best accuracy here is 0.9510 with 1 worker, but ")
    # 1.645 x sqrt(2 x 0.9905 x 0.0095 / 10,000) = 0.00226: 0.0003 is less, 0.0026 more.
    assert "0.9905 with 6 workers, but 2 may be as good: the test samples resolve 0.23" in words[1]


# What the lab got wrong.


def test_corrections_are_shown_by_arithmetic_and_by_counts() -> None:
    speedups, size, gpus = LAB.corrections(found())
    assert "0.53" in speedups.said
    assert "0.84" in speedups.said
    assert "1.20 times" in speedups.right
    assert "1.86 times" in speedups.right
    assert "190 on 2 workers" in speedups.shown_by
    assert "workers of all nodes" in size.right
    assert "6 steps on 4 workers" in size.shown_by
    assert gpus.right == "It very likely had 6 GPUs in all."
    assert "40 x 78 = 3,120" in gpus.shown_by


def test_the_arithmetic_stands_without_any_run() -> None:
    speedups, size, gpus = LAB.corrections(nothing())
    assert "samples/s: not measured." in speedups.shown_by
    assert size.shown_by.startswith("Counted here: not measured")
    assert gpus.right == "It very likely had 6 GPUs in all."
