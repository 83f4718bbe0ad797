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

from farandole.engine import names as _names
from farandole.engine.context import init
from farandole.engine.names import *  # noqa: F403
from farandole.engine.objects import allgather_object, broadcast_object
from farandole.errors import HorovodInternalError
from farandole.torch import mpi_ops
from farandole.torch.by_name import sparse_allreduce_async
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
    poll,
    reducescatter,
    reducescatter_async,
    synchronize,
)
from farandole.torch.compression import Compression
from farandole.torch.functions import broadcast_optimizer_state, broadcast_parameters, join
from farandole.torch.optimizer import DistributedOptimizer
from farandole.torch.process_group import register as _register_backend
from farandole.torch.schedules import RecipeScheduler
from farandole.torch.sync_batch_norm import SyncBatchNorm

_register_backend()

__all__ = [
    "Compression",
    "DistributedOptimizer",
    "HorovodInternalError",
    "RecipeScheduler",
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
    "grouped_allgather",
    "grouped_allgather_async",
    "grouped_allreduce",
    "grouped_allreduce_",
    "grouped_allreduce_async",
    "grouped_allreduce_async_",
    "grouped_reducescatter",
    "grouped_reducescatter_async",
    "init",
    "join",
    "mpi_ops",
    "poll",
    "reducescatter",
    "reducescatter_async",
    "sparse_allreduce_async",
    "synchronize",
]
__all__ += _names.__all__


if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        if name == "elastic":
            from importlib import import_module

            return import_module("farandole.torch.elastic")
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}", name=name)
