"""The Gloo transport: CPU tensors over TCP, by torch.distributed's process group.

Gloo's own all-reduce adds in ring order, which depends on where a value lies in its tensor. Here
it only moves bytes (all-to-all, all-gather, broadcast: the same volume as a ring), and the fold is
ours, so that the results are bit for bit those of shared memory.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import numpy as np

from farandole.errors import MissingExtraError, PeerDiedError
from farandole.transport.protocol import LOOPBACK, Buffer, Exchange, Link, Steps
from farandole.transport.reduction import Array, Reduction, fold
from farandole.transport.tcp_link import TcpLink
from farandole.world.store import bound_listener

WINDOW_BYTES = 8 * 1024 * 1024
"""Bytes moved at a time: bounds the memory taken besides the tensors themselves."""

_SETTLE_MS = 50
_TIMEOUT = timedelta(days=1)
_BLAME_TIMEOUT_S = 2.0
GRACE_S = 1.0
"""A peer that has done its part may hang up while its last bytes are still on their way here; if
they are not, Gloo says so itself."""


class GlooTransport:
    """TCP by way of Gloo (see transport.protocol)."""

    name = "gloo"
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
        at_once: int = 1,
    ) -> None:
        """Connect all ranks.

        Args:
            rank: my rank.
            size: number of ranks.
            exchange: a rendezvous of these ranks.
            address: an address of this host that the others reach; loopback on one host.
            names: what messages call the ranks; "rank 3" and so on where none are given.
            wire: carries messages, where somebody else has one for these ranks and closes it.
            at_once: how many operations move data at once; the others wait for their turn.
        """
        try:
            from torch.distributed import ProcessGroupGloo as Gloo
        except ImportError as error:
            raise MissingExtraError(
                "The gloo transport needs torch: pip install 'farandole[torch]'."
            ) from error
        # torch's stubs know little of this class.
        gloo: Any = Gloo
        self.rank, self.size = rank, size
        self._own_wire = wire is None
        self._wire = wire or TcpLink(rank, size, exchange, address=address, names=names)
        self.link: Link = self._wire
        self._store = open_store(rank, size, exchange, address)
        options = gloo._Options()
        options._devices = [gloo.create_device(hostname=address)]
        options._timeout = _TIMEOUT
        options._threads = at_once
        self._group = gloo(self._store, rank, size, options)
        self._under_way: list[Any] = []
        """Gloo's own handles of what it was not seen to end."""

    def allreduce(self, source: Buffer, target: Buffer, how: Reduction) -> Steps:
        """Everybody gets its share of all inputs, folds it, and passes the result on."""
        size, rank = self.size, self.rank
        per_window = max(WINDOW_BYTES // source.data.itemsize, size)
        for start in range(0, len(source), per_window):
            piece = source.data[start : start + per_window]
            each = -(-len(piece) // size)
            sent = np.zeros(each * size, piece.dtype)
            sent[: len(piece)] = piece
            received = np.empty_like(sent)
            yield from self._run(self._all_to_all, received, sent)
            parts = [received[r * each : (r + 1) * each] for r in range(size)]
            share = sent[rank * each : (rank + 1) * each].copy()
            fold(parts, [share], source.dtype, how)
            yield from self._run(self._all_gather, sent, share)
            target.data[start : start + len(piece)] = sent[: len(piece)]

    def broadcast(self, buffer: Buffer, root: int) -> Steps:
        """Copy the root's buffer into everybody's."""
        if len(buffer):
            yield from self._run(self._broadcast, buffer.data, root)

    def allgather(self, source: Buffer, target: Buffer, counts: Sequence[int]) -> Steps:
        """Put the sources one behind the other."""
        if len(set(counts)) == 1:
            if counts[0]:
                yield from self._run(self._all_gather, target.data, source.data)
            return
        offsets = [sum(counts[:r]) for r in range(self.size)]
        per_window = max(WINDOW_BYTES // source.data.itemsize // self.size, 1)
        for start in range(0, max(counts), per_window):
            each = min(per_window, max(counts) - start)
            mine = np.zeros(each, source.data.dtype)
            piece = source.data[start : start + each]
            mine[: len(piece)] = piece
            everyone = np.empty(each * self.size, mine.dtype)
            yield from self._run(self._all_gather, everyone, mine)
            for r, offset in enumerate(offsets):
                length = min(each, counts[r] - start)
                if length > 0:
                    got = everyone[r * each : r * each + length]
                    target.data[offset + start : offset + start + length] = got

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
        width = source.data.itemsize
        sends = [count * width for count in counts[self.rank]]
        receives = [row[self.rank] * width for row in counts]
        if any(any(row) for row in counts):
            yield from self._run(self._all_to_all, target.data, source.data, receives, sends)

    def check_peers(self) -> None:
        """Raise PeerDiedError if a peer is lost, and not only done before this rank."""
        self._wire.check_peers(GRACE_S)

    def close(self) -> None:
        """Hang up."""
        # A peer that has left in order is gone, too; then there is nothing to wait for.
        if self._wire.loss and not all(work.is_completed() for work in self._under_way):
            _leave(self._group)
        else:
            let_gloo_settle()
            with contextlib.suppress(RuntimeError):
                self._group.shutdown()
        if self._own_wire:
            self._wire.close()

    def _run(self, start: Callable[..., Any], *arguments: Any) -> Steps:
        try:
            work = start(*arguments)
            self._under_way.append(work)
            moved = True
            while not work.is_completed():
                yield moved
                moved = False
            self._under_way.remove(work)
            work.wait()
        except RuntimeError as error:
            # Gloo knows an address; the wire is about to know the rank.
            deadline = time.monotonic() + _BLAME_TIMEOUT_S
            while not self._wire.loss and time.monotonic() < deadline:
                yield False
            unknown = f"{self._wire.me} lost a peer during an operation: {error}"
            raise PeerDiedError(self._wire.loss or unknown) from error

    def _all_to_all(
        self,
        received: Array,
        sent: Array,
        receives: Sequence[int] = (),
        sends: Sequence[int] = (),
    ) -> Any:
        return self._group.alltoall_base(
            _bytes(received), _bytes(sent), list(receives), list(sends)
        )

    def _all_gather(self, everyone: Array, mine: Array) -> Any:
        return self._group._allgather_base(_bytes(everyone), _bytes(mine))

    def _broadcast(self, data: Array, root: int) -> Any:
        from torch.distributed import BroadcastOptions

        options = BroadcastOptions()
        options.rootRank = root
        options.rootTensor = 0
        return self._group.broadcast([_bytes(data)], options)


def let_gloo_settle() -> None:
    """Give Gloo's threads time to let go of their last operations.

    They need the interpreter for that (seen in torch 2.13 after DDP's backward), and the destructor
    of a process group waits for them without letting go of it: a deadlock, unless they are done.
    """
    for _ in range(_SETTLE_MS):
        time.sleep(0.001)


def _leave(group: Any) -> None:
    """Never destroy a group: that would wait for operations with a rank that does not answer."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(group))


def open_store(rank: int, size: int, exchange: Exchange, address: str) -> Any:
    """Open a torch store that rank 0 serves on `address` only."""
    # torch exports it without listing it.
    from torch.distributed import TCPStore  # type: ignore[attr-defined]

    listener = bound_listener(0, address) if rank == 0 else None
    if rank == 0 and listener is None:
        raise PeerDiedError(f"No free port on {address} for torch's store.")
    hello = json.dumps([address, listener.getsockname()[1]]).encode() if listener else b""
    host, port = json.loads(exchange(hello)[0])
    options: dict[str, Any] = {"master_listen_fd": listener.detach()} if listener else {}
    return TCPStore(
        host, port, size, rank == 0, timedelta(seconds=300), wait_for_workers=False, **options
    )


def _bytes(data: Array) -> Any:
    import torch

    if not data.flags.writeable:
        data = data.copy()  # torch warns of memory that it may not write to, as bytes are
    return torch.from_numpy(data.view(np.uint8))
