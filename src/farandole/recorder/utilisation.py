"""What a worker uses over time: CPU, memory, and a GPU's share, memory and energy.

A thread of its own takes a sample twice a second. Sampling at the ends of steps would need no
thread, but would be blind where it matters most: while a rank waits for data, or in a step of
minutes. A thread that sleeps costs training nothing, and a sample takes about 0.1 ms.
"""

from __future__ import annotations

import math
import os
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from farandole.recorder.recorder import Recorder

INTERVAL_S = 0.5
# A shorter time at the very end would divide by next to nothing.
_LEAST_INTERVAL_S = 0.05
_COLUMNS = ("time_s", "cpu", "memory_bytes", "gpu", "gpu_energy_j")


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """One look at a GPU; NaN where it does not tell."""

    busy: float = math.nan
    """Share of time, since the driver's last sample."""
    energy_j: float = math.nan
    """Since the driver was loaded."""


NO_GPU = Gpu()


class Sampler:
    """Samples of this process and its loader processes, kept until a line of them is asked for."""

    def __init__(
        self,
        *,
        begin_s: float,
        cpu_seconds: Callable[[], float],
        memory_bytes: Callable[[], float],
        gpu: Callable[[], Gpu] = lambda: NO_GPU,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Begin; times count from `begin_s`, on the clock."""
        self._begin_s, self._clock = begin_s, clock
        self._cpu_seconds, self._memory_bytes, self._gpu = cpu_seconds, memory_bytes, gpu
        self._last_s, self._last_cpu_s = clock(), cpu_seconds()
        self._first_energy_j = gpu().energy_j
        self._samples: list[tuple[float, ...]] = []
        # The thread samples while the recorder's asks for a line.
        self._lock = threading.Lock()

    def sample(self) -> None:
        """Take a sample of the time since the last one."""
        with self._lock:
            now_s = self._clock()
            wall_s = now_s - self._last_s
            if wall_s < _LEAST_INTERVAL_S:
                return
            cpu_s = self._cpu_seconds()
            gpu = self._gpu()
            if math.isnan(self._first_energy_j):
                # A script comes to its GPU when it likes.
                self._first_energy_j = gpu.energy_j
            self._samples.append(
                (
                    now_s - self._begin_s,
                    # Loader processes that end unseen between two samples take their time along.
                    max(0.0, cpu_s - self._last_cpu_s) / wall_s,
                    self._memory_bytes(),
                    gpu.busy,
                    gpu.energy_j - self._first_energy_j,
                )
            )
            self._last_s, self._last_cpu_s = now_s, cpu_s

    def line(self) -> dict[str, Any] | None:
        """Return the samples since the last call as a `use` line; None when there is none."""
        with self._lock:
            samples, self._samples = self._samples, []
        if not samples:
            return None
        columns = {
            name: [None if math.isnan(value) else round(value, 6) for value in values]
            for name, values in zip(_COLUMNS, zip(*samples, strict=True), strict=True)
        }
        return {"kind": "use", "columns": columns}


class Watch:
    """The thread that takes samples."""

    def __init__(self, sampler: Sampler) -> None:
        self._sampler = sampler
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="farandole-use", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Take the last sample, and end the thread; a second call does nothing more."""
        self._stop.set()
        self._thread.join()
        self._sampler.sample()

    def _run(self) -> None:
        while not self._stop.wait(INTERVAL_S):
            self._sampler.sample()


def watch(recorder: Recorder) -> None:
    """Sample this process from now on, into `use` lines of its recorder, until that closes."""
    sampler = Sampler(
        begin_s=recorder.begin_s,
        cpu_seconds=cpu_seconds,
        memory_bytes=memory_bytes,
        gpu=gpu_reader(),
    )
    recorder.add_source(sampler.line)
    recorder.add_ending(Watch(sampler).stop)


def cpu_seconds() -> float:
    """Return the CPU time of this process and of all that it has started, so far."""
    times = os.times()
    # Of processes that have ended and were waited for the system keeps the sum.
    mine = times.user + times.system + times.children_user + times.children_system
    return mine + sum(map(_cpu_of, _descendants("self")))


def memory_bytes() -> float:
    """Return the resident memory of this process; what forked loaders share counts once."""
    try:
        with open("/proc/self/statm", "rb") as file:  # noqa: PTH123 - twice a second
            return float(int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE"))
    except (OSError, ValueError, IndexError):
        import psutil

        return float(psutil.Process().memory_info().rss)


def _descendants(pid: str) -> list[str]:
    """Return the processes below one; empty where the kernel keeps no such list."""
    found: list[str] = []
    try:
        for task in os.listdir(f"/proc/{pid}/task"):  # noqa: PTH208
            with open(f"/proc/{pid}/task/{task}/children", "rb") as file:  # noqa: PTH123
                found += file.read().decode().split()
    except OSError:
        pass  # not Linux, or it has just ended
    for child in list(found):
        found += _descendants(child)
    return found


def _cpu_of(pid: str) -> float:
    """Return the CPU time of another process and of those that it has waited for."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:  # noqa: PTH123
            # The name in parentheses may hold anything. utime, stime, cutime, cstime follow.
            fields = file.read().rpartition(b")")[2].split()
        return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError):
        return 0.0


def gpu_reader() -> Callable[[], Gpu]:
    """Return what reads this process's GPU, by NVML (the extra `gpu`); not a number without one."""
    try:
        import pynvml
    except ImportError:
        return lambda: NO_GPU
    handle: Any = None

    def read() -> Gpu:
        nonlocal handle
        try:
            if handle is None:
                handle = _handle(pynvml)
            if handle is None:
                return NO_GPU
            busy = pynvml.nvmlDeviceGetUtilizationRates(handle).gpu / 100
            try:
                energy_j = pynvml.nvmlDeviceGetTotalEnergyConsumption(handle) / 1000
            except pynvml.NVMLError:
                energy_j = math.nan  # before Volta
            return Gpu(busy=busy, energy_j=energy_j)
        except pynvml.NVMLError:
            return NO_GPU

    return read


def _handle(pynvml: Any) -> Any:
    """Find the GPU that torch uses here; None as long as it uses none."""
    torch = sys.modules.get("torch")
    cuda = getattr(torch, "cuda", None)
    # Asking for the device of a script that has not asked for one would make it use one.
    if cuda is None or not cuda.is_initialized():
        return None
    # The current device is each thread's own, and this is not the script's: memory tells.
    device = max(range(cuda.device_count()), key=cuda.memory_reserved, default=0)
    if not cuda.memory_reserved(device):
        return None
    pynvml.nvmlInit()
    uuid = cuda.get_device_properties(device).uuid
    return pynvml.nvmlDeviceGetHandleByUUID(f"GPU-{uuid}")
