"""The NCCL transport: CUDA tensors, by torch.distributed's process group.

As thin as torch allows, and never run on a GPU by its authors: `farandole env --check` is there to
verify it on a machine that has one. Agreement goes over the host transport's link.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from farandole.errors import PeerDiedError
from farandole.transport.gloo import open_store
from farandole.transport.protocol import LOOPBACK, Buffer, Exchange, Link, Steps
from farandole.transport.reduction import Reduction

_OPS = {"sum": "SUM", "average": "SUM", "min": "MIN", "max": "MAX", "product": "PRODUCT"}


class NcclTransport:
    """NCCL (see transport.protocol); buffers hold flat CUDA tensors."""

    name = "nccl"
    eager = buckets = None

    def __init__(
        self, rank: int, size: int, exchange: Exchange, link: Link, *, address: str = LOOPBACK
    ) -> None:
        """Connect all ranks; `link` is the host transport's."""
        from torch.distributed import ProcessGroupNCCL as Nccl

        # torch's stubs know little of this class.
        nccl: Any = Nccl

        self.rank, self.size, self.link = rank, size, link
        self._store = open_store(rank, size, exchange, address)
        self._group = nccl(self._store, rank, size)

    def allreduce(self, source: Buffer, target: Buffer, how: Reduction) -> Steps:
        """Combine all sources into every target."""
        from torch.distributed import AllreduceOptions, ReduceOp

        if source.data.data_ptr() != target.data.data_ptr():
            target.data.copy_(source.data)
        _scale(target.data, how.prescale)
        options = AllreduceOptions()
        options.reduceOp = getattr(ReduceOp, _OPS[how.op])
        yield from self._run(lambda: self._group.allreduce([target.data], options))
        self._finish(target.data, how)

    def broadcast(self, buffer: Buffer, root: int) -> Steps:
        """Copy the root's buffer into everybody's."""
        from torch.distributed import BroadcastOptions

        options = BroadcastOptions()
        options.rootRank, options.rootTensor = root, 0
        yield from self._run(lambda: self._group.broadcast([buffer.data], options))

    def allgather(self, source: Buffer, target: Buffer, counts: Sequence[int]) -> Steps:
        """Put the sources one behind the other."""
        sends = source.data.repeat(self.size)
        matrix = [[count] * self.size for count in counts]
        yield from self.alltoall(Buffer(sends, source.dtype), target, matrix)

    def reducescatter(
        self, source: Buffer, target: Buffer, counts: Sequence[int], how: Reduction
    ) -> Steps:
        """Combine all sources; rank r gets the r-th stretch."""
        whole = Buffer(source.data.clone(), source.dtype)
        yield from self.allreduce(whole, whole, how)
        start = sum(counts[: self.rank])
        target.data.copy_(whole.data[start : start + counts[self.rank]])

    def alltoall(self, source: Buffer, target: Buffer, counts: Sequence[Sequence[int]]) -> Steps:
        """Send a stretch of the source to every rank."""
        sends = list(counts[self.rank])
        receives = [row[self.rank] for row in counts]
        yield from self._run(
            lambda: self._group.alltoall_base(target.data, source.data, receives, sends)
        )

    def check_peers(self) -> None:
        """Leave it to the host transport, which knows their processes."""

    def close(self) -> None:
        """Hang up."""
        self._group.shutdown()

    def _finish(self, data: Any, how: Reduction) -> None:
        if how.op == "average":
            if data.is_floating_point() or data.is_complex():
                data.div_(self.size)
            else:
                data.copy_(data.div(self.size, rounding_mode="trunc"))
        _scale(data, how.postscale)

    def _run(self, start: Callable[[], Any]) -> Steps:
        import torch

        try:
            work = start()
            moved = True
            while not work.is_completed():
                yield moved
                moved = False
            work.wait()
        except RuntimeError as error:
            raise PeerDiedError(f"NCCL failed on rank {self.rank}: {error}") from error
        torch.cuda.current_stream().synchronize()


def _scale(data: Any, factor: float) -> None:
    if factor != 1.0:
        data.copy_((data.double() * factor).to(data.dtype))
