"""The stack of another process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import farandole
from farandole.engine.stalls import stack
from tests.conftest import eventually

pytestmark = pytest.mark.skipif(
    not hasattr(os, "memfd_create"), reason="stacks are written to memfds, which Linux has"
)

# The second thread is what a progress thread is: newer than the main one.
PROGRAM = """
import sys, threading
from farandole.engine.stalls import stack
threading.Thread(target=sys.stdin.read, daemon=True).start()
def somewhere_deep():
    print(stack.offer(), stack.offer(), flush=True)
    threading.Event().wait()
def outer():
    somewhere_deep()
outer()
"""


@pytest.fixture
def program() -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        yield process
        process.kill()


def names(lines: list[str]) -> list[str]:
    return [line.rpartition(" in ")[2] for line in lines]


def test_a_process_shows_where_it_is_as_often_as_asked(program: subprocess.Popen[str]) -> None:
    assert program.stdout is not None
    path, again = program.stdout.readline().split()
    assert path == again, "offered once"
    for _ in range(2):
        found = eventually(lambda: names(stack.ask(path)))
        assert found[-3:] == ["somewhere_deep", "outer", "<module>"]
    assert program.poll() is None


def test_who_would_die_of_it_is_not_asked(program: subprocess.Popen[str]) -> None:
    assert program.stdout is not None
    path = program.stdout.readline().split()[0]
    with subprocess.Popen(["sleep", "60"]) as other:
        fd = path.rpartition("/")[2]
        assert stack.ask(f"/proc/{other.pid}/fd/1") == []
        assert stack.ask(f"/proc/{other.pid}/fd/{fd}") == []
        assert other.poll() is None
        other.kill()


@pytest.mark.parametrize("path", ["", "/etc/passwd", "/proc/4194305/fd/3"])
def test_who_is_not_there_gives_nothing(path: str) -> None:
    assert stack.ask(path) == []


def test_a_stopped_process_gives_nothing(program: subprocess.Popen[str]) -> None:
    assert program.stdout is not None
    path = program.stdout.readline().split()[0]
    program.send_signal(signal.SIGSTOP)
    assert stack.ask(path, timeout_s=0.2) == []


def test_what_is_inside_of_a_call_is_left_out() -> None:
    package = Path(farandole.__file__).parent
    ours = [f'  File "{package}/{name}", line 1 in f' for name in ("engine/loop.py", "torch/c.py")]
    theirs = ['  File "train.py", line 3 in step', ours[0], '  File "train.py", line 9 in <module>']
    assert stack.from_the_users_call([*ours, *theirs]) == [ours[1], *theirs]
    assert stack.from_the_users_call(theirs) == theirs
    assert stack.from_the_users_call(ours) == ours[1:]
    assert stack.from_the_users_call([]) == []


def test_long_stacks_are_cut() -> None:
    lines = [f'  File "a.py", line {number} in f' for number in range(50)]
    assert stack.shortened(lines) == [*lines[:30], "  and 20 calls more"]
    assert stack.shortened(lines[:30]) == lines[:30]


def test_the_main_thread_is_the_oldest() -> None:
    dump = (
        "Thread 0x00007f1 (most recent call first):\n"
        '  File "loop.py", line 9 in _run\n'
        "\n"
        "Current thread 0x00007f2 (most recent call first):\n"
        '  File "train.py", line 3 in load\n'
        '  File "train.py", line 7 in <module>\n'
    )
    assert names(stack.main_thread(dump)) == ["load", "<module>"]
    assert stack.main_thread("") == []
