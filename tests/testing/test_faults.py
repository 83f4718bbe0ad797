from __future__ import annotations

import random
import signal
import subprocess
import sys

import pytest

from farandole.errors import UsageError
from farandole.testing import FailAt, InjectedFault
from farandole.testing.faults import faults_of, faults_text, parse_fault
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


def test_faults_of_the_command_line() -> None:
    chance = random.Random(1)
    fault = parse_fault("kill rank=1 step=120", size=2, chance=chance)
    assert fault == FailAt(rank=1, step=120, mode="kill")
    chosen = [parse_fault("exit step=5-7", size=3, chance=chance) for _ in range(50)]
    assert {each.rank for each in chosen} == {0, 1, 2}
    assert {each.step for each in chosen} == {5, 6, 7}
    assert faults_of(faults_text([fault, *chosen])) == (fault, *chosen)
    assert faults_of("") == ()


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "'' is not a fault. Give one as 'kill rank=1 step=120'"),
        ("explode rank=1", "is not a fault.*Ways to fail: exception, exit"),
        ("kill rank=1 stop=3", "is not a fault"),
        ("kill step=x", "is not a fault"),
        ("kill rank=2 step=3", "ranks go from 0 to 1"),
        ("kill rank=one step=3", "ranks go from 0 to 1"),
        ("kill rank=0 step=9-3", "steps are counted from 1"),
        ("kill rank=0 step=0", "steps are counted from 1"),
    ],
)
def test_faults_that_are_none(text: str, why: str) -> None:
    with pytest.raises(UsageError, match=why):
        parse_fault(text, size=2, chance=random.Random(1))


def test_a_variable_that_somebody_else_has_set() -> None:
    with pytest.raises(UsageError, match="FARANDOLE_INJECT='kill' is not what"):
        faults_of("kill")
