"""The operations that can be submitted under a name: what each says first, and then does."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from farandole.engine.coordinator import count_of
from farandole.engine.signature import Signature
from farandole.transport.protocol import Buffer, Steps, Transport
from farandole.transport.reduction import Reduction


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
        self._row = count_of(signature.shape[1:])

    def steps(self, transport: Transport, extras: list[Any]) -> Steps:
        """Run on the transport."""
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
        self.signature, self._source, self._target, self._how = signature, source, target, how
        self._counts = [count * count_of(signature.shape[1:]) for count in rows]

    def steps(self, transport: Transport, extras: list[Any]) -> Steps:
        """Run on the transport."""
        return transport.reducescatter(self._source, self._target, self._counts, self._how)


def fused_allreduce(operations: Sequence[Allreduce], transport: Transport) -> Steps:
    """Run several small all-reduces of one type and reduction as one."""
    import numpy as np

    how, dtype = operations[0].how, operations[0].source.dtype
    together = Buffer(np.concatenate([operation.source.data for operation in operations]), dtype)
    yield from transport.allreduce(together, together, how)
    start = 0
    for operation in operations:
        stop = start + len(operation.target)
        operation.target.data[...] = together.data[start:stop]
        start = stop
