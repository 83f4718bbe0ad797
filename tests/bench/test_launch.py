"""One launch with small workers: what it gathers, and that it leaves nothing behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from farandole.bench import contestant as contestant_module
from farandole.bench.contestant import Contestant, Role, Starter
from farandole.bench.launch import (
    TAG,
    check_weights,
    end_launch,
    launch,
    series_values,
    tagged,
    worker_environment,
)
from tests.conftest import eventually

# No torch in these workers: what is tested is the launching.
_PRELUDE = """\
import json, os, pathlib, sys, time
given = json.loads(sys.argv[1])
def report(**values):
    path = pathlib.Path(given["report_dir"], f"rank-{given['rank']}.json")
    path.write_text(json.dumps(values))
"""


@pytest.fixture
def workers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(contestant_module, "WORKERS", tmp_path)
    return tmp_path


def _contestant(workers: Path, body: str, *, synchronized: bool = False) -> Contestant:
    (workers / "w.py").write_text(_PRELUDE + body)
    return Contestant(
        name="w",
        role=Role.PEER,
        starter=Starter.DIRECT,
        worker="w",
        num_ranks=2,
        synchronized=synchronized,
    )


def test_a_launch_gathers_every_rank(workers: Path) -> None:
    body = "report(series={'step': [1.0 + given['rank'], 4.0, 4.0 - given['rank']]})"
    record = launch(_contestant(workers, body), round_number=3, time_limit_s=60)
    assert record.failure is None
    assert record.round == 3
    assert record.values == {"step": pytest.approx(4.0)}  # of 2, 4, 4


def test_a_failing_rank_ends_the_others_and_is_quoted(workers: Path) -> None:
    body = "sys.exit('no luck') if given['rank'] == 1 else time.sleep(600)"
    record = launch(_contestant(workers, body), round_number=1, time_limit_s=60)
    assert record.failure == "exit code 1: no luck"
    assert record.values == {}


def test_a_rank_without_a_report_is_named(workers: Path) -> None:
    body = "report(series={}) if given['rank'] == 0 else None"
    record = launch(_contestant(workers, body), round_number=1, time_limit_s=60)
    assert record.failure == "rank 1 of 2 ended without a report"


def test_a_hanging_launch_is_ended_at_its_limit(workers: Path) -> None:
    record = launch(_contestant(workers, "time.sleep(600)"), round_number=1, time_limit_s=0.2)
    assert record.failure == "did not end within the time limit"


def test_ranks_that_did_not_train_together_are_refused(workers: Path) -> None:
    body = "report(series={'step': [1.0]}, facts={'weights_crc': given['rank']})"
    contestant = _contestant(workers, body, synchronized=True)
    record = launch(contestant, round_number=1, time_limit_s=60)
    assert record.failure is not None
    assert "different weights" in record.failure
    check_weights(contestant, [{"facts": {"weights_crc": 1}}] * 2)


def test_ctrl_c_leaves_no_process(workers: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[int] = []

    def interrupt(_seconds: float) -> None:
        scratch = next(iter(Path(folder) for folder in _scratches()))
        eventually(lambda: len(tagged(scratch)) >= 2)
        found.extend(tagged(scratch))
        monkeypatch.undo()
        raise KeyboardInterrupt

    contestant = _contestant(workers, "time.sleep(600)")
    monkeypatch.setattr("farandole.bench.launch.time.sleep", interrupt)
    with pytest.raises(KeyboardInterrupt):
        launch(contestant, round_number=1, time_limit_s=60)
    assert len(found) == 2
    assert not any(Path("/proc", str(pid)).exists() for pid in found)


def _scratches() -> set[str]:
    """The folders of the launches that this process has started."""
    found = set()
    for folder in Path("/proc").iterdir():
        try:
            status = (folder / "stat").read_text().rsplit(")", 1)[1].split()
            if int(status[1]) != os.getpid():
                continue
            for entry in (folder / "environ").read_bytes().split(b"\0"):
                if entry.startswith(f"{TAG}=".encode()):
                    found.add(entry.decode().partition("=")[2])
        except (OSError, IndexError):
            continue
    return found


@pytest.mark.parametrize("again", [False, True], ids=["patient", "ctrl-c-again"])
def test_a_grandchild_that_will_not_end_is_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, again: bool
) -> None:
    script = (
        "import signal, subprocess, sys, time\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'],"
        " start_new_session=True)\n"
        "time.sleep(600)\n"
    )
    environment = {**os.environ, TAG: str(tmp_path)}
    process = subprocess.Popen([sys.executable, "-c", script], env=environment)
    eventually(lambda: len(tagged(tmp_path)) == 2)
    if again:
        # By hand: who runs tests in the background has signals of Ctrl-C ignored.
        monkeypatch.setattr(process, "terminate", _press_ctrl_c)
        monkeypatch.setattr("farandole.bench.launch._GRACE_S", 600.0)
    end_launch([process], tmp_path)
    assert process.returncode == -signal.SIGKILL
    eventually(lambda: not tagged(tmp_path))


def _press_ctrl_c() -> None:
    raise KeyboardInterrupt


def test_the_last_rank_to_arrive_ends_the_start() -> None:
    reports = [{"reached_monotonic_s": 103.0}, {"reached_monotonic_s": 104.5}]
    assert series_values(reports, started_monotonic_s=100.0) == {"start": 4.5}


def test_memory_of_the_largest_rank_with_libraries_apart() -> None:
    reports = [
        {"memory_kb": {"pss": 300, "pss_anon": 100, "pss_shmem": 20}},
        {"memory_kb": {"pss": 250, "pss_anon": 90, "pss_shmem": 40}},
    ]
    found = series_values(reports, started_monotonic_s=0.0)
    assert found == {"pss": 300 * 1024.0, "own_pss": 130 * 1024.0}


def test_a_launch_inherits_no_world_and_no_python_path() -> None:
    around = {
        "PATH": "/bin",
        "PYTHONPATH": "/elsewhere/src",
        "FARANDOLE_RANK": "1",
        "FARANDOLE_TRANSPORT": "gloo",
        "OMPI_COMM_WORLD_RANK": "1",
        "OMP_NUM_THREADS": "8",
    }
    found = worker_environment(around)
    assert found["PATH"] == "/bin"
    assert found["FARANDOLE_TRANSPORT"] == "gloo"
    assert found["OMP_NUM_THREADS"] == "1"
    assert not {"PYTHONPATH", "FARANDOLE_RANK", "OMPI_COMM_WORLD_RANK"} & found.keys()
