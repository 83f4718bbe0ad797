"""Where a study was made: machine, GPUs, and the state of the code."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from farandole.launch.supervisor import Verdict
from farandole.study.attempt import launch_environ, launcher_failure, worker_failure
from farandole.study.hosts import share_out
from farandole.study.plan import Planned
from farandole.study.records import Cell
from farandole.study.runner import git_state, gpu_names
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


@pytest.mark.parametrize(
    ("workers", "ranks"),
    [
        (8, [(0, 1, 2, 3), (4, 5, 6, 7)]),
        (7, [(0, 1, 2, 3), (4, 5, 6)]),
        (2, [(0,), (1,)]),
    ],
)
def test_hosts_share_workers_evenly(workers: int, ranks: list[tuple[int, ...]]) -> None:
    placed = share_out(("n1", "n2"), workers)
    assert [share.ranks for share in placed.hosts] == ranks
    assert placed.host_names == ("n1", "n2")
    assert placed.size == workers


def git(folder: Path, *arguments: str) -> None:
    """Run git as nobody in particular, without the user's own settings."""
    environ = {**os.environ, "GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_SYSTEM": "/dev/null"}
    settings = ["-c", "user.name=n", "-c", "user.email=e@x", "-c", "commit.gpgsign=false"]
    subprocess.run(
        ["git", "-C", str(folder), *settings, *arguments],
        env=environ,
        check=True,
        capture_output=True,
    )


@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
def test_the_state_of_a_repository(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q")
    assert git_state(tmp_path) is None  # nothing is committed yet
    (tmp_path / "train.py").write_text("1")
    git(tmp_path, "add", "train.py")
    git(tmp_path, "commit", "-q", "-m", "x")
    (tmp_path / "notes.txt").write_text("untracked")
    (tmp_path / "sub").mkdir()
    clean = git_state(tmp_path / "sub")
    assert clean is not None
    assert (len(clean["commit"]), clean["dirty"]) == (40, False)
    (tmp_path / "train.py").write_text("2")
    assert git_state(tmp_path) == {"commit": clean["commit"], "dirty": True}


@pytest.fixture
def nvidia(tmp_path: Path) -> Path:
    """The root of a machine with three GPUs, of which one does not tell its name."""
    for bus, text in (
        ("0a", "Model: \t\t Tesla T4\nIRQ: 1\n"),
        ("0b", "Model: V100\n"),
        ("0c", ""),
    ):
        place = tmp_path / f"proc/driver/nvidia/gpus/0000:{bus}:00.0"
        place.mkdir(parents=True)
        (place / "information").write_text(text)
    return tmp_path


@pytest.mark.parametrize(
    ("visible", "names"),
    [
        (None, ["Tesla T4", "V100", "GPU"]),
        ("1", ["V100"]),
        ("1,0", ["V100", "Tesla T4"]),
        ("", []),
        ("-1", []),
        ("7", ["Tesla T4"]),
        ("GPU-8932f937,GPU-d72d40b3", ["Tesla T4", "V100"]),
    ],
)
def test_names_of_the_gpus_that_are_visible(
    nvidia: Path, visible: str | None, names: list[str]
) -> None:
    environ = {} if visible is None else {"CUDA_VISIBLE_DEVICES": visible}
    assert gpu_names(environ, nvidia) == names
