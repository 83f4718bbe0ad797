"""The engine of one group of ranks: transport, named operations and the progress loop together."""

from __future__ import annotations

import hashlib
from typing import Protocol

import numpy as np

from farandole.engine.handle import Handle
from farandole.engine.loop import Loop
from farandole.engine.named import NamedLane
from farandole.engine.operations import Allgather, Operation
from farandole.engine.signature import Signature
from farandole.recorder.ending import refuse_if_ended
from farandole.transport.protocol import LOOPBACK, Buffer, Exchange, Transport


class Closing(Protocol):
    """Something that lives no longer than its engine."""

    def close(self) -> None:
        """Let go of everything; a second call does nothing."""


class Engine:
    """Submits operations by name, waits for them, and drives the rest meanwhile."""

    def __init__(
        self, transport: Transport, loop: Loop, rendezvous: Exchange, *, address: str = LOOPBACK
    ) -> None:
        """Begin.

        Args:
            transport: for host memory.
            loop: drives everything.
            rendezvous: meets the other ranks, for transports opened later.
            address: where the other ranks reach this one.
        """
        self.transport = transport
        self.loop = loop
        self._rendezvous, self._address = rendezvous, address
        self._on_device: Transport | None = None
        self._uses: dict[str, int] = {}
        self._named = NamedLane(transport, self._device_transport)
        self._adopted: list[Closing] = []
        loop.add(self._named)

    @property
    def rank(self) -> int:
        """My rank."""
        return self.transport.rank

    @property
    def size(self) -> int:
        """Number of ranks."""
        return self.transport.size

    def submit(self, name: str, operation: Operation) -> Handle:
        """Submit an operation that its caller does not wait for yet."""
        handle = self._submit(name, operation)
        self.loop.nobody_waits()
        return handle

    def run(self, name: str, operation: Operation) -> object:
        """Submit an operation and wait for it; return its result or raise its error."""
        return self.loop.result(self._submit(name, operation))

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

    def exchange(self, payload: bytes, name: str = "farandole.exchange") -> list[bytes]:
        """Give my bytes, get everybody's in rank order."""
        source = np.frombuffer(payload, np.uint8)
        gathered: list[np.ndarray[tuple[int], np.dtype[np.uint8]]] = []
        sizes: list[int] = []

        def allocate(lengths: object) -> Buffer:
            sizes.extend(lengths)  # type: ignore[arg-type]
            gathered.append(np.empty(sum(sizes), np.uint8))
            return Buffer(gathered[0], "uint8")

        signature = Signature("allgather", "uint8", (len(payload),))
        self.run(name, Allgather(signature, Buffer(source, "uint8"), allocate))
        stops = np.cumsum(sizes)
        return [
            gathered[0][stop - size : stop].tobytes()
            for stop, size in zip(stops, sizes, strict=True)
        ]

    def adopt(self, resource: Closing) -> None:
        """Close this together with the engine, unless it is released before."""
        self._adopted.append(resource)

    def release(self, resource: Closing) -> None:
        """Forget what was adopted."""
        if resource in self._adopted:
            self._adopted.remove(resource)

    def close(self) -> None:
        """Leave the group; what is under way fails."""
        while self._adopted:
            self._adopted.pop().close()
        self.loop.remove(self._named)
        self._named.close()
        if self._on_device is not None:
            self._on_device.close()
        self.transport.close()

    def _device_transport(self) -> Transport:
        if self._on_device is None:
            if self.size == 1:
                self._on_device = self.transport
            else:
                from farandole.transport.nccl import NcclTransport

                self._on_device = NcclTransport(
                    self.rank,
                    self.size,
                    self._rendezvous,
                    self.transport.link,
                    address=self._address,
                )
        return self._on_device

    def _submit(self, name: str, operation: Operation) -> Handle:
        refuse_if_ended()
        handle = self._named.eager(name, operation)
        if handle is None:
            with self.loop.exclusive():
                handle = self._named.submit(name, operation)
        return handle
