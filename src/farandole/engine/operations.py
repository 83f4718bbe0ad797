"""The operations that can be submitted under a name: what each says first, and then does."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

import numpy as np

from farandole.engine.coordinator import count_of, fused, size_of
from farandole.engine.signature import Signature
from farandole.errors import UnfitError
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


class Operation(Protocol):
    """A submitted operation."""

    signature: Signature
    extra: Any
    """What else the other ranks must know: JSON-able, may differ between ranks and turns."""

    def steps(self, transport: Transport, extras: list[Any]) -> Steps:
        """Do it, now that every rank has submitted it; `extras` in rank order."""


class Allreduce:
    """Combine all ranks' values; everybody gets the result."""

    extra = None

    def __init__(
        self, signature: Signature, source: Buffer, target: Buffer, how: Reduction
    ) -> None:
        self.signature = signature
        self.source, self.target, self.how = source, target, how

    def steps(self, transport: Transport, extras: list[Any]) -> Steps:
        """Run on the transport."""
        return transport.allreduce(self.source, self.target, self.how)


def reducing(
    dtype: str, shape: Sequence[int], source: Buffer, target: Buffer, how: Reduction, device: str
) -> Allreduce | AdasumReduce:
    """Describe what `hvd.allreduce` does: an all-reduce, or Adasum."""
    if how.op != "adasum":
        signature = Signature(
            *("allreduce", dtype, tuple(shape), how.op, how.prescale, how.postscale, -1, device)
        )
        return Allreduce(signature, source, target, how)
    if device != "cpu":
        raise UnfitError("Adasum combines tensors of the CPU. Move them there first: x.cpu().")
    return AdasumReduce(Signature.reducing("adasum", dtype, tuple(shape), how), source, target, how)


class Broadcast:
    """Copy the root's values to everybody."""

    extra = None

    def __init__(self, signature: Signature, source: Buffer, target: Buffer) -> None:
        self.signature = signature
        self.source, self.target = source, target

    def steps(self, transport: Transport, extras: list[Any]) -> Steps:
        """Run on the transport."""
        root = self.signature.root
        if transport.rank == root and self.source.data is not self.target.data:
            self.target.data[...] = self.source.data
        return transport.broadcast(self.target, root)


class Allgather:
    """Put everybody's values one behind the other; first dimensions may differ."""

    def __init__(
        self, signature: Signature, source: Buffer, allocate: Callable[[Sequence[int]], Buffer]
    ) -> None:
        """Describe it.

        Args:
            signature: what all ranks must agree on.
            source: my values.
            allocate: makes the result, given every rank's first dimension.
        """
        self.signature, self._source, self._allocate = signature, source, allocate
        self.extra = signature.shape[0]
        self.rows: list[int] = []
        """Every rank's first dimension, once all have submitted."""
        self._row = count_of(signature.shape[1:])

    def steps(self, transport: Transport, extras: list[Any]) -> Steps:
        """Run on the transport."""
        self.rows = extras
        target = self._allocate(extras)
        return transport.allgather(self._source, target, [rows * self._row for rows in extras])


class Alltoall:
    """Send some rows to every rank."""

    def __init__(
        self,
        signature: Signature,
        source: Buffer,
        splits: Sequence[int],
        allocate: Callable[[Sequence[int]], Buffer],
    ) -> None:
        """Describe it.

        Args:
            signature: what all ranks must agree on.
            source: my values.
            splits: how many rows go to each rank.
            allocate: makes the result, given how many rows come from each rank.
        """
        self.signature, self._source, self._allocate = signature, source, allocate
        self.extra = list(splits)
        self._row = count_of(signature.shape[1:])

    def steps(self, transport: Transport, extras: list[Any]) -> Steps:
        """Run on the transport."""
        target = self._allocate([splits[transport.rank] for splits in extras])
        counts = [[rows * self._row for rows in splits] for splits in extras]
        return transport.alltoall(self._source, target, counts)


class Reducescatter:
    """Combine all ranks' values; each rank gets some of the rows."""

    extra = None

    def __init__(
        self,
        signature: Signature,
        source: Buffer,
        target: Buffer,
        rows: Sequence[int],
        how: Reduction,
    ) -> None:
        """Describe it; `rows` says how many rows each rank gets."""
        if how.op == "adasum":
            raise UnfitError("reducescatter cannot combine by Adasum. Use hvd.Average or hvd.Sum.")
        self.signature, self._source, self._target, self._how = signature, source, target, how
        self._counts = [count * count_of(signature.shape[1:]) for count in rows]

    def steps(self, transport: Transport, extras: list[Any]) -> Steps:
        """Run on the transport."""
        return transport.reducescatter(self._source, self._target, self._counts, self._how)


class Grouped:
    """Several operations that are agreed on as one: all of them run, or none."""

    def __init__(self, signature: Signature, members: Sequence[Operation]) -> None:
        """Describe it; `signature` has those of the members, in their order."""
        self.signature, self._members = signature, members
        self.extra = [member.extra for member in members]

    @classmethod
    def of(cls, kind: str, members: Sequence[Operation]) -> Grouped:
        """Group operations of one kind, of which there is at least one."""
        signatures = tuple(member.signature for member in members)
        nbytes = sum(map(size_of, signatures))
        whole = Signature(kind, "uint8", (nbytes,), device=signatures[0].device, members=signatures)
        return cls(whole, members)

    def steps(self, transport: Transport, extras: list[Any]) -> Steps:
        """Run one after the other, small all-reduces together."""
        for batch in fused([member.signature for member in self._members]):
            if len(batch) > 1:
                together = [self._members[i] for i in batch]
                fusible = [each for each in together if isinstance(each, Allreduce)]
                yield from fused_allreduce(fusible, transport)
            else:
                (i,) = batch
                yield from self._members[i].steps(transport, [extra[i] for extra in extras])


def fused_allreduce(operations: Sequence[Allreduce], transport: Transport) -> Steps:
    """Run several small all-reduces of one type and reduction as one."""
    how, dtype = operations[0].how, operations[0].source.dtype
    together = Buffer(np.concatenate([operation.source.data for operation in operations]), dtype)
    yield from transport.allreduce(together, together, how)
    start = 0
    for operation in operations:
        stop = start + len(operation.target)
        operation.target.data[...] = together.data[start:stop]
        start = stop


# Adasum: gradients added so far as they point in different directions, averaged where they agree.
#
# Two vectors a and b become (1 - a.b / 2|a|^2) a + (1 - a.b / 2|b|^2) b, and more of them a tree of
# pairs. Every node of that tree is a sum of the ranks' vectors with some coefficients. These follow
# from the dot products of all pairs of vectors alone, so that any number of ranks needs one
# exchange of the vectors and one of a small table.

ADASUM_TYPES = frozenset({"float16", "bfloat16", "float32", "float64"})
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
