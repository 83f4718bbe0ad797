from __future__ import annotations

import os
import subprocess
import sys

import pytest

from farandole.launch.lifeline import Lifeline
from tests.conftest import eventually

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the kernel's part is Linux")


def test_cutting_the_line_ends_the_whole_group() -> None:
    line = Lifeline()
    code = "import os, time; os.fork(); os.write(1, b'%d\\n' % os.getpid()); time.sleep(60)"
    with subprocess.Popen(
        [sys.executable, "-c", code],
        start_new_session=True,
        pass_fds=(line.read_end,),
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        line.tie(process.pid)
        pids = {int(process.stdout.readline()) for _ in range(2)}
        assert process.pid in pids
        line.cut()
        assert process.wait(10) == -9
        # The pipe ends when its last writer, the forked child, is gone.
        assert process.stdout.read() == ""


def test_an_unused_line_leaves_nothing() -> None:
    before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208
    line = Lifeline()
    line.cut()
    line.cut()
    eventually(lambda: len(os.listdir("/proc/self/fd")) == before)  # noqa: PTH208
