"""Sentences and commands of a report."""

from __future__ import annotations

import shlex
from dataclasses import replace
from pathlib import Path

import pytest

from farandole.cli import study as command
from farandole.model.verdicts import Void
from farandole.report import words
from farandole.report.words import commands
from farandole.study.command import job_command
from farandole.study.hosts import command_of
from farandole.study.progress import Listener
from farandole.study.spec import Spec
from tests.report.builders import Words, bare, cell, label, study

TODAY = "Today, with one process and all cores: 1.21x slower."


def test_what_the_user_has_today_is_said_once() -> None:
    info = study()
    assert info.today is not None
    info = replace(info, today=replace(info.today, sentence=TODAY))
    assert words.sentences(info) == (info.answer.sentences[0], TODAY)
    said = replace(info, answer=replace(info.answer, sentences=("first", TODAY)))
    assert words.sentences(said) == ("first", TODAY)


def test_a_void_study_does_not_compare_with_today() -> None:
    info = study(void="Your 2 workers trained 2 separate models.")
    assert info.today is not None
    assert info.today.sentence not in words.sentences(info)


def test_cells_that_are_void_beside_the_headline_come_first() -> None:
    one = cell(2)
    found = Void(
        kind="not_averaged",
        cell=one,
        label=label(one),
        launches=("0001",),
        sentence="Nothing was averaged.",
        mend="Wrap the optimizer.",
        evidence={"bytes": 0.0},
    )
    first, *others = words.verdicts(replace(study(), voids=(found,)))
    assert (first.severity, first.action) == ("void", "Wrap the optimizer.")
    assert first.sentence == f"{label(one)}: Nothing was averaged."
    assert tuple(others) == study().verdicts
    named = study(void="Nothing was averaged. Wrap the optimizer.")
    assert words.verdicts(replace(named, voids=(found,))) == named.verdicts


def test_the_paragraph_counts_what_there_is() -> None:
    text = words.paragraph(study())
    # Three cells three times and a fourth one once; one more launch is an outlier, and kept.
    measured = "Measured: 4 cells in 11 launches, taken in turns; launches that count for speed: 10"
    assert text.startswith(f"{measured} (3 per cell). Timed: 1,200 steps after 80 warm-up steps. ")
    assert "within 3 % for speed and 0.005 for val_accuracy" in text
    assert "Example CPU @ 3 GHz; 4 cores; 16.0 GB of memory; python 3.11.2, torch 2.13.0" in text


def test_the_paragraph_tells_what_workers_cost_each_other() -> None:
    text = words.paragraph(study())
    assert (
        "2 copies of the script at once, without communication, took 1.10x as long per step as "
        "one alone. With nothing else to do, a worker's loader gave 4,000 samples/s alone and "
        "3,636 with 2 at once."
    ) in text
    assert "copies of the script" not in words.paragraph(bare())


def test_imported_figures_are_called_so() -> None:
    info = study()
    rows = tuple(replace(row, purpose="imported") for row in info.launches)
    assert "were imported from a table" in words.paragraph(replace(info, launches=rows))


def test_what_is_known_of_a_machine() -> None:
    rows = dict(words.machine_rows({**study().machine, "load_average": 8.66845703125}))
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


def test_an_imported_study_has_no_command() -> None:
    assert commands(replace(study(), command=()))[0].startswith("farandole study import")


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
