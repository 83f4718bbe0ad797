"""Time `farandole study` of a training script. Options: workers, batches, and perhaps flags (of the
study) and script_flags."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from farandole.bench.studies import cell_name
from farandole.bench.workers import harness
from farandole.model.pace import pace
from farandole.study.records import Launch, Study

SCRIPT = Path(__file__).with_name("cifar_train.py")


def main() -> None:
    given = harness.options()
    with tempfile.TemporaryDirectory(dir=given.get("report_dir")) as scratch:
        folder = Path(scratch, "study")
        begin_s = time.monotonic()
        ended = subprocess.run(
            [sys.executable, "-m", "farandole.cli.main", *study_arguments(given, folder)],
            stdin=subprocess.DEVNULL,
            check=False,
        )
        took_s = time.monotonic() - begin_s
        if ended.returncode != 0:
            raise SystemExit(f"farandole study ended with exit code {ended.returncode}")
        launches = Study.load(folder).launches
    check(launches, cells=len(given["workers"]) * len(given["batches"]))
    harness.report(given, rank=0, series=figures(launches, took_s), facts=facts(launches))


def study_arguments(given: dict[str, Any], folder: Path) -> list[str]:
    """Return the study's command line: one launch of each cell, and nothing else.

    One whole epoch per number of workers, the calibration and the report come once in a study,
    not once in a cell, and a second try of a disturbed launch is the benchmark's own affair.
    """
    return [
        *("study", "-np", _listed(given["workers"]), "-L", f"batch={_listed(given['batches'])}"),
        *("--threads", "1", "--repeats", "1", "--no-epoch", "--no-today", "--no-calibration"),
        *("--keep-busy", "--no-report", "--out", str(folder), *given.get("flags", ()), "--"),
        *(sys.executable, str(SCRIPT), "--batch-size", "{batch}", *given.get("script_flags", ())),
    ]


def check(launches: Sequence[Launch], *, cells: int) -> None:
    """End with an error unless every cell has one launch that went well."""
    for launch in launches:
        if launch.outcome not in ("ok", "stopped"):
            last = " | ".join(launch.last_output[-3:])
            raise SystemExit(f"{launch.id} of the study {launch.outcome}: {launch.reason} {last}")
    if len(launches) != cells:
        raise SystemExit(f"the study made {len(launches)} launches of {cells}")


def figures(launches: Sequence[Launch], took_s: float) -> dict[str, list[float]]:
    """Return what the launches took, what a cell took beyond them, and each cell's throughput."""
    in_launches_s = sum(launch.wall_s or 0.0 for launch in launches)
    throughputs = {
        cell_name(launch.cell.workers, launch.cell.batch or 0): [pace(launch).rates["samples/s"]]
        for launch in launches
    }
    return {
        "launches": [in_launches_s],
        "beyond": [(took_s - in_launches_s) / len(launches)],
        "cell": [took_s / len(launches)],
        **throughputs,
    }


def facts(launches: Sequence[Launch]) -> dict[str, Any]:
    """Return how long each cell's launch was, in seconds and in steps."""
    return {
        cell_name(launch.cell.workers, launch.cell.batch or 0): {
            "wall_s": launch.wall_s,
            "steps": len(launch.ranks[0].steps),
            "outcome": launch.outcome,
        }
        for launch in launches
    }


def _listed(values: Sequence[int]) -> str:
    return ",".join(map(str, values))


if __name__ == "__main__":
    main()
