"""Looking after one launch: its time, its memory, its progress, the processes it leaves behind.

A limit of memory per worker lets a batch that does not fit end its cell, not the machine. Two
guards. Every tenth of a second the memory of a worker and of what it started is read, and one
above the limit ends the launch. And the kernel refuses a single request far beyond it at once
(RLIMIT_DATA, which counts what can be written to: a limit of the address space would refuse torch's
large reservations). A control group would do both, but is not ours to make on most machines.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from farandole.recorder.settings import RECORD_DIR
from farandole.study.progress import Now, Tail
from farandole.study.records import Outcome

_SHOW_EVERY_S = 0.5


class Watch:
    """Asked ten times a second whether a launch is to be ended; keeps why it was."""

    def __init__(
        self,
        *,
        timeout_s: float,
        left_s: float | None,
        guard: MemoryGuard,
        tail: Tail,
        show: Callable[[Now], None],
        waits: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Begin to watch.

        Args:
            timeout_s: What the launch may take.
            left_s: What the study still may take; None without a limit.
            guard: Knows the limit of memory.
            tail: Follows what rank 0 writes.
            show: Takes moments to show.
            waits: Whether the launch waits in a queue first; what it may take counts from when
                rank 0 begins to write.
            clock: A clock that only goes forward.
        """
        self._clock = clock
        self._asked_s = clock()
        self.begin_s: float | None = None if waits else self._asked_s
        """When the launch began; None while it waits in a queue."""
        self._timeout_s, self._left_s = timeout_s, left_s
        self._guard, self._tail, self._show = guard, tail, show
        self._show_at_s = self._asked_s + _SHOW_EVERY_S
        self.outcome: Outcome | None = None
        """How the launch ended, if this watch ended it."""
        self.reason = ""

    def __call__(self, pids: Sequence[int]) -> bool:
        """Look at the workers; return whether to end them."""
        now_s = self._clock()
        if self.begin_s is None and self._tail.exists():
            self.begin_s = now_s
        elapsed_s = 0.0 if self.begin_s is None else now_s - self.begin_s
        if now_s >= self._show_at_s:
            self._show_at_s = now_s + _SHOW_EVERY_S
            self._tail.look()
            self._show(
                Now(
                    elapsed_s=elapsed_s,
                    steps=self._tail.steps,
                    samples_per_s=self._tail.samples_per_s,
                )
            )
        used = self._guard.over(pids)
        if used is not None:
            limit = self._guard.limit_bytes
            return self._end(
                "out_of_memory",
                f"a worker had {used / 1e9:.2f} GB of memory; its limit is {limit / 1e9:.2f} GB "
                "(--memory)",
            )
        if elapsed_s > self._timeout_s:
            return self._end(
                "timeout", f"it did not end within {self._timeout_s:g} s (--launch-timeout)"
            )
        if self._left_s is not None and now_s - self._asked_s > self._left_s:
            return self._end("interrupted", "the study's time was over (--time-limit)")
        return False

    def _end(self, outcome: Outcome, reason: str) -> bool:
        self.outcome, self.reason = outcome, reason
        return True


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


_GRACE_S = 2.0
_POLL_S = 0.02


def leftovers(folder: Path, proc: Path = Path("/proc"), *, variable: str = RECORD_DIR) -> list[int]:
    """List processes of ours whose variable names this folder, or one below it.

    Only launchers that are not ours leave any: torchrun starts its workers in sessions of their
    own, which no signal to its group reaches.
    """
    mark = f"\0{variable}={folder}".encode()
    found = []
    try:
        entries = os.listdir(proc)  # noqa: PTH208 - over all processes
    except OSError:
        return []
    for entry in entries:
        if not entry.isdecimal() or int(entry) == os.getpid():
            continue
        with contextlib.suppress(OSError):  # not ours, or it has just ended
            environ = b"\0" + (proc / entry / "environ").read_bytes()
            _, here, rest = environ.partition(mark)
            if here and rest[:1] in (b"\0", b"/", b""):
                found.append(int(entry))
    return found


def end_leftovers(folder: Path, *, variable: str = RECORD_DIR) -> int:
    """End what still records into this folder, and return how many processes that were."""
    found = leftovers(folder, variable=variable)
    for signum in (signal.SIGTERM, signal.SIGKILL):
        for pid in leftovers(folder, variable=variable):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signum)
        deadline_s = time.monotonic() + _GRACE_S
        while leftovers(folder, variable=variable):
            if time.monotonic() > deadline_s:
                break
            time.sleep(_POLL_S)
        else:
            break
    return len(found)
