"""Farandole's own commands, timed from outside: studies of a training script, and their report."""

from __future__ import annotations

import contextlib
import itertools
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from farandole.bench.plan import cell_name
from farandole.bench.synthetic_study import Shape, write_study
from farandole.launch.launcher import launch as start
from farandole.launch.plan import Plan
from farandole.launch.warm import WarmServer
from farandole.model.measured import pace
from farandole.study.read import read_ranks
from farandole.study.records import Launch, Study

SCRIPT = Path(__file__).with_name("image_training.py")
_POLL_S = 0.02


def study(given: dict[str, Any]) -> dict[str, Any]:
    """Time `farandole study`. Options: workers, batches; perhaps flags and script_flags.

    It makes one launch of each cell, and nothing else: a whole epoch per number of workers, the
    calibration and the report come once in a study, not once in a cell, and a second try of a
    disturbed launch is the benchmark's own affair.
    """
    workers, batches = (",".join(map(str, given[key])) for key in ("workers", "batches"))
    with tempfile.TemporaryDirectory(dir=given["report_dir"]) as scratch:
        folder = Path(scratch, "study")
        took_s, _ = time_command(
            *("study", "-np", workers, "-L", f"batch={batches}", "--threads", "1"),
            *("--repeats", "1", "--no-epoch", "--no-today", "--no-calibration"),
            *("--no-busy-retries", "--no-report", "--out", str(folder), *given.get("flags", ())),
            *("--", sys.executable, str(SCRIPT), "--batch-size", "{batch}"),
            *given.get("script_flags", ()),
        )
        launches = Study.load(folder).launches
    check(launches, cells=len(given["workers"]) * len(given["batches"]))
    facts: dict[str, Any] = {}
    for one in launches:
        cell = {"wall_s": one.wall_s, "steps": len(one.ranks[0].steps), "outcome": one.outcome}
        facts[cell_name(one.cell.workers, one.cell.batch or 0)] = cell
    return {"rank": 0, "series": figures(launches, took_s), "facts": facts}


def run(given: dict[str, Any]) -> dict[str, Any]:
    """Time `farandole run` of the launches that a study would make. Options: as of `study`."""
    times_s = []
    for workers, batch in itertools.product(given["workers"], given["batches"]):
        command = ("run", "-np", str(workers), "--threads", "1", "--", sys.executable, str(SCRIPT))
        flags = given.get("script_flags", ())
        times_s.append(time_command(*command, "--batch-size", str(batch), *flags)[0])
    return {"rank": 0, "series": {"cell": [sum(times_s) / len(times_s)]}}


def warm(given: dict[str, Any]) -> dict[str, Any]:
    """Compare forked workers with fresh ones. Options: workers, batch, steps, pairs."""
    steps = given["steps"]
    command = (sys.executable, str(SCRIPT), "--samples", "2000", "--steps", str(steps))
    plan = Plan(
        argv=(*command, "--batch-size", str(given["batch"])),
        num_workers=given["workers"],
        threads=1,
        override_threads=True,
    )
    step_s: dict[bool, list[float]] = {False: [], True: []}
    length_s: dict[bool, list[float]] = {False: [], True: []}
    server = WarmServer(["numpy", "torch", "torch._dynamo"])
    scratch_folder = tempfile.TemporaryDirectory(dir=given["report_dir"])
    with contextlib.closing(server), scratch_folder as scratch:
        for number in range(2 * given["pairs"]):
            # Cold, warm, warm, cold: whatever drifts meets both.
            forked = number % 4 in (1, 2)
            folder = Path(scratch, str(number))
            folder.mkdir()
            begin_s = time.monotonic()
            outcome = start(
                replace(plan, record_dir=folder),
                environ=os.environ,
                show=lambda *_: None,
                warm=server if forked else None,
            )
            if outcome.verdict.kind != "done" or outcome.warm != forked:
                raise SystemExit(f"a launch ended as {outcome.verdict.kind}: {outcome.last_lines}")
            if number > 1:  # the first of each also fills caches, and imports for all that follow
                length_s[forked].append(time.monotonic() - begin_s)
                durations = read_ranks(folder)[0].steps.duration_s[steps // 4 :]
                step_s[forked].append(float(np.median(durations)))
    ratios = {
        name: [warm / cold for cold, warm in zip(found[False], found[True], strict=True)]
        for name, found in (("step", step_s), ("length", length_s))
    }
    return {"rank": 0, "series": ratios, "facts": {"seconds": length_s[True] + length_s[False]}}


def report(given: dict[str, Any]) -> dict[str, Any]:
    """Time `farandole report` on a large study, and follow its memory. Options: perhaps shape."""
    shape = Shape(**given.get("shape", {}))
    with tempfile.TemporaryDirectory(dir=given["report_dir"]) as scratch:
        folder = Path(scratch, "study")
        write_study(folder, shape)
        took_s, peak_bytes = time_command("report", str(folder))
        page = folder / "report.html"
        if not page.exists():
            raise SystemExit("farandole report wrote no page")
        facts = {"cells": shape.cells, "launches": shape.launches, "steps": shape.steps}
        facts["page_bytes"] = page.stat().st_size
    series = {"report": [took_s], "peak_memory": [peak_bytes]}
    return {"rank": 0, "series": series, "facts": facts}


def time_command(*arguments: str) -> tuple[float, int]:
    """Run a command of Farandole's; return its seconds and its processes' most bytes at once."""
    begin_s, peak_bytes = time.monotonic(), 0
    argv = [sys.executable, "-m", "farandole.cli.main", *arguments]
    process = subprocess.Popen(argv, stdin=subprocess.DEVNULL)
    while process.poll() is None:
        if arguments[0] == "report":
            peak_bytes = max(peak_bytes, tree_bytes(process.pid))
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_POLL_S)
    if process.returncode != 0:
        raise SystemExit(f"farandole {arguments[0]} ended with exit code {process.returncode}")
    return time.monotonic() - begin_s, peak_bytes


def tree_bytes(pid: int) -> int:
    """Return the resident memory of a process and of all that it started; 0 when it has ended.

    The process itself counts with the most that it ever had, which no polling misses. Pages that
    several share count for each, so that the figure is never too small.
    """
    total = 0
    with contextlib.suppress(OSError, psutil.NoSuchProcess):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                total = 1024 * int(line.split()[1])
        for child in psutil.Process(pid).children(recursive=True):
            with contextlib.suppress(psutil.NoSuchProcess):
                total += child.memory_info().rss
    return total


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
    in_launches_s, cells = sum(launch.wall_s or 0.0 for launch in launches), len(launches)
    found = {"launches": in_launches_s, "beyond": (took_s - in_launches_s) / cells}
    found["cell"] = took_s / cells
    for launch in launches:
        name = cell_name(launch.cell.workers, launch.cell.batch or 0)
        found[name] = pace(launch).rates["samples/s"]
    return {name: [value] for name, value in found.items()}
