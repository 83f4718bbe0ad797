"""Keras 3's front door, on each of its backends: Horovod's names, Horovod's meaning.

import farandole.keras as hvd

hvd.init()
optimizer = hvd.DistributedOptimizer(keras.optimizers.Adam(1e-3 * hvd.size()))
model.compile(optimizer=optimizer, loss=..., metrics=[...])
model.fit(hvd.shard((x, y), batch_size=32), callbacks=hvd.callbacks.standard())
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from farandole.keras.backends import check_keras as _check_keras

_check_keras()

from farandole.engine import names as _names  # noqa: E402
from farandole.engine.names import *  # noqa: F403, E402
from farandole.engine.objects import allgather_object, broadcast_object  # noqa: E402
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
    load_model,
)
from farandole.keras.trainer import init  # noqa: E402

__all__ = [
    "Compression",
    "DistributedOptimizer",
    "PartialDistributedOptimizer",
    "allgather",
    "allgather_object",
    "allreduce",
    "barrier",
    "broadcast",
    "broadcast_global_variables",
    "broadcast_object",
    "broadcast_variables",
    "callbacks",
    "init",
    "load_model",
    "reducescatter",
    "shard",
]
__all__ += _names.__all__


if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        if name == "elastic":
            from importlib import import_module

            return import_module("farandole.keras.elastic")
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}", name=name)
