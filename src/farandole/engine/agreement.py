"""How a rank talks with the coordinator: directly on rank 0, elsewhere by messages."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from farandole.engine.coordinator import Coordinator, Decision
from farandole.engine.signature import Signature
from farandole.transport.protocol import Transport


class Agreement:
    """Says what this rank submits, and hears what all are to do."""

    def __init__(self, transport: Transport, *, eager_bytes: int, ranks: Sequence[int]) -> None:
        """Begin with nothing submitted.

        Args:
            transport: carries the messages.
            eager_bytes: room on the eager board; 0 where there is none.
            ranks: the numbers that users know the ranks by, where these are others.
        """
        self._link, self._size = transport.link, transport.size
        self._coordinator: Coordinator | None = None
        if transport.rank == 0:
            self._coordinator = Coordinator(transport.size, eager_bytes=eager_bytes, ranks=ranks)

    def submit(self, name: str, signature: Signature, extra: Any) -> None:
        """Say what this rank submits."""
        if self._coordinator is not None:
            self._coordinator.submit(0, name, signature, extra)
        else:
            self._send([name, signature, extra])

    def join(self, owed: Sequence[str], after: int) -> None:
        """Say that this rank submits no more until all have joined, but for `owed`.

        Args:
            owed: names that are on the eager board.
            after: how many others are seen to have joined.
        """
        if self._coordinator is not None:
            self._coordinator.join(0, owed, after)
        else:
            self._send({"join": owed, "after": after})

    def settle(self, name: str) -> None:
        """Say that this rank owes a name no more."""
        if self._coordinator is not None:
            self._coordinator.settle(0, name)
        else:
            self._send({"settled": name})

    def missing(self) -> dict[str, list[int]]:
        """Return the ranks that have not submitted what others have, as far as is known here."""
        return {} if self._coordinator is None else self._coordinator.missing()

    def hear(self) -> tuple[bool, list[Decision]]:
        """Read the messages that have come; decide, on rank 0.

        Returns:
            Whether there were any, and what all ranks are to do next, in its order.
        """
        messages, coordinator = self._link.receive(), self._coordinator
        if coordinator is None:
            return bool(messages), [Decision.decode(message) for _, message in messages]
        for rank, message in messages:
            _hear(coordinator, rank, json.loads(message))
        decisions = coordinator.decide()
        if self._size > 1:
            for decision in decisions:
                self._link.send(decision.encode())
        return bool(messages or decisions), decisions

    def _send(self, said: Any) -> None:
        self._link.send(json.dumps(said).encode())


def _hear(coordinator: Coordinator, rank: int, said: Any) -> None:
    if isinstance(said, list):
        name, signature, extra = said
        coordinator.submit(rank, name, Signature.parse(signature), extra)
    elif "join" in said:
        coordinator.join(rank, said["join"], said["after"])
    else:
        coordinator.settle(rank, said["settled"])
