"""Sparse values, tf.IndexedSlices: everybody's rows one behind the other."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from farandole.engine import arrays
from farandole.engine.arguments import check_arithmetic
from farandole.engine.context import engine_of
from farandole.engine.engine import Engine
from farandole.errors import UnsupportedError
from farandole.tensorflow.callback import any_rows, call
from farandole.transport.reduction import Array, Reduction


def allreduce(slices: Any, name: str | None, how: Reduction, process_set: Any = None) -> Any:
    """Sum or average tf.IndexedSlices over ranks; how many rows each has may differ."""
    check(how)
    check_arithmetic(slices.values.dtype.name, how)
    values, indices = call(
        lambda values, indices: gather(values, indices, name, how, engine_of(process_set)),
        [slices.values, slices.indices],
        specs(slices, how),
    )
    return tf.IndexedSlices(values, indices, slices.dense_shape)


def check(how: Reduction) -> None:
    """Raise NotImplementedError, as Horovod does, if sparse values cannot be combined like this."""
    if how.op not in ("sum", "average") or (how.prescale, how.postscale) != (1.0, 1.0):
        # AutoGraph passes on exactly the built-in kinds; of all others it makes a StagingError.
        kind = UnsupportedError if tf.executing_eagerly() else NotImplementedError
        raise kind(
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
        rows = rows.astype(_averaged(tf.as_dtype(rows.dtype)).as_numpy_dtype, copy=False)
        rows = rows / rows.dtype.type(engine.size)
    return [rows, places]


def specs(slices: Any, how: Reduction) -> list[Any]:
    """Return what is known of the combined values and indices."""
    values = any_rows(slices.values)
    if how.op == "average":
        values = tf.TensorSpec(values.shape, _averaged(values.dtype))
    return [values, any_rows(slices.indices)]


def _averaged(dtype: Any) -> Any:
    """Return the type of averages: as TensorFlow's and Horovod's, floats of integers."""
    if not dtype.is_integer:
        return dtype
    return tf.float32 if dtype.size <= 2 else tf.float64
