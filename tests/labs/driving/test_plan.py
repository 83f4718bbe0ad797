"""Plans of the driving lab."""

from __future__ import annotations

import pytest

from farandole.labs.driving.lab import LAB
from farandole.labs.lab import Rate
from tests.labs.trained import asked, estimates, facts, flag, here

RATES = {"driving": Rate(samples_per_s=150.0, startup_s=7.0)}
UDACITY = facts(1627, 400)


@pytest.mark.parametrize("wanted", [{}, {"workers": (1, 4)}, {"recipes": ("fixed", "warmup")}])
def test_a_larger_effort_never_takes_less_time(wanted: dict[str, object]) -> None:
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


def test_full_is_the_labs_protocol() -> None:
    plan = LAB.plan(asked("full"), UDACITY, {}, 0)
    study = next(study for study in plan.studies if study.name == "workers")
    assert flag(study.arguments, "--epochs") == "10"
    assert flag(study.flags, "-L") == "batch=32"
    assert flag(study.flags, "-np") == "1,2,4,8"
    assert "recipe=linear" in study.flags
    assert "epochs" not in {choice.what for choice in plan.choices}


def test_smaller_data_sets_are_timed_on_counts_that_fit_the_cores() -> None:
    plan = LAB.plan(asked("full"), UDACITY, {}, 0)
    study = next(study for study in plan.studies if study.name == "size")
    assert flag(study.flags, "-np") == "1,2"
    assert f"samples={1627 // 4},{1627 // 2}" in study.flags
    assert flag(study.arguments, "--samples") == "{samples}"


def test_only_recipes_and_counts_that_were_asked_for() -> None:
    plan = LAB.plan(asked("budget", recipes=("fixed",), workers=(1, 2)), UDACITY, RATES, 4)
    assert [study.name for study in plan.studies] == ["workers"]
    assert "recipe=fixed" in plan.studies[0].flags


def test_the_data_folder_reaches_every_script() -> None:
    wanted = asked("budget", data=here())
    commands = [*LAB.pilot(wanted), *LAB.plan(wanted, UDACITY, RATES, 7).studies]
    assert {flag(one.arguments, "--data") for one in commands} == {str(here())}
