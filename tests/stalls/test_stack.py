"""The stack of another process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

import farandole
from farandole.stalls import stack
from tests.conftest import eventually

pytestmark = pytest.mark.skipif(
    not hasattr(os, "memfd_create"), reason="stacks are written to memfds, which Linux has"
)

# The second thread is what a progress thread is: newer than the main one.
PROGRAM = """
import sys, threading
from farandole.stalls import stack
threading.Thread(target=sys.stdin.read, daemon=True).start()
def somewhere_deep():
    print(stack.offer(), stack.offer(), flush=True)
    threading.Event().wait()
def outer():
    somewhere_deep()
outer()
"""

BUSY = """
import sys, threading
from farandole.stalls import stack
def come_and_go():
    while True:
        thread = threading.Thread(target=sorted, args=(range(50),), kwargs={"key": lambda x: -x})
        thread.start()
        thread.join()
for _ in range(2):
    threading.Thread(target=come_and_go, daemon=True).start()
def standing():
    print(stack.offer(), flush=True)
    sys.stdin.read()
standing()
"""
STUCK = """
import ctypes
from farandole.stalls import stack
def stuck():
    print(stack.offer(), flush=True)
    ctypes.PyDLL(None).sleep(60)  # does not let go of the interpreter
stuck()
"""
LATE = """
import faulthandler, os, signal
from farandole.stalls import stack
stack.offer()
signum = signal.SIGRTMIN + stack._OFFSET
faulthandler.unregister(signum)  # as Python does when it ends
os.kill(os.getpid(), signum)
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
        fds = path.rpartition("/")[2]
        assert stack.ask(f"/proc/{other.pid}/fd/1,2") == []
        assert stack.ask(f"/proc/{other.pid}/fd/{fds}") == []
        assert other.poll() is None
        other.kill()


@pytest.mark.parametrize("path", ["", "/etc/passwd", "/proc/4194305/fd/3,4"])
def test_who_is_not_there_gives_nothing(path: str) -> None:
    assert stack.ask(path) == []


def test_a_stopped_process_gives_nothing(program: subprocess.Popen[str]) -> None:
    assert program.stdout is not None
    path = program.stdout.readline().split()[0]
    program.send_signal(signal.SIGSTOP)
    eventually(lambda: psutil.Process(program.pid).status() == psutil.STATUS_STOPPED)
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


def test_a_process_survives_being_asked_while_its_threads_come_and_go() -> None:
    """Frames and states of running threads are freed at any time: only the main thread's count."""
    with subprocess.Popen(
        [sys.executable, "-c", BUSY], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        path = process.stdout.readline().strip()
        for _ in range(60):
            found = names(stack.ask(path))
            assert process.poll() is None
            assert found in (["standing", "<module>"], []), "nothing, if it had no time to answer"
        assert eventually(lambda: stack.ask(path))
        process.kill()


def test_native_code_that_keeps_the_interpreter_is_seen() -> None:
    """No other thread of Python runs then, and answers."""
    with subprocess.Popen(
        [sys.executable, "-c", STUCK], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        path = process.stdout.readline().strip()
        assert eventually(lambda: names(stack.ask(path, timeout_s=0.3))) == ["stuck", "<module>"]
        process.kill()


def test_a_signal_that_comes_late_does_not_end_a_process() -> None:
    """faulthandler is gone before the last objects are, and the signal's default is death."""
    done = subprocess.run([sys.executable, "-c", LATE], timeout=60, check=False)
    assert done.returncode == 0
