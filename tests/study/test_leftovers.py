from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from farandole.study.leftovers import end_leftovers, leftovers
from tests.conftest import clean_environ, eventually


def start(folder: Path) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-c", "import time; time.sleep(60)"],
        env=clean_environ(FARANDOLE_RECORD_DIR=str(folder)),
        start_new_session=True,
    )


def test_processes_that_still_record_are_ended_and_no_others(tmp_path: Path) -> None:
    ours = start(tmp_path / "launches" / "0001")
    other = start(tmp_path / "launches-of-another")
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
