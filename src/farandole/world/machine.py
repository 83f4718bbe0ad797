"""The machine that figures come from, described without importing what is installed on it."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Sequence
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
