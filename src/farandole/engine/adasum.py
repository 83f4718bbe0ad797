"""Adasum: gradients added so far as they point in different directions, averaged where they agree.

Two vectors a and b become (1 - a.b / 2|a|^2) a + (1 - a.b / 2|b|^2) b, and more of them a tree of
pairs. Every node of that tree is a sum of the ranks' vectors with some coefficients. These follow
from the dot products of all pairs of vectors alone, so that any number of ranks needs one exchange
of the vectors and one of a small table.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from farandole.engine.signature import Signature
from farandole.transport.protocol import Buffer, Steps, Transport
from farandole.transport.reduction import (
    BLOCK_ELEMENTS,
    HALF_TYPES,
    SUM,
    Array,
    Reduction,
    narrow,
    widen,
)

TYPES = frozenset({"float16", "bfloat16", "float32", "float64"})
# Below this square of a norm a vector counts as zero: a quotient by it may overflow.
_LEAST_SQUARE = float(np.sqrt(np.finfo(np.float64).tiny))


def coefficients(products: Array) -> Array:
    """Return by what each rank's vector is multiplied in the sum of all.

    Args:
        products: the dot product of each two ranks' vectors.

    The tree of n vectors joins that of the first m with that of the others, m being the largest
    power of two below n: neighbours first, as Horovod does it for powers of two.
    """
    with np.errstate(all="ignore"):
        return _tree(products, 0, len(products))


def _tree(products: Array, first: int, count: int) -> Array:
    if count == 1:
        leaf: Array = np.zeros(len(products))
        leaf[first] = 1.0
        return leaf
    half = 1 << (count - 1).bit_length() - 1
    a = _tree(products, first, half)
    b = _tree(products, first + half, count - half)
    dot, square_a, square_b = (float(x @ products @ y) for x, y in ((a, b), (a, a), (b, b)))
    pair: Array = np.add(_part(dot, square_a) * a, _part(dot, square_b) * b)
    return pair


def _part(dot: float, square: float) -> float:
    # Written so that a square that is not a number shows in the result.
    return 1.0 if square < _LEAST_SQUARE else 1.0 - dot / (2.0 * square)


class AdasumReduce:
    """Combine all ranks' vectors by Adasum; everybody gets the result (an Operation)."""

    extra = None

    def __init__(
        self, signature: Signature, source: Buffer, target: Buffer, how: Reduction
    ) -> None:
        """Describe it; of `how` only the factors count."""
        self.signature = signature
        self._source, self._target = source, target
        self._factor = how.prescale * how.postscale

    def steps(self, transport: Transport, extras: list[Any]) -> Steps:
        """Let each rank see a part of all vectors, and combine that."""
        source, size = self._source, transport.size
        each, more = divmod(len(source), size)
        shares = [each + (rank < more) for rank in range(size)]
        mine = shares[transport.rank]
        received = Buffer(np.empty(mine * size, source.data.dtype), source.dtype)
        yield from transport.alltoall(source, received, [shares] * size)
        parts = [received.data[rank * mine : (rank + 1) * mine] for rank in range(size)]
        products = Buffer(_products(parts, source.dtype).reshape(-1), "float64")
        yield from transport.allreduce(products, products, SUM)
        table = products.data.reshape(size, size)
        share = _combined(parts, source.dtype, coefficients(table) * self._factor)
        yield from transport.allgather(Buffer(share, source.dtype), self._target, shares)


def _products(parts: Sequence[Array], dtype: str) -> Array:
    table: Array = np.zeros((len(parts), len(parts)))
    with np.errstate(all="ignore"):
        for _, block in _blocks(parts, dtype):
            table += block @ block.T
    return table


def _combined(parts: Sequence[Array], dtype: str, weights: Array) -> Array:
    share = np.empty_like(parts[0])
    with np.errstate(all="ignore"):
        for start, block in _blocks(parts, dtype):
            total = weights @ block
            out = share[start : start + len(total)]
            if dtype in HALF_TYPES:
                narrow(total.astype(np.float32), out, dtype)
            else:
                out[...] = total
    return share


def _blocks(parts: Sequence[Array], dtype: str) -> Iterator[tuple[int, Array]]:
    """Yield stretches of all vectors in double precision, that fit the cache."""
    for start in range(0, len(parts[0]), BLOCK_ELEMENTS):
        block = [part[start : start + BLOCK_ELEMENTS] for part in parts]
        if dtype in HALF_TYPES:
            block = [widen(part, dtype) for part in block]
        yield start, np.stack(block).astype(np.float64)
