"""What every worker needs: its options, its clock loops, its report. Standard library only."""

from __future__ import annotations

import ctypes
import json
import math
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

_PR_SET_PDEATHSIG = 1


def options() -> dict[str, Any]:
    """Return the JSON object that the benchmark gave as the only argument."""
    given: dict[str, Any] = json.loads(sys.argv[1])
    if given.get("die_with_parent"):
        # A benchmark that is killed with SIGKILL cannot end its workers; the kernel can.
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    return given


def report(given: dict[str, Any], *, rank: int, **values: Any) -> None:
    """Hand this rank's values over: a file for the benchmark, a line for somebody at a terminal."""
    text = json.dumps({"rank": rank, **values})
    folder = given.get("report_dir")
    if folder is None:
        print(text, flush=True)
        return
    # Launchers tag and interleave what workers print; a renamed file arrives whole or not at all.
    unfinished = Path(folder, f"rank-{rank}.part")
    unfinished.write_text(text)
    unfinished.rename(Path(folder, f"rank-{rank}.json"))


def time_steps(step: Callable[[int], None], *, warmup: int, steps: int) -> list[float]:
    """Return the seconds of each of `steps` calls, after `warmup` calls that do not count."""
    for index in range(warmup):
        step(index)
    times_s = []
    for index in range(warmup, warmup + steps):
        start_s = time.perf_counter()
        step(index)
        times_s.append(time.perf_counter() - start_s)
    return times_s


def time_allreduces(
    allreduce: Callable[[], object],
    buffer: Any,
    fill: Callable[[float], object],
    *,
    num_ranks: int,
    repeats: int,
) -> list[float]:
    """Return the seconds of each blocking in-place sum, and check the sums.

    Every sum multiplies the buffer by the number of ranks. So the buffer is filled anew before it
    overflows, outside the clock, and the sum after a fill is not timed: it brings the ranks
    together again.

    Args:
        allreduce: sums `buffer` over the ranks, in place.
        buffer: a tensor or an array, of which the first and last element are checked.
        fill: sets every element of `buffer`.
    """
    # float32 ends at 2^127.
    block = 16 if num_ranks == 1 else max(1, min(16, int(120 / math.log2(num_ranks)) - 1))
    times_s: list[float] = []
    while len(times_s) < repeats:
        fill(1.0)
        allreduce()
        for _ in range(block):
            start_s = time.perf_counter()
            allreduce()
            times_s.append(time.perf_counter() - start_s)
        expected = float(num_ranks) ** (block + 1)
        for value in (float(buffer[0]), float(buffer[-1])):
            if not math.isclose(value, expected, rel_tol=1e-5):
                raise SystemExit(f"the sum is wrong: {value} instead of {expected}")
    return times_s[:repeats]


def memory_kb() -> dict[str, int]:
    """Return this process's proportional memory by kind, in kB, with freed memory handed back."""
    # glibc keeps freed blocks for later; what it keeps is no copy of anything.
    ctypes.CDLL(None).malloc_trim(0)
    found = {}
    for line in Path("/proc/self/smaps_rollup").read_text().splitlines():
        name, _, rest = line.partition(":")
        if name in ("Pss", "Pss_Anon", "Pss_Shmem"):
            found[name.lower()] = int(rest.split()[0])
    return found


def forbid_farandole() -> None:
    """End with an error if this process has imported any part of farandole."""
    guests = sorted(name for name in sys.modules if name.split(".")[0] == "farandole")
    if guests:
        raise SystemExit(f"this worker may not import farandole, but it has: {guests[0]}")
