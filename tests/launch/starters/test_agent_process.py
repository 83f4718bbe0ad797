from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import psutil
import pytest

from farandole.errors import UsageError
from farandole.launch.starters import AgentProcess
from tests.conftest import clean_environ, eventually


def explain(code: int, errors: str, hosts: Sequence[str]) -> str:
    return f"{code} {errors.split()} {list(hosts)}"


def test_it_tells_how_it_ended() -> None:
    agent = AgentProcess(["n1", "n2"], ["sh", "-c", "cat >&2; exit 4"], b"hi\n", explain=explain)
    assert eventually(agent.poll) == "4 ['hi'] ['n1', 'n2']"
    agent.close()


def test_it_has_the_environment_that_it_is_given() -> None:
    agent = AgentProcess(
        ["n1"], ["sh", "-c", "echo $A >&2; exit 1"], b"", environ={"A": "b"}, explain=explain
    )
    assert eventually(agent.poll) == "1 ['b'] ['n1']"
    agent.close()


def test_much_is_said_and_the_end_counts() -> None:
    code = "import sys\nfor n in range(30_000): print('noise', n, file=sys.stderr)\nsys.exit(1)"
    agent = AgentProcess(["n1"], [sys.executable, "-S", "-c", code], b"", explain=explain)
    assert "'29999']" in str(eventually(agent.poll))
    agent.close()


def test_what_is_not_there() -> None:
    with pytest.raises(UsageError, match="no-such-shell cannot be started"):
        AgentProcess(["n1"], ["no-such-shell"], b"", explain=explain)


def test_it_ends_with_the_one_who_started_it(tmp_path: Path) -> None:
    """Also when that is killed; so do those that it has started."""
    code = (
        "import sys, time\n"
        "from farandole.launch.starters import AgentProcess\n"
        f"shell = ['sh', '-c', 'sleep 60 & echo $! > {tmp_path}/pid; wait']\n"
        "agent = AgentProcess(['n1'], shell, b'', explain=lambda *_: '')\n"
        "time.sleep(60)\n"
    )
    with subprocess.Popen([sys.executable, "-c", code], env=clean_environ()) as head:
        file = tmp_path / "pid"
        pid = int(eventually(lambda: file.exists() and file.read_text().strip()))
        assert os.getpgid(pid) != os.getpgid(head.pid)
        head.kill()
        head.wait()
    eventually(
        lambda: not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    )
