from __future__ import annotations

import json
import resource
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from farandole.study.plan import Estimate
from farandole.study.progress import (
    Now,
    cell_words,
    ended_line,
    launches_line,
)
from farandole.study.records import Cell, Launch
from farandole.study.watch import (
    MemoryGuard,
    Tail,
    Watch,
    end_leftovers,
    leftovers,
)
from tests.conftest import clean_environ, eventually


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def make(
    clock: Clock, shown: list[Now], *, limit: int = 1 << 40, left_s: float | None = None
) -> Watch:
    return Watch(
        timeout_s=30.0,
        left_s=left_s,
        guard=MemoryGuard(limit, caps_requests=False),
        tail=Tail(Path("nowhere"), workers=1),
        show=shown.append,
        clock=clock,
    )


def test_time_passes() -> None:
    clock, shown = Clock(), list[Now]()
    watch = make(clock, shown)
    for _ in range(300):
        clock.now += 0.1
        assert not watch([]) or clock.now > 130
    assert 49 <= len(shown) <= 60, "twice a second is enough to see"
    clock.now = 130.2
    assert watch([])
    assert watch.outcome == "timeout"
    assert "30 s" in watch.reason


def test_a_job_that_waits_in_a_queue_does_not_begin(tmp_path: Path) -> None:
    clock = Clock()
    file = tmp_path / "rank-0.jsonl"
    watch = Watch(
        timeout_s=30.0,
        left_s=1000.0,
        guard=MemoryGuard(1 << 40, caps_requests=False),
        tail=Tail(file, workers=1),
        show=lambda now: None,
        waits=True,
        clock=clock,
    )
    clock.now = 500.0
    assert not watch([])
    assert watch.begin_s is None
    file.touch()
    assert not watch([])
    assert watch.begin_s == 500.0
    clock.now = 531.0
    assert watch([])
    assert watch.outcome == "timeout"


HOLD = "import sys; a = bytearray(100_000_000); a[::4096] = b'x' * len(a[::4096]); print('held'); "
WAIT = "sys.stdout.flush(); sys.stdin.read()"
CHILD = "import subprocess, sys; subprocess.run([sys.executable, '-c', sys.argv[1]])"


def start(*argv: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", *argv], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )


def test_a_worker_above_its_limit_is_found() -> None:
    with start(HOLD + WAIT) as process:
        assert process.stdout is not None
        process.stdout.readline()
        used = MemoryGuard(50_000_000, caps_requests=False).over([process.pid])
        assert used is not None
        assert 100_000_000 < used < 200_000_000
        assert MemoryGuard(500_000_000, caps_requests=False).over([process.pid]) is None
        # With a launcher of its own it may hold what all of its workers may.
        shared = MemoryGuard(50_000_000, caps_requests=False, shared_by=10)
        assert shared.over([process.pid]) is None
        process.communicate()


@pytest.mark.skipif(sys.platform != "linux", reason="prlimit is Linux's")
def test_a_single_request_far_beyond_the_limit_is_refused_at_once() -> None:
    ask = "import sys; sys.stdin.readline(); bytearray(4_000_000_000)"
    with start(ask) as process:
        guard = MemoryGuard(100_000_000, caps_requests=True)
        assert guard.over([process.pid]) is None
        soft, _ = resource.prlimit(process.pid, resource.RLIMIT_DATA)
        assert soft == 125_000_000 + (1 << 30)
        process.communicate("go\n")
    assert process.returncode == 1


def start_tagged(folder: Path) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-c", "import time; time.sleep(60)"],
        env=clean_environ(FARANDOLE_RECORD_DIR=str(folder)),
        start_new_session=True,
    )


def test_processes_that_still_record_are_ended_and_no_others(tmp_path: Path) -> None:
    ours = start_tagged(tmp_path / "launches" / "0001")
    other = start_tagged(tmp_path / "launches-of-another")
    try:
        eventually(lambda: leftovers(tmp_path / "launches"))
        assert leftovers(tmp_path / "launches") == [ours.pid]
        assert end_leftovers(tmp_path / "launches") == 1
        assert ours.wait(10) != 0
        assert other.poll() is None
        assert end_leftovers(tmp_path / "launches") == 0
    finally:
        for process in (ours, other):
            process.kill()
            process.wait()


CELL = Cell(workers=2, threads=1, batch=64, params=(("lr", "0.1"),))


def steps(*ends_s: float, samples: float = 8.0) -> str:
    columns = {"end_s": list(ends_s), "samples": [samples] * len(ends_s)}
    return json.dumps({"kind": "steps", "columns": columns}) + "\n"


def test_the_tail_follows_a_file_that_grows(tmp_path: Path) -> None:
    path = tmp_path / "rank-0.jsonl"
    tail = Tail(path, workers=2)
    tail.look()
    assert (tail.steps, tail.samples_per_s) == (0, None)
    text = '{"kind": "begin"}\n' + steps(10.0, 10.5, 11.0)
    path.write_text(text[:-9])
    tail.look()
    assert tail.steps == 0, "a torn line is not read"
    path.write_text(text)
    tail.look()
    # Of the first step only its end is known: two steps of 8 samples on 2 workers in 1 s.
    assert (tail.steps, tail.samples_per_s) == (3, 32.0)
    path.write_text(text + "nonsense\n" + steps(11.25, 11.5))
    tail.look()
    assert (tail.steps, tail.samples_per_s) == (5, 64.0)


def test_cells_in_words() -> None:
    assert cell_words(CELL) == "2 workers, batch 64, lr=0.1"
    assert cell_words(Cell(workers=1, threads=4, today=True)) == "1 process with all 4 cores"
    assert cell_words(Cell(workers=1, transport="gloo")) == "1 worker, gloo"
    # Cells that differ only in threads are told apart.
    assert cell_words(Cell(workers=1, threads=2, batch=8)) == "1 worker, 2 threads, batch 8"
    assert cell_words(Cell(workers=2, threads=2)) == "2 workers, 2 threads each"
    assert cell_words(Cell(workers=8, hosts=2, batch=8)) == "8 workers on 2 hosts, batch 8"


def test_a_line_when_a_launch_has_ended() -> None:
    launch = Launch(
        id="a",
        cell=CELL,
        repeat=1,
        seed=0,
        purpose="speed",
        outcome="out_of_memory",
        reason="too large",
        wall_s=9.06,
        busy=True,
    )
    line = ended_line(launch, number=3, total=12, left_s=130)
    assert line == (
        "[3/12] 2 workers, batch 64, lr=0.1, repeat 2: out of memory in 9.06 s: too large; "
        "about 2 min left"
    )
    done = replace(launch, outcome="stopped", reason="")
    assert ended_line(done, number=3, total=12, left_s=0).endswith(
        "done in 9.06 s, but others used the machine"
    )
    shared = replace(done, foreign_share=0.85)
    assert ended_line(shared, number=3, total=12, left_s=0).endswith(
        "but others used 85 % of the machine"
    )


def test_the_plan_in_lines() -> None:
    whole = Estimate(launches=6, seconds=600, worker_hours=0.25, guessed=6)
    rest = Estimate(launches=4, seconds=400, worker_hours=0.2, guessed=4)
    assert launches_line(whole, rest) == "6 launches, 2 of them done."
    said = "6 launches, 2 of them done. About 7 min and 0.2 worker-hours, a guess until"
    assert launches_line(whole, rest, guess=True).startswith(said)
    known = replace(rest, guessed=1)
    assert launches_line(whole, known).endswith("worker-hours (of these, 1 launch by a guess).")
