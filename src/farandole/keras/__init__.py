"""Keras 3's front door, on each of its backends: Horovod's names, Horovod's meaning.

import farandole.keras as hvd

hvd.init()
optimizer = hvd.DistributedOptimizer(keras.optimizers.Adam(1e-3 * hvd.size()))
model.compile(optimizer=optimizer, loss=..., metrics=[...])
model.fit(hvd.shard((x, y), batch_size=32), callbacks=hvd.callbacks.standard())
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from farandole.keras.backend import check_keras as _check_keras

_check_keras()

from farandole.engine.arguments import Adasum, Average, Max, Min, Product, Sum  # noqa: E402
from farandole.engine.basics import (  # noqa: E402
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
from farandole.engine.context import (  # noqa: E402
    add_process_set,
    cross_rank,
    cross_size,
    is_homogeneous,
    is_initialized,
    local_rank,
    local_size,
    rank,
    remove_process_set,
    shutdown,
    size,
)
from farandole.engine.objects import allgather_object, broadcast_object  # noqa: E402
from farandole.engine.process_sets import ProcessSet, global_process_set  # noqa: E402
from farandole.engine.tracing import start_timeline, stop_timeline  # noqa: E402
from farandole.errors import no_elastic  # noqa: E402
from farandole.keras import callbacks  # noqa: E402
from farandole.keras.collectives import (  # noqa: E402
    Compression,
    allgather,
    allreduce,
    barrier,
    broadcast,
    broadcast_global_variables,
    broadcast_variables,
    reducescatter,
)
from farandole.keras.data import shard  # noqa: E402
from farandole.keras.optimizer import (  # noqa: E402
    DistributedOptimizer,
    PartialDistributedOptimizer,
)
from farandole.keras.saving import load_model  # noqa: E402
from farandole.keras.trainer import init  # noqa: E402

__all__ = [
    "Adasum",
    "Average",
    "Compression",
    "DistributedOptimizer",
    "Max",
    "Min",
    "PartialDistributedOptimizer",
    "ProcessSet",
    "Product",
    "Sum",
    "add_process_set",
    "allgather",
    "allgather_object",
    "allreduce",
    "barrier",
    "broadcast",
    "broadcast_global_variables",
    "broadcast_object",
    "broadcast_variables",
    "callbacks",
    "ccl_built",
    "cross_rank",
    "cross_size",
    "cuda_built",
    "ddl_built",
    "global_process_set",
    "gloo_built",
    "gloo_enabled",
    "init",
    "is_homogeneous",
    "is_initialized",
    "load_model",
    "local_rank",
    "local_size",
    "mpi_built",
    "mpi_enabled",
    "mpi_threads_supported",
    "nccl_built",
    "rank",
    "reducescatter",
    "remove_process_set",
    "rocm_built",
    "set_random_seed",
    "shard",
    "shutdown",
    "size",
    "start_timeline",
    "stop_timeline",
]


if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        text = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(no_elastic(__name__) if name == "elastic" else text, name=name)
