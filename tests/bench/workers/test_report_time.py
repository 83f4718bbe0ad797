"""The report's time and memory, on a specimen small enough for a test."""

from __future__ import annotations

import json
import os
import subprocess
import sys

from farandole.bench.contestant import WORKERS
from farandole.bench.workers.report_time import tree_bytes
from tests.conftest import clean_environ


def test_the_worker_reports_time_and_memory() -> None:
    small = {"workers": [1, 2], "batches": [32], "widths": [1], "repeats": 2, "steps_per_rank": 30}
    found = subprocess.run(
        [sys.executable, str(WORKERS / "report_time.py"), json.dumps({"shape": small})],
        env=clean_environ(),
        capture_output=True,
        text=True,
        check=True,
        timeout=110,
    )
    reported = json.loads(found.stdout)
    assert reported["facts"]["steps"] == 30 * 3 * 3
    assert reported["facts"]["page_bytes"] > 100_000  # the charts' scripts are in it
    assert reported["series"]["report"][0] > 0
    # NumPy, Altair and the renderer are more than 30 MB in any case.
    assert reported["series"]["peak_memory"][0] > 30e6


def test_children_count_and_the_dead_do_not() -> None:
    code = "import sys; kept = bytearray(60_000_000); print(flush=True); sys.stdin.read()"
    before = tree_bytes(os.getpid())
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as child:
        assert child.stdout is not None
        child.stdout.readline()
        assert tree_bytes(child.pid) > 60e6
        assert tree_bytes(os.getpid()) > before + 60e6
    assert tree_bytes(child.pid) == 0
