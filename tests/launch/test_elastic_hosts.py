"""Elastic runs on several hosts: two names of this machine, reached by a shell that stays here."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.launch.test_horovod_scenarios import run

pytest.importorskip("torch", reason="hosts exchange through Gloo")
pytestmark = pytest.mark.ranks

ONE, TWO = "127.0.0.2", "127.0.0.3"
FLAGS = ["-np", "1", "--min-np", "1", "--max-np", "2"]


@pytest.fixture
def shell(tmp_path: Path) -> str:
    """A remote shell that reaches this machine under every name."""
    script = tmp_path / "shell"
    script.write_text('#!/bin/sh\nexec sh -c "$2"\n')
    script.chmod(0o700)
    return str(script)


def test_hosts_come_and_go(tmp_path: Path, shell: str) -> None:
    ended = run(tmp_path, FLAGS, hosts=[[ONE], [ONE, TWO], [TWO]], FARANDOLE_RSH=shell)
    assert ended.code == 0, ended.errors
    assert ended.log == [[0, 1, ONE, 1], [0, 2, ONE, 2], [1, 1, TWO, 3]]


def test_an_agent_dies(tmp_path: Path, shell: str) -> None:
    flags = [*FLAGS, "-H", f"{ONE},{TWO}", "--rsh", shell]
    ended = run(tmp_path, flags, exits={"1": [0]}, how="agent", command="run")
    assert ended.code == 0, ended.errors
    # The other one has state, and so is rank 0 from then on.
    assert [place[:3] for place in ended.log] == [[0, 2, ONE], *[[1, 1, TWO]] * 2]
    assert f"host {ONE} (rank 0) was lost: it has ended" in ended.errors


def test_a_host_that_cannot_be_reached(tmp_path: Path, shell: str) -> None:
    Path(shell).write_text(f'#!/bin/sh\ncase $1 in {TWO}) exit 9 ;; esac\nexec sh -c "$2"\n')
    flags = [*FLAGS, "-H", f"{ONE},{TWO}", "--rsh", shell]
    ended = run(tmp_path, flags, command="run")
    assert ended.code == 0, ended.errors
    assert [place[:3] for place in ended.log] == [[0, 1, ONE]] * 3
    assert f"farandole: host {TWO} cannot be used: its agent ended with code 9." in ended.errors


@pytest.mark.soak
def test_no_host_can_be_reached(tmp_path: Path, shell: str) -> None:
    Path(shell).write_text("#!/bin/sh\nexit 9\n")
    ended = run(tmp_path, [*FLAGS, "-H", ONE, "--rsh", shell], command="run")
    assert (ended.code, ended.log) == (1, [])
    assert f"host {ONE} cannot be used: its agent ended with code 9" in ended.errors


def test_nodes_of_a_slurm_job(tmp_path: Path) -> None:
    programs = tmp_path / "bin"
    programs.mkdir()
    srun = programs / "srun"
    srun.write_text(
        '#!/bin/sh\nwhile case $1 in --*) ;; *) false ;; esac; do shift; done\nexec "$@"\n'
    )
    srun.chmod(0o700)
    job = {
        "SLURM_JOB_ID": "7",
        "SLURM_JOB_NODELIST": f"{ONE},{TWO}",
        "SLURM_JOB_CPUS_PER_NODE": "1(x2)",
        "SLURM_TASKS_PER_NODE": "1(x2)",
        "SLURM_NTASKS": "2",
        "PATH": f"{programs}:{os.environ['PATH']}",
    }
    flags = ["-np", "2", "--min-np", "1", "--blacklist", "host"]
    ended = run(tmp_path, flags, exits={"1": [0]}, how="agent", command="run", **job)
    assert ended.code == 0, ended.errors
    # A node that SLURM takes away is a host that was lost.
    assert [place[:3] for place in ended.log] == [[0, 2, ONE], *[[1, 1, TWO]] * 2]
