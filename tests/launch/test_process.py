from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from farandole.launch.local_workers import WorkerProcess, catching, group_states
from tests.conftest import eventually


def worker(code: str) -> WorkerProcess:
    return WorkerProcess([sys.executable, "-c", code], rank=0, environ=dict(os.environ))


@pytest.mark.parametrize(
    ("code", "end"),
    [("", 0), ("raise SystemExit(3)", 3), ("import os; os.kill(os.getpid(), 9)", -9)],
)
def test_how_it_ended_stays_known(code: str, end: int) -> None:
    started = worker(code)
    eventually(lambda: started.ended() is not None)
    assert started.ended() == end
    # Not reaped yet: its number is still its own.
    assert group_states([started.pid]) == {started.pid: {"Z"}}
    started.close()
    assert group_states([started.pid]) == {started.pid: set()}


def test_stopped_processes_are_seen() -> None:
    started = worker("import time; time.sleep(60)")
    started.send(signal.SIGSTOP)
    eventually(lambda: group_states([started.pid])[started.pid] == {"T"})
    started.close()


def test_who_catches_a_signal_is_known() -> None:
    deaf = worker("import time; time.sleep(60)")
    hears = worker(
        "import signal, time; signal.signal(signal.SIGUSR1, lambda *_: None); time.sleep(60)"
    )
    groups = [deaf.pid, hears.pid]
    eventually(lambda: catching(groups, signal.SIGUSR1) == [hears.pid])
    assert hears.pid not in catching(groups, signal.SIGUSR2)
    deaf.close()
    hears.close()


UNSTARTABLE = """
import sys, threading
from farandole.errors import UsageError
from farandole.launch.local_workers import WorkerProcess
leave = threading.Event()
if sys.argv[2] == "2":
    threading.Thread(target=leave.wait).start()
try:
    worker = WorkerProcess([sys.argv[1]], rank=0, environ={})
    print(worker.pipes["stderr"].read().decode(), worker._process.wait())
except UsageError as error:
    print(error)
leave.set()
"""


@pytest.mark.parametrize("threads", [1, 2])
def test_a_program_that_cannot_be_started_is_named(tmp_path: Path, threads: int) -> None:
    program = tmp_path / "program"
    program.write_text("no interpreter here")
    program.chmod(0o700)
    argv = [sys.executable, "-c", UNSTARTABLE, program, str(threads)]
    done = subprocess.run(argv, capture_output=True, text=True, check=True, timeout=60)
    assert f"{program} cannot be started: Exec format error.\n" in done.stdout
    assert ("126" in done.stdout) is (threads == 2)


def test_odd_entries_in_proc_are_skipped(tmp_path: Path) -> None:
    for name, text in (("12", "12 (a) b) T 1 7 7"), ("13", ""), ("self", "")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "stat").write_text(text)
    (tmp_path / "14").mkdir()
    assert group_states([7, 8], tmp_path) == {7: {"T"}, 8: set()}
    assert group_states([7], tmp_path / "nowhere") == {7: set()}
