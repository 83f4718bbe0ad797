from __future__ import annotations

import os
import resource
import subprocess
import sys

import pytest

from farandole.study.limits import (
    MemoryGuard,
    describes_lack_of_memory,
    free_bytes,
    kernel_kills,
    worker_limit,
)
from tests.conftest import eventually

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


def test_a_process_that_is_gone_uses_nothing() -> None:
    process = start("pass")
    process.communicate()
    assert MemoryGuard(1, caps_requests=True).over([process.pid]) is None


def test_limits() -> None:
    assert worker_limit(None, workers=4, free=1_000) == 200
    assert worker_limit(77, workers=4, free=1_000) == 77
    assert 0 < free_bytes() < os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    assert kernel_kills() >= 0


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
