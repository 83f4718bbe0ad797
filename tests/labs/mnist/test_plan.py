"""Plans of the mnist lab: every size is a study that could be run, larger efforts take longer."""

from __future__ import annotations

import pytest

from farandole.labs.lab import Rate
from farandole.labs.mnist.lab import LAB
from farandole.labs.mnist.plan import FULL, LADDER
from tests.labs.trained import asked, estimates, facts, flag, here

RATES = {"mnist": Rate(samples_per_s=300.0, startup_s=7.0)}
MNIST = facts(60_000, 10_000)
DIGITS = facts(1437, 360)


@pytest.mark.parametrize("data", [MNIST, DIGITS])
@pytest.mark.parametrize("wanted", [{}, {"workers": (1, 8)}, {"recipes": ("longer", "fixed")}])
def test_a_larger_effort_never_takes_less_time(data: object, wanted: dict[str, object]) -> None:
    found = estimates(LAB, data, RATES, **wanted)  # type: ignore[arg-type]
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


def test_a_subset_is_a_choice_with_its_reason() -> None:
    plan = LAB.plan(asked("budget"), MNIST, RATES, 2)
    (choice,) = (choice for choice in plan.choices if choice.what == "training samples")
    assert (choice.lab, choice.here) == ("60,000", f"{LADDER[2].samples(60_000):,} of 60,000")
    assert choice.why


def test_counts_beyond_the_cores_are_said_to_be_for_accuracy() -> None:
    plan = LAB.plan(asked("budget"), MNIST, RATES, 5)
    (choice,) = (choice for choice in plan.choices if choice.what == "workers")
    assert "4 share 2 cores" in choice.why


def test_the_data_folder_reaches_every_script() -> None:
    wanted = asked("budget", data=here())
    commands = [*LAB.pilot(wanted), *LAB.plan(wanted, MNIST, RATES, 3).studies]
    assert {flag(one.arguments, "--data") for one in commands} == {str(here())}
    assert all("--data" not in one.arguments for one in LAB.pilot(asked("budget")))


def test_the_pilot_measures_one_worker_with_one_thread_under_the_plans_name() -> None:
    (pilot,) = LAB.pilot(asked("budget"))
    assert pilot.name in RATES
    assert (flag(pilot.flags, "-np"), flag(pilot.flags, "--threads")) == ("1", "1")


def test_small_data_are_seen_more_often_and_large_data_at_least_three_times() -> None:
    for effort in LADDER:
        assert effort.visits is not None
        assert effort.samples(60_000) * effort.epochs(60_000) <= effort.visits
        assert effort.epochs(60_000) >= 3
    assert LADDER[6].epochs(1437) == 12_288 // 1437
    assert FULL.epochs(1437) == LADDER[-1].epochs(1437) == 40
