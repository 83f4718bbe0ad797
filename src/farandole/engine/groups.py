"""Several arrays combined by one exchange: a front door's grouped operations."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np

from farandole.engine import arrays as single
from farandole.engine.arguments import check_arithmetic
from farandole.engine.arrays import type_name
from farandole.engine.engine import Engine
from farandole.engine.handles import run_now
from farandole.engine.operations import Allreduce
from farandole.engine.signature import Signature
from farandole.transport.protocol import Buffer
from farandole.transport.reduction import AVERAGE, STORAGE, Array, Reduction

# Each array starts on a cache line, and TensorFlow takes what does so without a copy.
_ALIGN_BYTES = 64
# A message of agreement shows so many shapes; of a larger group it carries a digest.
_SHOWN = 8


def allreduce(
    arrays: Sequence[Array],
    name: str | None = None,
    how: Reduction = AVERAGE,
    payload: str = "other",
    engine: Engine | None = None,
) -> list[Array]:
    """Combine arrays over all ranks: one exchange for all that are of one type.

    Args:
        arrays: of the same shapes and types, in the same order, on every rank.
        name: what ties the ranks' calls together; by default the order of unnamed calls does.
        how: the reduction.
        payload: the kind of bytes that it is recorded as.
        engine: of the process set; by default that of all workers.

    Returns:
        The results in the same order: new memory, which those of one type share.
    """
    if how.op == "adasum":
        # Each tensor has a direction of its own.
        names = [None if name is None else f"{name}.{number}" for number in range(len(arrays))]
        return [
            single.allreduce(array, each, how, payload, engine=engine)
            for array, each in zip(arrays, names, strict=True)
        ]
    types = [type_name(array) for array in arrays]
    results: list[Array | None] = [None] * len(arrays)
    for dtype in dict.fromkeys(types):
        check_arithmetic(dtype, how)
        members = [index for index, each in enumerate(types) if each == dtype]
        chosen = [arrays[index] for index in members]
        combined = _combined(chosen, dtype, name, how, payload, engine)
        for index, result in zip(members, combined, strict=True):
            results[index] = result
    return [result for result in results if result is not None]


def _combined(
    arrays: Sequence[Array],
    dtype: str,
    name: str | None,
    how: Reduction,
    payload: str,
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
    run_now("allreduce_group", full, operation, payload, engine)
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
