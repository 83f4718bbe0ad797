"""PyTorch's front door: Horovod's names, Horovod's meaning.

import farandole.torch as hvd

hvd.init()
optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
hvd.broadcast_parameters(model.state_dict(), root_rank=0)
"""

from __future__ import annotations

try:
    import torch as _torch  # noqa: F401
except ImportError as _error:
    from farandole.world.store import missing_torch

    raise missing_torch() from _error

from farandole.engine.arguments import Adasum, Average, Max, Min, Product, Sum
from farandole.engine.context import (
    cross_rank,
    cross_size,
    init,
    is_initialized,
    local_rank,
    local_size,
    rank,
    shutdown,
    size,
)
from farandole.engine.handles import poll, synchronize
from farandole.engine.objects.exchange import allgather_object, broadcast_object
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
from farandole.torch.compression import Compression
from farandole.torch.functions import broadcast_optimizer_state, broadcast_parameters
from farandole.torch.optimizer import DistributedOptimizer
from farandole.torch.process_group import register as _register_backend
from farandole.torch.schedules import RecipeScheduler
from farandole.torch.sync_batch_norm import SyncBatchNorm

_register_backend()

__all__ = [
    "Adasum",
    "Average",
    "Compression",
    "DistributedOptimizer",
    "Max",
    "Min",
    "Product",
    "RecipeScheduler",
    "Sum",
    "SyncBatchNorm",
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
    "cross_rank",
    "cross_size",
    "init",
    "is_initialized",
    "local_rank",
    "local_size",
    "poll",
    "rank",
    "reducescatter",
    "reducescatter_async",
    "shutdown",
    "size",
    "synchronize",
]
