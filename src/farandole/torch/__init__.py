"""PyTorch's front door: Horovod's names, Horovod's meaning.

import farandole.torch as hvd

hvd.init()
optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
hvd.broadcast_parameters(model.state_dict(), root_rank=0)
"""

from __future__ import annotations

from typing import TYPE_CHECKING

try:
    import torch as _torch  # noqa: F401
except ImportError as _error:
    from farandole.world.store import missing_torch

    raise missing_torch() from _error

from farandole.engine.arguments import Adasum, Average, Max, Min, Product, Sum
from farandole.engine.basics import (
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
    set_random_seed,
)
from farandole.engine.context import (
    add_process_set,
    cross_rank,
    cross_size,
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
from farandole.engine.objects import allgather_object, broadcast_object
from farandole.engine.process_sets import ProcessSet, global_process_set
from farandole.engine.tracing import start_timeline, stop_timeline
from farandole.errors import CollectiveError as HorovodInternalError
from farandole.errors import no_elastic
from farandole.torch import mpi_ops
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
    grouped_allgather,
    grouped_allgather_async,
    grouped_allreduce,
    grouped_allreduce_,
    grouped_allreduce_async,
    grouped_allreduce_async_,
    grouped_reducescatter,
    grouped_reducescatter_async,
    reducescatter,
    reducescatter_async,
)
from farandole.torch.compression import Compression
from farandole.torch.functions import broadcast_optimizer_state, broadcast_parameters, join
from farandole.torch.optimizer import DistributedOptimizer
from farandole.torch.process_group import register as _register_backend
from farandole.torch.schedules import RecipeScheduler
from farandole.torch.sparse import sparse_allreduce_async
from farandole.torch.sync_batch_norm import SyncBatchNorm

_register_backend()

__all__ = [
    "Adasum",
    "Average",
    "Compression",
    "DistributedOptimizer",
    "HorovodInternalError",
    "Max",
    "Min",
    "ProcessSet",
    "Product",
    "RecipeScheduler",
    "Sum",
    "SyncBatchNorm",
    "add_process_set",
    "allgather",
    "allgather_async",
    "allgather_object",
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
    "broadcast_object",
    "broadcast_optimizer_state",
    "broadcast_parameters",
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
    "mpi_ops",
    "mpi_threads_supported",
    "nccl_built",
    "poll",
    "rank",
    "reducescatter",
    "reducescatter_async",
    "remove_process_set",
    "rocm_built",
    "set_random_seed",
    "shutdown",
    "size",
    "sparse_allreduce_async",
    "start_timeline",
    "stop_timeline",
    "synchronize",
]


if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        text = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(no_elastic(__name__) if name == "elastic" else text, name=name)
