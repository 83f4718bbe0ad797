"""Sparse values, tf.IndexedSlices: everybody's rows one behind the other."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from farandole.engine import arrays
from farandole.engine.context import engine_of
from farandole.engine.engine import Engine
from farandole.errors import UsageError
from farandole.tensorflow.callback import any_rows, call
from farandole.transport.reduction import Array, Reduction


def allreduce(slices: Any, name: str | None, how: Reduction, process_set: Any = None) -> Any:
    """Sum or average tf.IndexedSlices over ranks; how many rows each has may differ."""
    check(how)
    values, indices = call(
        lambda values, indices: gather(values, indices, name, how, engine_of(process_set)),
        [slices.values, slices.indices],
        specs(slices),
    )
    return tf.IndexedSlices(values, indices, slices.dense_shape)


def check(how: Reduction) -> None:
    """Raise UsageError if sparse values cannot be combined like this."""
    if how.op not in ("sum", "average") or (how.prescale, how.postscale) != (1.0, 1.0):
        raise UsageError(
            f"tf.IndexedSlices can be summed or averaged, not combined by {how.op} or scaled. "
            "Make them dense first: tf.convert_to_tensor, or sparse_as_dense=True."
        )


def gather(
    values: Array, indices: Array, name: str | None, how: Reduction, engine: Engine
) -> list[Array]:
    """Return the rows of an engine's ranks and where they belong."""
    rows = arrays.allgather(values, None if name is None else f"{name}.values", engine)
    places = arrays.allgather(indices, None if name is None else f"{name}.indices", engine)
    if how.op == "average":
        rows = (rows / rows.dtype.type(engine.size)).astype(rows.dtype)
    return [rows, places]


def specs(slices: Any) -> list[Any]:
    """Return what is known of the combined values and indices."""
    return [any_rows(slices.values), any_rows(slices.indices)]
