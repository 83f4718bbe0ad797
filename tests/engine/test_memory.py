"""Memory that a step frees is there for the next one."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

from farandole.engine.context import tuned_by_user

# Arrays of a step, each above glibc's first limit for mapping memory by itself, and all together
# above what it keeps by default: twice the largest.
_PROGRAM = """
import os, resource, sys
import numpy as np
from farandole.engine.context import keep_freed_memory

def step():
    for array in [np.empty(1 << 20, np.uint8) for _ in range(48)]:
        array[::4096] = 1

if sys.argv[1] == "keep":
    assert keep_freed_memory(os.environ)
for _ in range(3):
    step()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(4):
    step()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def faults(how: str) -> int:
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM, how], capture_output=True, text=True, check=True
    )
    return int(done.stdout)


@pytest.mark.skipif(
    platform.libc_ver()[0] != "glibc",
    reason="only glibc gives the end of its heap back like this; run it on Linux with glibc",
)
def test_pages_of_a_step_are_not_asked_for_again() -> None:
    pages = 4 * 48 * (1 << 20) // 4096
    assert faults("leave") > pages // 2
    assert faults("keep") < pages // 20


@pytest.mark.parametrize(
    ("environ", "tuned"),
    [
        ({}, False),
        ({"MALLOC_TRIM_THRESHOLD_": "131072"}, True),
        ({"MALLOC_ARENA_MAX": "2"}, False),
        ({"GLIBC_TUNABLES": "glibc.malloc.trim_threshold=1:glibc.rtld.nns=4"}, True),
        ({"GLIBC_TUNABLES": "glibc.rtld.nns=4"}, False),
    ],
)
def test_what_the_user_has_tuned_stays(environ: dict[str, str], tuned: bool) -> None:
    assert tuned_by_user(environ) is tuned
