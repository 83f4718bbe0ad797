"""Who has not submitted what, and where they are, when the others are on another host."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import run_cli

pytestmark = pytest.mark.ranks

# Two names of this machine, as in test_hosts.py.
HOSTS = "127.0.0.2:2,127.0.0.3:2"
SHELL = '#!/bin/sh\nexec sh -c "$2"\n'
SCRIPT = """
import sys, time
import torch
import farandole.torch as hvd

def stand_aside():
    time.sleep(120)

def go_on(name):
    hvd.allreduce(torch.ones(3), name=name)

hvd.init()
hvd.allreduce(torch.ones(3), name="first")
name = sys.argv[1 + hvd.rank()]
stand_aside() if name == "-" else go_on(name)
"""


def stalled(tmp_path: Path, script: Path, *arguments: str) -> str:
    """Return what a job says that ends; flags, then the name each rank submits, or none ("-")."""
    pytest.importorskip("torch")
    shell = tmp_path / "shell"
    shell.write_text(SHELL)
    shell.chmod(0o700)
    script.write_text(SCRIPT)
    flags, names = arguments[:-4], arguments[-4:]
    done = run_cli("run", "--rsh", shell, "-H", HOSTS, *flags, script, *names)
    assert done.returncode == 1
    assert "This was the end after --stall-shutdown." in done.stderr
    return done.stderr


def test_the_whole_first_host_is_missing(tmp_path: Path, script: Path) -> None:
    said = stalled(tmp_path, script, "--stall-warning=3", "--stall-shutdown=8", "-", "-", "x", "x")
    reports = [line for line in said.splitlines() if "]<stderr>:farandole: ranks" in line]
    assert len(reports) == 1
    assert reports[0].startswith(
        "[2]<stderr>:farandole: ranks 0 and 1 have not submitted allreduce.x, for which ranks 2 "
        "and 3 waited"
    )
    report = said[: said.index("Traceback")]
    assert report.count(" in stand_aside\n") == 2
    assert "cannot be seen" not in said


def test_hosts_that_wait_for_each_other(tmp_path: Path, script: Path) -> None:
    said = stalled(tmp_path, script, "--stall-shutdown=10", "x", "x", "y", "y")
    found = said.index("[0]<stderr>:farandole: all ranks wait for each other")
    assert found < said.index("Traceback")
    assert "ranks 0 and 1 wait for allreduce.x, which ranks 2 and 3 have not submitted" in said
    assert "ranks 2 and 3 wait for allreduce.y, which ranks 0 and 1 have not submitted" in said
    assert said[: said.index("Traceback")].count(" in go_on\n") == 4
