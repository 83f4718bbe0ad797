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

from farandole.engine import names as _names
from farandole.engine.names import *  # noqa: F403
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
from farandole.tensorflow.gradients import (
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
    "Compression",
    "DistributedGradientTape",
    "DistributedOptimizer",
    "PartialDistributedGradientTape",
    "SyncBatchNormalization",  # noqa: F405
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
    "grouped_allgather",
    "grouped_allreduce",
    "grouped_reducescatter",
    "init",
    "join",
    "local_rank_op",
    "local_size_op",
    "mpi_ops",
    "process_set_included_op",
    "rank_op",
    "reducescatter",
    "size_op",
    "util",
]
__all__ += _names.__all__


def __getattr__(name: str) -> Any:
    # On use: programs that only use TensorFlow need no Keras, or another one than version 3.
    if name == "SyncBatchNormalization":
        from farandole.tensorflow.sync_batch_norm import SyncBatchNormalization

        return SyncBatchNormalization
    if name == "elastic":
        from importlib import import_module

        return import_module("farandole.tensorflow.elastic")
    raise AttributeError(
        f"farandole.tensorflow has no {name}: it has {', '.join(__all__)}.", name=name
    )
