"""The shared-memory transport: one host, CPU tensors, x86-64."""

from __future__ import annotations

from collections.abc import Sequence

from farandole.transport.protocol import Buffer, Exchange, Link, Steps
from farandole.transport.reduction import Reduction
from farandole.transport.shm import eager, mailbox, slots
from farandole.transport.shm.buckets import SharedBuckets
from farandole.transport.shm.eager import EagerBoard
from farandole.transport.shm.fabric import Fabric
from farandole.transport.shm.mailbox import Mailbox
from farandole.transport.shm.slots import SlotChannel


class ShmTransport:
    """Shared memory (see transport.protocol), with two shortcuts of its own: the eager board for
    small named operations, and gradient buckets that live in the segment."""

    name = "shm"

    def __init__(
        self, rank: int, size: int, exchange: Exchange, *, numbers: Sequence[int] = ()
    ) -> None:
        """Open; `numbers` are those of the ranks in messages, where they are others."""
        self.rank, self.size, self._numbers = rank, size, numbers
        self._fabric = Fabric.open(
            rank,
            size,
            exchange,
            {
                slots.REGION: SlotChannel.NBYTES,
                mailbox.REGION: Mailbox.nbytes(size),
                eager.REGION: EagerBoard.NBYTES,
            },
            numbers=numbers,
        )
        self._channel = SlotChannel(self._fabric)
        self.link: Link = Mailbox(self._fabric)
        self.eager = EagerBoard(self._fabric)

    def allreduce(self, source: Buffer, target: Buffer, how: Reduction) -> Steps:
        """Combine all sources into every target."""
        return self._channel.allreduce(source, target, how)

    def broadcast(self, buffer: Buffer, root: int) -> Steps:
        """Copy the root's buffer into everybody's."""
        return self._channel.broadcast(buffer, root)

    def allgather(self, source: Buffer, target: Buffer, counts: Sequence[int]) -> Steps:
        """Put the sources one behind the other."""
        return self._channel.allgather(source, target, counts)

    def reducescatter(
        self, source: Buffer, target: Buffer, counts: Sequence[int], how: Reduction
    ) -> Steps:
        """Combine all sources; rank r gets the r-th stretch."""
        return self._channel.reducescatter(source, target, counts, how)

    def alltoall(self, source: Buffer, target: Buffer, counts: Sequence[Sequence[int]]) -> Steps:
        """Send a stretch of the source to every rank."""
        return self._channel.alltoall(source, target, counts)

    def buckets(
        self, exchange: Exchange, shapes: Sequence[tuple[int, str]], note_bytes: int
    ) -> SharedBuckets:
        """Allocate gradient buckets in shared memory."""
        return SharedBuckets(
            self.rank, self.size, exchange, shapes, note_bytes, numbers=self._numbers
        )

    def check_peers(self) -> None:
        """Raise PeerDiedError if a peer is gone."""
        self._fabric.check_peers()

    def close(self) -> None:
        """Leave the group."""
        self._fabric.close()
