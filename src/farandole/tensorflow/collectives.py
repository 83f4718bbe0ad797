"""Collective operations on TensorFlow's tensors, with Horovod's names, meaning and gradients.

All of them work eagerly and in tf.function. Arguments without effect, which Horovod has:
device_dense, device_sparse (operations run on the CPU) and ignore_name_scope (names are used as
they are given). Of sparse values, tf.IndexedSlices, everybody's rows come one behind the other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from farandole.engine import arrays, context
from farandole.engine.arguments import (
    Average,
    check_arithmetic,
    check_root,
    reduction_of,
    scattered_rows,
)
from farandole.engine.context import engine_of
from farandole.engine.engine import Engine
from farandole.errors import UnsupportedError, UsageError
from farandole.tensorflow.callback import any_rows, as_written, call, like
from farandole.tensorflow.compression import compress
from farandole.transport.reduction import AVERAGE, Array, Reduction


@as_written
def allreduce(
    tensor: Any,
    average: bool | None = None,
    device_dense: str = "",
    device_sparse: str = "",
    compression: Any = None,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    name: str | None = None,
    process_set: Any = None,
    ignore_name_scope: bool = False,
) -> Any:
    """Combine a tensor over all ranks.

    Its gradient is the same all-reduce of the gradients; only Average and Sum have one.

    Args:
        tensor: a tensor, a variable or tf.IndexedSlices; of the same shape and type on every rank
            (of the slices, the number may differ).
        average: deprecated: True for Average, False for Sum.
        compression: hvd.Compression.none, fp16 or bf16, or a class with compress and decompress.
        op: Average (default), Sum, Adasum, Min, Max or Product.
        prescale_factor: multiplies every rank's values first.
        postscale_factor: multiplies the result.
        name: what ties the ranks' calls together; by default the order of unnamed calls does.
        process_set: the ranks that take part; all of them by default.
    """
    engine_of(process_set)  # What is wrong with it is better said here than out of a graph.
    how = reduction_of(average, op, prescale_factor, postscale_factor)
    if isinstance(tensor, tf.IndexedSlices):
        return allreduce_slices(tensor, name, how, process_set)
    sent, undo = compress(tf.convert_to_tensor(tensor), compression)
    return undo(_allreduce(sent, name, how, process_set))


@as_written
def grouped_allreduce(
    tensors: Sequence[Any],
    average: bool | None = None,
    device_dense: str = "",
    device_sparse: str = "",
    compression: Any = None,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: Any = None,
    ignore_name_scope: bool = False,
    name: str | None = None,
) -> list[Any]:
    """Combine several tensors over all ranks, by one exchange for all of one type.

    Arguments are those of allreduce.
    """
    engine_of(process_set)
    how = reduction_of(average, op, prescale_factor, postscale_factor)
    results = list(tensors)
    dense = [i for i, each in enumerate(results) if not isinstance(each, tf.IndexedSlices)]
    packed = [compress(tf.convert_to_tensor(results[index]), compression) for index in dense]
    sent = [each for each, _ in packed]
    combined = _grouped_allreduce(sent, name, how, process_set) if packed else []
    for index, (_, undo), result in zip(dense, packed, combined, strict=True):
        results[index] = undo(result)
    for index, each in enumerate(results):
        if isinstance(each, tf.IndexedSlices):
            results[index] = allreduce_slices(each, _part(name, index), how, process_set)
    return results


@as_written
def allgather(
    tensor: Any,
    name: str | None = None,
    ignore_name_scope: bool = False,
    process_set: Any = None,
) -> Any:
    """Return all ranks' tensors one behind the other; first dimensions may differ.

    Its gradient is this rank's rows of the gradients' average, as Horovod has it.
    """
    (result,) = grouped_allgather([tensor], name, ignore_name_scope, process_set)
    return result


@as_written
def grouped_allgather(
    tensors: Sequence[Any],
    name: str | None = None,
    ignore_name_scope: bool = False,
    process_set: Any = None,
) -> list[Any]:
    """Gather several tensors, each like allgather does."""
    engine_of(process_set)
    given = [tf.convert_to_tensor(tensor) for tensor in tensors]

    def gather(*values: Array) -> list[Array]:
        engine = engine_of(process_set)
        found = [arrays.allgather_rows(v, _part(name, i), engine) for i, v in enumerate(values)]
        starts = [sum(rows[: engine.rank]) for _, rows in found]
        return [*(gathered for gathered, _ in found), np.array(starts, np.int64)]

    @tf.custom_gradient  # type: ignore[untyped-decorator]
    def run(*inputs: Any) -> tuple[list[Any], Callable[..., list[Any]]]:
        outputs = [*map(any_rows, inputs), tf.TensorSpec([len(inputs)], tf.int64)]
        *gathered, starts = call(gather, inputs, outputs)

        def gradient(*upstream: Any) -> list[Any]:
            averages = _grouped_allreduce(_dense(upstream), _backward(name), AVERAGE, process_set)
            return [
                _rows(average, starts[i], tf.shape(inputs[i], tf.int64)[0], inputs[i])
                for i, average in enumerate(averages)
            ]

        return gathered, gradient

    return _listed(run(*given)) if given else []


@as_written
def broadcast(
    tensor: Any,
    root_rank: int,
    name: str | None = None,
    ignore_name_scope: bool = False,
    process_set: Any = None,
) -> Any:
    """Return the root's tensor on every rank.

    Its gradient is the gradients' average on the root and zero elsewhere, as Horovod has it.
    """
    check_root(root_rank, engine_of(process_set))

    @tf.custom_gradient  # type: ignore[untyped-decorator]
    def run(given: Any) -> tuple[Any, Callable[[Any], Any]]:
        (result,) = call(
            lambda value: [arrays.broadcast(value, root_rank, name, engine=engine_of(process_set))],
            [given],
            [like(given)],
        )

        def gradient(upstream: Any) -> Any:
            given_back = tf.convert_to_tensor(upstream)
            average = _allreduce(given_back, _backward(name), AVERAGE, process_set)
            return average if context.rank() == root_rank else tf.zeros_like(average)

        return result, gradient

    return run(tf.convert_to_tensor(tensor))


@as_written
def alltoall(
    tensor: Any,
    splits: Any = None,
    name: str | None = None,
    ignore_name_scope: bool = False,
    process_set: Any = None,
) -> Any:
    """Send some rows of a tensor to every rank; return the rows received.

    Its gradient sends the gradients' rows back to where they came from.

    Args:
        tensor: its rows go to rank 0 first, then to rank 1, and so on.
        splits: how many rows go to each rank (int32); by default equally many.
        name: what ties the ranks' calls together.
        process_set: the ranks that take part; all of them by default.

    Returns:
        The rows received; with `splits` also how many came from each rank.
    """
    counts = None if splits is None else _splits(splits)
    rows, received = _alltoall(tf.convert_to_tensor(tensor), counts, name, process_set)
    return rows if splits is None else (rows, received)


@as_written
def reducescatter(
    tensor: Any,
    device_dense: str = "",
    compression: Any = None,
    op: int = Average,
    name: str | None = None,
    process_set: Any = None,
    ignore_name_scope: bool = False,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> Any:
    """Combine a tensor over all ranks and return this rank's share of its rows.

    If the rows do not divide evenly the first ranks get one more. Its gradient is all ranks'
    gradients one behind the other, times the number of ranks for Sum, as Horovod has it.

    Args:
        tensor: of the same shape and type on every rank.
        compression: as in allreduce.
        op: Average (default), Sum, Min, Max or Product.
        name: what ties the ranks' calls together.
        process_set: the ranks that take part; all of them by default.
        prescale_factor: multiplies every rank's values first.
        postscale_factor: multiplies the result.
    """
    how = reduction_of(None, op, prescale_factor, postscale_factor)
    sent, undo = compress(tf.convert_to_tensor(tensor), compression)
    (result,) = _reducescatter([sent], name, how, process_set)
    return undo(result)


@as_written
def grouped_reducescatter(
    tensors: Sequence[Any],
    device_dense: str = "",
    compression: Any = None,
    op: int = Average,
    process_set: Any = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    name: str | None = None,
) -> list[Any]:
    """Combine and share out several tensors, each like reducescatter does."""
    how = reduction_of(None, op, prescale_factor, postscale_factor)
    packed = [compress(tf.convert_to_tensor(tensor), compression) for tensor in tensors]
    sent = [each for each, _ in packed]
    results = _reducescatter(sent, name, how, process_set) if packed else []
    return [undo(result) for (_, undo), result in zip(packed, results, strict=True)]


@as_written
def barrier(process_set: Any = None) -> None:
    """Wait until every rank is here; in a tf.function, at this point of it."""
    engine_of(process_set)

    def wait() -> list[Array]:
        arrays.barrier(engine_of(process_set))
        return [np.zeros((), np.int32)]

    call(wait, [], [tf.TensorSpec([], tf.int32)])


def _allreduce(tensor: Any, name: str | None, how: Reduction, process_set: Any) -> Any:
    @tf.custom_gradient  # type: ignore[untyped-decorator]
    def run(given: Any) -> tuple[Any, Callable[[Any], Any]]:
        (result,) = call(
            lambda value: [arrays.allreduce(value, name, how, engine=engine_of(process_set))],
            [given],
            [like(given)],
        )

        def gradient(upstream: Any) -> Any:
            _check_linear(how)
            return _allreduce(tf.convert_to_tensor(upstream), _backward(name), how, process_set)

        return result, gradient

    return run(tensor)


def _grouped_allreduce(
    tensors: Sequence[Any], name: str | None, how: Reduction, process_set: Any
) -> list[Any]:
    @tf.custom_gradient  # type: ignore[untyped-decorator]
    def run(*given: Any) -> tuple[list[Any], Callable[..., list[Any]]]:
        results = call(
            lambda *values: arrays.grouped_allreduce(
                values, name, how, engine=engine_of(process_set)
            ),
            given,
            [*map(like, given)],
        )

        def gradient(*upstream: Any) -> list[Any]:
            _check_linear(how)
            return _grouped_allreduce(_dense(upstream), _backward(name), how, process_set)

        return results, gradient

    return _listed(run(*tensors))


def _alltoall(tensor: Any, splits: Any, name: str | None, process_set: Any) -> tuple[Any, Any]:
    size = engine_of(process_set).size

    def exchange(value: Array, counts: Array | None = None) -> list[Array]:
        asked = None if counts is None else counts.tolist()
        rows, received = arrays.alltoall(value, asked, name, engine_of(process_set))
        return [rows, np.array(received, np.int32)]

    @tf.custom_gradient  # type: ignore[untyped-decorator]
    def run(given: Any) -> tuple[tuple[Any, Any], Callable[[Any, Any], Any]]:
        rows, received = call(
            exchange,
            [given] if splits is None else [given, splits],
            [any_rows(given), tf.TensorSpec([size], tf.int32)],
        )

        def gradient(upstream: Any, _: Any) -> Any:
            given_back = tf.convert_to_tensor(upstream)
            back, _ = _alltoall(given_back, received, _backward(name), process_set)
            # Rows that went to nobody.
            left = tf.shape(given)[:1] - tf.shape(back)[:1]
            return tf.concat(
                [back, tf.zeros(tf.concat([left, tf.shape(given)[1:]], 0), back.dtype)], 0
            )

        return (rows, received), gradient

    rows, received = run(tensor)
    return rows, received


def _reducescatter(
    tensors: Sequence[Any], name: str | None, how: Reduction, process_set: Any
) -> list[Any]:
    size = engine_of(process_set).size

    def scatter(*values: Array) -> list[Array]:
        engine = engine_of(process_set)
        return [arrays.reducescatter(v, _part(name, i), how, engine) for i, v in enumerate(values)]

    @tf.custom_gradient  # type: ignore[untyped-decorator]
    def run(*given: Any) -> tuple[list[Any], Callable[..., list[Any]]]:
        results = call(scatter, given, [_share(each, process_set) for each in given])

        def gradient(*upstream: Any) -> list[Any]:
            _check_linear(how)
            factor = how.prescale * how.postscale * (size if how.op == "sum" else 1)
            scaled = [each * tf.cast(factor, each.dtype) for each in _dense(upstream)]
            return grouped_allgather(scaled, _backward(name), process_set=process_set)

        return results, gradient

    return _listed(run(*tensors))


def _share(tensor: Any, process_set: Any) -> Any:
    """Return the tf.TensorSpec of this rank's share of a tensor's rows."""
    if tensor.shape.rank is None or tensor.shape.rank == 0 or tensor.shape[0] is None:
        return any_rows(tensor) if tensor.shape.rank != 0 else like(tensor)
    engine = engine_of(process_set)
    rows = scattered_rows(tensor.shape[0], engine)[engine.rank]
    return tf.TensorSpec([rows, *tensor.shape[1:]], tensor.dtype)


def _splits(splits: Any) -> Any:
    if not tf.is_tensor(splits) and not isinstance(splits, np.ndarray):
        return tf.convert_to_tensor(splits, tf.int32)
    counts = tf.convert_to_tensor(splits)
    if counts.dtype != tf.int32:
        raise UsageError(f"splits must be int32, not {counts.dtype.name}.")
    return counts


def _check_linear(how: Reduction) -> None:
    if how.op not in ("sum", "average"):
        raise UsageError(
            f"Combining by {how.op} has no gradient here; Sum and Average have. Use "
            "tf.stop_gradient on the result if it shall be a constant."
        )


def _dense(tensors: Sequence[Any]) -> list[Any]:
    # A gradient may be tf.IndexedSlices, if the result was looked up by index.
    return [tf.convert_to_tensor(tensor) for tensor in tensors]


def _rows(tensor: Any, start: Any, count: Any, like_this: Any) -> Any:
    rows = tensor[start : start + count]
    rows.set_shape(like_this.shape)
    return rows


def _listed(found: Any) -> list[Any]:
    # custom_gradient takes a list of one out of its list.
    return list(found) if isinstance(found, list | tuple) else [found]


def _backward(name: str | None) -> str | None:
    return None if name is None else f"{name}.gradient"


def _part(name: str | None, index: int) -> str | None:
    return None if name is None else f"{name}.{index}"


def allreduce_slices(slices: Any, name: str | None, how: Reduction, process_set: Any = None) -> Any:
    """Sum or average tf.IndexedSlices over ranks; how many rows each has may differ."""
    check_sparse(how)
    check_arithmetic(slices.values.dtype.name, how)
    values, indices = call(
        lambda values, indices: gather_slices(values, indices, name, how, engine_of(process_set)),
        [slices.values, slices.indices],
        slices_specs(slices, how),
    )
    return tf.IndexedSlices(values, indices, slices.dense_shape)


def check_sparse(how: Reduction) -> None:
    """Raise NotImplementedError, as Horovod does, if sparse values cannot be combined like this."""
    if how.op not in ("sum", "average") or (how.prescale, how.postscale) != (1.0, 1.0):
        # AutoGraph passes on exactly the built-in kinds; of all others it makes a StagingError.
        kind = UnsupportedError if tf.executing_eagerly() else NotImplementedError
        raise kind(
            f"tf.IndexedSlices can be summed or averaged, not combined by {how.op} or scaled. "
            "Make them dense first: tf.convert_to_tensor, or sparse_as_dense=True."
        )


def gather_slices(
    values: Array, indices: Array, name: str | None, how: Reduction, engine: Engine
) -> list[Array]:
    """Return the rows of an engine's ranks and where they belong."""
    rows = arrays.allgather(values, None if name is None else f"{name}.values", engine)
    places = arrays.allgather(indices, None if name is None else f"{name}.indices", engine)
    if how.op == "average":
        rows = rows.astype(_averaged(tf.as_dtype(rows.dtype)).as_numpy_dtype, copy=False)
        rows = rows / rows.dtype.type(engine.size)
    return [rows, places]


def slices_specs(slices: Any, how: Reduction) -> list[Any]:
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
