"""The shared-memory transport: one host, CPU tensors, x86-64."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

import numpy as np

from farandole.transport.protocol import Buffer, Exchange, Link, Steps
from farandole.transport.reduction import Reduction
from farandole.transport.shm import eager, slots
from farandole.transport.shm.buckets import SharedBuckets
from farandole.transport.shm.eager import EagerBoard
from farandole.transport.shm.segment import LINE_BYTES, Fabric, round_up
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
                REGION: Mailbox.nbytes(size),
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


RING_BYTES = 256 * 1024
REGION = "mailbox"

_LENGTH_BYTES = 4
# A message longer than this goes in pieces, so that no ring is too small for it.
_PIECE_BYTES = RING_BYTES // 4
_LAST = 1 << 31


class Mailbox:
    """The shared-memory Link (see transport.protocol)."""

    last_step: int | None = None

    def __init__(self, fabric: Fabric) -> None:
        self._rank = fabric.rank
        self._writers = fabric.peers if fabric.rank == 0 else [0]
        self._readers = self._writers
        header = self.header_bytes(fabric.size)
        ranks = range(fabric.size)
        self._heads = [fabric.words(r, REGION, 0, 1) for r in ranks]
        self._tails = [fabric.words(r, REGION, LINE_BYTES, fabric.size) for r in ranks]
        self._rings = [fabric.bytes(r, REGION, header, RING_BYTES) for r in ranks]
        self._queue: deque[bytes] = deque()
        self._partial: dict[int, list[bytes]] = {rank: [] for rank in self._writers}

    @staticmethod
    def header_bytes(size: int) -> int:
        """Bytes before the ring: the head, and a tail per ring that I read."""
        return LINE_BYTES + round_up(8 * size)

    @classmethod
    def nbytes(cls, size: int) -> int:
        """Bytes that a rank's region takes in a group of `size`."""
        return cls.header_bytes(size) + RING_BYTES

    def send(self, message: bytes) -> None:
        """Queue a message and push what fits."""
        for start in range(0, max(len(message), 1), _PIECE_BYTES):
            piece = message[start : start + _PIECE_BYTES]
            last = start + _PIECE_BYTES >= len(message)
            length = len(piece) | (_LAST if last else 0)
            self._queue.append(length.to_bytes(_LENGTH_BYTES, "little") + piece)
        self._flush()

    def receive(self) -> list[tuple[int, bytes]]:
        """Return the messages that are complete."""
        if self._queue:
            self._flush()
        messages = []
        for writer in self._writers:
            head = self._heads[writer][0]
            tail = self._tails[self._rank][writer]
            while tail < head:
                length = int.from_bytes(self._take(writer, tail, _LENGTH_BYTES), "little")
                size = length & ~_LAST
                self._partial[writer].append(self._take(writer, tail + _LENGTH_BYTES, size))
                tail += _LENGTH_BYTES + size
                self._tails[self._rank][writer] = tail
                if length & _LAST:
                    messages.append((writer, b"".join(self._partial[writer])))
                    self._partial[writer].clear()
        return messages

    def _flush(self) -> None:
        head = self._heads[self._rank]
        while self._queue:
            frame = self._queue[0]
            slowest = min(self._tails[reader][self._rank] for reader in self._readers)
            if head[0] + len(frame) - slowest > RING_BYTES:
                return
            self._put(head[0], frame)
            head[0] += len(frame)
            self._queue.popleft()

    def _put(self, position: int, frame: bytes) -> None:
        ring, start = self._rings[self._rank], position % RING_BYTES
        data = np.frombuffer(frame, np.uint8)
        room = RING_BYTES - start
        ring[start : start + len(data)] = data[:room]
        if len(data) > room:
            ring[: len(data) - room] = data[room:]

    def _take(self, writer: int, position: int, length: int) -> bytes:
        ring, start = self._rings[writer], position % RING_BYTES
        data = ring[start : start + length].tobytes()
        if len(data) < length:
            data += ring[: length - len(data)].tobytes()
        return data
