from __future__ import annotations

import json
from pathlib import Path

import pytest

from farandole.launch.supervisor import Verdict
from farandole.study.attempt import launch_environ, launcher_failure, worker_failure
from farandole.study.plan import Planned
from farandole.study.records import Cell
from farandole.study.spec import Room, Spec

_CHILD = (
    "Traceback (most recent call last):",
    '  File "train.py", line 3, in <module>',
    '    raise ValueError("bad loss")',
    "ValueError: bad loss",
    "Traceback (most recent call last):",
    "subprocess.CalledProcessError: Command '['python']' returned non-zero exit status 1.",
)


@pytest.mark.parametrize(
    ("code", "lines", "words"),
    [
        (1, _CHILD, "the command ended with exit code 1: ValueError: bad loss"),
        (
            1,
            ("[rank1]: torch.OutOfMemoryError: too large",),
            "the command ended with exit code 1: [rank1]: torch.OutOfMemoryError: too large",
        ),
        (7, ("all is lost",), "the command ended with exit code 7"),
        (
            2,
            ("farandole: SLURM refused the job: Invalid account (Batch job submission failed).",),
            "SLURM refused the job: Invalid account (Batch job submission failed)",
        ),
        (None, (), "it failed"),
    ],
)
def test_a_launchers_failure_is_told_by_its_workers_error(
    code: int | None, lines: tuple[str, ...], words: str
) -> None:
    assert launcher_failure(code, lines) == words


def test_a_worker_that_told_of_no_exception_is_explained_by_its_last_line() -> None:
    verdict = Verdict(kind="failed", exit_code=2, rank=1, code=2)
    said = ["usage: train.py", "train.py: error: unrecognized arguments: --bs", ""]
    assert worker_failure(verdict, said) == (
        "rank 1 failed first (exit code 2): train.py: error: unrecognized arguments: --bs"
    )
    assert worker_failure(verdict, []) == "rank 1 failed first (exit code 2)"


SPEC = Spec(command=("x",), room=Room(cores=2, physical=2), workers=(2,), environ=(("A", "1"),))
ONE = Planned(
    cell=Cell(workers=2, threads=1, batch=16, params=(("lr", "0.1"), ("opt", "sgd"))),
    purpose="speed",
    repeat=0,
    seed=7,
)
PLACE = Path("/study/launches/0001")


def environ(one: Planned, **base: str) -> dict[str, str]:
    return launch_environ(base, SPEC, one, folder=PLACE, cell_dir=PLACE / "work")


def test_what_a_worker_sees() -> None:
    seen = environ(ONE, HOME="/home")
    assert seen["FARANDOLE_RECORD_DIR"] == str(PLACE)
    assert seen["FARANDOLE_SEED"] == "7"
    assert seen["FARANDOLE_CELL_DIR"] == str(PLACE / "work")
    assert json.loads(seen["FARANDOLE_PARAMS"])["lr"] == 0.1
    assert json.loads(seen["FARANDOLE_STOP"])["precision"] == 0.03
    assert (seen["HOME"], seen["A"]) == ("/home", "1")


def test_logs_go_to_the_launchs_own_folder_unless_the_user_said_where() -> None:
    assert environ(ONE)["TENSORBOARD_LOGDIR"] == str(PLACE / "work" / "tensorboard")
    assert environ(ONE, TENSORBOARD_LOGDIR="/mine")["TENSORBOARD_LOGDIR"] == "/mine"
