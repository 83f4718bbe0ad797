"""The MPI transport: CPU tensors by mpi4py, over whatever the cluster's MPI knows of its network.

MPI only moves bytes (all-to-all, all-gather, broadcast, none of them blocking), straight from and
to the buffers. The fold is ours, in rank order, so that results are bit for bit those of shared
memory and Gloo; MPI's own all-reduce may add in any order, and knows no bfloat16.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Any

import numpy as np

from farandole.errors import PeerDiedError
from farandole.transport.gloo import GRACE_S
from farandole.transport.protocol import LOOPBACK, Buffer, Exchange, Link, Steps
from farandole.transport.reduction import Array, Reduction, fold
from farandole.transport.tcp_link import TcpLink
from farandole.world.mpi import CALLS, communicator, load_mpi

WINDOW_BYTES = 4 * 1024 * 1024
"""Bytes reduced at a time: while one window is folded, the next is on its way."""

_MOST_ELEMENTS = 2**30
"""What one call moves; MPI counts in 32 bits."""

# Requests that MPI still worked on when their transport was closed: their buffers must stay.
_abandoned: list[Any] = []


class MpiTransport:
    """MPI by way of mpi4py (see transport.protocol; an OpenBetween of transport.hierarchical)."""

    name = "mpi"
    eager = buckets = None

    def __init__(
        self,
        rank: int,
        size: int,
        exchange: Exchange,
        *,
        address: str = LOOPBACK,
        names: Sequence[str] = (),
        wire: TcpLink | None = None,
    ) -> None:
        """Connect all ranks; an mpirun has started them.

        Args:
            rank: my rank.
            size: number of ranks: all of COMM_WORLD's or some, such as one per host.
            exchange: a rendezvous of these ranks.
            address: an address of this host that the others reach; loopback on one host.
            names: what messages call the ranks; "rank 3" and so on where none are given.
            wire: carries messages, where somebody else has one for these ranks and closes it.

        Raises:
            MissingExtraError: mpi4py is not installed.
            StartError: MPI does not know these ranks.
        """
        self._mpi = load_mpi()
        self.rank, self.size = rank, size
        self._comm = communicator(rank, size, exchange)
        # The messages of agreement go by TCP: a connection tells at once when its peer has gone.
        self._own_wire = wire is None
        self._wire = wire or TcpLink(rank, size, exchange, address=address, names=names)
        self.link: Link = self._wire
        self._under_way: dict[int, Any] = {}
        self._spare: list[Array] = []

    def allreduce(self, source: Buffer, target: Buffer, how: Reduction) -> Steps:
        """Everybody gets its share of all inputs, folds it, and passes the result on."""
        count = len(source)
        per_window = max(WINDOW_BYTES // source.data.itemsize, self.size)
        starts = range(0, count, per_window)
        windows = [slice(start, min(start + per_window, count)) for start in starts]
        sent: Array = source.data
        out: Array = target.data
        arriving = self._start_window(sent[windows[0]]) if windows else None
        for number, window in enumerate(windows):
            assert arriving is not None
            request, received = arriving
            yield from self._finish(request)
            if number + 1 < len(windows):
                arriving = self._start_window(sent[windows[number + 1]])
            counts = _shares(window.stop - window.start, self.size)
            begin = window.start + sum(counts[: self.rank])
            mine = counts[self.rank]
            parts = [received[r * mine : (r + 1) * mine] for r in range(self.size)]
            fold(parts, [out[begin : begin + mine]], source.dtype, how)
            self._give_back(received)
            gathered = self._vector(out[window], counts)
            yield from self._run(self._comm.Iallgatherv, self._mpi.IN_PLACE, gathered)

    def broadcast(self, buffer: Buffer, root: int) -> Steps:
        """Copy the root's buffer into everybody's."""
        for start in range(0, len(buffer), _MOST_ELEMENTS):
            piece = buffer.data[start : start + _MOST_ELEMENTS]
            yield from self._run(self._comm.Ibcast, [piece, len(piece), self._unit(piece)], root)

    def allgather(self, source: Buffer, target: Buffer, counts: Sequence[int]) -> Steps:
        """Put the sources one behind the other."""
        if any(counts):
            mine = [source.data, len(source), self._unit(source.data)]
            yield from self._run(self._comm.Iallgatherv, mine, self._vector(target.data, counts))

    def reducescatter(
        self, source: Buffer, target: Buffer, counts: Sequence[int], how: Reduction
    ) -> Steps:
        """Send every rank its stretch; fold what comes."""
        mine = counts[self.rank]
        received = Buffer(np.empty(mine * self.size, source.data.dtype), source.dtype)
        yield from self.alltoall(source, received, [list(counts)] * self.size)
        parts = [received.data[r * mine : (r + 1) * mine] for r in range(self.size)]
        fold(parts, [target.data], source.dtype, how)

    def alltoall(self, source: Buffer, target: Buffer, counts: Sequence[Sequence[int]]) -> Steps:
        """Send a stretch of the source to every rank."""
        if any(any(row) for row in counts):
            sends = self._vector(source.data, counts[self.rank])
            receives = self._vector(target.data, [row[self.rank] for row in counts])
            yield from self._run(self._comm.Ialltoallv, sends, receives)

    def check_peers(self) -> None:
        """Raise PeerDiedError if a peer is lost, and not only done before this rank."""
        self._wire.check_peers(GRACE_S)

    def close(self) -> None:
        """Leave the communicator, and hang up."""
        with CALLS:
            _abandoned.extend(self._under_way.values())
            # With a rank lost or an operation under way this could wait for ever.
            if not (self._wire.loss or self._under_way or self._mpi.Is_finalized()):
                self._comm.Free()
        if self._own_wire:
            self._wire.close()

    def _start_window(self, piece: Array) -> tuple[Any, Array]:
        """Send every rank its share of a window; return the request, and where theirs come."""
        counts = _shares(len(piece), self.size)
        mine = counts[self.rank]
        received = self._take(mine * self.size, piece.dtype)
        request = self._start(
            self._comm.Ialltoallv,
            self._vector(piece, counts),
            self._vector(received, [mine] * self.size),
        )
        return request, received

    def _run(self, operation: Callable[..., Any], *arguments: Any) -> Steps:
        yield from self._finish(self._start(operation, *arguments))

    def _start(self, operation: Callable[..., Any], *arguments: Any) -> Any:
        try:
            with CALLS:
                request = operation(*arguments)
        except self._mpi.Exception as error:
            raise self._lost(error) from error
        # It also holds on to its buffers, should nobody come back for it.
        self._under_way[id(request)] = request
        return request

    def _finish(self, request: Any) -> Steps:
        """Test a request until it is done."""
        moved = True
        while not self._test(request):
            yield moved
            moved = False
        del self._under_way[id(request)]

    def _test(self, request: Any) -> bool:
        try:
            with CALLS:
                done: bool = request.Test()
        except self._mpi.Exception as error:
            raise self._lost(error) from error
        return done

    def _lost(self, error: Exception) -> PeerDiedError:
        unknown = f"{self._wire.me} met an error of MPI during an operation: {error}"
        return PeerDiedError(self._wire.loss or unknown)

    def _vector(self, data: Array, counts: Sequence[int]) -> list[Any]:
        """Describe stretches of a buffer, one behind the other, as mpi4py wants it."""
        starts = list(accumulate(counts, initial=0))[:-1]
        return [data, (list(counts), starts), self._unit(data)]

    def _unit(self, data: Array) -> Any:
        """Return an MPI type of the size of an element: bytes are moved, never added."""
        mpi = self._mpi
        units = {1: mpi.BYTE, 2: mpi.UINT16_T, 4: mpi.UINT32_T, 8: mpi.UINT64_T}
        return units.get(data.itemsize, mpi.C_DOUBLE_COMPLEX)

    def _take(self, count: int, dtype: np.dtype[Any]) -> Array:
        """Return memory for what arrives: fresh pages for every window would cost more."""
        size = max(WINDOW_BYTES, count * dtype.itemsize)
        memory = self._spare.pop() if self._spare else np.empty(0, np.uint8)
        if memory.nbytes < size:
            memory = np.empty(size, np.uint8)
        taken: Array = memory[: count * dtype.itemsize].view(dtype)
        return taken

    def _give_back(self, taken: Array) -> None:
        base = taken.base
        assert isinstance(base, np.ndarray)
        self._spare.append(base)


def _shares(count: int, size: int) -> list[int]:
    """Split elements among ranks as evenly as can be."""
    each, more = divmod(count, size)
    return [each + (rank < more) for rank in range(size)]
