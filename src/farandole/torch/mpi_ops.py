"""What programs import from `horovod.torch.mpi_ops`: all of the operations, and its basics."""

from __future__ import annotations

from collections.abc import Sequence

from farandole.engine.arguments import Adasum, Average, Max, Min, Product, Sum
from farandole.engine.built import (
    ccl_built,
    cuda_built,
    ddl_built,
    gloo_built,
    gloo_enabled,
    mpi_built,
    mpi_enabled,
    mpi_threads_supported,
    nccl_built,
    rocm_built,
)
from farandole.engine.context import (
    add_process_set,
    cross_rank,
    cross_size,
    current,
    init,
    is_homogeneous,
    is_initialized,
    local_rank,
    local_size,
    rank,
    remove_process_set,
    shutdown,
    size,
)
from farandole.engine.handles import poll, synchronize
from farandole.engine.process_sets import ProcessSet, global_process_set
from farandole.engine.tracing import start_timeline, stop_timeline
from farandole.torch.collectives import (
    allgather,
    allgather_async,
    allreduce,
    allreduce_,
    allreduce_async,
    allreduce_async_,
    alltoall,
    alltoall_async,
    barrier,
    broadcast,
    broadcast_,
    broadcast_async,
    broadcast_async_,
    reducescatter,
    reducescatter_async,
)
from farandole.torch.grouped import (
    grouped_allgather,
    grouped_allgather_async,
    grouped_allreduce,
    grouped_allreduce_,
    grouped_allreduce_async,
    grouped_allreduce_async_,
    grouped_reducescatter,
    grouped_reducescatter_async,
)
from farandole.torch.join import join
from farandole.torch.sparse import sparse_allreduce_async

__all__ = [
    "Adasum",
    "Average",
    "Max",
    "Min",
    "ProcessSet",
    "Product",
    "Sum",
    "add_process_set",
    "allgather",
    "allgather_async",
    "allreduce",
    "allreduce_",
    "allreduce_async",
    "allreduce_async_",
    "alltoall",
    "alltoall_async",
    "barrier",
    "broadcast",
    "broadcast_",
    "broadcast_async",
    "broadcast_async_",
    "ccl_built",
    "cross_rank",
    "cross_size",
    "cuda_built",
    "ddl_built",
    "global_process_set",
    "gloo_built",
    "gloo_enabled",
    "grouped_allgather",
    "grouped_allgather_async",
    "grouped_allreduce",
    "grouped_allreduce_",
    "grouped_allreduce_async",
    "grouped_allreduce_async_",
    "grouped_reducescatter",
    "grouped_reducescatter_async",
    "init",
    "is_homogeneous",
    "is_initialized",
    "join",
    "local_rank",
    "local_size",
    "mpi_built",
    "mpi_enabled",
    "mpi_threads_supported",
    "nccl_built",
    "poll",
    "rank",
    "reducescatter",
    "reducescatter_async",
    "remove_process_set",
    "rocm_built",
    "shutdown",
    "size",
    "sparse_allreduce_async",
    "start_timeline",
    "stop_timeline",
    "synchronize",
]


class _Basics:
    """The methods of Horovod's basics that scripts reach for, though they begin with a line."""

    init = staticmethod(init)
    shutdown = staticmethod(shutdown)
    rank = staticmethod(rank)
    size = staticmethod(size)

    @staticmethod
    def _get_process_set_ids_and_ranks() -> dict[int, list[int]]:
        """Return the ranks of every process set, by its number."""
        return current().sets.ids_and_ranks()

    @staticmethod
    def _process_set_size(process_set_id: int) -> int:
        """Return the number of ranks in a process set."""
        return len(current().sets.ranks_of(process_set_id))

    @staticmethod
    def _process_set_rank(process_set_id: int) -> int:
        """Return this worker's place in a process set; -1 outside."""
        ranks = current().sets.ranks_of(process_set_id)
        return ranks.index(rank()) if rank() in ranks else -1

    @staticmethod
    def _add_process_set_impl(ranks: Sequence[int]) -> int | None:
        """Make a process set; return its number."""
        return add_process_set(ranks).process_set_id

    @staticmethod
    def _remove_process_set_impl(process_set_id: int) -> int | None:
        """Take a process set out of use; return its number, None if that cannot be done."""
        found = current().sets.object_of(process_set_id)
        done = found is not None and remove_process_set(found)
        return process_set_id if done else None


_basics = _Basics()
