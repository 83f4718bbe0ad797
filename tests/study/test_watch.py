from __future__ import annotations

import resource
import subprocess
import sys
from pathlib import Path

import pytest

from farandole.study.progress import Now
from farandole.study.watch import (
    MemoryGuard,
    Tail,
    Watch,
    describes_lack_of_memory,
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


def test_what_a_worker_started_counts_too() -> None:
    with start(CHILD, HOLD + WAIT) as process:
        assert process.stdout is not None
        process.stdout.readline()
        guard = MemoryGuard(80_000_000, caps_requests=False)
        assert eventually(lambda: guard.over([process.pid]))
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


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("RuntimeError: [enforce fail] DefaultCPUAllocator: can't allocate memory: you", True),
        ("MemoryError", True),
        ("torch.OutOfMemoryError: CUDA out of memory.", True),
        ("terminate called after throwing an instance of 'std::bad_alloc'", True),
        ("ValueError: bad loss", False),
        ("", False),
    ],
)
def test_errors_that_tell_of_memory(text: str, says: bool) -> None:
    assert describes_lack_of_memory(text) is says


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
