"""Collective operations on Keras tensors and variables, with Horovod's names.

A backend's tensor comes back as one; anything else comes back as a NumPy array.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from farandole.engine import arrays
from farandole.engine.arguments import Average, check_root, reduction_of
from farandole.engine.context import engine_of
from farandole.engine.process_sets import ProcessSet, global_process_set
from farandole.errors import UsageError
from farandole.transport.reduction import HALF_TYPES, STORAGE, Array, narrow, widen


def allreduce(
    value: Any,
    name: str | None = None,
    average: bool | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    op: int | None = None,
    compression: Any = None,
) -> Any:
    """Combine a value over all workers.

    Args:
        value: a tensor, array or number, of the same shape and type on every worker.
        name: what ties the workers' calls together; by default the order of unnamed calls does.
        average: deprecated: True for Average, False for Sum.
        prescale_factor: multiplies every worker's values first.
        postscale_factor: multiplies the result.
        op: Average (default), Sum, Adasum, Min, Max or Product.
        compression: hvd.Compression.none, fp16 or bf16.
    """
    how = reduction_of(average, op, prescale_factor, postscale_factor)
    wire = wire_of(compression)
    return _on(value, lambda array: _allreduce(array, name, how, wire))


def allgather(value: Any, name: str | None = None) -> Any:
    """Return all workers' values one behind the other; first dimensions may differ."""
    return _on(value, lambda array: arrays.allgather(array, name))


def broadcast(value: Any, root_rank: int, name: str | None = None) -> Any:
    """Return the root's value on every worker."""
    return _on(value, lambda array: arrays.broadcast(array, root_rank, name))


def reducescatter(value: Any, name: str | None = None, op: int = Average) -> Any:
    """Combine a value over all workers; return this worker's share of its rows."""
    how = reduction_of(None, op)
    return _on(value, lambda array: arrays.reducescatter(array, name, how))


def barrier(process_set: ProcessSet = global_process_set) -> None:
    """Wait until every worker is here."""
    arrays.barrier(engine_of(process_set))


def broadcast_variables(variables: Iterable[Any], root_rank: int = 0) -> None:
    """Give every worker the root's variables, in place.

    Args:
        variables: Keras variables, such as `model.variables`; in the same order on every worker.
        root_rank: whose values count.
    """
    check_root(root_rank)
    for number, variable in enumerate(variables):
        kind = "parameters" if getattr(variable, "trainable", False) else "buffers"
        value = _array_of(variable)
        # By number: Keras counts up names of layers, which may differ between workers.
        received = arrays.broadcast(value, root_rank, f"variable.{number}", kind)
        variable.assign(received)


def broadcast_global_variables(root_rank: int = 0) -> None:
    """Give every worker the root's models and optimizers.

    Keras 3 has no list of global variables: these are all models that were compiled with a
    DistributedOptimizer and are built.
    """
    from farandole.keras.callbacks import build_optimizer, global_variables
    from farandole.keras.trainer import common_models

    found = common_models()
    if not found:
        raise UsageError(
            "There is no model with a DistributedOptimizer yet: call model.compile first, or give "
            "variables to hvd.broadcast_variables."
        )
    for model in found:
        if not build_optimizer(model):
            raise UsageError(
                f"The model {model.name!r} is not built yet, and has no variables to broadcast. "
                "Give its first layer an Input, or use BroadcastGlobalVariablesCallback in fit."
            )
        broadcast_variables(global_variables(model), root_rank)


def _on(value: Any, work: Callable[[Array], Array]) -> Any:
    import keras

    if not keras.ops.is_tensor(value):
        if hasattr(value, "assign"):
            return _on(keras.ops.convert_to_tensor(value), work)
        return work(np.asarray(value))
    if _is_symbolic(value):
        raise UsageError(
            "A value inside of a compiled function cannot be sent here: call this outside, or use "
            "farandole.tensorflow inside of a tf.function."
        )
    return keras.ops.convert_to_tensor(work(np.asarray(keras.ops.convert_to_numpy(value))))


def _array_of(variable: Any) -> Array:
    import keras

    return np.asarray(keras.ops.convert_to_numpy(variable))


def _is_symbolic(value: Any) -> bool:
    from farandole.keras.backends import backend_name

    if backend_name() == "tensorflow":
        return not hasattr(value, "numpy")
    if backend_name() == "jax":
        import jax

        return isinstance(value, jax.core.Tracer)
    return False


def _allreduce(array: Array, name: str | None, how: Any, wire: str | None) -> Array:
    if wire is None or array.dtype.name in HALF_TYPES or array.dtype.kind != "f":
        return arrays.allreduce(array, name, how)
    sent = np.empty(array.size, STORAGE[wire])
    narrow(np.ascontiguousarray(array, np.float32).reshape(-1), sent, wire)
    received = arrays.allreduce(sent, name, how, bits_of=wire)
    return widen(received, wire).reshape(array.shape).astype(array.dtype, copy=False)


class NoneCompressor:
    """Sends gradients as they are."""

    wire: str | None = None


class FP16Compressor:
    """Sends floating-point gradients in float16."""

    wire: str | None = "float16"


class BF16Compressor:
    """Sends floating-point gradients in bfloat16, which has float32's range."""

    wire: str | None = "bfloat16"


class Compression:
    """The ways there are: `hvd.Compression.none`, `.fp16` and `.bf16`."""

    none = NoneCompressor
    fp16 = FP16Compressor
    bf16 = BF16Compressor


def wire_of(compression: Any) -> str | None:
    """Return the type in which gradients are sent; None for their own.

    Raises:
        UsageError: it is no compression.
    """
    if compression is None:
        return None
    if not hasattr(compression, "wire"):
        raise UsageError(
            f"compression={compression!r} is no compression: use hvd.Compression.none, fp16 or "
            "bf16."
        )
    wire: str | None = compression.wire
    return wire
