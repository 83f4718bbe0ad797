"""The barrier of the limit, between real processes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from farandole.bench.contestant import WORKERS
from farandole.bench.workers.meeting import LINE_BYTES, Meeting

_WORKER = """\
import pathlib, sys
sys.path.insert(0, sys.argv[1])
import meeting
rank, num_ranks, fd, folder = int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]), sys.argv[5]
meet = meeting.Meeting(fd=fd, rank=rank, num_ranks=num_ranks)
for round_number in range(20):
    pathlib.Path(folder, f"{rank}-{round_number}").touch()
    meet.wait()
    here = all(
        pathlib.Path(folder, f"{peer}-{round_number}").exists() for peer in range(num_ranks)
    )
    assert here, f"rank {rank} went on alone in round {round_number}"
"""


@pytest.mark.ranks
def test_nobody_goes_on_before_all_have_come(tmp_path: Path) -> None:
    num_ranks = 3
    fd = os.memfd_create("farandole-test-barrier")
    try:
        os.ftruncate(fd, num_ranks * LINE_BYTES)
        processes = [
            subprocess.Popen(
                [
                    *(sys.executable, "-c", _WORKER, str(WORKERS), str(rank), str(num_ranks)),
                    *(str(fd), str(tmp_path)),
                ],
                pass_fds=(fd,),
            )
            for rank in range(num_ranks)
        ]
        assert [process.wait(timeout=60) for process in processes] == [0] * num_ranks
    finally:
        os.close(fd)


def test_one_rank_does_not_wait() -> None:
    fd = os.memfd_create("farandole-test-barrier")
    try:
        os.ftruncate(fd, LINE_BYTES)
        meet = Meeting(fd=fd, rank=0, num_ranks=1)
        for _ in range(3):
            meet.wait()
    finally:
        os.close(fd)
