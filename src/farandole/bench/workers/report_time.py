"""Time `farandole report` on a large study, and follow the memory of its processes.
Options: none."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil

from farandole.bench.specimen import Shape, write_specimen
from farandole.bench.workers import harness

_POLL_S = 0.02


def main() -> None:
    given = harness.options()
    shape = Shape(**given.get("shape", {}))
    with tempfile.TemporaryDirectory(dir=given.get("report_dir")) as scratch:
        study = Path(scratch, "study")
        write_specimen(study, shape)
        took_s, peak_bytes = time_report(study)
        page = study / "report.html"
        if not page.exists():
            raise SystemExit("farandole report wrote no page")
        facts = {
            "cells": shape.cells,
            "launches": shape.launches,
            "steps": shape.steps,
            "page_bytes": page.stat().st_size,
        }
    harness.report(
        given, rank=0, series={"report": [took_s], "peak_memory": [peak_bytes]}, facts=facts
    )


def time_report(study: Path) -> tuple[float, int]:
    """Return the seconds of a report in a process of its own, and its most bytes at once."""
    begin_s = time.monotonic()
    process = subprocess.Popen(
        [sys.executable, "-m", "farandole.cli.main", "report", str(study)],
        stdout=subprocess.DEVNULL,
    )
    peak_bytes = 0
    while process.poll() is None:
        peak_bytes = max(peak_bytes, tree_bytes(process.pid))
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_POLL_S)
    took_s = time.monotonic() - begin_s
    if process.returncode != 0:
        raise SystemExit(f"farandole report ended with exit code {process.returncode}")
    return took_s, peak_bytes


def tree_bytes(pid: int) -> int:
    """Return the resident memory of a process and of all that it started; 0 when it has ended.

    The process itself counts with the most that it ever had, which no polling misses. Pages that
    several share count for each, so that the figure is never too small.
    """
    try:
        root = psutil.Process(pid)
        others = root.children(recursive=True)
    except psutil.NoSuchProcess:
        return 0
    total = _peak_bytes(pid)
    for other in others:
        with contextlib.suppress(psutil.NoSuchProcess):
            total += other.memory_info().rss
    return total


def _peak_bytes(pid: int) -> int:
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return 1024 * int(line.split()[1])
    return 0


if __name__ == "__main__":
    main()
