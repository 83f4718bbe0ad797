"""File descriptors: the limit is raised as far as needed, and running out is said in words."""

from __future__ import annotations

import errno
import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from farandole.world.descriptors import out_of_descriptors

pytestmark = pytest.mark.skipif(
    not Path("/proc/self/fd").is_dir(), reason="open descriptors are counted in /proc"
)
# Limits cannot be raised again: each in a process of its own.
PROGRAM = """
import os, resource, sys
from farandole.world.descriptors import reserve_descriptors
soft, hard, count = map(int, sys.argv[1:])
resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
used = len(os.listdir("/proc/self/fd"))
said = reserve_descriptors(count)
print(resource.getrlimit(resource.RLIMIT_NOFILE)[0] - used, said)
"""


def reserved(soft: int, hard: int, count: int) -> tuple[int, str]:
    """Return how many descriptors are free then, and what was said."""
    argv = [sys.executable, "-c", PROGRAM, *map(str, (soft, hard, count))]
    done = subprocess.run(argv, capture_output=True, text=True, check=True, timeout=60)
    free, _, said = done.stdout.strip().partition(" ")
    return int(free), said


def test_a_limit_that_is_enough_is_left_alone() -> None:
    free, said = reserved(512, 1024, 100)
    assert 400 < free < 512
    assert said == ""


def test_the_limit_is_raised_as_far_as_needed() -> None:
    free, said = reserved(64, 4096, 300)
    assert 300 <= free < 600
    assert said == ""


def test_what_the_system_does_not_allow_is_said() -> None:
    free, said = reserved(64, 128, 300)
    assert free < 128, "as far as is possible"
    assert said.startswith("out of file descriptors (ulimit -n 128): ")
    assert "300 more are needed" in said


def test_an_error_is_explained() -> None:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    none_left = OSError(errno.EMFILE, os.strerror(errno.EMFILE))
    assert out_of_descriptors(none_left).startswith(f"out of file descriptors (ulimit -n {soft})")
    assert "this host has none left" in out_of_descriptors(OSError(errno.ENFILE, ""))
    assert out_of_descriptors(OSError(errno.ENOENT, "")) == ""
