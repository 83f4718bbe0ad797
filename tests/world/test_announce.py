"""Ranks of mpirun and the like, which share only the process that started them."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from farandole.errors import StartError, UsageError
from farandole.world.board import Board
from farandole.world.environment import read_world
from farandole.world.rendezvous import connect_announced, launch_key, private_folder
from tests.conftest import clean_environ

SCRIPT = """
import os
from farandole.world import connect, read_world
for visit in range(2):
    meeting = connect(read_world(os.environ))
    print([answer.decode() for answer in meeting.exchange(os.environ["PMI_RANK"].encode())])
    meeting.exchange(b"")
    meeting.board.close()
"""


@pytest.mark.ranks
def test_ranks_of_one_parent_meet(tmp_path: Path) -> None:
    script = tmp_path / "meet.py"
    script.write_text(SCRIPT)
    workers = []
    for rank in range(3):
        argv = [sys.executable, str(script)]
        if rank == 1:
            # A wrapper script inherits the rank, and is not taken for the launcher.
            argv = ["sh", "-c", '"$0" "$@"; exit $?', *argv]
        workers.append(
            subprocess.Popen(
                argv,
                env=clean_environ(PMI_RANK=str(rank), PMI_SIZE="3", TMPDIR=str(tmp_path)),
                stdout=subprocess.PIPE,
                text=True,
            )
        )
    outputs = [worker.communicate(timeout=30)[0] for worker in workers]
    assert outputs == ["['0', '1', '2']\n" * 2] * 3
    (folder,) = [entry for entry in tmp_path.iterdir() if entry.is_dir()]
    assert list(folder.iterdir()) == []


def test_many_hosts_are_refused() -> None:
    world = read_world(
        {
            "HOROVOD_RANK": "0",
            "HOROVOD_SIZE": "4",
            "HOROVOD_LOCAL_RANK": "0",
            "HOROVOD_LOCAL_SIZE": "2",
        }
    )
    with pytest.raises(UsageError, match="one host only"):
        connect_announced(world)


def test_a_rank_0_that_does_not_come_is_named(tmp_path: Path) -> None:
    world = replace(read_world({"PMI_RANK": "1", "PMI_SIZE": "2"}), start_timeout_s=0.05)
    with pytest.raises(StartError, match="rank 0 has not called"):
        connect_announced(world, folder=tmp_path)


@pytest.mark.skipif(not hasattr(os, "memfd_create"), reason="paths of boards are in /proc")
def test_a_notice_of_a_killed_job_does_not_mislead(tmp_path: Path) -> None:
    """Its process number is in use again, and its descriptor stands for something else there."""
    world = replace(read_world({"PMI_RANK": "1", "PMI_SIZE": "2"}), start_timeout_s=0.3)
    notice = tmp_path / f"{world.source}-{launch_key(world.source)}-"
    with Board.create(2) as another_job, Board.create(3) as larger:
        read_end, write_end = os.pipe()
        small = os.memfd_create("small")
        os.write(small, b"hello")
        here = f"/proc/{os.getpid()}/fd"
        for left_behind in (
            another_job.path,
            f"{another_job.nonce + 1} {another_job.path}",
            f"{larger.nonce} {larger.path}",
            f"1 {here}/{read_end}",
            f"1 {here}/{small}",
            "1 /proc/4194305/fd/3",
            "1 /",
            "",
        ):
            notice.write_text(left_behind)
            with pytest.raises(StartError, match="rank 0 has not called"):
                connect_announced(world, folder=tmp_path)
        assert another_job.rounds(1) == larger.rounds(1) == 0, "nothing was posted there"
        for fd in (read_end, write_end, small):
            os.close(fd)


def test_the_folder_is_private(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    folder = private_folder()
    assert folder.stat().st_mode & 0o777 == 0o700
    assert private_folder() == folder
    folder.chmod(0o755)
    with pytest.raises(StartError, match="nobody else can enter"):
        private_folder()


def test_the_key_is_the_parents() -> None:
    assert launch_key("openmpi").startswith(f"{os.getppid()}-")
