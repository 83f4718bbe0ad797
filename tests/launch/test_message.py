from __future__ import annotations

import sys

import pytest

from farandole.launch.message import failure_lines, notes, start_line
from farandole.launch.placement import pack, parse_hosts
from farandole.launch.plan import Plan
from farandole.launch.supervisor import Verdict
from farandole.world.board import Failure


@pytest.mark.parametrize(
    ("workers", "threads", "transport", "line"),
    [
        (2, 1, "shm", "2 workers on 1 host, shared memory, 1 thread each"),
        (1, 4, "gloo", "1 worker on 1 host, gloo, 4 threads each"),
        (3, 2, "nccl", "3 workers on 1 host, nccl, 2 threads each"),
    ],
)
def test_start_line(workers: int, threads: int, transport: str, line: str) -> None:
    plan = Plan(argv=("x",), num_workers=workers, threads=threads, transport=transport)
    assert start_line(plan) == line


def test_a_good_end_needs_no_words() -> None:
    assert failure_lines(Verdict(kind="done", exit_code=0)) == []


def test_an_exception() -> None:
    verdict = Verdict(
        kind="failed",
        exit_code=1,
        rank=1,
        code=1,
        failure=Failure(time_ns=1, text="ValueError: bad loss (train.py:12)", secondary=False),
    )
    assert failure_lines(verdict, step=120, last_lines=["", "Traceback", "ValueError"]) == [
        "farandole: rank 1, step 120, failed first: ValueError: bad loss (train.py:12) "
        "(exit code 1). All workers were ended.",
        "farandole: the last lines of rank 1:",
        "    Traceback",
        "    ValueError",
    ]


@pytest.mark.parametrize(
    ("code", "says"),
    [(-9, "SIGKILL: often"), (-11, "SIGSEGV: a crash"), (-64, "SIGRTMAX"), (-50, "signal 50")],
)
def test_what_signals_mean(code: int, says: str) -> None:
    verdict = Verdict(kind="failed", exit_code=128 - code, rank=0, code=code)
    (line,) = failure_lines(verdict)
    assert says in line


def test_stopped_and_interrupted() -> None:
    (line,) = failure_lines(Verdict(kind="stopped", exit_code=1, rank=2), silence_timeout_s=30.0)
    assert "rank 2 was stopped" in line
    assert "silent for 30 s" in line
    (line,) = failure_lines(Verdict(kind="interrupted", exit_code=130))
    assert line == "farandole: ended by SIGINT; all workers have ended."


def test_settings_that_are_not_followed_are_named() -> None:
    assert notes({}) == notes({"MASTER_ADDR": "localhost"}) == []
    (line,) = notes({"MASTER_ADDR": "10.0.0.1"})
    assert "MASTER_ADDR=10.0.0.1 is not used" in line


def test_a_python_without_farandole_is_explained() -> None:
    verdict = Verdict(kind="failed", exit_code=1, rank=0, code=1)
    lines = failure_lines(verdict, last_lines=["ModuleNotFoundError: No module named 'farandole'"])
    assert sys.executable in lines[-1]


@pytest.mark.parametrize(
    ("transport", "line"),
    [
        ("auto", "3 workers on 2 hosts (n1:2, n2:1), 1 thread each"),
        ("gloo", "3 workers on 2 hosts (n1:2, n2:1), gloo, 1 thread each"),
    ],
)
def test_a_start_on_several_hosts(transport: str, line: str) -> None:
    plan = Plan(argv=("x",), num_workers=3, threads=1, transport=transport)
    assert start_line(plan, pack(parse_hosts("n1:2,n2:2"), 3)) == line


def test_hosts_are_named() -> None:
    verdict = Verdict(kind="failed", exit_code=3, rank=1, code=3)
    (line,) = failure_lines(verdict, step=5, rank_hosts=["n1", "n2"])
    assert line.startswith("farandole: rank 1 on host n2, step 5, failed first (exit code 3).")
    (line,) = failure_lines(Verdict(kind="lost", exit_code=1, rank=1, lost="host n2 was lost."))
    assert line == "farandole: host n2 was lost. All workers were ended."
