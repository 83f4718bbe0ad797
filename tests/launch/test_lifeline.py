from __future__ import annotations

import os
import subprocess
import sys
import threading
import uuid
from pathlib import Path

import pytest

from farandole.launch.lifeline import Lifeline
from tests.conftest import clean_environ, eventually

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the kernel's part is Linux")


# A launcher that is killed by the first thing that its worker does. The launcher may be busy then:
# it is given a low priority. `before` is when it dies already before the line is tied.
LAUNCHER = """
import os, signal, sys, threading
from farandole.launch import lifeline
from farandole.launch.local_workers import WorkerProcess
when, threads, mark = sys.argv[1:]
if when == "before":
    tie = lifeline.tie
    def killed_first(read_end):
        os.kill(os.getppid(), signal.SIGKILL)
        tie(read_end)
    lifeline.tie = killed_first
if threads == "2":
    threading.Thread(target=signal.pause, daemon=True).start()
os.nice(10)
command = ["sh", "-c", "kill -9 $PPID; exec sleep 60"] if when == "worker" else ["sleep", "60"]
WorkerProcess(command, rank=0, environ={**os.environ, "TEST_MARK": mark})
signal.pause()
"""


def marked(mark: str) -> list[int]:
    """List the processes that have a mark in their environment."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if f"TEST_MARK={mark}\0".encode() in (folder / "environ").read_bytes():
                found.append(int(folder.name))
        except OSError:
            continue
    return found


@pytest.mark.parametrize(("when", "threads"), [("worker", 1), ("worker", 2), ("before", 1)])
def test_no_worker_survives_a_launcher_that_dies_at_once(when: str, threads: int) -> None:
    for _ in range(10):
        mark = uuid.uuid4().hex
        argv = [sys.executable, "-c", LAUNCHER, when, str(threads), mark]
        done = subprocess.run(argv, env=clean_environ(), check=False, timeout=60)
        assert done.returncode == -9
        eventually(lambda mark=mark: not marked(mark), 10)


@pytest.mark.parametrize("threads", [1, 2])
def test_cutting_the_line_ends_the_whole_group(threads: int) -> None:
    line = Lifeline()
    code = "import os, time; os.fork(); os.write(1, b'%d\\n' % os.getpid()); time.sleep(60)"
    leave = threading.Event()
    others = [threading.Thread(target=leave.wait) for _ in range(threads - 1)]
    for other in others:
        other.start()
    with line.start([sys.executable, "-c", code], stdout=subprocess.PIPE) as process:
        leave.set()
        assert process.stdout is not None
        pids = {int(process.stdout.readline()) for _ in range(2)}
        assert process.pid in pids
        line.cut()
        assert process.wait(10) == -9
        # The pipe ends when its last writer, the forked child, is gone.
        assert process.stdout.read() == b""
    for other in others:
        other.join()


def test_an_unused_line_leaves_nothing() -> None:
    before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208
    line = Lifeline()
    line.cut()
    line.cut()
    eventually(lambda: len(os.listdir("/proc/self/fd")) == before)  # noqa: PTH208
