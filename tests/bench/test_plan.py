"""The rows name implementations that exist, compare the same work, and have the issue's figures."""

from __future__ import annotations

import json
from dataclasses import replace
from importlib import import_module

import pytest

from farandole.bench.plan import PEERS, Group, Implementation, Settings, cell_name, groups

_KERAS = Settings(framework="keras", models=("mlp", "cnn"))


@pytest.mark.parametrize(
    "settings", [Settings(), Settings(peers=()), Settings(peers=("ddp",)), _KERAS]
)
def test_rows_and_implementations_fit_together(settings: Settings) -> None:
    found = groups("all", settings)
    assert len({group.key for group in found}) == len(found)
    for group in found:
        names = [one.name for one in group.implementations]
        assert len(set(names)) == len(names)
        for row in group.rows:
            assert set(row.names) <= set(names)
            assert {target.subject for target in row.targets} <= set(names)
        for one in group.implementations:
            json.dumps(dict(one.options))
            module, _, function = one.options["task"].partition(".")
            if module in ("torch_tasks", "study_tasks"):
                tasks = import_module(f"farandole.bench.workers.{module}")
                assert callable(getattr(tasks, function))


def test_peers_can_be_left_out_but_never_the_limit() -> None:
    found = {one.name for g in groups("all", Settings(peers=())) for one in g.implementations}
    assert not {name for name in found if name.startswith(PEERS)}
    assert {"limit, free", "limit, barrier", "plain PyTorch", "import torch alone"} <= found


def test_all_implementations_of_a_training_train_the_same_in_the_same_surroundings() -> None:
    own = {"library", "meet"}
    for group in [*groups("train", Settings()), *groups("all", _KERAS)]:
        first, *others = group.implementations
        for other in others:
            assert _without(first, own) == _without(other, own)
            assert first.environment == other.environment
            assert first.num_ranks == other.num_ranks


def _without(one: Implementation, names: set[str]) -> dict[str, object]:
    return {name: value for name, value in one.options.items() if name not in names}


@pytest.mark.parametrize("quick", [False, True])
def test_steps_of_keras_are_whole_blocks_and_more_than_one_of_them(quick: bool) -> None:
    for group in groups("all", replace(_KERAS, quick=quick)):
        options = group.implementations[0].options
        assert options["steps"] % options["block"] == 0
        assert options["steps"] // options["block"] >= 2
        assert (options["block"] > 1) == (options["backend"] == "jax")
        if "turn" in options:
            assert options["turn"] % options["block"] == 0
            assert options["steps"] >= 2 * options["turn"]


def test_the_ranks_that_were_asked_for() -> None:
    (group,) = groups("ranks", Settings(rank_counts=(1, 3), peers=("gloo",)))
    assert [(one.name, one.num_ranks) for one in group.implementations] == [
        ("farandole, 1 rank", 1),
        ("farandole, 3 ranks", 3),
        ("gloo, 3 ranks", 3),
    ]
    assert group.rows[0].targets == ()


def _study(**settings: object) -> list[Group]:
    return groups("study", replace(Settings(), **settings))  # type: ignore[arg-type]


def test_a_quick_study_leaves_out_cells_and_keeps_the_epochs_whole() -> None:
    quick, whole = _study(quick=True, models=("cnn",))[0], _study(models=("cnn",))[0]
    for one, other in zip(quick.implementations, whole.implementations, strict=True):
        assert one.options["workers"] == [2]
        assert one.options["script_flags"] == other.options["script_flags"]
    assert quick.rows[0].ranked == ("2 workers, batch 32", "2 workers, batch 128")
    assert _study(num_ranks=1)[0].rows[0].ranked[0] == cell_name(1, 32) == "1 worker, batch 32"
