"""The driving lab: its plans, its answers from launches made by hand, and its corrections."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from farandole.errors import DataError
from farandole.labs import driving
from farandole.labs.driving import LAB, tagged_lines
from farandole.labs.lab import Found, Rate, published_path
from farandole.labs.questions import Question, answer
from farandole.labs.rows import HERE
from farandole.labs.rows import LAB as THE_LAB
from farandole.model.jobs import Speed, break_even
from farandole.study.records import Study
from tests.labs.driving_studies import CONSTANT, SIZES, found, loss, nothing, studies
from tests.labs.trained import asked, estimates, facts, flag, found_of, here, speed, training_study

RATES = {"driving": Rate(samples_per_s=150.0, startup_s=7.0)}
UDACITY = facts(1627, 400)
OUTPUT = """\
[0]<stderr>: a warning
[0]<stdout>: rank 0, epoch 1: loss 0.5
[1]<stdout>: rank 1, epoch 1: loss 0.6
no tag, loss 1
"""


def rows_of(question: Question, made: Found | None = None, *, table: int = 0) -> list[Any]:
    """Return a table of a question as records by key."""
    chosen = answer(question, made or found()).tables[table]
    keys = [column.key for column in chosen.columns]
    return [dict(zip(keys, row, strict=True)) for row in chosen.rows]


def said(question: Question, made: Found | None = None) -> tuple[str, ...]:
    return answer(question, made or found()).sentences


def busy(study: Study) -> Study:
    """Return the study as if other programs had disturbed all launches."""
    launches = (replace(one, busy=True, foreign_share=0.9) for one in study.launches)
    return replace(study, launches=tuple(launches))


def equal_losses() -> Study:
    equal = {"val_loss": lambda workers, recipe, seed: 0.02}
    return training_study((1, 2), ("linear",), equal, batch=32, samples=4000)


# The plan.


@pytest.mark.parametrize("wanted", [{}, {"workers": (1, 4)}, {"recipes": ("fixed", "warmup")}])
def test_a_larger_effort_never_takes_less_time(wanted: dict[str, Any]) -> None:
    for data in (UDACITY, facts(300, 60), facts(20_000, 4000)):
        found = estimates(LAB, data, RATES, **wanted)
        assert found == sorted(found)


def test_quick_is_about_a_minute_of_one_and_two_workers() -> None:
    plan = LAB.plan(asked(), UDACITY, {}, 0)
    assert plan.estimate_s < 75
    flags = {study.name: study.flags for study in plan.studies}
    assert flag(flags["workers"], "-np") == "1,2"
    assert flag(flags["workers"], "--seeds") == "1"
    assert "recipe=fixed" in flags["recipes"]


def test_full_is_the_labs_protocol_and_times_smaller_data_sets() -> None:
    plan = LAB.plan(asked("full"), UDACITY, {}, 0)
    planned = {study.name: study for study in plan.studies}
    study = planned["workers"]
    assert flag(study.arguments, "--epochs") == "10"
    assert flag(study.flags, "-L") == "batch=32"
    assert flag(study.flags, "-np") == "1,2,4,8"
    assert "recipe=linear" in study.flags
    assert "epochs" not in {choice.what for choice in plan.choices}
    # Only counts that fit the cores.
    assert flag(planned["size"].flags, "-np") == "1,2"
    assert f"samples={1627 // 4},{1627 // 2}" in planned["size"].flags
    assert flag(planned["size"].arguments, "--samples") == "{samples}"


def test_only_recipes_and_counts_that_were_asked_for() -> None:
    plan = LAB.plan(asked("budget", recipes=("fixed",), workers=(1, 2)), UDACITY, RATES, 4)
    assert [study.name for study in plan.studies] == ["workers"]
    assert "recipe=fixed" in plan.studies[0].flags


def test_the_data_folder_reaches_every_script() -> None:
    wanted = asked("budget", data=here())
    commands = [*LAB.pilot(wanted), *LAB.plan(wanted, UDACITY, RATES, 7).studies]
    assert {flag(one.arguments, "--data") for one in commands} == {str(here())}


# The lab as a whole.


def test_the_published_table_is_there_and_a_missing_folder_is_refused() -> None:
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
    once = "One run per setting: differences may be noise."
    assert once in said(driving.WORKERS, found(seeds=1))


def test_without_studies_every_answer_says_what_is_missing() -> None:
    answered = LAB.answer(nothing())
    assert [one.question for one in answered] == list(LAB.questions)
    assert all(one.sentences for one in answered)


# Its questions.


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
    words = said(driving.WORKERS)
    assert any("4 workers share 2 cores" in one for one in words)
    # 0.0205, 0.0805 and 0.1605 against 0.1.
    assert "The best constant prediction gets 0.100, beaten by 1 and 2 workers." in words


def test_the_labs_rows_are_as_published() -> None:
    lab = [row for row in rows_of(driving.WORKERS) if row["source"] == THE_LAB]
    figures = [
        (row["device"], row["workers"], row["job_s"].value / 60, row["loss"].value) for row in lab
    ]
    assert figures == [
        ("GPU", 2, 8.0, 0.019),
        ("T4", 4, 7.5, 0.046),
        ("DGX", 4, 8.0, 0.047),
        ("DGX", 8, 8.5, 0.8),
    ]


def test_every_line_of_losses_begins_with_the_fewest_workers() -> None:
    figure = answer(driving.WORKERS, found()).figures[1]
    first = {source: workers for source, workers, _ in reversed(figure.table.rows)}
    assert first[f"{HERE}, linear"] == first[f"{HERE}, fixed"] == first["a constant"] == 1


def test_the_models_rules_fire() -> None:
    rules = {(row["study"], row["rule"]) for row in rows_of(driving.VERDICT, table=1)}
    assert rules == {("workers", "data_too_small"), ("lab", "fixed_cost")}


def test_fewer_steps_and_the_rate_are_told_apart() -> None:
    # 0.0205 on one worker; on two 0.0405 with the rate unscaled, 0.0805 with it scaled.
    (words,) = (one for one in said(driving.VERDICT) if one.startswith("On 2 workers"))
    assert "from 0.0205 to 0.0405 by fewer steps alone (unscaled rate, +0.02)" in words
    assert "0.0805 with the scaled rate (+0.04)" in words


def test_a_gain_in_time_that_costs_loss_is_mixed() -> None:
    first = said(driving.VERDICT)[0]
    assert first.startswith("Mixed: 2 workers cut job time by ")
    assert first.endswith(", but the loss rises from 0.0205 to 0.0805.")


def test_equal_loss_and_shorter_jobs_pay() -> None:
    words = said(driving.VERDICT, found_of(LAB, {"workers": equal_losses()}))
    assert words[0].startswith("Adding workers pays: 2 workers cut job time by ")
    assert words[0].endswith(", and the loss goes from 0.0200 to 0.0200.")
    assert "at least 20 everywhere" in words[1]


def test_longer_jobs_with_more_loss_do_not_pay() -> None:
    made = studies()
    launches = tuple(
        replace(launch, wall_s=(launch.wall_s or 0) + (100 if launch.cell.workers > 1 else 0))
        for launch in made["workers"].launches
    )
    made["workers"] = replace(made["workers"], launches=launches)
    first = said(driving.VERDICT, found_of(LAB, made))[0]
    assert first.startswith("Adding workers does not pay: 2 workers lengthen job time by ")
    assert "(25 % would pay), and the loss rises" in first


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
    assert any(words.startswith("Assumed") for words in said(driving.SIZE))
    assert "two numbers of workers" in said(driving.SIZE, nothing())[0]


def test_computed_times_are_near_those_of_launches() -> None:
    check = rows_of(driving.SIZE, table=1)
    settings = {(row["workers"], row["samples"]) for row in check}
    assert settings == {(n, size) for n in (1, 2) for size in SIZES}
    for row in check:
        # The last batch of an epoch is smaller; a launch made by hand takes a whole step for it.
        assert row["computed_s"] == pytest.approx(row["job_s"].value, rel=0.1)


def test_every_rank_and_epoch_of_the_launch_with_most_workers() -> None:
    rows = rows_of(driving.RANKS)
    assert [(row["workers"], row["epoch"], row["rank"]) for row in rows] == [
        (4, epoch, rank) for epoch in (1, 2, 3) for rank in range(4)
    ]
    assert rows[-1]["rank_loss"] == pytest.approx(1 / 3 + 0.03)
    assert "range from 0.333 to 0.363" in said(driving.RANKS)[0]


def test_lines_of_several_ranks_are_chosen_and_shown(tmp_path: Path) -> None:
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


# What the lab got wrong.


def test_corrections_are_shown_by_the_run() -> None:
    averaged, judged = LAB.corrections(found())
    assert "once an epoch" in averaged.said
    assert "in every step" in averaged.right
    assert "4.00 kB of gradients in each of 24 steps" in averaged.shown_by
    assert "means nothing" in judged.right
    assert "0.0205 on 1 worker" in judged.shown_by
    assert judged.shown_by.endswith(", beside 0.100 of the best constant.")
    assert all("here" in one.shown_by for one in LAB.corrections(nothing()))
