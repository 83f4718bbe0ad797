"""Files that are whole or not there, and one study at a time in one folder."""

from __future__ import annotations

import errno
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from farandole.errors import StoreError, UsageError
from farandole.study.folder import (
    locked,
    new_launch_folder,
    remove_interrupted,
    write_text,
)
from farandole.study.read import read_head
from farandole.study.records import Cell
from tests.conftest import clean_environ
from tests.study.folders import add_launch, make_launch, make_study


@contextmanager
def files_of_at_most(size: int) -> Iterator[None]:
    """Let the kernel refuse larger files, as a full disk would; Python ignores SIGXFSZ."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_write_that_fails_leaves_what_was_there(tmp_path: Path) -> None:
    write_text(tmp_path / "a", "one")
    with files_of_at_most(4096), pytest.raises(StoreError, match="a cannot be written: File too"):
        write_text(tmp_path / "a", "x" * 100_000)
    assert (tmp_path / "a").read_text() == "one"
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk_is_one_clear_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    def full(_descriptor: int) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(StoreError) as caught:
        write_text(tmp_path / "a", "x")
    assert str(caught.value) == (
        f"{tmp_path / 'a'} cannot be written: the disk is full. Everything written so far is "
        "kept. Free some space, then continue with --resume."
    )
    assert list(tmp_path.iterdir()) == []


_HOLD = """
import sys
from pathlib import Path
from farandole.study.folder import locked
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


def test_a_study_is_not_begun_twice(tmp_path: Path) -> None:
    make_study(tmp_path)
    with pytest.raises(UsageError, match="holds a study already"):
        make_study(tmp_path, label="other")
    assert read_head(tmp_path).label == "digits"


def test_only_interrupted_launches_are_removed(tmp_path: Path) -> None:
    make_study(tmp_path)
    kept = add_launch(tmp_path, make_launch())
    interrupted = new_launch_folder(tmp_path, Cell(workers=1), 0)
    (interrupted / "work" / "model.pt").write_text("x")
    (tmp_path / "launches" / "notes").mkdir()
    assert remove_interrupted(tmp_path) == [interrupted.name]
    assert sorted(path.name for path in kept.parent.iterdir()) == [kept.name, "notes"]
