"""The operations that can be submitted under a name: what each says first, and then does."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from farandole.engine.adasum import AdasumReduce
from farandole.engine.coordinator import FUSE_EACH_BYTES, FUSE_TOTAL_BYTES, count_of, size_of
from farandole.engine.signature import Signature
from farandole.errors import UnfitError
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
        for batch in self._batches():
            if len(batch) > 1:
                together = [self._members[i] for i in batch]
                fusible = [each for each in together if isinstance(each, Allreduce)]
                yield from fused_allreduce(fusible, transport)
            else:
                (i,) = batch
                yield from self._members[i].steps(transport, [extra[i] for extra in extras])

    def _batches(self) -> list[list[int]]:
        """Return which members run together, the same on every rank."""
        batches: list[list[int]] = []
        filling: dict[Signature, tuple[list[int], int]] = {}
        for i, member in enumerate(self._members):
            nbytes, key = size_of(member.signature), member.signature._replace(shape=())
            batch, total = filling.get(key, ([], FUSE_TOTAL_BYTES))
            if not isinstance(member, Allreduce) or nbytes > FUSE_EACH_BYTES or key.device != "cpu":
                batches.append([i])
            elif total + nbytes > FUSE_TOTAL_BYTES:
                batches.append([i])
                filling[key] = batches[-1], nbytes
            else:
                batch.append(i)
                filling[key] = batch, total + nbytes
        return batches


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
