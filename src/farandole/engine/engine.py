"""The engine of one group of ranks: transport, named operations and the progress loop together."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Protocol

import numpy as np

from farandole.engine.handle import Handle
from farandole.engine.loop import Loop
from farandole.engine.named import NamedLane
from farandole.engine.operations import Allgather, Operation
from farandole.engine.signature import Signature
from farandole.recorder.ending import refuse_if_ended
from farandole.transport.protocol import LOOPBACK, Buffer, Exchange, Transport


class Adopted(Protocol):
    """Something that lives no longer than its engine."""

    def waiting(self) -> dict[str, None]:
        """Return what this rank has submitted and others may not have."""

    def close(self) -> None:
        """Let go of everything; a second call does nothing."""


class _OnDevice:
    """What moves device memory, opened when it is first needed.

    Apart from the engine, which its lane would otherwise hold on to: memory and sockets would stay
    after shutdown() until Python looks for cycles.
    """

    def __init__(self, on_host: Transport, rendezvous: Exchange, address: str) -> None:
        self._on_host, self._rendezvous, self._address = on_host, rendezvous, address
        self._opened: Transport | None = None

    def open(self) -> Transport:
        """Return the transport; all ranks call this at the same decision."""
        on_host = self._on_host
        if on_host.size == 1:
            return on_host
        if self._opened is None:
            from farandole.transport.nccl import NcclTransport

            self._opened = NcclTransport(
                on_host.rank, on_host.size, self._rendezvous, on_host.link, address=self._address
            )
        return self._opened

    def close(self) -> None:
        """Let go of it, if it is there."""
        if self._opened is not None:
            self._opened.close()


class Engine:
    """Submits operations by name, waits for them, and drives the rest meanwhile."""

    def __init__(
        self,
        transport: Transport,
        loop: Loop,
        rendezvous: Exchange,
        *,
        address: str = LOOPBACK,
        ranks: Sequence[int] = (),
        number: int = 0,
    ) -> None:
        """Begin.

        Args:
            transport: for host memory.
            loop: drives everything.
            rendezvous: meets the other ranks, for transports opened later.
            address: where the other ranks reach this one.
            ranks: the numbers of the ranks among all workers, where the group has not all.
            number: of the process set; 0 for all workers.
        """
        self.transport = transport
        self.loop = loop
        self.address = address
        self._on_device = _OnDevice(transport, rendezvous, address)
        self._uses: dict[str, int] = {}
        self.ranks = tuple(ranks) or tuple(range(transport.size))
        """The numbers of the ranks among all workers."""
        self.number = number
        self._named = NamedLane(transport, self._on_device.open, ranks)
        self._adopted: list[Adopted] = []
        loop.add(self._named)
        if loop.watch is not None:
            loop.watch.follow(self)

    @property
    def rank(self) -> int:
        """My rank."""
        return self.transport.rank

    @property
    def size(self) -> int:
        """Number of ranks."""
        return self.transport.size

    def submit(self, name: str, operation: Operation, *, queues: bool = False) -> Handle:
        """Submit an operation that its caller does not wait for yet.

        Args:
            name: what ties the ranks' operations together.
            operation: what to do.
            queues: whether it waits for an earlier one of its name; else it is refused.
        """
        handle, by_coordinator = self._begin(name, operation, queues)
        if by_coordinator or not self.loop.awake:
            self.loop.nobody_waits()
        return handle

    def run(self, name: str, operation: Operation, *, queues: bool = False) -> object:
        """Submit an operation (see `submit`) and wait; return its result or raise its error."""
        handle, _ = self._begin(name, operation, queues)
        return self.loop.result(handle)

    def wait(self, handle: Handle) -> object:
        """Wait for a submitted operation; return its result or raise its error."""
        return self.loop.result(handle)

    def poll(self, handle: Handle) -> bool:
        """Say whether an operation is done; False at least once."""
        return self.loop.poll(handle)

    def unique_name(self, prefix: str, key: str) -> str:
        """Return a short name for `key`, another one each time; ranks that ask alike get alike."""
        digest = hashlib.blake2b(key.encode(), digest_size=6).hexdigest()
        self._uses[digest] = number = self._uses.get(digest, 0) + 1
        return f"{prefix}.{digest}.{number}"

    def exchange(
        self, payload: bytes, name: str = "farandole.exchange", *, kind: str = "allgather"
    ) -> list[bytes]:
        """Give my bytes, get everybody's in rank order.

        Ranks that have joined give none in a `kind` of "meeting"; others fail while there are such.
        """
        # A copy that may be written to: torch warns of what may not.
        source = np.frombuffer(bytearray(payload), np.uint8)
        gathered: list[np.ndarray[tuple[int], np.dtype[np.uint8]]] = []
        sizes: list[int] = []

        def allocate(lengths: object) -> Buffer:
            sizes.extend(lengths)  # type: ignore[arg-type]
            gathered.append(np.empty(sum(sizes), np.uint8))
            return Buffer(gathered[0], "uint8")

        signature = Signature(kind, "uint8", (len(payload),))
        self.run(name, Allgather(signature, Buffer(source, "uint8"), allocate))
        stops = np.cumsum(sizes)
        return [
            gathered[0][stop - size : stop].tobytes()
            for stop, size in zip(stops, sizes, strict=True)
        ]

    def join(self) -> Handle:
        """Submit nothing more until all ranks have joined; the result is the last one of them."""
        refuse_if_ended()
        self.loop.refuse_if_forked()
        self.loop.wait(lambda: not self._named.queued)
        with self.loop.exclusive():
            return self._named.join()

    def wanted(self, name: str) -> bool:
        """Say whether the others ask for an operation of this rank, though it has joined."""
        return name in self._named.wanted

    def waiting(self) -> dict[str, list[int] | None]:
        """Return what some rank has not submitted, with those ranks where they are known here."""
        with self.loop.exclusive():
            found = self._named.waiting()
            for resource in self._adopted:
                found.update(resource.waiting())
        return found

    def adopt(self, resource: Adopted) -> None:
        """Close this together with the engine, unless it is released before."""
        self._adopted.append(resource)

    def release(self, resource: Adopted) -> None:
        """Forget what was adopted."""
        if resource in self._adopted:
            self._adopted.remove(resource)

    def close(self) -> None:
        """Leave the group; what is under way fails."""
        if self.loop.watch is not None:
            self.loop.watch.forget(self)
        while self._adopted:
            self._adopted.pop().close()
        self.loop.remove(self._named)
        self._named.close()
        self._on_device.close()
        self.transport.close()

    def open_device_transport(self) -> None:
        """Open what moves device memory now, while the ranks are together anyway."""
        self._on_device.open()

    def _begin(self, name: str, operation: Operation, queues: bool) -> tuple[Handle, bool]:
        """Submit an operation; return its handle, and whether the coordinator has it."""
        refuse_if_ended()
        self.loop.refuse_if_forked()
        named = self._named
        if not queues or not named.taken(name):
            handle = named.eager(name, operation)
            if handle is not None:
                return handle, False
        with self.loop.exclusive():
            if queues and named.taken(name):
                return named.queue(name, operation), True
            return named.submit(name, operation), True
