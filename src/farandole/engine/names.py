"""Horovod's names that are the same in every front door, and what is behind some of them.

Among these are the methods of Horovod's basics that scripts reach for, though they begin with a
line, and `join`, which front doors wrap.
"""

from __future__ import annotations

import os
import random
import sys
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from typing import Any, Protocol

import numpy as np

from farandole.engine import context
from farandole.engine.arguments import Adasum, Average, Max, Min, Product, Sum
from farandole.engine.context import (
    add_process_set,
    cross_rank,
    cross_size,
    current,
    is_homogeneous,
    is_initialized,
    known,
    local_rank,
    local_size,
    rank,
    remove_process_set,
    shutdown,
    size,
)
from farandole.engine.engine import Engine
from farandole.engine.process_sets import ProcessSet, global_process_set
from farandole.engine.tracing import start_timeline, stop_timeline
from farandole.errors import UsageError

__all__ = [
    "Adasum",
    "Average",
    "Max",
    "Min",
    "ProcessSet",
    "Product",
    "Sum",
    "add_process_set",
    "ccl_built",
    "cross_rank",
    "cross_size",
    "cuda_built",
    "ddl_built",
    "global_process_set",
    "gloo_built",
    "gloo_enabled",
    "is_homogeneous",
    "is_initialized",
    "local_rank",
    "local_size",
    "mpi_built",
    "mpi_enabled",
    "mpi_threads_supported",
    "nccl_built",
    "rank",
    "remove_process_set",
    "rocm_built",
    "set_random_seed",
    "shutdown",
    "size",
    "start_timeline",
    "stop_timeline",
]


class Basics:
    """What `hvd.mpi_ops._basics` is called in scripts."""

    def __init__(self, find: Callable[[str], Any]) -> None:
        """Begin.

        Args:
            find: returns what the front door has under a name.
        """
        self._find = find

    def __getattr__(self, name: str) -> Any:
        """Return those that do not begin with a line: `rank`, `size`, `init` and so on."""
        return self._find(name)

    @staticmethod
    def _get_process_set_ids_and_ranks() -> dict[int, list[int]]:
        """Return the ranks of every process set, by its number."""
        return known().sets.ids_and_ranks()

    @staticmethod
    def _process_set_size(process_set_id: int) -> int:
        """Return the number of ranks in a process set."""
        return len(known().sets.ranks_of(process_set_id))

    @staticmethod
    def _process_set_rank(process_set_id: int) -> int:
        """Return this worker's place in a process set; -1 outside."""
        ranks = known().sets.ranks_of(process_set_id)
        return ranks.index(rank()) if rank() in ranks else -1

    @staticmethod
    def _add_process_set_impl(ranks: Sequence[int]) -> int | None:
        """Make a process set; return its number, None if there is one of these ranks."""
        if sorted(ranks) in current().sets.ids_and_ranks().values():
            return None
        return add_process_set(ranks).process_set_id

    @staticmethod
    def _remove_process_set_impl(process_set_id: int) -> int | None:
        """Take a process set out of use; return its number, None if that cannot be done."""
        found = current().sets.object_of(process_set_id)
        done = found is not None and remove_process_set(found)
        return process_set_id if done else None


def mpi_built(verbose: bool = False) -> bool:
    """Say whether mpi4py is installed, which the MPI transport needs."""
    return find_spec("mpi4py") is not None


def mpi_enabled() -> bool:
    """Say whether MPI moves the data, or would after init()."""
    if context.is_initialized():
        return context.known().world.transport == "mpi"
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


_SEEDS = 1 << 32  # as many as NumPy takes


def set_random_seed(seed: int) -> None:
    """Seed Python, NumPy, and those of PyTorch, TensorFlow and Keras that are imported.

    Every rank draws numbers of its own, so that dropout drops other units on each of them; rank 0
    draws those of a single process with this seed. Weights are therefore the same for any number of
    workers, once rank 0 has broadcast them. Call it after init() and before the model is made.

    Raises:
        UsageError: `seed` is not an integer from 0 to 2**32 - 1.
        NotInitializedError: init() was not called.

    Example:
        >>> hvd.init()  # doctest: +SKIP
        >>> hvd.set_random_seed(args.seed)
    """
    if not isinstance(seed, int | np.integer) or not 0 <= seed < _SEEDS:
        raise UsageError(f"set_random_seed({seed!r}): give an integer from 0 to 2**32 - 1.")
    rank = context.rank()
    own = int(np.random.SeedSequence((seed, rank)).generate_state(1)[0]) if rank else int(seed)
    random.seed(own)
    np.random.seed(own)
    # Keras' own function imports TensorFlow on every backend, which takes seconds. Its layers draw
    # from Python's numbers above, but on PyTorch dropout draws from PyTorch's.
    if (torch := sys.modules.get("torch")) is not None:
        torch.manual_seed(own)
    if (tensorflow := sys.modules.get("tensorflow")) is not None:
        tensorflow.random.set_seed(own)
    if "keras" in sys.modules:
        from keras.src.backend.common import global_state
        from keras.src.random.seed_generator import GLOBAL_SEED_GENERATOR

        # It goes on from the numbers drawn before; without it Keras makes another.
        global_state.set_global_attribute(GLOBAL_SEED_GENERATOR, None)


class JoinedBuckets(Protocol):
    """Something with buckets, in which the others' steps need this rank."""

    def sit_out(self) -> bool:
        """Bring zeros to a step of the others, if they have begun one; say whether one is on.

        Called again and again. A step that has ended is counted, as the others count it.
        """

    def come_back(self) -> None:
        """Leave out a step's number, as every rank does.

        Who learns first that all have joined may begin a step while others still look for steps to
        sit out: theirs have the number that is left out.
        """


def join(engine: Engine, sitting: Sequence[JoinedBuckets]) -> int:
    """Wait until every rank has called this, taking part in the others' steps meanwhile.

    Args:
        engine: of all ranks.
        sitting: all that has buckets among them. What goes by name goes without those who have
            joined.

    Returns:
        The rank that joined last, the same on every rank.

    Raises:
        StopTraining: all ranks leave the script here.
    """
    handle, now = engine.join(), context.current()

    def all_joined() -> bool:
        in_step = [each.sit_out() for each in sitting]
        return (handle.check() or now.stopping) and not any(in_step)

    engine.loop.wait(all_joined)
    # The others leave after the step that was sat out last: nobody will join any more.
    now.stop_if_asked()
    for each in sitting:
        each.come_back()
    last = engine.wait(handle)
    now.handles.count_anew(engine.number)
    assert isinstance(last, int)
    return last
