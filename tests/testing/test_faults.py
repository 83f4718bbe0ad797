from __future__ import annotations

import signal
import subprocess
import sys

import pytest

from farandole.errors import UsageError
from farandole.testing import FailAt, InjectedFault
from tests.conftest import eventually


def test_only_the_rank_and_step_fail() -> None:
    fault = FailAt(rank=1, step=3)
    fault.maybe(rank=0, step=3)
    fault.maybe(rank=1, step=2)
    with pytest.raises(InjectedFault, match="rank 1 at step 3"):
        fault.maybe(rank=1, step=3)


@pytest.mark.parametrize(
    ("mode", "code"),
    [
        ("exception", 1),
        ("exit", 3),
        ("leave", 0),
        ("kill", -signal.SIGKILL),
        ("segfault", -signal.SIGSEGV),
        ("abort", -signal.SIGABRT),
        ("memory", 1),
    ],
)
def test_ways_to_end(mode: str, code: int) -> None:
    script = (
        "import sys; from farandole.testing import FailAt\n"
        "FailAt(rank=0, step=0, mode=sys.argv[1]).maybe(0, 0)"
    )
    done = subprocess.run([sys.executable, "-c", script, mode], check=False, timeout=30)
    assert done.returncode == code


def test_stop() -> None:
    import psutil

    script = "from farandole.testing import FailAt; FailAt(rank=0, step=0, mode='stop').maybe(0, 0)"
    with subprocess.Popen([sys.executable, "-c", script]) as process:
        watched = psutil.Process(process.pid)
        eventually(lambda: watched.status() == psutil.STATUS_STOPPED)
        process.kill()


def test_an_unknown_mode_lists_the_modes() -> None:
    with pytest.raises(UsageError, match="exception, exit, leave, kill, stop, segfault, abort"):
        FailAt(rank=0, step=0, mode="explode")  # type: ignore[arg-type]
