"""A script as studies: the pilot, and launches that train to the script's end."""

from __future__ import annotations

from dataclasses import replace

import pytest

from farandole.labs.effort import STUDY_S, launch_s
from farandole.labs.lab import Rate
from farandole.labs.training import Training, Workload
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
    samples=400,
    test_samples=0,
    epochs=3,
    seeds=2,
)


def test_a_study_takes_what_its_launches_take() -> None:
    made = TRAINING.study(name="one", title="One", recipes=("linear", "longer"), workers=(1, 2))
    each = sum(
        launch_s(RATE, workers=n, cores=2, samples=400, epochs=epochs, test_samples=200)
        for n in (1, 2)
        for epochs in (3, 6)
    )
    assert made.estimate_s == pytest.approx(2 * each + STUDY_S)
    assert (flag(made.arguments, "--samples"), flag(made.arguments, "--test-samples")) == (
        *("400", "0"),
    )
    assert made.arguments[-2:] == ("--image-size", "64")
    assert flag(made.flags, "--seeds") == "2"


def test_sizes_are_a_factor_with_one_seed() -> None:
    made = TRAINING.study(name="s", title="S", recipes=("fixed",), workers=(1,), sizes=(100, 200))
    assert "samples=100,200" in made.flags
    assert flag(made.arguments, "--samples") == "{samples}"
    assert flag(made.flags, "--seeds") == "1"


def test_only_the_literal_protocol_waits_for_a_quiet_machine() -> None:
    given = {"name": "one", "title": "One", "recipes": ("fixed",), "workers": (1,)}
    full = replace(TRAINING, asked=asked("full"))
    assert "--keep-busy" in TRAINING.study(**given).flags  # type: ignore[arg-type]
    assert "--keep-busy" not in full.study(**given).flags  # type: ignore[arg-type]


def test_the_pilot_ends_an_endless_job_of_one_worker_with_one_thread() -> None:
    pilot = WORK.pilot(asked("budget"))
    assert pilot.name == WORK.name
    assert (flag(pilot.flags, "-np"), flag(pilot.flags, "--threads")) == ("1", "1")
    assert "--steps" in pilot.flags
    assert (flag(pilot.arguments, "--lr"), pilot.arguments[-1]) == ("0.01", "64")
