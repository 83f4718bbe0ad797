"""How much of the machine others took while a launch ran.

Everything that ran (`/proc/stat`) minus what the launch's own processes used (`getrusage` of the
children that were waited for) is foreign. The kernel's work is not: interrupts on a benchmark of
loopback sockets are its own packets, and kernel threads clean up after whoever runs, which took 2 %
of the machine during a launch of Open MPI's.
"""

from __future__ import annotations

import contextlib
import os
import resource
import time
from dataclasses import dataclass
from pathlib import Path

VOID_SHARE = 0.05
"""Above this share of foreign CPU or of stolen time a launch does not count."""

_STAT = Path("/proc/stat")
_KTHREADD = "2"  # the parent of all kernel threads


@dataclass(frozen=True, slots=True, kw_only=True)
class CpuReading:
    """The machine's and our own clocks at one moment, each since some fixed start."""

    wall_s: float
    busy_s: float
    """CPU time of all processes together, user and system, without the kernel's threads."""
    steal_s: float
    """Time that the hypervisor gave to somebody else."""
    own_s: float
    """CPU time of this process and of its children that have ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Disturbance:
    """What others took, as shares of all cores over the time of a launch."""

    foreign_share: float
    steal_share: float

    @property
    def voids(self) -> bool:
        return self.foreign_share > VOID_SHARE or self.steal_share > VOID_SHARE


def parse_stat(text: str, *, ticks_per_s: int) -> tuple[float, float]:
    """Return busy and stolen seconds from the first line of `/proc/stat`."""
    fields = text.split("\n", 1)[0].split()
    user, nice, system = (int(field) for field in fields[1:4])
    # Fields: cpu user nice system idle iowait irq softirq steal; guest time is inside user.
    steal = int(fields[8]) if len(fields) > 8 else 0
    return (user + nice + system) / ticks_per_s, steal / ticks_per_s


def parse_kernel_thread(text: str, *, ticks_per_s: int) -> float:
    """Return the seconds of a kernel thread from its `/proc/PID/stat`; 0 for other processes."""
    # The name stands in parentheses and may hold anything, so what follows the last one counts:
    # state ppid pgrp session tty tpgid flags minflt cminflt majflt cmajflt utime stime.
    fields = text.rpartition(")")[2].split()
    if fields[1] != _KTHREADD:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / ticks_per_s


def read_cpu() -> CpuReading:
    """Read the clocks now; a machine without `/proc/stat` reads as never disturbed."""
    own_s = 0.0
    for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN):
        usage = resource.getrusage(who)
        own_s += usage.ru_utime + usage.ru_stime
    busy_s = steal_s = 0.0
    if _STAT.exists():
        ticks_per_s = os.sysconf("SC_CLK_TCK")
        busy_s, steal_s = parse_stat(_STAT.read_text(), ticks_per_s=ticks_per_s)
        busy_s -= _kernel_threads_s(ticks_per_s)
    return CpuReading(wall_s=time.monotonic(), busy_s=busy_s, steal_s=steal_s, own_s=own_s)


def _kernel_threads_s(ticks_per_s: int) -> float:
    total_s = 0.0
    for path in Path("/proc").glob("[0-9]*/stat"):
        # A process may end between its listing and its reading.
        with contextlib.suppress(OSError):
            total_s += parse_kernel_thread(path.read_text(), ticks_per_s=ticks_per_s)
    return total_s


def disturbance(before: CpuReading, after: CpuReading, *, num_cores: int) -> Disturbance:
    """Return the shares of the machine that others took between two readings.

    Ticks are sampled and our own time is exact, so the difference may fall a little below zero;
    that reads as none.
    """
    capacity_s = max(after.wall_s - before.wall_s, 1e-9) * num_cores
    foreign_s = (after.busy_s - before.busy_s) - (after.own_s - before.own_s)
    return Disturbance(
        foreign_share=max(0.0, foreign_s / capacity_s),
        steal_share=max(0.0, (after.steal_s - before.steal_s) / capacity_s),
    )


def wait_until_quiet(*, limit_s: float, num_cores: int, window_s: float = 0.5) -> bool:
    """Wait until others leave the machine alone; return False when `limit_s` passed first."""
    deadline_s = time.monotonic() + limit_s
    while True:
        before = read_cpu()
        time.sleep(window_s)
        if not disturbance(before, read_cpu(), num_cores=num_cores).voids:
            return True
        if time.monotonic() > deadline_s:
            return False
