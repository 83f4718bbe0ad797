"""A limit of memory per worker, so that a batch that does not fit ends its cell, not the machine.

Two guards. Every tenth of a second the memory of a worker and of what it started is read, and one
above the limit ends the launch. And the kernel refuses a single request far beyond it at once
(RLIMIT_DATA, which counts what can be written to: a limit of the address space would refuse torch's
large reservations). A control group would do both, but is not ours to make on most machines.
"""

from __future__ import annotations

import contextlib
import os
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

_SHARE = 0.8
# Written memory of an idle torch, its threads' stacks and arenas: not what a batch needs.
_SLACK_BYTES = 1 << 30
_SLACK_FACTOR = 1.25
# Starting helpers is rare; looking for them is a tenth of the guard's cost at this pace.
_LOOK_FOR_CHILDREN_EVERY = 10
_OUT_OF_MEMORY = re.compile(
    r"MemoryError|can't allocate memory|[Cc]annot allocate memory|[Oo]ut of memory|OutOfMemory"
    r"|std::bad_alloc|oom[-_ ]kill",
)


def free_bytes() -> int:
    """Return the memory that is free for use, this process's control groups considered."""
    import psutil

    free: int = psutil.virtual_memory().available
    root = Path("/sys/fs/cgroup")
    for most, used in (
        ("memory.max", "memory.current"),
        ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes"),
    ):
        with contextlib.suppress(OSError, ValueError):  # "max": no limit
            free = min(free, int((root / most).read_text()) - int((root / used).read_text()))
    return max(free, 0)


def worker_limit(asked: int | None, *, workers: int, free: int) -> int:
    """Return each worker's limit: as asked for, or its part of 80 % of what is free."""
    return asked if asked is not None else int(_SHARE * free / workers)


def describes_lack_of_memory(text: str) -> bool:
    """Say whether an error's text tells of memory that could not be had."""
    return _OUT_OF_MEMORY.search(text) is not None


def kernel_kills() -> int:
    """Return how often the kernel has ended a process for want of memory; 0 where untold."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/vmstat").read_text().splitlines():
            if line.startswith("oom_kill "):
                return int(line.split()[1])
    return 0


class MemoryGuard:
    """Finds workers that use more than their limit."""

    def __init__(self, limit_bytes: int, *, caps_requests: bool, shared_by: int = 1) -> None:
        """Make a guard.

        Args:
            limit_bytes: What each worker may use.
            caps_requests: Whether the kernel is to refuse requests far beyond the limit. Not where
                there are GPUs, whose drivers reserve more than they use.
            shared_by: How many workers are below each process: all, with a launcher of their own.
        """
        self.limit_bytes = limit_bytes * shared_by
        self._caps = caps_requests
        self._capped: set[int] = set()
        self._looks = 0
        self._children: dict[int, list[int]] = {}

    def over(self, pids: Sequence[int]) -> int | None:
        """Return the memory of a worker that has more than its limit; None when none has."""
        if self._looks % _LOOK_FOR_CHILDREN_EVERY == 0:
            self._children = {pid: list(_below(pid)) for pid in pids}
        self._looks += 1
        for pid in pids:
            if self._caps and pid not in self._capped:
                self._cap(pid)
            used = _written(pid, shared=True)
            used += sum(_written(child, shared=False) for child in self._children.get(pid, ()))
            if used > self.limit_bytes:
                return used
        return None

    def _cap(self, pid: int) -> None:
        self._capped.add(pid)
        if sys.platform != "linux":
            return
        import resource

        most = int(_SLACK_FACTOR * self.limit_bytes) + _SLACK_BYTES
        with contextlib.suppress(OSError, ValueError):  # it has just ended, or has less already
            _, hard = resource.prlimit(pid, resource.RLIMIT_DATA)
            if hard in (resource.RLIM_INFINITY, -1) or hard > most:
                resource.prlimit(pid, resource.RLIMIT_DATA, (most, hard))


def _written(pid: int, *, shared: bool) -> int:
    """Return a process's memory without mapped files; helpers share segments with their worker."""
    total = 0
    with contextlib.suppress(OSError, ValueError), open(f"/proc/{pid}/status", "rb") as file:  # noqa: PTH123
        for line in file:
            if line.startswith(b"RssAnon:") or (shared and line.startswith(b"RssShmem:")):
                total += int(line.split()[1]) * 1024
    return total


def _below(pid: int) -> Iterator[int]:
    """Name all processes that this one has started, at whatever remove."""
    try:
        threads = os.listdir(f"/proc/{pid}/task")  # noqa: PTH208
    except OSError:
        return
    for thread in threads:
        with contextlib.suppress(OSError):
            for child in Path(f"/proc/{pid}/task/{thread}/children").read_text().split():
                yield int(child)
                yield from _below(int(child))
