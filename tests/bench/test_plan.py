"""The rows name contestants that exist, and the figures of the issue."""

from __future__ import annotations

import json

import pytest

from farandole.bench.contestant import WORKERS, Role
from farandole.bench.plan import BUILDERS, groups
from farandole.bench.rows import Claim, Group, Settings


def _everything(settings: Settings) -> list[Group]:
    return groups("all", settings)


@pytest.mark.parametrize("peers", [Settings().peers, (), ("ddp",)])
def test_rows_and_contestants_fit_together(peers: tuple[str, ...]) -> None:
    found = _everything(Settings(peers=peers))
    assert len({group.key for group in found}) == len(found)
    for group in found:
        names = [contestant.name for contestant in group.contestants]
        assert len(set(names)) == len(names)
        for row in group.rows:
            assert set(row.contestants) <= set(names)
            for claim in row.claims:
                assert claim.subject in names
        for contestant in group.contestants:
            assert (WORKERS / f"{contestant.worker}.py").exists()
            json.dumps(dict(contestant.options))


def test_all_is_every_word_in_turn() -> None:
    settings = Settings()
    assert _everything(settings) == [g for word in BUILDERS for g in groups(word, settings)]


def test_peers_can_be_left_out_but_never_the_limit() -> None:
    roles = {c.role for g in _everything(Settings(peers=())) for c in g.contestants}
    assert roles == {Role.SUBJECT, Role.REFERENCE}


def _claims() -> dict[str, list[Claim]]:
    return {row.key: list(row.claims) for g in _everything(Settings()) for row in g.rows}


@pytest.mark.parametrize(
    ("key", "figures"),
    [
        ("allreduce-private", [(3.0, 4.0), (2.0, 2.5)]),
        ("allreduce-bucket", [(5.0, 6.0)]),
        ("allreduce-4KB", [(100e-6, 40e-6)]),
        ("train-mlp", [(0.80, 0.85)]),
        ("train-cnn", [(0.95, 0.97)]),
        ("train-resnet18", [(0.95, 0.97)]),
        ("overhead-mlp", [(1.02, 1.01)]),
        ("ranks-4KB", [(500e-6, None)]),
        ("names-agreement", [(200e-6, None)]),
        ("names-opposite", [(15e-3, None)]),
        ("memory-resnet18", [(0.5, None)]),
        ("start", [(0.65, None)]),
        ("recorder-1", [(1.01, 1.005)]),
        ("recorder-2", [(1.01, 1.005)]),
        ("study-precision-cnn", [(0.2, None), (1.0, None)]),
        ("study-precision-resnet18", [(0.2, None), (1.0, None)]),
        ("study-cell", [(1.0, None)]),
        ("study-run", [(1.0, None)]),
        ("report-time", [(10.0, None)]),
        ("report-memory", [(500e6, None)]),
    ],
)
def test_the_figures_to_reach(key: str, figures: list[tuple[float, float | None]]) -> None:
    assert [(claim.to_reach, claim.stretch) for claim in _claims()[key]] == figures


def test_all_contestants_of_a_training_train_the_same() -> None:
    for group in groups("train", Settings()) + groups("overhead", Settings()):
        options = [
            {name: c.options[name] for name in ("model", "warmup", "steps")}
            for c in group.contestants
        ]
        assert all(option == options[0] for option in options)


def test_the_ranks_that_were_asked_for() -> None:
    (group,) = groups("ranks", Settings(rank_counts=(1, 3), peers=("gloo",)))
    assert [(c.name, c.num_ranks) for c in group.contestants] == [
        ("farandole, 1 rank", 1),
        ("farandole, 3 ranks", 3),
        ("gloo, 3 ranks", 3),
    ]
    assert group.rows[0].claims == ()


def test_quick_times_fewer_steps() -> None:
    (slow,) = groups("train", Settings(models=("mlp",)))
    (quick,) = groups("train", Settings(models=("mlp",), quick=True))
    assert quick.contestants[0].options["steps"] < slow.contestants[0].options["steps"]
