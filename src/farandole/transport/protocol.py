"""What a transport offers to the engine. Every implementation passes one conformance test class.

Operations are generators: each `yield` means "a peer is not there yet", and the engine comes back
later; its value says whether anything was done since the last one. None of them blocks, so that a
rank which waits in one operation still advances the others.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from farandole.transport.reduction import Reduction

if TYPE_CHECKING:
    from farandole.transport.hierarchical.transport import HostBuckets
    from farandole.transport.shm.buckets import SharedBuckets
    from farandole.transport.shm.eager import EagerBoard

Steps = Generator[bool, None, None]

LOOPBACK = "127.0.0.1"
"""Where the ranks of one host reach each other."""

Exchange = Callable[[bytes], list[bytes]]
"""Give my bytes, get everybody's in rank order (one round of a rendezvous)."""


class Buffer:
    """A tensor as transports see it: flat, contiguous, its type by name."""

    # Not a frozen dataclass: one is made for every operation, and that would take twice as long.
    __slots__ = ("data", "dtype")

    def __init__(self, data: Any, dtype: str) -> None:
        """Describe a tensor.

        Args:
            data: on the host a flat NumPy array in the storage type of `dtype`; on a GPU a flat
                tensor.
            dtype: a key of reduction.STORAGE.
        """
        self.data = data
        self.dtype = dtype

    def __len__(self) -> int:
        return len(self.data)

    @property
    def nbytes(self) -> int:
        """Size in bytes."""
        return int(self.data.nbytes)


class Link(Protocol):
    """Short messages between rank 0 and the others, in order, without blocking."""

    @property
    def last_step(self) -> int | None:
        """The step at which all stop; 0 while there is none, None where the link does not tell.

        Rank 0 sets it, and the others have it before rank 0's next message.
        """

    @last_step.setter
    def last_step(self, step: int) -> None: ...

    def send(self, message: bytes) -> None:
        """Queue a message: from rank 0 to all others, from any other rank to rank 0."""

    def receive(self) -> list[tuple[int, bytes]]:
        """Return what has arrived, with the rank it came from; flush what is queued."""


OpenBuckets = Callable[[Exchange, Sequence[tuple[int, str]], int], "SharedBuckets | HostBuckets"]
"""Allocates gradient buckets: with a rendezvous, elements and type of each, and bytes of a note."""


class Transport(Protocol):
    """Moves bytes between the ranks of one group. All ranks call the same operations in the same
    order; who decides on that order is the engine's business."""

    name: str
    rank: int
    size: int
    link: Link

    @property
    def eager(self) -> EagerBoard | None:
        """Slots for small operations, where all ranks share memory; None elsewhere."""

    @property
    def buckets(self) -> OpenBuckets | None:
        """Allocates gradient buckets where they are reduced; None where that can be anywhere."""

    def allreduce(self, source: Buffer, target: Buffer, how: Reduction) -> Steps:
        """Combine all sources into every target; the two may be one."""

    def broadcast(self, buffer: Buffer, root: int) -> Steps:
        """Copy the root's buffer into everybody's."""

    def allgather(self, source: Buffer, target: Buffer, counts: Sequence[int]) -> Steps:
        """Put the sources one behind the other; rank r's has counts[r] elements."""

    def reducescatter(
        self, source: Buffer, target: Buffer, counts: Sequence[int], how: Reduction
    ) -> Steps:
        """Combine all sources; rank r gets the r-th stretch, counts[r] elements."""

    def alltoall(self, source: Buffer, target: Buffer, counts: Sequence[Sequence[int]]) -> Steps:
        """Send a stretch of the source to every rank: counts[i][j] elements go from i to j."""

    def check_peers(self) -> None:
        """Raise PeerDiedError if a peer is gone; called now and then while waiting."""

    def close(self) -> None:
        """Let go of everything."""
