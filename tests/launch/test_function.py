"""farandole.run(fn): values back in rank order, from scripts and from notebooks."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import farandole
from farandole.errors import UsageError, WorkerFailedError
from tests.conftest import clean_environ, eventually

pytestmark = pytest.mark.ranks


def rank_and(*values: object, **more: object) -> tuple[object, ...]:
    return (int(os.environ["RANK"]), *values, *more.values())


def test_values_come_in_rank_order() -> None:
    assert farandole.run(rank_and, args=(1, "x"), kwargs={"k": None}, np=3) == [
        (rank, 1, "x", None) for rank in range(3)
    ]


def test_closures_and_big_values() -> None:
    big = b"x" * 1_000_000
    lengths = farandole.run(lambda: (len(big), big), np=2)
    assert [length for length, _ in lengths] == [1_000_000] * 2
    assert all(value == big for _, value in lengths)


def test_output_is_shown_with_ranks(capsys: pytest.CaptureFixture[str]) -> None:
    farandole.run(print, args=("hello",), np=2)
    assert sorted(capsys.readouterr().out.splitlines()) == [
        "[0]<stdout>:hello",
        "[1]<stdout>:hello",
    ]


def test_a_failing_rank_raises_with_its_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    def fail() -> None:
        if os.environ["RANK"] == "1":
            raise ValueError("bad loss")
        threading.Event().wait(60)

    with pytest.raises(WorkerFailedError) as caught:
        farandole.run(fail, np=2)
    assert (caught.value.rank, caught.value.exit_code) == (1, 1)
    assert str(caught.value).startswith("rank 1 failed first: ValueError: bad loss")
    assert 'raise ValueError("bad loss")' in str(caught.value)
    capsys.readouterr()


def test_a_killed_rank_raises() -> None:
    def fail() -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    with pytest.raises(WorkerFailedError, match="SIGKILL") as caught:
        farandole.run(fail, np=1)
    assert caught.value.exit_code == 137


def test_leaving_without_a_value_is_said() -> None:
    with pytest.raises(WorkerFailedError, match="before the function returned"):
        farandole.run(os._exit, args=(0,), np=1)


def test_a_value_that_cannot_travel_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(WorkerFailedError, match="pickle"):
        farandole.run(threading.Lock, np=1)
    capsys.readouterr()


def test_bad_arguments() -> None:
    with pytest.raises(UsageError, match="needs a function"):
        farandole.run(3)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="cannot be sent to workers"):
        farandole.run(print, args=(threading.Lock(),))
    with pytest.raises(UsageError, match="-np 0"):
        farandole.run(print, np=0)


def test_variables_for_the_workers() -> None:
    def look() -> tuple[str, str]:
        return os.environ["MY"], os.environ["OMP_NUM_THREADS"]

    assert farandole.run(look, np=1, threads=3, env={"MY": "own"}) == [("own", "3")]


def test_a_launch_inside_a_worker() -> None:
    def outer() -> list[str | None]:
        import farandole

        return farandole.run(os.getenv, args=("WORLD_SIZE",), np=3)

    assert farandole.run(outer, np=2) == [["3"] * 3] * 2


def test_sigterm_ends_the_workers_and_then_the_program(tmp_path: Path) -> None:
    code = (
        "import farandole, os, sys, time\n"
        "from pathlib import Path\n"
        "def work(folder):\n"
        "    Path(folder, os.environ['RANK']).write_text(str(os.getpid()))\n"
        "    time.sleep(60)\n"
        "farandole.run(work, args=(sys.argv[1],), np=2)\n"
    )
    with subprocess.Popen([sys.executable, "-c", code, tmp_path], env=clean_environ()) as program:
        eventually(lambda: sum(bool(f.read_text()) for f in tmp_path.iterdir()) == 2)
        program.terminate()
        assert program.wait(20) == -signal.SIGTERM
    assert not [f for f in tmp_path.iterdir() if Path("/proc", f.read_text()).exists()]


def test_from_another_thread() -> None:
    values: list[object] = []
    thread = threading.Thread(target=lambda: values.extend(farandole.run(os.getpid, np=2)))
    thread.start()
    thread.join(30)
    assert len(values) == 2


NOTEBOOK = """
import os, signal, sys, time
from pathlib import Path
import farandole

def stop_button(*_):
    raise KeyboardInterrupt
signal.signal(signal.SIGINT, stop_button)   # as a notebook's kernel has its own

def cell(folder):
    Path(folder, os.environ["RANK"]).write_text(str(os.getpid()))
    time.sleep(60)

try:
    farandole.run(cell, args=(sys.argv[1],), np=2)
except KeyboardInterrupt:
    left = [pid for pid in Path(sys.argv[1]).iterdir() if Path("/proc", pid.read_text()).exists()]
    print("stopped", left)
print(farandole.run(lambda: 7, np=2))
"""


def test_a_notebooks_stop_button(tmp_path: Path) -> None:
    here = tmp_path / "pids"
    here.mkdir()
    with subprocess.Popen(
        [sys.executable, "-", str(here)],
        env=clean_environ(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as notebook:
        assert notebook.stdin is not None
        notebook.stdin.write(NOTEBOOK)
        notebook.stdin.close()
        notebook.stdin = None
        eventually(lambda: sum(bool(f.read_text()) for f in here.iterdir()) == 2)
        notebook.send_signal(signal.SIGINT)
        output, _ = notebook.communicate(timeout=30)
    assert output == "stopped []\n[7, 7]\n"


def test_the_values_of_those_that_came_to_the_end() -> None:
    def fn() -> tuple[int, int]:
        import os
        import signal

        from farandole.elastic import generation
        from farandole.engine import context
        from farandole.errors import CollectiveError

        context.init()
        while True:
            try:
                context.current().engine.exchange(b"")
                if os.environ["FARANDOLE_WORKER"] == "0":
                    os.kill(os.getpid(), signal.SIGKILL)
                context.current().engine.exchange(b"")
                return int(os.environ["FARANDOLE_WORKER"]), context.size()
            except CollectiveError:
                generation.next_generation()

    hosts = "localhost:1,127.0.0.1:2"
    assert farandole.run(fn, np=3, hosts=hosts, min_np=2, blacklist="host") == [(1, 2), (2, 2)]
    with pytest.raises(WorkerFailedError, match="There is room for 2 workers only"):
        farandole.run(fn, np=3, hosts=hosts, min_np=3, blacklist="host")
