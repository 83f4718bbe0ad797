"""Who may run what, and when: the agreement on named operations, as a pure state machine.

Rank 0 feeds it what ranks have submitted and sends out what it decides. An operation runs when
every rank has submitted its name; all ranks run them in the order of the decisions.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from farandole.engine.signature import Signature, mismatch
from farandole.transport.reduction import STORAGE
from farandole.transport.shm import eager
from farandole.transport.shm.segment import round_up

FUSE_EACH_BYTES = 64 * 1024
FUSE_TOTAL_BYTES = 1024 * 1024
_EAGER_KINDS = frozenset({"allreduce", "broadcast"})


class Ticket(NamedTuple):
    """A place on the eager board (transport.shm.eager) for the next turns of an operation."""

    ticket: int
    variant: int
    offset: int


class Decision(NamedTuple):
    """What every rank does next: run these operations as one, or fail them with `error`."""

    names: list[str]
    error: str
    extras: list[list[Any]]
    """For each name what each rank said besides the signature (sizes, flags), in rank order."""
    tickets: list[Ticket | None]

    def encode(self) -> bytes:
        """Return the message that carries this decision."""
        return json.dumps(self).encode()

    @classmethod
    def decode(cls, message: bytes) -> Decision:
        """Rebuild a decision from a message."""
        names, error, extras, tickets = json.loads(message)
        return cls(names, error, extras, [Ticket(*t) if t else None for t in tickets])


@dataclass(slots=True)
class _TicketBook:
    """Which names have places on the eager board."""

    room_bytes: int
    used_bytes: int = 0
    tickets: dict[str, int] = field(default_factory=dict)
    variants: dict[str, dict[Signature, Ticket]] = field(default_factory=dict)

    def issue(self, name: str, signature: Signature) -> Ticket | None:
        """Return a place for this operation, if it is small and there is room."""
        known = self.variants.setdefault(name, {})
        if signature in known:
            return known[signature]
        nbytes = round_up(max(size_of(signature), 1))
        if (
            signature.kind not in _EAGER_KINDS
            or signature.device != "cpu"
            or nbytes > eager.LARGEST_BYTES
            or self.used_bytes + 2 * nbytes > self.room_bytes
            or len(known) >= eager.MOST_VARIANTS
            or (name not in self.tickets and len(self.tickets) >= eager.TICKETS)
        ):
            return None
        number = self.tickets.setdefault(name, len(self.tickets))
        known[signature] = Ticket(number, len(known) + 1, self.used_bytes)
        self.used_bytes += 2 * nbytes
        return known[signature]


class Coordinator:
    """Collects what ranks submit and decides once all have."""

    def __init__(self, size: int, *, eager_bytes: int = 0) -> None:
        """Begin with nothing submitted.

        Args:
            size: number of ranks.
            eager_bytes: room on the eager board; 0 where there is none.
        """
        self._size = size
        self._waiting: dict[str, dict[int, tuple[Signature, Any]]] = {}
        self._complete: list[str] = []
        self._book = _TicketBook(eager_bytes)

    def submit(self, rank: int, name: str, signature: Signature, extra: Any = None) -> None:
        """Take note of one rank's submission."""
        said = self._waiting.setdefault(name, {})
        said[rank] = (signature, extra)
        if len(said) == self._size:
            self._complete.append(name)

    def decide(self) -> list[Decision]:
        """Return the decisions that have become possible, in the order in which all run them."""
        decisions: list[Decision] = []
        fusing: dict[tuple[Any, ...], tuple[Decision, int]] = {}
        for name in self._complete:
            said = self._waiting.pop(name)
            signatures = [said[rank][0] for rank in range(self._size)]
            extras = [said[rank][1] for rank in range(self._size)]
            if error := mismatch(name, signatures):
                decisions.append(Decision([name], error, [extras], [None]))
                continue
            ticket = self._book.issue(name, signatures[0])
            self._place(decisions, fusing, Decision([name], "", [extras], [ticket]), signatures[0])
        self._complete.clear()
        return decisions

    def missing(self) -> dict[str, list[int]]:
        """Return, for every operation that some ranks have submitted, the ranks that have not."""
        return {
            name: [rank for rank in range(self._size) if rank not in said]
            for name, said in self._waiting.items()
        }

    @staticmethod
    def _place(
        decisions: list[Decision],
        fusing: dict[tuple[Any, ...], tuple[Decision, int]],
        new: Decision,
        signature: Signature,
    ) -> None:
        """Append a decision, or join it to an earlier one that it can be fused with."""
        nbytes = size_of(signature)
        if signature.kind != "allreduce" or nbytes > FUSE_EACH_BYTES or signature.device != "cpu":
            decisions.append(new)
            return
        key = tuple(signature._replace(shape=()))
        host, total = fusing.get(key, (None, 0))
        if host is None or total + nbytes > FUSE_TOTAL_BYTES:
            decisions.append(new)
            fusing[key] = (new, nbytes)
            return
        host.names.extend(new.names)
        host.extras.extend(new.extras)
        host.tickets.extend(new.tickets)
        fusing[key] = (host, total + nbytes)


def size_of(signature: Signature) -> int:
    """Return the bytes that a tensor of this signature has."""
    return count_of(signature.shape) * STORAGE[signature.dtype].itemsize


def count_of(shape: Sequence[int]) -> int:
    """Return the number of elements of a shape."""
    count = 1
    for extent in shape:
        count *= extent
    return count
