"""Horovod's questions about what it was built with, answered for what is installed here.

They may be asked before init().
"""

from __future__ import annotations

import os
from importlib.util import find_spec

from farandole.engine import context
from farandole.errors import UsageError


def mpi_built(verbose: bool = False) -> bool:
    """Say whether mpi4py is installed, which the MPI transport needs."""
    return find_spec("mpi4py") is not None


def mpi_enabled() -> bool:
    """Say whether MPI moves the data, or would after init()."""
    if context.is_initialized():
        return "mpi" in context.known().engine.transport.name
    return os.environ.get("FARANDOLE_TRANSPORT") == "mpi"


def mpi_threads_supported() -> bool:
    """Say whether MPI may be called from several threads.

    Raises:
        UsageError: a ValueError: MPI is not in use.
    """
    if not mpi_enabled():
        raise UsageError(
            "MPI is not in use: this run goes by shared memory or gloo. Start it with "
            "--transport mpi to use MPI."
        )
    return True


def gloo_built(verbose: bool = False) -> bool:
    """Say whether torch is installed, which brings Gloo."""
    return find_spec("torch") is not None


def gloo_enabled() -> bool:
    """Say whether workers find each other without MPI, which Horovod calls Gloo."""
    return not mpi_enabled()


def nccl_built(verbose: bool = False) -> int:
    """Return the version of torch's NCCL as a number such as 21805; 0 without."""
    if not cuda_built():
        return 0
    import torch

    version = torch.cuda.nccl.version()  # type: ignore[no-untyped-call]
    major, minor, patch = (*version, 0, 0)[:3]
    return int(major * 10_000 + minor * 100 + patch)


def cuda_built() -> bool:
    """Say whether torch was built for CUDA."""
    if find_spec("torch") is None:
        return False
    import torch

    return torch.version.cuda is not None


def rocm_built() -> bool:
    """Say whether torch was built for ROCm."""
    if find_spec("torch") is None:
        return False
    import torch

    return torch.version.hip is not None


def ddl_built(verbose: bool = False) -> bool:
    """Say no: IBM's DDL is not used here."""
    return False


def ccl_built(verbose: bool = False) -> bool:
    """Say no: Intel's oneCCL is not used here."""
    return False
