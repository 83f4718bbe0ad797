"""The rows of Keras: their figures, that contestants train alike, and real launches of them."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from typing import Any

import pytest

from farandole.bench.contestant import WORKERS, Contestant
from farandole.bench.launch import LaunchRecord, launch
from farandole.bench.plan import groups
from farandole.bench.rows import Group, Settings
from tests.conftest import keras_on

_KERAS = Settings(framework="keras", models=("mlp", "cnn"))


def _find(key: str) -> Group:
    (found,) = (group for group in groups("all", _KERAS) if group.key == key)
    return found


def test_rows_and_contestants_fit_together() -> None:
    found = groups("all", _KERAS)
    assert len({group.key for group in found}) == len(found) == 12
    for group in found:
        names = [contestant.name for contestant in group.contestants]
        (row,) = group.rows
        assert row.key == group.key
        assert list(row.contestants) == names
        assert row.baseline in names or row.unit == "ratio"
        assert {claim.subject for claim in row.claims} <= set(names)
        for contestant in group.contestants:
            assert (WORKERS / f"{contestant.worker}.py").exists()
            json.dumps(dict(contestant.options))


@pytest.mark.parametrize(
    ("key", "to_reach", "against"),
    [
        ("train-keras-torch-mlp", 0.80, "limit, free"),
        ("train-keras-tensorflow-mlp", 0.75, "limit, free"),
        ("train-keras-jax-mlp", 0.50, "limit, free"),
        ("train-keras-torch-cnn", 0.90, "limit, free"),
        ("train-keras-tensorflow-cnn", 0.90, "limit, free"),
        ("train-keras-jax-cnn", 0.90, "limit, free"),
        ("overhead-keras-torch-mlp", 1.03, None),
        ("overhead-keras-tensorflow-cnn", 1.03, None),
        ("overhead-keras-jax-mlp", 1.10, None),
    ],
)
def test_the_figures_to_reach(key: str, to_reach: float, against: str | None) -> None:
    (claim,) = _find(key).rows[0].claims
    assert (claim.to_reach, claim.against) == (to_reach, against)


def test_the_limit_is_shown_with_a_barrier_too() -> None:
    shown = {c.name: c.options.get("barrier") for c in _find("train-keras-jax-cnn").contestants}
    assert shown == {"farandole": None, "limit, free": "free", "limit, barrier": "step"}


def test_all_contestants_of_a_row_train_the_same_in_the_same_surroundings() -> None:
    own = {"module", "barrier"}
    for group in groups("all", _KERAS):
        first, *others = group.contestants
        for other in others:
            assert _without(first, own) == _without(other, own)
            assert first.environment == other.environment
            assert first.num_ranks == other.num_ranks


def _without(contestant: Contestant, names: set[str]) -> dict[str, Any]:
    return {name: value for name, value in contestant.options.items() if name not in names}


@pytest.mark.parametrize("quick", [False, True])
def test_steps_are_whole_blocks_and_more_than_one_of_them(quick: bool) -> None:
    for group in groups("all", replace(_KERAS, quick=quick)):
        options = group.contestants[0].options
        assert options["steps"] % options["block"] == 0
        assert options["steps"] // options["block"] >= 2
        assert (options["block"] > 1) == (options["backend"] == "jax")
        if "turn" in options:
            assert options["turn"] % options["block"] == 0
            assert options["steps"] >= 2 * options["turn"]


def test_the_chosen_backends_and_networks_only() -> None:
    chosen = replace(_KERAS, backends=("jax",), models=("cnn",))
    assert [group.key for group in groups("train", chosen)] == ["train-keras-jax-cnn"]
    assert [group.key for group in groups("overhead", chosen)] == ["overhead-keras-jax-cnn"]


def test_all_without_keras_has_no_row_of_it() -> None:
    assert not [group.key for group in groups("all", Settings()) if "keras" in group.key]


def _launch(
    group: str, contestant: str, *, synchronized: bool = False, **options: int
) -> LaunchRecord:
    (found,) = (c for c in _find(group).contestants if c.name == contestant)
    # JAX needs most of a second for a step of the small network.
    short = {**found.options, "warmup": 1, "steps": 2, "block": min(2, found.options["block"])}
    short |= options
    # A launch inherits no path of Python's; this one spares it what no test needs.
    lean = {"PYTHONPATH": os.environ["PYTHONPATH"], **keras_on(found.options["backend"])}
    return launch(
        replace(
            found,
            options=short,
            environment={**found.environment, **lean},
            synchronized=synchronized or found.synchronized,
        ),
        round_number=1,
        time_limit_s=100,
    )


@pytest.mark.ranks
def test_farandole_trains_the_perceptron_together() -> None:
    # The others start the same worker; that each backend averages is tested in tests/keras.
    record = _launch("train-keras-tensorflow-mlp", "farandole")
    assert record.failure is None
    assert record.values["step"] > 0
    assert record.facts["backend"] == "tensorflow"
    assert record.facts["num_parameters"] == 5_824_522


@pytest.mark.ranks
def test_one_worker_takes_turns_with_plain_keras() -> None:
    record = _launch("overhead-keras-torch-mlp", "in turns", turn=1)
    assert record.failure is None
    assert record.values["ratio"] > 0
    assert record.facts["backend"] == "torch"


@pytest.mark.ranks
@pytest.mark.soak
def test_the_limit_trains_the_small_network_without_farandole() -> None:
    # The worker itself fails if it has imported farandole.
    record = _launch("train-keras-jax-cnn", "limit, free")
    assert record.failure is None
    assert record.values["step"] > 0
    assert record.facts["num_parameters"] == 1_199_882
    assert record.facts["jit_compile"] is True


@pytest.mark.ranks
@pytest.mark.soak
def test_meeting_after_each_step_is_not_training_together() -> None:
    # Every rank has data of its own, so that equal weights prove an exchange.
    record = _launch("train-keras-torch-mlp", "limit, barrier", synchronized=True)
    assert record.failure == ("the ranks ended with different weights: they did not train together")
