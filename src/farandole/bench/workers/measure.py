"""What every task needs: its options, clocks, a barrier, its report. Standard library only."""

from __future__ import annotations

import ctypes
import importlib
import json
import math
import mmap
import os
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

LINE_BYTES = 64
"""One cache line per rank of a barrier, so that a rank's store does not disturb the others'."""
_PR_SET_PDEATHSIG = 1
_SPINS = _YIELDS = 100
_SLEEP_S = 50e-6


@dataclass(frozen=True, slots=True)
class Task:
    """A network with the shape of its synthetic data, which is in `num_classes` classes."""

    model: Any
    batch: int
    sample_shape: tuple[int, ...]
    num_classes: int = 10


def main() -> None:
    """Run the task that the JSON object on the command line names, and report its values."""
    given: dict[str, Any] = json.loads(sys.argv[1])
    if "barrier_fd" in given:
        # A benchmark that is killed with SIGKILL cannot end the workers it started; the kernel can.
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    module, _, function = given["task"].partition(".")
    values = getattr(importlib.import_module(f"{__package__}.{module}"), function)(given)
    # Launchers tag and interleave what workers print; a renamed file arrives whole or not at all.
    unfinished = Path(given["report_dir"], f"rank-{values['rank']}.part")
    unfinished.write_text(json.dumps(values))
    unfinished.rename(unfinished.with_suffix(".json"))


def time_steps(
    step: Callable[[int], object],
    *,
    warmup: int,
    steps: int,
    prepare: Callable[[int], object] = lambda _: None,
) -> list[float]:
    """Return the seconds of each of `steps` calls, after `warmup` calls that do not count.

    `prepare` is called before each step, outside the clock.
    """
    times_s = []
    for index in range(warmup + steps):
        prepare(index)
        start_s = time.perf_counter()
        step(index)
        times_s.append(time.perf_counter() - start_s)
    return times_s[warmup:]


def time_allreduces(
    allreduce: Callable[[], object], buffer: Any, *, num_ranks: int, repeats: int
) -> list[float]:
    """Return the seconds of each blocking in-place sum, and check the sums.

    Every sum multiplies the buffer by the number of ranks. So the buffer is filled anew before it
    overflows, outside the clock, and the sum after a fill is not timed: it brings the ranks
    together again.

    Args:
        allreduce: sums `buffer` over the ranks, in place.
        buffer: a tensor or an array, of which the first and last element are checked.
    """
    # float32 ends at 2^127.
    block = 16 if num_ranks == 1 else max(1, min(16, int(120 / math.log2(num_ranks)) - 1))
    expected = float(num_ranks) ** (block + 1)
    times_s: list[float] = []
    while len(times_s) < repeats:
        buffer[...] = 1.0
        times_s += time_steps(lambda _: allreduce(), warmup=1, steps=block)
        for value in (float(buffer[0]), float(buffer[-1])):
            if not math.isclose(value, expected, rel_tol=1e-5):
                raise SystemExit(f"the sum is wrong: {value} instead of {expected}")
    return times_s[:repeats]


def memory_kb() -> dict[str, int]:
    """Return this process's proportional memory by kind, in kB, with freed memory handed back."""
    # glibc keeps freed blocks for later; what it keeps is no copy of anything.
    ctypes.CDLL(None).malloc_trim(0)
    lines = [line.split() for line in Path("/proc/self/smaps_rollup").read_text().splitlines()[1:]]
    kinds = ("Pss:", "Pss_Anon:", "Pss_Shmem:")
    return {line[0][:-1].lower(): int(line[1]) for line in lines if line[0] in kinds}


def forbid_farandole() -> None:
    """End with an error if this process has imported any part of farandole."""
    guests = sorted(name for name in sys.modules if name.split(".")[0] == "farandole")
    if guests:
        raise SystemExit(f"this worker may not import farandole, but it has: {guests[0]}")


class Barrier:
    """A barrier of processes that inherited a memory file: one counter per rank.

    The limit must not use what it is compared with, so it brings its own.
    """

    def __init__(self, *, fd: int, rank: int, num_ranks: int) -> None:
        self._words = memoryview(mmap.mmap(fd, num_ranks * LINE_BYTES)).cast("Q")
        self._own = rank * LINE_BYTES // 8
        self._count = 0

    def wait(self) -> None:
        """Return when every rank has called this as often as this rank has."""
        self._count += 1
        self._words[self._own] = self._count
        for word in range(0, len(self._words), LINE_BYTES // 8):
            tries = 0
            while self._words[word] < self._count:
                tries += 1
                if tries > _SPINS + _YIELDS:
                    time.sleep(_SLEEP_S)
                elif tries > _SPINS:
                    os.sched_yield()
