"""Workers on a real Ray cluster of two nodes, both on this machine."""

from __future__ import annotations

import contextlib
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

import farandole.ray
from farandole.errors import UsageError
from tests.conftest import clean_environ, cli_argv, eventually, run_cli

_START_TIMEOUT_S = 60.0
# Ray would start a process for every core when the first program comes.
_QUIET = {
    "RAY_prestart_worker_first_driver": "0",
    "RAY_enable_metrics_collection": "0",
    "RAY_USAGE_STATS_ENABLED": "0",
}

SCRIPT = """
from farandole.engine import context
context.init()
engine = context.current().engine
print("sizes", context.size(), context.local_size(), engine.transport.name,
      [answer.decode() for answer in engine.exchange(b"%d" % engine.rank)])
"""

WAIT = """
import os, sys, time
from pathlib import Path
Path(sys.argv[1], f"pid{os.environ['RANK']}").write_text(str(os.getpid()))
time.sleep(60)
"""

DRIVER = """
import sys
import farandole.ray
from farandole.errors import StartError, WorkerFailedError

def add(first, second=0):
    from farandole.engine import context
    context.init()
    answers = context.current().engine.exchange(b"%d" % context.rank())
    return first + second, context.rank(), len(answers), context.local_size()

def ask(name):
    import os
    return os.environ.get(name)

def fail():
    import os
    if os.environ["RANK"] == "1":
        raise ValueError("no more data")

print(farandole.ray.run(add, (40,), {"second": 2}, num_workers=3))
print(farandole.ray.run(ask, ("GREETING",), num_workers=2, env={"GREETING": "a = b\\n c"}))
try:
    farandole.ray.run(fail, num_workers=2)
except WorkerFailedError as error:
    print("failed:", error.rank, "ValueError: no more data" in str(error))
try:
    farandole.ray.run(add, (1,), num_workers=9, start_timeout=0.5)
except StartError as error:
    print("refused:", error)
import ray
print("left:", ray.is_initialized())
"""


@contextlib.contextmanager
def ray_node(*arguments: str, log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Run a node of Ray's in the foreground; it ends what it has started."""
    argv = [sys.executable, "-c", "from ray.scripts.scripts import main; main()", "start"]
    with log.open("wb") as output:
        process = subprocess.Popen(
            [*argv, "--block", *arguments],
            env=clean_environ(**_QUIET),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
        try:
            yield process
        finally:
            process.terminate()
            process.wait(30)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """Two nodes, with room for 2 workers and for 1; what finds them is in the variables."""
    pytest.importorskip("ray", reason="Ray is not installed: pip install 'farandole[ray]'")
    logs = tmp_path_factory.mktemp("ray")
    # The paths of Ray's sockets have to be short.
    folder = tempfile.mkdtemp(prefix="fr-", dir="/tmp")
    # Ray takes 127.0.0.1 for an address of the network.
    head = ("--head", "--node-ip-address=127.0.0.2", "--port=0", f"--temp-dir={folder}")
    try:
        with ray_node(
            *head, "--include-dashboard=false", "--num-cpus=2", log=logs / "head"
        ) as process:
            address = _said(logs / "head", r"--address='([\d.:]+)'", process)
            second = (f"--address={address}", "--node-ip-address=127.0.0.3", "--num-cpus=1")
            with ray_node(*second, log=logs / "second") as process:
                _said(logs / "second", "Ray runtime started", process)
                yield {"RAY_ADDRESS": address, **_QUIET}
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _said(log: Path, pattern: str, process: subprocess.Popen[bytes]) -> str:
    def found() -> re.Match[str] | None:
        text = log.read_text(errors="replace")
        assert process.poll() is None, f"Ray ended: {text}"
        return re.search(pattern, text)

    match = eventually(found, _START_TIMEOUT_S)
    return str(match[match.lastindex or 0])


@pytest.mark.ranks
def test_a_function_runs_on_two_nodes(cluster: dict[str, str], tmp_path: Path) -> None:
    script = tmp_path / "driver.py"
    script.write_text(DRIVER)
    done = subprocess.run(
        [sys.executable, str(script)],
        env=clean_environ(**cluster),
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    values, variables, failed, refused, left = done.stdout.splitlines()
    assert values == "[(42, 0, 3, 2), (42, 1, 3, 2), (42, 2, 3, 1)]"
    assert variables == repr(["a = b\n c"] * 2)
    assert failed == "failed: 1 True"
    assert "(num_workers=9) with 1 CPU each, but the Ray cluster has 3 CPU" in refused
    assert "Use num_workers=3" in refused
    assert left == "left: False"


@pytest.mark.ranks
def test_a_script_runs_by_the_command_line(cluster: dict[str, str], tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    argv = ("run", "--launcher", "ray", "-np", "2", "--", sys.executable, script)
    done = run_cli(*argv, env=cluster, cwd=tmp_path, timeout_s=110)
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == [
        f"[{rank}]<stdout>:sizes 2 2 shm ['0', '1']" for rank in (0, 1)
    ]


@pytest.mark.ranks
def test_an_actor_that_is_killed_is_a_lost_host(cluster: dict[str, str], tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(WAIT)
    argv = ("run", "--launcher", "ray", "-np", "2", "--", sys.executable, str(script))
    with subprocess.Popen(
        [*cli_argv(), *argv, str(tmp_path)],
        env=clean_environ(**cluster),
        cwd=tmp_path,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    ) as head:
        try:
            notes = [tmp_path / f"pid{rank}" for rank in range(2)]
            eventually(lambda: all(note.exists() and note.read_text() for note in notes), 60)
            workers = [psutil.Process(int(note.read_text())) for note in notes]
            agent = workers[0].parent()
            assert agent is not None
            actor = agent.parent()
            assert actor is not None
            # As ray.kill() does it, and Ray itself when memory runs out.
            actor.kill()
            _, errors = head.communicate(timeout=30)
        finally:
            head.kill()
    assert head.returncode == 1
    assert re.search(r"farandole: host \S+ \(ranks 0, 1\) was lost", errors), errors
    eventually(lambda: not any(process.is_running() for process in (*workers, agent)))


def test_only_functions_are_run() -> None:
    with pytest.raises(UsageError, match="needs a function to call, not int"):
        farandole.ray.run(3)  # type: ignore[arg-type]


@pytest.mark.ranks
def test_a_ray_that_does_not_run_is_one_line(tmp_path: Path) -> None:
    pytest.importorskip("ray", reason="Ray is not installed: pip install 'farandole[ray]'")
    argv = ("run", "--launcher", "ray", "-np", "2", "--", sys.executable, "-c", "")
    done = run_cli(*argv, env={"RAY_ADDRESS": "127.0.0.2:1", **_QUIET}, cwd=tmp_path)
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert "Ray is not running at RAY_ADDRESS=127.0.0.2:1. Start it with `ray start --head`" in line
