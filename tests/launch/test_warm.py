"""Workers forked from a process with their imports: a script cannot tell them from fresh ones."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from farandole.launch.launcher import Outcome, launch
from farandole.launch.plan import Plan
from farandole.launch.warm import WarmServer, runs_python
from tests.conftest import clean_environ, eventually
from tests.launch.test_launcher import gone, pids, run_python

pytestmark = pytest.mark.ranks

# Whatever a fresh interpreter shows of itself.
LOOKS = """
import os, pickle, sys, threading

class Mine:
    pass

assert type(pickle.loads(pickle.dumps(Mine()))) is Mine
print(__name__, __file__ and os.path.basename(__file__), sys.argv, sys.path[0], os.getcwd())
print(sys.modules["__main__"].__dict__ is globals(), sorted(n for n in globals() if n[0] != "_"))
print(os.environ["RANK"], os.environ["FARANDOLE_LOCAL_RANK"], os.environ["OMP_NUM_THREADS"])
print(os.getpid() == os.getsid(0) == os.getpgid(0), threading.active_count(), sys.stdin.read())
print(sorted(int(fd) for fd in os.listdir("/proc/self/fd") if int(fd) < 3), sys.flags.safe_path)
"""
ENDS = {
    "return": "print('all')",
    "exception": "def f():\n    raise ValueError('bad')\nf()",
    "exit": "import sys\nsys.exit(3)",
    "message": "import sys\nsys.exit('enough')",
    "kill": "import os, signal\nos.kill(os.getpid(), signal.SIGKILL)",
    "interrupt": "raise KeyboardInterrupt",
    "syntax": "def",
    "at exit": "import atexit\natexit.register(print, 'leaving')\nraise SystemExit(2)",
}


@pytest.fixture
def server() -> Iterator[WarmServer]:
    warm = WarmServer(["numpy"])
    yield warm
    warm.close()


def run(
    argv: list[str], warm: WarmServer | None, *, workers: int = 1, cwd: Path | None = None
) -> tuple[list[str], Outcome]:
    """Launch; return what was written, sorted by rank, and the outcome."""
    lines: list[str] = []
    plan = Plan(argv=(sys.executable, *argv), num_workers=workers, threads=1, cwd=cwd)
    outcome = launch(
        plan,
        environ=clean_environ(),
        show=lambda stream, line: lines.append(f"{stream} {line}"),
        warm=warm,
    )
    assert outcome.warm == (warm is not None)
    return sorted(lines, key=lambda line: line.partition(":")[0]), outcome


def write(folder: Path, text: str, name: str = "train.py") -> str:
    (folder / name).write_text(text)
    return str(folder / name)


def test_a_script_sees_what_it_would_see_in_a_fresh_interpreter(
    server: WarmServer, tmp_path: Path
) -> None:
    script = write(tmp_path, LOOKS)
    arguments = [script, "--lr", "0.1"]
    assert run(arguments, server, workers=2)[0] == run(arguments, None, workers=2)[0]


def test_a_module_is_run_as_the_interpreter_does(server: WarmServer, tmp_path: Path) -> None:
    write(tmp_path, LOOKS)
    arguments = ["-m", "train", "--lr", "0.1"]
    cold = run(arguments, None, cwd=tmp_path)
    assert run(arguments, server, cwd=tmp_path)[0] == cold[0]
    assert len(cold[0]) == 5


@pytest.mark.parametrize("end", ENDS)
def test_a_worker_ends_as_a_cold_one(server: WarmServer, tmp_path: Path, end: str) -> None:
    script = write(tmp_path, ENDS[end])
    warm_lines, warm = run([script], server)
    cold_lines, cold = run([script], None)
    assert warm_lines == cold_lines
    assert warm.verdict.kind == cold.verdict.kind
    assert warm.verdict.exit_code == cold.verdict.exit_code
    assert warm.last_lines == cold.last_lines
    found = [one.verdict.failure.text for one in (warm, cold) if one.verdict.failure]
    assert len(set(found)) <= 1


def test_every_fork_draws_its_own_seeds(server: WarmServer, tmp_path: Path) -> None:
    script = write(tmp_path, "import numpy, random\nprint(numpy.random.rand(), random.random())")
    lines = [line.split()[-2:] for _ in range(2) for line in run([script], server, workers=2)[0]]
    assert len({number for line in lines for number in line}) == 8


def test_what_workers_leave_in_sessions_of_their_own_is_ended(
    server: WarmServer, tmp_path: Path
) -> None:
    text = """
        import os, sys, time
        from pathlib import Path
        if os.fork() == 0:
            os.setsid()
            Path(sys.argv[1], "child").write_text(str(os.getpid()))
            time.sleep(60)
        while not Path(sys.argv[1], "child").exists():
            time.sleep(0.01)
    """.replace("\n        ", "\n")
    here = tmp_path / "pids"
    here.mkdir()
    run([write(tmp_path, text), str(here)], server)
    assert eventually(lambda: gone(pids(here, 1)))


def test_the_kernel_ends_workers_and_server_with_the_launcher(tmp_path: Path) -> None:
    here = tmp_path / "pids"
    here.mkdir()
    text = """
        import os, sys, time
        from pathlib import Path
        Path(sys.argv[1], os.environ["RANK"]).write_text(f"{os.getpid()}")
        Path(sys.argv[1], "keeper" + os.environ["RANK"]).write_text(f"{os.getppid()}")
        time.sleep(60)
    """.replace("\n        ", "\n")
    code = f"""
import os, signal, sys, threading, time
from pathlib import Path
from farandole.launch.launcher import launch
from farandole.launch.plan import Plan
from farandole.launch.warm import WarmServer
warm = WarmServer(["numpy"])
def die(pids):
    if len(list(Path({str(here)!r}).iterdir())) == 4:
        Path({str(here)!r}, "server").write_text(str(warm.pid))
        print("done", flush=True)
        os._exit(0)
    return False
plan = Plan(argv=(sys.executable, sys.argv[1], {str(here)!r}), num_workers=2, threads=1)
launch(plan, environ=dict(os.environ), show=print, warm=warm, watch=die)
"""
    assert run_python(code, Path(write(tmp_path, text))) == "done\n"
    numbers = pids(here, 5)
    assert eventually(lambda: gone(numbers))


def test_only_what_is_the_same_but_for_rank_and_launch_is_forked(server: WarmServer) -> None:
    argv = [sys.executable, "train.py"]
    base = {**clean_environ(), "OMP_NUM_THREADS": "1"}
    assert server.prepare(argv, {**base, "RANK": "0", "FARANDOLE_SEED": "1"})
    assert server.prepare(argv, {**base, "RANK": "1", "FARANDOLE_SEED": "2"})
    assert not server.prepare(argv, {**base, "OMP_NUM_THREADS": "7"})
    assert not server.prepare([sys.executable, "-O", "train.py"], base)
    assert not runs_python(["sh", "train.sh"])
    assert not runs_python([sys.executable])


def test_a_process_with_threads_is_not_forked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(
        tmp_path,
        "import threading\nthreading.Thread(target=threading.Event().wait, daemon=True).start()\n",
        "threaded.py",
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    warm = WarmServer(["threaded"])
    try:
        assert not warm.prepare([sys.executable, "train.py"], dict(os.environ))
    finally:
        warm.close()


def test_the_time_of_forked_workers_is_known(server: WarmServer, tmp_path: Path) -> None:
    script = write(
        tmp_path,
        "import time\nwhile time.process_time() < 0.5:\n    pass\nprint(time.process_time())",
    )
    before = server.cpu_s()
    lines, _ = run([script], server, workers=2)
    spent = sum(float(line.rpartition(":")[2]) for line in lines)
    assert server.cpu_s() - before >= spent >= 1.0


def test_without_its_server_a_launch_starts_cold(server: WarmServer, tmp_path: Path) -> None:
    script = write(tmp_path, "print('here')")
    run([script], server)
    assert server.pid is not None
    os.kill(server.pid, signal.SIGKILL)
    eventually(lambda: psutil.Process(server.pid).status() == psutil.STATUS_ZOMBIE)
    plan = Plan(argv=(sys.executable, script), num_workers=1, threads=1)
    assert not launch(plan, environ=clean_environ(), show=lambda *_: None, warm=server).warm
