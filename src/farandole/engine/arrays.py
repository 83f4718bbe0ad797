"""Collective operations on NumPy arrays: what Keras and TensorFlow stand on.

Results are new arrays; a caller's array is only read. Types that NumPy lacks, such as bfloat16,
are those of ml_dtypes, which TensorFlow and JAX bring. Each takes the engine of a process set; by
default all ranks take part.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np

from farandole.engine import context
from farandole.engine.arguments import (
    check_arithmetic,
    check_root,
    check_rows,
    scattered_rows,
    splits_of,
)
from farandole.engine.engine import Engine
from farandole.engine.operations import (
    Allgather,
    Allreduce,
    Alltoall,
    Broadcast,
    Reducescatter,
    reducing,
)
from farandole.engine.signature import Signature
from farandole.errors import UsageError
from farandole.transport.protocol import Buffer
from farandole.transport.reduction import AVERAGE, HALF_TYPES, STORAGE, SUM, Array, Reduction

# Unsigned types that are not reduced; what is only moved need not be a number.
_AS_SIGNED = {"uint16": np.int16, "uint32": np.int32, "uint64": np.int64}


def allreduce(
    array: Array,
    name: str | None = None,
    how: Reduction = AVERAGE,
    *,
    bits_of: str | None = None,
    engine: Engine | None = None,
) -> Array:
    """Combine an array over all ranks.

    Args:
        array: of the same shape and type on every rank.
        name: what ties the ranks' calls together; by default the order of unnamed calls does.
        how: the reduction.
        bits_of: "float16" or "bfloat16" where the array holds the bits of such numbers.
        engine: of the process set.
    """
    source = buffer_of(array, bits_of)
    check_arithmetic(source.dtype, how)
    result = np.empty(array.shape, array.dtype)
    target = buffer_of(result, bits_of)
    operation = reducing(source.dtype, array.shape, source, target, how, "cpu")
    context.current().handles.run("allreduce", name, operation, engine=engine)
    return result


def broadcast(
    array: Array,
    root: int,
    name: str | None = None,
    payload: str = "other",
    engine: Engine | None = None,
) -> Array:
    """Return the array of the root, a rank among all workers, on every rank."""
    place = check_root(root, engine)
    source = _moved(array)
    result = np.empty(array.shape, array.dtype)
    signature = Signature("broadcast", source.dtype, array.shape, root=place)
    context.current().handles.run(
        "broadcast", name, Broadcast(signature, source, _moved(result)), payload, engine
    )
    return result


def allgather(array: Array, name: str | None = None, engine: Engine | None = None) -> Array:
    """Return all ranks' arrays one behind the other; first dimensions may differ."""
    gathered, _ = allgather_rows(array, name, engine)
    return gathered


def allgather_rows(
    array: Array, name: str | None = None, engine: Engine | None = None
) -> tuple[Array, list[int]]:
    """Return all ranks' arrays one behind the other, and how many rows each rank brought."""
    check_rows(array.shape, "allgather")
    source, made, brought = _moved(array), _Made(array), list[int]()

    def allocate(rows: Sequence[int]) -> Buffer:
        brought.extend(rows)
        return made.with_rows(sum(rows))

    signature = Signature("allgather", source.dtype, array.shape)
    context.current().handles.run(
        "allgather", name, Allgather(signature, source, allocate), engine=engine
    )
    return made.array, brought


def alltoall(
    array: Array,
    splits: Sequence[int] | None = None,
    name: str | None = None,
    engine: Engine | None = None,
) -> tuple[Array, list[int]]:
    """Send some rows to every rank; return the rows received and how many came from each."""
    check_rows(array.shape, "alltoall")
    counts = splits_of(len(array), splits, engine)
    array = array[: sum(counts)]
    source, made, received = _moved(array), _Made(array), list[int]()

    def allocate(rows: Sequence[int]) -> Buffer:
        received.extend(rows)
        return made.with_rows(sum(rows))

    signature = Signature("alltoall", source.dtype, array.shape)
    operation = Alltoall(signature, source, counts, allocate)
    context.current().handles.run("alltoall", name, operation, engine=engine)
    return made.array, received


def reducescatter(
    array: Array,
    name: str | None = None,
    how: Reduction = AVERAGE,
    engine: Engine | None = None,
) -> Array:
    """Combine an array over all ranks; return this rank's share of its rows."""
    check_rows(array.shape, "reducescatter")
    source = buffer_of(array)
    check_arithmetic(source.dtype, how)
    engine = engine or context.current().engine
    rows = scattered_rows(len(array), engine)
    result = np.empty((rows[engine.rank], *array.shape[1:]), array.dtype)
    signature = Signature.reducing("reducescatter", source.dtype, array.shape, how)
    operation = Reducescatter(signature, source, buffer_of(result), rows, how)
    context.current().handles.run("reducescatter", name, operation, engine=engine)
    return result


def barrier(engine: Engine | None = None) -> None:
    """Wait until every rank is here."""
    # An all-reduce of one byte is one, and after the first time it takes no message.
    token = Buffer(np.zeros(1, np.uint8), "uint8")
    signature = Signature.reducing("barrier", "uint8", (1,), SUM)
    context.current().handles.run(
        "barrier", None, Allreduce(signature, token, token, SUM), "control", engine
    )


def type_name(array: Array) -> str:
    """Return the name of an array's type, as signatures have it.

    Raises:
        UsageError: arrays of this type cannot be sent.
    """
    name: str = array.dtype.name
    if name not in STORAGE:
        raise UsageError(
            f"An array of type {name} cannot be sent. Types that can: {', '.join(STORAGE)}."
        )
    return name


def buffer_of(array: Array, bits_of: str | None = None) -> Buffer:
    """Return an array's values as the engine sees them; copies only what is not contiguous."""
    name = bits_of or type_name(array)
    flat = np.ascontiguousarray(array).reshape(-1)
    return Buffer(flat.view(np.uint16) if name in HALF_TYPES else flat, name)


def _moved(array: Array) -> Buffer:
    """Return the values of an array that is not reduced."""
    signed = _AS_SIGNED.get(array.dtype.name)
    return buffer_of(array if signed is None else array.view(signed))


class _Made:
    """A result whose number of rows is known only when all ranks have submitted."""

    array: Array

    def __init__(self, like: Array) -> None:
        self._shape, self._dtype = like.shape[1:], like.dtype

    def with_rows(self, rows: int) -> Buffer:
        self.array = np.empty((rows, *self._shape), self._dtype)
        return _moved(self.array)


# Each array starts on a cache line, and TensorFlow takes what does so without a copy.
_ALIGN_BYTES = 64
# A message of agreement shows so many shapes; of a larger group it carries a digest.
_SHOWN = 8


def grouped_allreduce(
    arrays: Sequence[Array],
    name: str | None = None,
    how: Reduction = AVERAGE,
    engine: Engine | None = None,
) -> list[Array]:
    """Combine arrays over all ranks: one exchange for all that are of one type.

    Args:
        arrays: of the same shapes and types, in the same order, on every rank.
        name: what ties the ranks' calls together; by default the order of unnamed calls does.
        how: the reduction.
        engine: of the process set; by default that of all workers.

    Returns:
        The results in the same order: new memory, which those of one type share.
    """
    if how.op == "adasum":
        # Each tensor has a direction of its own.
        names = [None if name is None else f"{name}.{number}" for number in range(len(arrays))]
        return [
            allreduce(array, each, how, engine=engine)
            for array, each in zip(arrays, names, strict=True)
        ]
    types = [type_name(array) for array in arrays]
    results: list[Array | None] = [None] * len(arrays)
    for dtype in dict.fromkeys(types):
        check_arithmetic(dtype, how)
        members = [index for index, each in enumerate(types) if each == dtype]
        chosen = [arrays[index] for index in members]
        combined = _combined(chosen, dtype, name, how, engine)
        for index, result in zip(members, combined, strict=True):
            results[index] = result
    return [result for result in results if result is not None]


def _combined(
    arrays: Sequence[Array],
    dtype: str,
    name: str | None,
    how: Reduction,
    engine: Engine | None,
) -> list[Array]:
    """Combine arrays of one type in one buffer."""
    storage = STORAGE[dtype]
    unit = max(_ALIGN_BYTES // storage.itemsize, 1)
    starts = np.cumsum([0, *(-(-array.size // unit) * unit for array in arrays)]).tolist()
    together = aligned(starts[-1], storage)
    for array, start in zip(arrays, starts, strict=False):
        flat = np.ascontiguousarray(array).reshape(-1)
        together[start : start + array.size] = flat.view(storage)
        together[start + array.size : start + -(-array.size // unit) * unit] = 0
    buffer = Buffer(together, dtype)
    # The shapes are in the kind, so that they are compared like everything else.
    kind = f"grouped allreduce ({_shapes(arrays)})"
    signature = Signature.reducing(kind, dtype, together.shape, how)
    full = None if name is None else f"{name}.{dtype}"
    operation = Allreduce(signature, buffer, buffer, how)
    context.current().handles.run("allreduce_group", full, operation, engine=engine)
    return [
        together[start : start + array.size].view(array.dtype).reshape(array.shape)
        for array, start in zip(arrays, starts, strict=False)
    ]


def aligned(count: int, dtype: np.dtype[np.generic]) -> Array:
    """Return a new flat array that starts on a cache line."""
    memory = np.empty(count * dtype.itemsize + _ALIGN_BYTES, np.uint8)
    start = -memory.ctypes.data % _ALIGN_BYTES
    flat: Array = memory[start : start + count * dtype.itemsize].view(dtype)
    return flat


def _shapes(arrays: Sequence[Array]) -> str:
    shown = ", ".join(str(list(array.shape)) for array in arrays)
    if len(arrays) <= _SHOWN:
        return shown
    digest = hashlib.blake2b(shown.encode(), digest_size=6).hexdigest()
    return f"{len(arrays)} tensors, digest of their shapes {digest}"
