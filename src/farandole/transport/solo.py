"""One worker: every collective is a copy."""

from __future__ import annotations

from collections.abc import Sequence

from farandole.transport.protocol import Buffer, Link, Steps
from farandole.transport.reduction import Reduction, fold


class _NoLink:
    """A link with nobody at the other end."""

    def send(self, message: bytes) -> None:
        """Send to nobody."""

    def receive(self) -> list[tuple[int, bytes]]:
        """Receive nothing."""
        return []


class SoloTransport:
    """The transport of a group of one (see transport.protocol)."""

    name = "solo"
    rank = 0
    size = 1

    def __init__(self) -> None:
        self.link: Link = _NoLink()

    def allreduce(self, source: Buffer, target: Buffer, how: Reduction) -> Steps:
        """Scale, and copy."""
        if isinstance(source.data, type(target.data)) and hasattr(source.data, "is_cuda"):
            target.data.copy_(source.data * how.prescale * how.postscale)
        else:
            fold([source.data], [target.data], source.dtype, how)
        yield from ()

    def broadcast(self, buffer: Buffer, root: int) -> Steps:
        """Leave it as it is."""
        yield from ()

    def allgather(self, source: Buffer, target: Buffer, counts: Sequence[int]) -> Steps:
        """Copy."""
        target.data[...] = source.data
        yield from ()

    def reducescatter(
        self, source: Buffer, target: Buffer, counts: Sequence[int], how: Reduction
    ) -> Steps:
        """Scale, and copy."""
        return self.allreduce(source, target, how)

    def alltoall(self, source: Buffer, target: Buffer, counts: Sequence[Sequence[int]]) -> Steps:
        """Copy."""
        return self.allgather(source, target, counts[0])

    def check_peers(self) -> None:
        """Miss nobody."""

    def close(self) -> None:
        """Let go of nothing."""
