"""Sentences and commands of a report."""

from __future__ import annotations

import shlex
from dataclasses import replace
from pathlib import Path

import pytest

from farandole.cli import study as command
from farandole.report import words
from farandole.report.words import commands
from farandole.study.command import job_command
from farandole.study.hosts import command_of
from farandole.study.progress import Listener
from farandole.study.spec import Spec
from tests.report.builders import Words, study


def test_what_is_known_of_a_machine() -> None:
    rows = dict(words.machine_facts({**study().machine, "load_average": 8.66845703125}).pairs)
    assert rows["load average"] == "8.67"
    assert rows["memory"] == "16.0 GB"
    assert rows["versions"] == "python 3.11.2, torch 2.13.0"
    assert "gpus" not in rows


def test_the_command_asks_for_the_same_study(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    given = [
        *("-np", "1,2", "--scaling", "both", "-L", "batch=32,64", "-L", "lr=0.1,0.2"),
        *("--threads", "1", "--transport", "shm", "--measure", "both", "--repeats", "4"),
        *("--seeds", "5", "--epochs", "2", "--time-limit", "20m", "--launch-timeout", "90s"),
        *("--memory", "2G", "--cwd", "cell", "--throughput", "rate ([0-9.]+)"),
        *("--metric", "acc=acc ([0-9.]+)", "--metric", "loss=loss ([0-9.]+)"),
        *("--prepare", "rm -f x", "--no-epoch", "--no-today", "--no-batch-check"),
        *("--no-calibration", "--keep-busy", "--horovod-alias", "off"),
        *("--", "python", "train.py", "{batch}", "{lr}"),
    ]
    spec = _spec_of(given)
    info = replace(study(words=Words(command=spec.command)), spec=spec.to_json())
    line = commands(info)[0]
    assert _spec_of(shlex.split(line)[2:]) == spec
    usual = _spec_of(["--", "python", "train.py", "{batch}"])
    info = replace(study(words=Words(command=usual.command)), spec=usual.to_json())
    assert replace(_spec_of(shlex.split(commands(info)[0])[2:]), threads_given=False) == usual


def _spec_of(argv: list[str]) -> Spec:
    """Return what the command line asks for."""
    return command._prepare(command.COMMAND.parse(argv), Listener()).setting.spec


def test_jobs_are_asked_for_again() -> None:
    inner = ("python", "t.py", "--", "{batch}")
    made = job_command(inner, ("--sbatch", "time=5,exclusive"), horovod_alias="on")
    spec = {"workers": [8], "places": [[8, 2]], "jobs": True}
    first, _ = commands(replace(study(words=Words(command=made)), spec=spec))
    assert shlex.split(first) == [
        *("farandole", "study", "-np", "2x4", "--per-cell-jobs", "--sbatch", "time=5,exclusive"),
        *("--out", "DIR", "--", *inner),
    ]


def test_hosts_are_asked_for_again() -> None:
    info = replace(study(), spec={"workers": [1, 7, 8], "places": [[1, 1], [7, 2], [8, 2]]})
    first, _ = commands(info)
    argv = shlex.split(first)
    assert argv[argv.index("-np") + 1] == "1x1,7,2x4"


def test_a_study_of_a_function_is_reproduced_in_python() -> None:
    def train(batch: int) -> None:
        """Stand for a user's function."""

    spec = {
        "workers": [1, 2],
        "batches": [32],
        "find_max": True,
        "params": [["lr", ["0.1", "0.2"]]],
        "repeats": 5,
        "launch_timeout_s": 60.0,
        "threads": [1],
        "transports": ["gloo"],
        "today": False,
        "horovod_alias": False,
    }
    first, second = commands(replace(study(), command=command_of(train), spec=spec))
    assert first == (
        "farandole.study(train, workers=[1, 2], "
        "params={'batch': [32, 'max'], 'lr': ['0.1', '0.2']}, threads=[1], transport=['gloo'], "
        "repeats=5, launch_timeout=60.0, no_today=True, "
        "horovod_alias='off', out='DIR')"
    )
    assert second == "farandole report DIR"
