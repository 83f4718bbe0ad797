"""Time `farandole run` of the launches that a study would make. Options: as those of study_time."""

from __future__ import annotations

import itertools
import subprocess
import sys
import time
from typing import Any

from farandole.bench.workers import harness, study_time


def main() -> None:
    given = harness.options()
    cells = list(itertools.product(given["workers"], given["batches"]))
    begin_s = time.monotonic()
    for workers, batch in cells:
        ended = subprocess.run(
            [sys.executable, "-m", "farandole.cli.main", *run_arguments(given, workers, batch)],
            stdin=subprocess.DEVNULL,
            check=False,
        )
        if ended.returncode != 0:
            raise SystemExit(f"farandole run ended with exit code {ended.returncode}")
    took_s = time.monotonic() - begin_s
    harness.report(given, rank=0, series={"cell": [took_s / len(cells)]})


def run_arguments(given: dict[str, Any], workers: int, batch: int) -> list[str]:
    """Return the command line that starts one cell's launch."""
    return [
        *("run", "-np", str(workers), "--threads", "1", "--", sys.executable),
        *(str(study_time.SCRIPT), "--batch-size", str(batch), *given.get("script_flags", ())),
    ]


if __name__ == "__main__":
    main()
