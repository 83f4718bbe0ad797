"""What plans decide alike, how long their launches take, and a script as studies."""

from __future__ import annotations

from dataclasses import replace

import pytest

from farandole.errors import UsageError
from farandole.labs import plan
from farandole.labs.lab import Choice, Rate
from farandole.labs.plan import STUDY_S, Training, Workload, lab_recipe, launch_s, steps_s
from farandole.labs.rows import Row
from farandole.recipes import RECIPES
from tests.labs.trained import asked, facts, flag

RATE = Rate(samples_per_s=100.0, startup_s=5.0)
WORK = Workload(
    name="work",
    script="work.py",
    batch=16,
    learning_rate=0.01,
    guess=RATE,
    few_test_samples=10,
    arguments=("--image-size", "64"),
)
TRAINING = Training(
    workload=WORK,
    asked=asked("budget"),
    data=facts(1000, 200),
    rate=RATE,
    effort=Row(samples=400, test_samples=0, epochs=3, seeds=2),
)


def test_what_was_asked_for_comes_before_the_plans_own() -> None:
    assert plan.counts(asked(), (1, 2)) == (1, 2)
    assert plan.counts(asked(workers=(4, 1, 4)), (1, 2)) == (1, 4)
    assert plan.recipes(asked(recipes=("fixed", "linear")), ("linear",)) == ("linear", "fixed")
    assert plan.subset(100, 1000) == 100
    assert plan.subset(1000, 1000) == plan.subset(0, 1000) == plan.subset(9999, 1000) == 0
    assert plan.taken(0, 1000) == plan.taken(9999, 1000) == 1000


def test_choices_are_told_where_they_differ() -> None:
    other = Choice(what="batch", lab="32", here="16")
    assert plan.choices(("epochs", "10", "10"), other, ("batch", "32", "16")) == (other, other)
    assert plan.runs_choice({"speedup": 1, "order": 1}).here == "1"
    told = plan.runs_choice({"speedup": 5, "baseline": 4, "order": 4})
    assert told.here == "4 (baseline and order), 5 (speedup)"
    assert plan.beyond((1, 2), 2) == ""
    assert plan.beyond((1, 2, 4, 8), 2).startswith("4 and 8 share 2 cores")


def test_the_original_is_scaled_from_the_first_step_and_the_others_are_what_they_are() -> None:
    one = lab_recipe("original")
    assert (one.rate(0.1, 4, 0.0, 10), one.epochs(10)) == (pytest.approx(0.4), 10)
    assert all(lab_recipe(name) is found for name, found in RECIPES.items())
    with pytest.raises(UsageError, match=r"no recipe 'slow'\. There are fixed, .*original\."):
        lab_recipe("slow")


def test_a_launch_takes_start_up_samples_and_a_third_of_the_test() -> None:
    found = launch_s(RATE, workers=1, cores=2, samples=1000, epochs=3, test_samples=300)
    assert found == pytest.approx(5 + 3 * (10 + 1))
    assert steps_s(RATE, threads=1, batches=(10, 100), steps=20) == pytest.approx(10 + 2 + 20)
    times = [launch_s(RATE, workers=n, cores=2, samples=1000, epochs=1) for n in (1, 2, 4)]
    assert times[1] < times[0]
    # As fast in training, but imports take turns.
    assert times[2] - times[1] == pytest.approx(5.0)


def test_a_study_takes_what_its_launches_take() -> None:
    made = TRAINING.study("one", "One", recipes=("linear", "longer"), workers=(1, 2))
    each = sum(
        launch_s(RATE, workers=n, cores=2, samples=400, epochs=epochs, test_samples=200)
        for n in (1, 2)
        for epochs in (3, 6)
    )
    assert made.estimate_s == pytest.approx(2 * each + STUDY_S)
    given = [flag(made.arguments, name) for name in ("--samples", "--test-samples")]
    assert (given, made.runs) == (["400", "0"], 2)
    assert made.arguments[-2:] == ("--image-size", "64")
    sized = TRAINING.study("s", "S", recipes=("fixed",), workers=(1,), samples=(100, 200))
    assert "samples=100,200" in sized.flags
    assert (flag(sized.arguments, "--samples"), sized.runs) == ("{samples}", 1)
    # Only the literal protocol waits for a quiet machine.
    full = replace(TRAINING, asked=asked("full"))
    assert "keep_busy" in made.options
    assert "keep_busy" not in full.study("f", "F", recipes=("fixed",), workers=(1,)).options


def test_the_pilot_ends_an_endless_job_of_one_worker_with_one_thread() -> None:
    pilot = WORK.pilot(asked("budget"))
    assert (pilot.options["workers"], pilot.options["threads"]) == (1, 1)
    assert "steps" in pilot.options
    assert (flag(pilot.arguments, "--lr"), pilot.arguments[-1]) == ("0.01", "64")
