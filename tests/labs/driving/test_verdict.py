"""The verdict: too few steps, and what of the loss is due to which."""

from __future__ import annotations

from dataclasses import replace

from farandole.labs.driving.lab import LAB
from farandole.labs.driving.verdict import answer_verdict
from tests.labs.driving.build import found, studies
from tests.labs.trained import found_of, training_study


def test_the_models_rules_fire() -> None:
    rules = answer_verdict(found()).tables[1]
    assert {(row[0], row[1]) for row in rules.rows} == {
        ("workers", "data_too_small"),
        ("lab", "fixed_cost"),
    }


def test_fewer_steps_and_the_rate_are_told_apart() -> None:
    said = answer_verdict(found()).sentences
    # 0.0205 on one worker; on four 0.0805 with the rate unscaled, 0.1605 with it scaled.
    assert any(
        "On 4 workers the loss goes from 0.0205 to 0.0805 by fewer steps alone" in sentence
        and "to 0.1605 with the rate scaled" in sentence
        for sentence in said
    )


def test_a_gain_in_time_that_costs_loss_has_its_price() -> None:
    assert (
        answer_verdict(found()).sentences[0].startswith("Adding workers has its price: 2 workers")
    )


def test_equal_loss_and_shorter_jobs_pay() -> None:
    equal = {"val_loss": lambda workers, recipe, seed: 0.02}
    made = {"workers": training_study((1, 2), ("linear",), equal, batch=32, samples=4000)}
    answered = answer_verdict(found_of(LAB, made))
    assert answered.sentences[0].startswith("Adding workers pays:")
    assert "at least 20 everywhere" in answered.sentences[1]


def test_longer_jobs_with_more_loss_do_not_pay() -> None:
    made = studies()
    launches = tuple(
        replace(launch, wall_s=(launch.wall_s or 0) + (100 if launch.cell.workers > 1 else 0))
        for launch in made["workers"].launches
    )
    made["workers"] = replace(made["workers"], launches=launches)
    said = answer_verdict(found_of(LAB, made)).sentences[0]
    assert said.startswith("Adding workers does not pay: 2 workers add ")


def test_without_times_that_count_nothing_is_said_to_pay() -> None:
    equal = {"val_loss": lambda workers, recipe, seed: 0.02}
    made = training_study((1, 2), ("linear",), equal, batch=32, samples=4000)
    busy = tuple(replace(launch, busy=True, foreign_share=0.9) for launch in made.launches)
    found = found_of(LAB, {"workers": replace(made, launches=busy)})
    said = answer_verdict(found).sentences[0]
    assert said.startswith("Whether adding workers pays cannot be told")
    assert "2 workers end with a loss of 0.02, where 1 worker ends with 0.02" in said
