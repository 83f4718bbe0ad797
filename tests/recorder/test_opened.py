"""Checkpoints that a worker opens are told once; everything else costs nothing and says nothing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from farandole.recorder.checkpoints import is_checkpoint
from farandole.study.read import read_rank
from tests.conftest import clean_environ


@pytest.mark.parametrize(
    "path",
    [
        "model.pt",
        "/w/runs/best.pth",
        "/w/LAST.CKPT",
        "/w/model.h5",
        "/w/model.keras",
        "/w/model.safetensors",
        "/w/state.npz",
        "/w/state.pkl",
        "/w/checkpoints/epoch-3/anything",
        "/w/checkpoint-500/optimizer.bin",
        "/w/ckpt/1.index",
        "/w/out/pytorch_model.bin",
        "/data/me/project/best.pt",
        "/w/data/checkpoints/best.pt",
    ],
)
def test_checkpoints(path: str) -> None:
    assert is_checkpoint(path)


@pytest.mark.parametrize(
    "path",
    [
        "train.py",
        "/w/events.out.tfevents.1",
        "/w/data/MNIST/train.pt",
        "/w/processed/data.pt",
        "/venv/lib/python3.11/site-packages/x/model.pkl",
        "/home/me/.cache/torch/model.pth",
        "/w/images.bin",
        "/w/apt",
        "/w/checkpoint.py",
    ],
)
def test_what_is_no_checkpoint(path: str) -> None:
    assert not is_checkpoint(path)


_WATCH = """
import json, os, sys
from farandole.recorder.checkpoints import install
told = open("told.jsonl", "w")
def emit(fields):
    told.write(json.dumps(fields) + chr(10))
    told.flush()
watch = install()
if "--late" not in sys.argv:
    watch.connect(emit)
exec(sys.argv[1])
if "--late" in sys.argv:
    watch.connect(emit)
"""


def told(folder: Path, script: str, *late: str) -> list[dict[str, Any]]:
    """Run a script with the hook, which cannot be removed, in a process of its own."""
    subprocess.run(
        [sys.executable, "-c", _WATCH, script, *late],
        cwd=folder,
        env=clean_environ(),
        check=True,
        timeout=60,
    )
    return [json.loads(line) for line in (folder / "told.jsonl").read_text().splitlines()]


def test_reading_is_told_once_with_the_files_age(tmp_path: Path) -> None:
    (tmp_path / "a.pt").write_text("x")
    os.utime(tmp_path / "a.pt", (1000, 1000))
    (tmp_path / "notes.txt").write_text("x")
    script = "[open(n).close() for n in ('a.pt', 'a.pt', os.path.abspath('a.pt'), 'notes.txt')]"
    assert told(tmp_path, script) == [
        {"path": str(tmp_path.resolve() / "a.pt"), "write": False, "modified_unix_s": 1000.0}
    ]


@pytest.mark.parametrize(
    "script",
    [
        "open('a.pt', 'wb').close()",
        "open('a.pt', 'x').close()",
        "open(b'a.pt', 'ab').close()",
        "os.close(os.open('a.pt', os.O_WRONLY | os.O_CREAT))",
        "open('a.tmp', 'w').close(); os.replace('a.tmp', 'a.pt')",
        "import pathlib; pathlib.Path('a.pt').write_text('x')",
    ],
)
def test_writing_is_told(tmp_path: Path, script: str) -> None:
    assert told(tmp_path, script) == [{"path": str(tmp_path.resolve() / "a.pt"), "write": True}]


def test_what_came_before_the_recorder_is_kept_for_it(tmp_path: Path) -> None:
    found = told(tmp_path, "open('a.pt', 'w').close()", "--late")
    assert [Path(entry["path"]).name for entry in found] == ["a.pt"]


def test_a_file_that_is_not_there_fails_as_ever(tmp_path: Path) -> None:
    script = """
try:
    open('none.pt')
except FileNotFoundError:
    open('seen.pt', 'w').close()
"""
    assert [Path(entry["path"]).name for entry in told(tmp_path, script)] == ["seen.pt"]


def test_forked_helpers_do_not_write_into_the_workers_file(tmp_path: Path) -> None:
    (tmp_path / "a.pt").write_text("x")
    script = "pid = os.fork(); open('a.pt').close() if not pid else os.waitpid(pid, 0); os._exit(0)"
    assert told(tmp_path, script) == []


_FOLLOW = """
from farandole.recorder.checkpoints import follow
from farandole.recorder.recorder import current, when_opened
follow(when_opened)
open("before.pt", "w").close()
assert current() is not None
open("after.pt", "w").close()
"""


def test_the_recorder_hears_of_what_came_before_and_after_it(tmp_path: Path) -> None:
    (tmp_path / "record").mkdir()
    environ = clean_environ(FARANDOLE_RECORD_DIR=str(tmp_path / "record"))
    subprocess.run(
        [sys.executable, "-c", _FOLLOW], cwd=tmp_path, env=environ, check=True, timeout=60
    )
    rank = read_rank(tmp_path / "record" / "rank-0.jsonl")
    assert rank is not None
    assert [(Path(entry.path).name, entry.write) for entry in rank.opened] == [
        ("before.pt", True),
        ("after.pt", True),
    ]
