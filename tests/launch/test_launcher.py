"""Real workers: how they fail, how they are ended, and what the launcher says."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest

from farandole.launch.launcher import Outcome, launch
from farandole.launch.plan import Plan
from tests.conftest import clean_environ, cli_argv, eventually, run_cli

pytestmark = pytest.mark.ranks

FAULT = """
import os, sys, time
from farandole.testing import FailAt
from farandole.world.board import Board
rank = int(os.environ["RANK"])
fault = FailAt(rank=1, step=3, mode=sys.argv[1], exit_code=7)
print("about to train", flush=True)
with Board.open(os.environ["FARANDOLE_BOARD"]) as board:
    for step in range(1, 5):
        board.note_step(rank, step)
        fault.maybe(rank, step)
time.sleep(60)
"""
WAIT = """
import os, sys, time
from pathlib import Path
Path(sys.argv[1], os.environ["RANK"]).write_text(str(os.getpid()))
time.sleep(60)
"""


@pytest.fixture
def here(tmp_path: Path) -> Path:
    """A folder in which processes say their numbers."""
    folder = tmp_path / "pids"
    folder.mkdir()
    return folder


def pids(folder: Path, count: int) -> list[int]:
    """Wait until `count` processes have written their numbers into the folder."""

    def all_written() -> list[int]:
        texts = [file.read_text() for file in folder.iterdir() if file.name.isalnum()]
        return [int(text) for text in texts if text] if len(texts) == count else []

    return eventually(lambda: len(all_written()) == count and all_written())


def gone(numbers: list[int]) -> bool:
    return all(
        not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
        for pid in numbers
    )


def start(*arguments: str | Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*cli_argv(), "run", *map(str, arguments)],
        env=clean_environ(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@contextmanager
def started(
    here: Path, count: int, *arguments: str | Path
) -> Iterator[tuple[subprocess.Popen[str], list[int]]]:
    """A launcher whose script gets `here` as its last argument, once `count` processes run."""
    with start("-np", "2", *arguments, here) as launcher:
        yield launcher, pids(here, count)


def run_python(code: str, script: Path) -> str:
    """Run code that launches the script from a process of its own; return what it printed."""
    done = subprocess.run(
        [sys.executable, "-c", code, script],
        env=clean_environ(),
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    return done.stdout


@pytest.mark.parametrize(
    ("mode", "code", "says"),
    [
        ("exception", 1, "InjectedFault: injected on rank 1 at step 3 (train.py:11)"),
        ("exit", 7, "exit code 7"),
        ("kill", 137, "SIGKILL: often the system's answer to running out of memory"),
        ("segfault", 139, "SIGSEGV: a crash in native code"),
    ],
)
def test_a_failing_rank_is_named_and_the_others_end(
    script: Path, mode: str, code: int, says: str
) -> None:
    script.write_text(FAULT)
    done = run_cli("run", "-np", "3", script, mode)
    assert done.returncode == code
    assert "farandole: rank 1, step 3, failed first" in done.stderr
    assert says in done.stderr
    assert "the last lines of rank 1:" in done.stderr
    assert "3 workers on 1 host, shared memory" in done.stderr
    assert "[1]<stdout>:about to train\n" in done.stdout


def test_a_stopped_rank_is_found(script: Path) -> None:
    script.write_text(FAULT)
    done = run_cli("run", "-np", "2", "--silence-timeout", "0.5", script, "stop")
    assert done.returncode == 1
    assert "rank 1, step 3, was stopped" in done.stderr
    assert "silent for 0.5 s" in done.stderr


def test_workers_that_ignore_sigterm_are_killed(script: Path, tmp_path: Path) -> None:
    script.write_text(
        "import os, signal, sys, time\n"
        "from pathlib import Path\n"
        "deaf = Path(sys.argv[1])\n"
        "if os.environ['RANK'] == '1':\n"
        "    signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "    deaf.touch()\n"
        "    time.sleep(60)\n"
        "while not deaf.exists(): time.sleep(0.01)\n"
        "sys.exit(4)\n"
    )
    done = run_cli("run", "-np", "2", script, tmp_path / "deaf", timeout_s=30)
    assert done.returncode == 4


@pytest.mark.parametrize(
    ("signum", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)]
)
def test_signals_to_the_launcher_end_everything(
    script: Path, here: Path, signum: int, code: int
) -> None:
    script.write_text(WAIT)
    with started(here, 2, script) as (launcher, workers):
        launcher.send_signal(signum)
        _, errors = launcher.communicate(timeout=20)
    assert launcher.returncode == code
    assert gone(workers)
    assert "all workers have ended" in errors


def test_a_second_ctrl_c_kills_at_once(script: Path, here: Path) -> None:
    script.write_text(
        "import os, signal, sys, time\n"
        "from pathlib import Path\n"
        "rank = os.environ['RANK']\n"
        "heard = lambda *_: Path(sys.argv[1], rank + 'heard').write_text('1')\n"
        "signal.signal(signal.SIGINT, heard)\n"
        "Path(sys.argv[1], rank).write_text(str(os.getpid()))\n"
        "while True: time.sleep(60)\n"
    )
    with started(here, 2, script) as (launcher, workers):
        launcher.send_signal(signal.SIGINT)
        eventually(lambda: len(list(here.glob("*heard"))) == 2)
        launcher.send_signal(signal.SIGINT)
        launcher.communicate(timeout=20)
    assert launcher.returncode == 130
    assert gone(workers)


LOADER = """
import os, sys, time
from pathlib import Path
child = os.fork()
name = os.environ["RANK"] + ("worker" if child else "loader")
Path(sys.argv[1], name).write_text(str(os.getpid()))
time.sleep(60)
"""


@pytest.mark.parametrize("wrapper", [[], ["sh", "-c", '"$0" "$@"; true']])
def test_no_worker_survives_a_killed_launcher(script: Path, here: Path, wrapper: list[str]) -> None:
    script.write_text(LOADER)
    with started(here, 4, "--", *wrapper, sys.executable, script) as (launcher, family):
        family += [child.pid for child in psutil.Process(launcher.pid).children()]
        launcher.kill()
        launcher.wait(10)
        eventually(lambda: gone(family), 5)


def test_a_rank_that_ends_early_and_well_is_fine(script: Path) -> None:
    script.write_text(
        "import os, time\nif os.environ['RANK'] == '0': time.sleep(0.3); print('still here')\n"
    )
    done = run_cli("run", "-np", "2", script)
    assert (done.returncode, done.stdout) == (0, "[0]<stdout>:still here\n")


@pytest.mark.parametrize(
    ("failing", "says"),
    [
        ("", "rank 1 has not exited 1 s after the last of the others: an exit handler (atexit)"),
        ("raise ValueError('bad loss')", "rank 1 failed first: ValueError: bad loss"),
    ],
)
def test_a_rank_that_hangs_in_an_exit_handler_is_ended(
    script: Path, failing: str, says: str
) -> None:
    script.write_text(
        "import atexit, os, time\n"
        "if os.environ['RANK'] == '1':\n"
        f"    atexit.register(time.sleep, 100)\n    {failing}\n"
    )
    done = run_cli("run", "-np", "3", "--exit-timeout", "1", script, timeout_s=30)
    assert done.returncode == 1
    assert says in done.stderr


@pytest.mark.parametrize(
    "tail",
    [
        "time.sleep(3)",
        "threading.Thread(target=time.sleep, args=(3,)).start()",
        "concurrent.futures.ThreadPoolExecutor().submit(time.sleep, 3)",
        "atexit.register(lambda: [(time.sleep(0.3), print('uploading')) for _ in range(10)])",
    ],
)
def test_the_last_rank_may_take_its_time(script: Path, tail: str) -> None:
    script.write_text(
        "import atexit, concurrent.futures, os, threading, time\n"
        f"if os.environ['RANK'] == '1': {tail}\n"
    )
    done = run_cli("run", "-np", "2", "--exit-timeout", "1", script, timeout_s=30)
    assert done.returncode == 0, done.stderr


def test_leftovers_of_a_finished_worker_are_ended(script: Path, tmp_path: Path) -> None:
    script.write_text(
        "import subprocess, sys\n"
        "child = subprocess.Popen(['sleep', '60'])\n"
        "open(sys.argv[1], 'w').write(str(child.pid))\n"
    )
    done = run_cli("run", "-np", "1", script, tmp_path / "pid", timeout_s=30)
    assert done.returncode == 0
    assert gone([int((tmp_path / "pid").read_text())])


# Processes in sessions of their own: with children, with nothing in their environment, deaf.
DETACHED = """
import os, subprocess, sys, time
from pathlib import Path
here = sys.argv[1]
commands = {
    "plain": "echo $$ > $0; exec sleep 60",
    "family": "echo $$ > $0; sleep 60 & echo $! > ${0}child; wait",
    "bare": "echo $$ > $0; exec env -i sleep 60",
    "deaf": "trap '' TERM; echo $$ > $0; exec sleep 60",
}
for name, command in commands.items():
    file = Path(here, name)
    subprocess.Popen(["sh", "-c", command, file], start_new_session=True)
    while not (file.exists() and file.read_text().strip()): time.sleep(0.01)
while not Path(here, "familychild").read_text().strip(): time.sleep(0.01)
sys.exit(int(sys.argv[2]))
"""


@pytest.mark.parametrize("code", [0, 3])
def test_processes_in_sessions_of_their_own_end_with_the_run(
    script: Path, here: Path, code: int
) -> None:
    script.write_text(DETACHED)
    done = run_cli("run", "-np", "1", script, here, str(code), timeout_s=30)
    assert done.returncode == code, done.stderr
    left = pids(here, 5)
    try:
        assert gone(left)
    finally:
        end(left)


def end(numbers: list[int]) -> None:
    for pid in numbers:
        with contextlib.suppress(psutil.NoSuchProcess):
            psutil.Process(pid).kill()


def test_orphans_that_end_during_a_run_are_reaped(script: Path, here: Path) -> None:
    script.write_text(
        "import os, subprocess, sys, time\n"
        "command = 'setsid sh -c \"echo \\\\$\\\\$ > $0\" &'\n"
        "file = os.path.join(sys.argv[1], os.environ['RANK'])\n"
        "subprocess.run(['sh', '-c', command, file])\n"
        "time.sleep(60)\n"
    )
    with started(here, 2, "--silence-timeout", "0.6", script) as (launcher, orphans):
        eventually(lambda: not any(psutil.pid_exists(pid) for pid in orphans))
        launcher.terminate()
        launcher.communicate(timeout=20)


def test_children_of_the_callers_own_stay(script: Path, here: Path) -> None:
    """What a notebook has started, before a run or meanwhile, is none of the run's business."""
    script.write_text(DETACHED)
    (here / "own").mkdir()
    code = (
        "import subprocess, sys, threading, time, farandole\n"
        "from pathlib import Path\n"
        "here = Path(sys.argv[2])\n"
        "def start(name):\n"
        "    command = 'exec > /dev/null 2>&1; sleep 60 & echo $! > $0; wait'\n"
        "    argv = ['sh', '-c', command, here / 'own' / name]\n"
        "    return subprocess.Popen(argv, start_new_session=True)\n"
        "def detach(script, here):\n"
        "    import subprocess, sys, time\n"
        "    subprocess.run([sys.executable, script, here, '0'], check=True)\n"
        "before, meanwhile = start('before'), []\n"
        "def wait():\n"
        "    while not (here / 'plain').exists(): time.sleep(0.01)\n"
        "    meanwhile.append(start('meanwhile'))\n"
        "thread = threading.Thread(target=wait)\n"
        "thread.start()\n"
        "farandole.run(detach, args=(sys.argv[1], str(here)), np=1)\n"
        "thread.join()\n"
        "print(before.poll(), meanwhile[0].poll())\n"
        "before.kill(), meanwhile[0].kill()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, script, here],
        env=clean_environ(),
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    own = pids(here / "own", 2)
    left = {file.name: int(file.read_text()) for file in here.iterdir() if file.is_file()}
    try:
        assert done.stdout == "None None\n", done.stderr
        assert not any(gone([pid]) for pid in own)
        # That one cannot be told from the caller's own.
        assert not gone([left.pop("bare")])
        assert gone(list(left.values()))
    finally:
        end([*own, *map(int, (here / "bare").read_text().split())])


def test_output_is_whole_lines(script: Path) -> None:
    script.write_text(
        "import os, sys\n"
        "mark = 'äöü' + os.environ['RANK']\n"
        "data = (mark * 40 + '\\n').encode() * 500\n"
        "for start in range(0, len(data), 7001): os.write(1, data[start:start + 7001])\n"
        "sys.stderr.write('\\r10%\\r20%\\nno end')\n"
    )
    done = run_cli("run", "-np", "3", script)
    lines = done.stdout.splitlines()
    for rank in range(3):
        assert lines.count(f"[{rank}]<stdout>:" + f"äöü{rank}" * 40) == 500
        for text in ("10%", "20%", "no end"):
            assert f"[{rank}]<stderr>:{text}\n" in done.stderr
    assert len(lines) == 1500


def test_output_dir_keeps_a_file_per_rank(script: Path, tmp_path: Path) -> None:
    script.write_text("import os, sys; print('out', os.environ['RANK']); sys.stderr.write('err')")
    done = run_cli("run", "-np", "2", "--output-dir", tmp_path / "logs", "--no-tag", script)
    assert sorted(done.stdout.splitlines()) == ["out 0", "out 1"]
    assert (tmp_path / "logs/rank.1/stdout").read_text() == "out 1\n"
    assert (tmp_path / "logs/rank.0/stderr").read_text() == "err"


def test_one_rank_is_shown_and_files_keep_all(script: Path, tmp_path: Path) -> None:
    # Rank 1 fails when rank 0 has spoken, which its end would keep from it otherwise.
    script.write_text(
        "import os, sys, time\n"
        "from pathlib import Path\n"
        "said, first = Path(sys.argv[1]), os.environ['RANK'] == '0'\n"
        "while not (first or said.exists()): time.sleep(0.01)\n"
        "print('out', os.environ['RANK'], flush=True)\n"
        "said.touch()\n"
        "sys.exit(not first)\n"
    )
    # Horovod's name of the one flag, torchrun's of the other.
    flags = ("--output-filename", tmp_path / "logs", "--local-ranks-filter", "0")
    done = run_cli("run", "-np", "2", *flags, script, tmp_path / "said")
    assert done.stdout == "[0]<stdout>:out 0\n"
    assert (tmp_path / "logs/rank.1/stdout").read_text() == "out 1\n"
    # Why the launch failed is said all the same.
    assert done.returncode == 1
    assert "rank 1" in done.stderr
    assert "out 1" in done.stderr


def test_a_reader_that_leaves_ends_the_launch(script: Path) -> None:
    script.write_text("import itertools\nfor n in itertools.count(): print(n)")
    with start("-np", "2", script) as launcher:
        assert launcher.stdout is not None
        launcher.stdout.readline()
        launcher.stdout.close()
        assert launcher.wait(20) == 128 + signal.SIGPIPE
        assert launcher.stderr is not None
        launcher.stderr.close()


def test_the_users_sitecustomize_still_runs(script: Path, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/sitecustomize.py").write_text("import builtins; builtins.MINE = 1")
    script.write_text("import sys; print(MINE, sys.excepthook is not sys.__excepthook__)")
    done = run_cli("run", "-np", "1", script, env={"PYTHONPATH": str(tmp_path / "mine")})
    assert done.stdout == "[0]<stdout>:1 True\n", done.stderr


def test_a_helper_process_leaves_no_failure_note(script: Path) -> None:
    script.write_text(
        "import subprocess, sys\n"
        "subprocess.run([sys.executable, '-c', 'raise ValueError(1)'])\n"
        "sys.exit(5)\n"
    )
    done = run_cli("run", "-np", "1", script)
    assert done.returncode == 5
    assert "rank 0 failed first (exit code 5)" in done.stderr


def test_a_failure_is_noted_though_a_library_replaced_the_hook(script: Path) -> None:
    script.write_text(
        "import sys\nsys.excepthook = lambda *_: print('mine')\nraise ValueError('bad loss')\n"
    )
    done = run_cli("run", "-np", "1", script)
    assert "ValueError: bad loss (train.py:3)" in done.stderr
    assert done.stdout == "[0]<stdout>:mine\n"


def test_nothing_of_a_launch_stays_open(script: Path) -> None:
    """No memfd, pipe or socket is left in a process that launches again and again."""
    script.write_text("")
    code = (
        "import os, sys\n"
        "from farandole.cli.main import main\n"
        "count = lambda: len(os.listdir('/proc/self/fd'))\n"
        "main(['run', '-np', '2', sys.argv[1]])\n"
        "before = count()\n"
        "for _ in range(3): assert main(['run', '-np', '2', sys.argv[1]]) == 0\n"
        "print(count() - before)\n"
    )
    assert run_python(code, script) == "0\n"


def test_the_launcher_imports_neither_torch_nor_numpy(script: Path) -> None:
    script.write_text("")
    code = (
        "import sys\n"
        "from farandole.cli.main import main\n"
        "assert main(['run', '-np', '1', sys.argv[1]]) == 0\n"
        "print(sorted({'torch', 'numpy', 'psutil'} & set(sys.modules)))\n"
    )
    assert run_python(code, script) == "[]\n"


def run_watched(
    script: Path, watch: Callable[[Sequence[int]], bool], **changes: Any
) -> tuple[Outcome, list[str]]:
    lines: list[str] = []
    plan = Plan(argv=(sys.executable, str(script)), num_workers=2, threads=1, tag=False, **changes)
    outcome = launch(
        plan, environ=clean_environ(), show=lambda _, line: lines.append(line), watch=watch
    )
    return outcome, lines


def test_a_watch_ends_a_launch(script: Path) -> None:
    script.write_text("import time\ntime.sleep(60)\n")
    seen: list[Sequence[int]] = []

    def watch(pids: Sequence[int]) -> bool:
        seen.append(pids)
        return len(seen) == 3

    outcome, _ = run_watched(script, watch)
    assert outcome.verdict.kind == "interrupted"
    assert outcome.verdict.exit_code == 128 + signal.SIGTERM
    assert len(seen) == 3
    assert gone(list(seen[0]))


def test_workers_run_where_the_plan_says(script: Path, tmp_path: Path) -> None:
    script.write_text("import os\nprint(os.getcwd())\n")
    elsewhere = tmp_path / "else where"
    elsewhere.mkdir()
    outcome, lines = run_watched(script, lambda _: False, cwd=elsewhere)
    assert outcome.verdict.kind == "done"
    assert lines == [f"{elsewhere}\n"] * 2
