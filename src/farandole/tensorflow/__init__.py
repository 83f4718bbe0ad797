"""TensorFlow 2's front door: Horovod's names, Horovod's meaning.

import farandole.tensorflow as hvd

hvd.init()
with tf.GradientTape() as tape:
    loss = loss_of(model(x), y)
tape = hvd.DistributedGradientTape(tape)
gradients = tape.gradient(loss, model.trainable_variables)
hvd.broadcast_variables(model.variables, root_rank=0)
"""

from __future__ import annotations

from typing import Any

try:
    import tensorflow as _tensorflow  # noqa: F401
except ImportError as _error:
    from farandole.errors import MissingExtraError

    raise MissingExtraError(
        "farandole.tensorflow needs TensorFlow, which is not installed: "
        "pip install 'farandole[tensorflow]'."
    ) from _error

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
    is_homogeneous,
    is_initialized,
    local_rank,
    local_size,
    rank,
    remove_process_set,
    shutdown,
    size,
)
from farandole.engine.process_sets import ProcessSet, global_process_set
from farandole.engine.tracing import start_timeline, stop_timeline
from farandole.errors import no_elastic
from farandole.tensorflow import mpi_ops, util
from farandole.tensorflow.collectives import (
    allgather,
    allreduce,
    alltoall,
    barrier,
    broadcast,
    grouped_allgather,
    grouped_allreduce,
    grouped_reducescatter,
    reducescatter,
)
from farandole.tensorflow.compression import Compression
from farandole.tensorflow.functions import (
    allgather_object,
    broadcast_,
    broadcast_global_variables,
    broadcast_object,
    broadcast_object_fn,
    broadcast_variables,
    init,
    join,
    local_rank_op,
    local_size_op,
    process_set_included_op,
    rank_op,
    size_op,
)
from farandole.tensorflow.tape import (
    DistributedGradientTape,
    DistributedOptimizer,
    PartialDistributedGradientTape,
)

# Not public, but programs that are written for eager mode and graphs ask for them here.
from farandole.tensorflow.util import (  # noqa: F401
    _cache,
    _executing_eagerly,
    _make_subgraph,
    refs_to_vars,
    vars_to_refs,
)

__all__ = [
    "Adasum",
    "Average",
    "Compression",
    "DistributedGradientTape",
    "DistributedOptimizer",
    "Max",
    "Min",
    "PartialDistributedGradientTape",
    "ProcessSet",
    "Product",
    "Sum",
    "SyncBatchNormalization",
    "add_process_set",
    "allgather",
    "allgather_object",
    "allreduce",
    "alltoall",
    "barrier",
    "broadcast",
    "broadcast_",
    "broadcast_global_variables",
    "broadcast_object",
    "broadcast_object_fn",
    "broadcast_variables",
    "ccl_built",
    "cross_rank",
    "cross_size",
    "cuda_built",
    "ddl_built",
    "global_process_set",
    "gloo_built",
    "gloo_enabled",
    "grouped_allgather",
    "grouped_allreduce",
    "grouped_reducescatter",
    "init",
    "is_homogeneous",
    "is_initialized",
    "join",
    "local_rank",
    "local_rank_op",
    "local_size",
    "local_size_op",
    "mpi_built",
    "mpi_enabled",
    "mpi_ops",
    "mpi_threads_supported",
    "nccl_built",
    "process_set_included_op",
    "rank",
    "rank_op",
    "reducescatter",
    "remove_process_set",
    "rocm_built",
    "set_random_seed",
    "shutdown",
    "size",
    "size_op",
    "start_timeline",
    "stop_timeline",
    "util",
]


def __getattr__(name: str) -> Any:
    # On use: programs that only use TensorFlow need no Keras, or another one than version 3.
    if name == "SyncBatchNormalization":
        from farandole.tensorflow.sync_batch_norm import SyncBatchNormalization

        return SyncBatchNormalization
    text = f"farandole.tensorflow has no {name}: it has {', '.join(__all__)}."
    raise AttributeError(no_elastic(__name__) if name == "elastic" else text, name=name)
