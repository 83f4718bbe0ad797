"""DistributedOptimizer: Keras 3's optimizers; those of TensorFlow 1 are turned away."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from farandole.engine.arguments import Average
from farandole.errors import UsageError


def DistributedOptimizer(  # noqa: N802 (Horovod's name)
    optimizer: Any,
    name: str | None = None,
    use_locking: bool = False,
    device_dense: str = "",
    device_sparse: str = "",
    compression: Any = None,
    sparse_as_dense: bool = False,
    backward_passes_per_step: int = 1,
    op: int = Average,
    gradient_predivide_factor: float = 1.0,
    average_aggregated_gradients: bool = False,
    num_groups: int = 0,
    groups: Any = None,
    process_set: Any = None,
    scale_local_gradients: bool = True,
) -> Any:
    """Wrap a Keras optimizer so that gradients are combined over all workers before each update.

    It is farandole.keras's, with Horovod's order of arguments; see there. `use_locking` is
    TensorFlow 1's and has no effect.

    Raises:
        UsageError: an optimizer of TensorFlow 1, or one that is wrapped already.
    """
    if isinstance(optimizer, tf.compat.v1.train.Optimizer):
        raise UsageError(
            f"{type(optimizer).__name__} is an optimizer of TensorFlow 1. Use one of "
            "tf.keras.optimizers, or hvd.DistributedGradientTape around your tape."
        )
    from farandole.keras import optimizer as keras_optimizer

    return keras_optimizer.DistributedOptimizer(
        optimizer,
        name,
        compression=compression,
        sparse_as_dense=sparse_as_dense,
        gradient_predivide_factor=gradient_predivide_factor,
        op=op,
        backward_passes_per_step=backward_passes_per_step,
        average_aggregated_gradients=average_aggregated_gradients,
        process_set=process_set,
        scale_local_gradients=scale_local_gradients,
    )
