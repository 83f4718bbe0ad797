"""Cores of its own for each worker that computes with JAX.

XLA keeps as many threads as PJRT_NPROC says, and the thread that calls it computes, too: workers
that share a host would take more cores than they have. Affinity is what it goes by.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Collection
from pathlib import Path

from farandole.world.world import World


def share_of(
    allowed: Collection[int], local_rank: int, local_size: int, threads: int
) -> frozenset[int] | None:
    """Return a worker's part of the cores that all workers of its host may use.

    None where they do not come out even, or would be fewer than the threads it was given: then
    somebody has bound it already, or has asked for more than there is.
    """
    each, rest = divmod(len(allowed), local_size)
    if local_size == 1 or rest or each < max(threads, 1):
        return None
    return frozenset(sorted(allowed)[local_rank * each : (local_rank + 1) * each])


def keep_to_own_cores(world: World) -> None:
    """Leave this process its part of the host's cores, where `farandole run` started it."""
    if world.source != "farandole" or not hasattr(os, "sched_setaffinity"):
        return
    told = os.environ.get("PJRT_NPROC", "")
    threads = int(told) if told.isdecimal() else 1
    own = share_of(os.sched_getaffinity(0), world.local_rank, world.local_size, threads)
    if own is None:
        return
    for thread in Path("/proc/self/task").iterdir():
        # A thread may end meanwhile; those to come follow the one that makes them.
        with contextlib.suppress(ProcessLookupError):
            os.sched_setaffinity(int(thread.name), own)
