"""The calibration: what connects the workers, and what workers of one host cost each other.

Memcpy, point to point and all-reduce give bandwidths something to be compared with, and projections
a link to begin from. A machine on which a part of it fails gets no figure for that part; a study
goes on without. A launch in which copies of the script run at once, each for itself, tells what
workers of a host cost each other (memory, caches, cores, disks) from what they send each other;
nothing else of such a launch is used.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from farandole.errors import FarandoleError
from farandole.format import plural
from farandole.study.attempt import Setting, attempt
from farandole.study.command import fill
from farandole.study.folder import APART, WORK, rank_file
from farandole.study.hosts import Hosts
from farandole.study.plan import Planned
from farandole.study.read import read_rank
from farandole.study.records import Apart, Cell, Floats, Launch, Link
from farandole.study.spec import Spec

SIZES = tuple(4096 * 4**power for power in range(8))
"""Bytes of the all-reduces: 4 KiB to 64 MiB."""
_WORKER = (sys.executable, "-m", "farandole.study.calibration_worker")
_BUDGET_S = 1.5
"""What the workers of one launch measure for, about."""
_LIMIT_S = 30.0
_MEMCPY_BYTES = 64 << 20
_MEMCPY_REPEATS = 7
# A calibration is no run of the user's: what records and stops those must not reach it.
_NOT_OURS = ("FARANDOLE_RECORD_DIR", "FARANDOLE_STOP", "FARANDOLE_TIMELINE", "FARANDOLE_PARAMS")


def calibrate(
    workers: Sequence[int],
    transport: str,
    threads: int,
    *,
    budget_s: float = _BUDGET_S,
    folder: Path | None = None,
    hosts: Hosts | None = None,
) -> Link:
    """Measure the link between workers of one host, in a launch per number of workers above 1.

    Transports "auto" and "shm" measure Farandole's own gradient buckets, "gloo" and "nccl"
    torch.distributed's all-reduce, which DDP uses. Results pass through `folder`, which the
    workers' host must see: the first of `hosts`, or this one. What fails is None or missing.
    """
    measured = {
        count: found
        for count in sorted({count for count in workers if count > 1})
        if (found := _launch(count, transport, threads, budget_s, folder, hosts))
    }
    # The fewest workers: a pair with a core each, where there are that many.
    pair = next(iter(measured.values()), None)
    return Link(
        memcpy_bytes_per_s=memcpy_bytes_per_s(),
        peak_bytes_per_s=pair["stream_bytes"] / pair["stream_s"] if pair else None,
        latency_s=pair["latency_s"] if pair else None,
        allreduce=tuple(
            (count, int(nbytes), float(seconds))
            for count, found in measured.items()
            for nbytes, seconds in found["allreduce"]
        ),
    )


def memcpy_bytes_per_s() -> float | None:
    """Return how fast one core copies memory that no cache holds."""
    try:
        source = np.ones(_MEMCPY_BYTES, np.uint8)
        target = np.zeros_like(source)
    except MemoryError:
        return None
    times_s = []
    for _ in range(_MEMCPY_REPEATS):
        begin_s = time.perf_counter()
        np.copyto(target, source)
        times_s.append(time.perf_counter() - begin_s)
    return _MEMCPY_BYTES / statistics.median(times_s)


def _launch(
    count: int,
    transport: str,
    threads: int,
    budget_s: float,
    place: Path | None,
    hosts: Hosts | None,
) -> Mapping[str, Any]:
    """Run one launch to its end; return what rank 0 has written, or nothing."""
    from farandole.launch.launcher import launch
    from farandole.launch.plan import make_plan
    from farandole.world.cores import read_cores

    environ = {name: text for name, text in os.environ.items() if name not in _NOT_OURS}
    deadline_s = time.monotonic() + _LIMIT_S
    try:
        # Hidden, so that nobody takes it for a part of the study it is in.
        with tempfile.TemporaryDirectory(prefix=".farandole-link-", dir=place) as folder:
            result = Path(folder, "link.json")
            order = {"result": str(result), "sizes": SIZES, "budget_s": budget_s}
            plan = make_plan(
                command=(*_WORKER, "link", json.dumps(order)),
                np=count,
                threads=threads,
                transport=transport,
                start_timeout=_LIMIT_S,
                environ=environ,
                cores=read_cores(),
            )
            start = launch if hosts is None else functools.partial(hosts.launch, num_hosts=1)
            start(
                plan,
                environ=environ,
                show=lambda *_: None,
                watch=lambda _: time.monotonic() > deadline_s,
            )
            found: Mapping[str, Any] = json.loads(result.read_text())
            return found
    except (FarandoleError, OSError, ValueError):
        return {}


# What workers of one host cost each other.

# Beside what a launch of the same workers took: they begin as those did, and have no more to do.
_EXTRA_S = 60.0
_TOO_SHORT = "the script ended before a few steps had been made"


def to_measure(spec: Spec, done: Iterable[Launch], known: Iterable[Apart]) -> list[Launch]:
    """Return a launch for each number of workers on a host that has no figures yet.

    What was in the way may have been fixed since.
    """
    measured = {one.cell.workers for one in known if one.computing_together_s is not None}
    found: dict[int, Launch] = {}
    for launch in done:
        cell = launch.cell
        fits = 1 < cell.workers <= spec.room.per_host and cell.hosts == 1 and not cell.today
        speed = launch.purpose in ("speed", "epoch") and launch.succeeded
        if fits and speed and cell.workers not in measured:
            found.setdefault(cell.workers, launch)
    return [found[workers] for workers in sorted(found)]


def measure_apart(setting: Setting, like: Launch, study: Path, *, left_s: float | None) -> Apart:
    """Let copies of the script compute and load alone and at once; return what they took."""
    spec, cell = setting.spec, like.cell
    if spec.launcher is not None:
        return Apart(cell=cell, why_not=f"{spec.launcher} starts the workers, not Farandole")
    if spec.jobs:
        return Apart(cell=cell, why_not="each launch is a job of its own")
    setting.listener.say(
        f"Measuring contention between {plural(cell.workers, 'worker')}, for a few seconds."
    )
    place = study / APART / f"w{cell.workers}"
    shutil.rmtree(place, ignore_errors=True)
    (place / WORK).mkdir(parents=True)
    values = {"workers": 1} | ({} if cell.batch is None else {"global_batch": cell.batch})
    copies = replace(
        spec,
        command=(*_WORKER, "copy", *fill(spec.command, values)),
        throughput=None,
        metrics=(),
        launch_timeout_s=min(spec.timeout_s, 2 * (like.wall_s or 0.0) + _EXTRA_S),
    )
    planned = cell if spec.sets_batch else replace(cell, batch=None)
    one = Planned(cell=planned, purpose="speed", repeat=0)
    launch = attempt(replace(setting, spec=copies), one, place, left_s=left_s)
    shares = [share for share in (launch.foreign_share, launch.steal_share) if share is not None]
    found = read_apart_launch(place, cell)
    why_not = found.why_not if launch.succeeded else launch.reason
    return replace(found, foreign_share=sum(shares) if shares else None, why_not=why_not)


def read_apart_launch(place: Path, cell: Cell) -> Apart:
    """Return what copies of the script have recorded in a folder."""
    copies = [_read_copy(rank_file(place / f"copy-{n}", 0)) for n in range(cell.workers)]
    if not all("computing_together" in copy for copy in copies):
        return Apart(cell=cell, why_not=_TOO_SHORT)
    alone = copies[0]

    def together(what: str) -> float | None:
        values = [copy.get(f"{what}_together") for copy in copies]
        known = [value for value in values if value is not None]
        return sum(known) / len(known) if len(known) == len(copies) else None

    return Apart(
        cell=cell,
        computing_alone_s=alone.get("computing_alone"),
        computing_together_s=together("computing"),
        update_alone_s=alone.get("update_alone"),
        update_together_s=together("update"),
        loaded_alone_per_s=alone.get("loaded_alone"),
        loaded_together_per_s=together("loaded"),
    )


def _read_copy(path: Path) -> dict[str, float | None]:
    """Return medians of one copy's steps, alone and together, and its loaded samples per second."""
    rank = read_rank(path) if path.exists() else None
    if rank is None:
        return {}
    recorded: dict[str, Any] = {}
    for line in path.read_bytes().splitlines():
        with contextlib.suppress(ValueError):  # a last line that was cut short
            content = json.loads(line)
            if isinstance(content, dict) and content.get("kind") == "apart":
                recorded |= content
    found = {name: recorded.get(name) for name in ("loaded_alone", "loaded_together")}
    steps = rank.steps
    # A step without waiting for data and without the update.
    own_s = steps.duration_s - np.nan_to_num(steps.data_s) - np.nan_to_num(steps.optimizer_s)
    for phase in [phase for phase in ("alone", "together") if phase in recorded]:
        first, end = recorded[phase]
        found[f"computing_{phase}"] = _median(own_s[first:end])
        found[f"update_{phase}"] = _median(steps.optimizer_s[first:end])
    return found


def _median(values: Floats) -> float | None:
    known = values[np.isfinite(values)]
    return float(np.median(known)) if len(known) else None
