"""One study at a time in one folder, and no trouble with those that are gone."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from farandole.errors import UsageError
from farandole.study.lock import locked
from tests.conftest import clean_environ

_HOLD = """
import sys
from pathlib import Path
from farandole.study.lock import locked
with locked(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


def hold(folder: Path) -> subprocess.Popen[str]:
    """Start a process that holds the folder until its stdin ends."""
    process = subprocess.Popen(
        [sys.executable, "-c", _HOLD, str(folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=clean_environ(),
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    return process


def test_a_second_study_is_told_who_was_first(tmp_path: Path) -> None:
    with hold(tmp_path) as process:
        told = f"in use by process {process.pid}, another study"
        with pytest.raises(UsageError, match=told), locked(tmp_path):
            pass
        process.communicate("")
    with locked(tmp_path):
        pass
    assert list(tmp_path.iterdir()) == []


def test_a_lock_that_kill_9_left_is_no_obstacle(tmp_path: Path) -> None:
    with hold(tmp_path) as process:
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert (tmp_path / ".lock").exists()
    with locked(tmp_path):
        assert (tmp_path / ".lock").read_text().split()[0] == str(os.getpid())


def test_the_folder_is_made(tmp_path: Path) -> None:
    with locked(tmp_path / "a" / "b"):
        assert (tmp_path / "a" / "b").is_dir()


def test_an_error_inside_lets_go(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError), locked(tmp_path):
        raise RuntimeError
    with locked(tmp_path):
        pass
