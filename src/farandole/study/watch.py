"""Looking after one launch: its time, its memory, its progress, the processes it leaves behind.

A limit of memory per worker lets a batch that does not fit end its cell, not the machine. Two
guards. Every tenth of a second the memory of a worker and of what it started is read, and one
above the limit ends the launch. And the kernel refuses a single request far beyond it at once
(RLIMIT_DATA, which counts what can be written to: a limit of the address space would refuse torch's
large reservations). A control group would do both, but is not ours to make on most machines.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from farandole.format import size
from farandole.recorder.recorder import RECORD_DIR
from farandole.study.progress import Now
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
        """Begin to watch a launch that may take `timeout_s`, in a study that may take `left_s`.

        One that waits in a queue first begins when rank 0 begins to write.
        """
        self._clock, self._asked_s = clock, clock()
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
        now_s, tail = self._clock(), self._tail
        if self.begin_s is None and tail.exists():
            self.begin_s = now_s
        elapsed_s = 0.0 if self.begin_s is None else now_s - self.begin_s
        if now_s >= self._show_at_s:
            self._show_at_s = now_s + _SHOW_EVERY_S
            tail.look()
            self._show(Now(elapsed_s=elapsed_s, steps=tail.steps, samples_per_s=tail.samples_per_s))
        used = self._guard.over(pids)
        if used is not None:
            self.outcome = "out_of_memory"
            self.reason = (
                f"a worker used {size(used)} of memory, more than its limit of "
                f"{size(self._guard.limit_bytes)} (--memory)"
            )
        elif elapsed_s > self._timeout_s:
            self.outcome = "timeout"
            self.reason = f"it did not end within {self._timeout_s:g} s (--launch-timeout)"
        elif self._left_s is not None and now_s - self._asked_s > self._left_s:
            self.outcome = "interrupted"
            self.reason = "the study's time was up (--time-limit)"
        return self.outcome is not None


class Tail:
    """Follows what rank 0 writes: steps so far, and samples per second of late."""

    def __init__(self, path: Path, *, workers: int) -> None:
        self._path, self._workers = path, workers
        self._place = 0
        self._rest = b""
        self._last_end_s: float | None = None
        self.steps = 0
        self.samples_per_s: float | None = None

    def exists(self) -> bool:
        """Say whether rank 0 has begun to write."""
        return self._path.exists()

    def look(self) -> None:
        """Read what has been added."""
        with contextlib.suppress(OSError):
            with self._path.open("rb") as file:
                file.seek(self._place)
                data = file.read()
            self._place += len(data)
            *lines, self._rest = (self._rest + data).split(b"\n")
            for line in lines:
                with contextlib.suppress(ValueError, KeyError, TypeError, IndexError):
                    self._take(json.loads(line))

    def _take(self, record: Any) -> None:
        if record["kind"] != "steps":
            return
        ends, samples = record["columns"]["end_s"], record["columns"]["samples"]
        self.steps += len(ends)
        if self._last_end_s is None:  # of the first step only its end is known
            self._last_end_s, samples = ends[0], samples[1:]
        took_s = ends[-1] - self._last_end_s
        self._last_end_s = ends[-1]
        if took_s > 0 and None not in samples:
            self.samples_per_s = self._workers * sum(samples) / took_s


# Memory.

SHARE = 0.8
"""Of what is free, for all workers together, unless the user says."""
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
        """Make a guard of processes with `shared_by` workers each, of `limit_bytes` each.

        The kernel is to refuse requests far beyond the limit (`caps_requests`), but not where there
        are GPUs, whose drivers reserve more than they use.
        """
        self.limit_bytes = limit_bytes * shared_by
        self._caps = caps_requests and sys.platform == "linux"
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
                self._capped.add(pid)
                _cap(pid, int(_SLACK_FACTOR * self.limit_bytes) + _SLACK_BYTES)
            used = _written(pid, shared=True)
            used += sum(_written(child, shared=False) for child in self._children.get(pid, ()))
            if used > self.limit_bytes:
                return used
        return None


def _cap(pid: int, most: int) -> None:
    import resource

    with contextlib.suppress(OSError, ValueError):  # it has just ended, or has less already
        _, hard = resource.prlimit(pid, resource.RLIMIT_DATA)
        if hard in (resource.RLIM_INFINITY, -1) or hard > most:
            resource.prlimit(pid, resource.RLIMIT_DATA, (most, hard))


def _written(pid: int, *, shared: bool) -> int:
    """Return a process's memory without mapped files; helpers share segments with their worker."""
    kinds = (b"RssAnon:", b"RssShmem:") if shared else (b"RssAnon:",)
    with contextlib.suppress(OSError, ValueError):
        lines = Path(f"/proc/{pid}/status").read_bytes().splitlines()
        return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith(kinds))
    return 0


def _below(pid: int) -> Iterator[int]:
    """Name all processes that this one has started, at whatever remove."""
    for children in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(OSError):
            for child in children.read_text().split():
                yield int(child)
                yield from _below(int(child))


# What a launcher leaves behind.

_GRACE_S = 2.0
_POLL_S = 0.02


def leftovers(folder: Path, *, variable: str = RECORD_DIR) -> list[int]:
    """List processes of ours whose variable names this folder, or one below it.

    Only launchers that are not ours leave any: torchrun starts its workers in sessions of their
    own, which no signal to its group reaches.
    """
    mark = f"\0{variable}={folder}".encode()
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # not ours, or it has just ended
            _, here, rest = (b"\0" + (entry / "environ").read_bytes()).partition(mark)
            if here and rest[:1] in (b"\0", b"/", b"") and int(entry.name) != os.getpid():
                found.append(int(entry.name))
    return found


def end_leftovers(folder: Path, *, variable: str = RECORD_DIR) -> int:
    """End what still records into this folder, and return how many processes that were."""
    found = left = leftovers(folder, variable=variable)
    for signum in (signal.SIGTERM, signal.SIGKILL):
        for pid in left:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signum)
        deadline_s = time.monotonic() + _GRACE_S
        while left and time.monotonic() < deadline_s:
            time.sleep(_POLL_S)
            left = leftovers(folder, variable=variable)
    return len(found)
