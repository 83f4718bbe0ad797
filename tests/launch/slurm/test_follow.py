from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from farandole.errors import StartError
from farandole.launch import slurm_jobs as module
from farandole.launch.slurm_jobs import Followed, Status, follow

WAITING = Status(state="PENDING", reason="Resources")
RUNNING = Status(state="RUNNING", nodes="n[1-2]")
DONE = Status(state="COMPLETED")


class Script:
    """A cluster that says one thing after another; the last again and again."""

    def __init__(self, *answers: Status | Callable[[], Status]) -> None:
        self.answers: Sequence[Status | Callable[[], Status]] = answers
        self.looks = 0
        self.cancelled: list[str] = []
        self.warned: list[str] = []

    def look(self, job_id: str) -> Status:
        answer = self.answers[min(self.looks, len(self.answers) - 1)]
        self.looks += 1
        if self.cancelled:
            return Status(state="CANCELLED", signal=15)
        return answer() if callable(answer) else answer

    def cancel(self, job_id: str) -> None:
        self.cancelled.append(job_id)

    def warn(self, job_id: str) -> None:
        self.warned.append(job_id)


@pytest.fixture(autouse=True)
def _fast(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("_OFTEN_S", "_TAIL_S", "_LAST_LINES_S"):
        monkeypatch.setattr(module, name, 0.01)


def run(cluster: Script, output: Path) -> tuple[Followed, bytes, list[str]]:
    shown: list[bytes] = []
    said: list[str] = []
    found = follow(cluster, "12", output=output, show=shown.append, say=said.append)
    return found, b"".join(shown), said


def test_output_is_shown_as_it_comes(tmp_path: Path) -> None:
    file = tmp_path / "out"

    def write(text: str) -> Status:
        with file.open("a") as opened:
            opened.write(text)
        return RUNNING

    cluster = Script(WAITING, lambda: write("one\n"), lambda: write("two\n"), DONE)
    found, shown, said = run(cluster, file)
    assert shown == b"one\ntwo\n"
    assert found.exit_code == 0
    assert said == ["job 12: it waits (Resources).", "job 12 runs on n[1-2]."]
    assert not cluster.cancelled


def test_last_lines_may_come_late(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_LAST_LINES_S", 20.0)
    file = tmp_path / "out"
    late = threading.Timer(0.1, lambda: file.write_text("late\n"))
    late.start()
    _, shown, _ = run(Script(DONE), file)
    late.join()
    assert shown == b"late\n"


def test_failures_are_told(tmp_path: Path) -> None:
    found, _, said = run(Script(RUNNING, Status(state="FAILED", code=3)), tmp_path / "out")
    assert found.exit_code == 3
    assert said[-1] == "job 12 ended: FAILED, exit code 3."


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM])
def test_signals_cancel_the_job(tmp_path: Path, signum: int) -> None:
    def hit() -> Status:
        os.kill(os.getpid(), signum)
        return RUNNING

    cluster = Script(hit, RUNNING)
    found, _, said = run(cluster, tmp_path / "out")
    assert cluster.cancelled == ["12"]
    assert found.exit_code == 128 + signum
    assert said[-1] == "cancelling job 12."


def test_a_wish_to_stop_is_passed_on(tmp_path: Path) -> None:
    def hit() -> Status:
        os.kill(os.getpid(), signal.SIGUSR1)
        return RUNNING

    cluster = Script(hit, RUNNING, RUNNING, DONE)
    found, _, said = run(cluster, tmp_path / "out")
    assert (cluster.warned, cluster.cancelled) == (["12"], [])
    assert found.exit_code == 0
    assert "passing SIGUSR1 on to job 12." in said


def test_who_shows_can_break_off(tmp_path: Path) -> None:
    """`farandole run ... | head`: the job is not left alone."""
    (tmp_path / "out").write_text("line\n")

    def broken(data: bytes) -> None:
        raise BrokenPipeError

    cluster = Script(RUNNING)
    found = follow(cluster, "12", output=tmp_path / "out", show=broken, say=lambda line: None)
    assert cluster.cancelled == ["12"]
    assert found.exit_code == 128 + signal.SIGPIPE


def test_a_controller_may_be_away_for_a_while(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away() -> Status:
        raise StartError("no answer")

    found, _, _ = run(Script(RUNNING, away, away, DONE), tmp_path / "out")
    assert found.exit_code == 0
    monkeypatch.setattr(module, "_AWAY_S", 0.0)
    with pytest.raises(StartError, match="no answer"):
        run(Script(RUNNING, away), tmp_path / "out")
