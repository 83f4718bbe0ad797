"""Where a study was made: machine, GPUs, and the state of the code."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from farandole.study.runner import git_state, gpu_names


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
