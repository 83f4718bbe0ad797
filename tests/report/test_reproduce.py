"""Commands that a shell takes back apart into what was asked for."""

from __future__ import annotations

import shlex
from dataclasses import replace

from farandole.report.reproduce import commands
from tests.report.builders import Words, study


def test_flags_that_are_not_the_usual_ones_are_there() -> None:
    info = replace(
        study(),
        spec={
            "workers": [1, 2],
            "scaling": "both",
            "measure": "speed",
            "repeats": 5,
            "batches": [32, 64],
            "find_max": True,
            "global_batches": [128],
            "threads": [1],
            "params": [["lr", ["0.1", "0.2"]]],
            "transports": ["shm", "gloo"],
            "metrics": [["acc", r"acc ([0-9.]+)"]],
        },
    )
    first, second = commands(info)
    assert shlex.split(first) == [
        *("farandole", "study", "-np", "1,2", "--scaling", "both", "--repeats", "5"),
        *("-L", "batch=32,64,max", "-L", "global_batch=128", "-L", "lr=0.1,0.2"),
        *("--threads", "1", "--transport", "shm,gloo", "--metric", "acc=acc ([0-9.]+)"),
        *("--out", "DIR", "--", "python", "train.py", "--batch-size", "{batch}"),
    ]
    assert second == "farandole report DIR"


def test_splits_stand_for_workers_and_threads() -> None:
    info = replace(study(), spec={"workers": [1, 2], "threads": [2, 1], "split": True})
    assert "--split all" in commands(info)[0]
    assert "--threads" not in commands(info)[0]


def test_odd_arguments_are_quoted() -> None:
    words = Words(command=("python", "my script.py", "it's", "$(rm x)"))
    line = commands(study(words=words))[0]
    assert shlex.split(line)[-4:] == ["python", "my script.py", "it's", "$(rm x)"]


def test_an_imported_study_has_no_command() -> None:
    assert commands(replace(study(), command=()))[0].startswith("farandole study import")
