"""The short calibration of what connects the workers: memcpy, point to point, all-reduce.

It gives bandwidths something to be compared with, and projections a link to begin from. A machine
on which a part of it fails gets no figure for that part; a study goes on without.
"""

from __future__ import annotations

import functools
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from farandole.errors import FarandoleError
from farandole.study.hosts import Hosts
from farandole.study.records import Link

SIZES = tuple(4096 * 4**power for power in range(8))
"""Bytes of the all-reduces: 4 KiB to 64 MiB."""
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
    """Measure the link between workers of one host, in a launch per worker count.

    Args:
        workers: Counts to all-reduce with; 1 has nobody to talk to and is left out.
        transport: As `farandole run` has it. "auto" and "shm" measure Farandole's own gradient
            buckets, "gloo" and "nccl" torch.distributed's all-reduce, which DDP uses.
        threads: Threads per worker.
        budget_s: Seconds to measure for in each launch, beside its start.
        folder: Where the workers put their result for a moment; one that their host sees.
        hosts: On the first of which the workers run; None: on this one.

    Returns:
        What could be measured; the rest is None or missing. It raises nothing but Ctrl-C.
    """
    counts = sorted({count for count in workers if count > 1})
    sweep: list[tuple[int, int, float]] = []
    peaks: list[float] = []
    latencies: list[float] = []
    for count in counts:
        found = _launch(count, transport, threads, budget_s, folder, hosts)
        sweep += [(count, int(nbytes), float(s)) for nbytes, s in found.get("allreduce", ())]
        if found.get("stream_s"):
            peaks.append(found["stream_bytes"] / found["stream_s"])
        if found.get("latency_s"):
            latencies.append(found["latency_s"])
    return Link(
        memcpy_bytes_per_s=memcpy_bytes_per_s(),
        # The fewest workers: a pair with a core each, where there are that many.
        peak_bytes_per_s=peaks[0] if peaks else None,
        latency_s=latencies[0] if latencies else None,
        allreduce=tuple(sweep),
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
                command=(
                    sys.executable,
                    "-m",
                    "farandole.study.calibration_worker",
                    json.dumps(order),
                ),
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
