"""Who may run what, and when: the agreement on named operations, as a pure state machine.

Rank 0 feeds it what ranks have submitted and sends out what it decides. An operation runs when
every rank has submitted its name; all ranks run them in the order of the decisions.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from farandole.engine.signature import Signature, mismatch, named
from farandole.transport.protocol import Transport
from farandole.transport.reduction import HALF_TYPES, STORAGE
from farandole.transport.shm import eager

FUSE_EACH_BYTES = 64 * 1024
FUSE_TOTAL_BYTES = 1024 * 1024
_EAGER_KINDS = frozenset({"allreduce", "broadcast", "barrier"})
# What goes on without the ranks that have joined; theirs count as zeros, or as no rows at all.
_WITHOUT_JOINED = ("allreduce", "adasum", "grouped allreduce", "meeting", "sparse gradient")
# What even they submit, when asked to, because their memory takes part (torch.layout).
_WITH_JOINED = "bucket"


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
    absent: list[Signature | None]
    """For each name what a rank that has joined takes part in; None where all have submitted."""
    last_joined: int = -1
    """All ranks have joined, this one last; there are no names then."""
    wanted: tuple[str, ...] = ()
    """Names that ranks which have joined are to submit; there are no others then."""

    def encode(self) -> bytes:
        """Return the message that carries this decision."""
        return json.dumps(self).encode()

    @classmethod
    def decode(cls, message: bytes) -> Decision:
        """Rebuild a decision from a message."""
        names, error, extras, tickets, absent, last, wanted = json.loads(message)
        return cls(
            names,
            error,
            extras,
            [Ticket(*t) if t else None for t in tickets],
            [Signature.parse(each) if each else None for each in absent],
            last,
            tuple(wanted),
        )


@dataclass(slots=True)
class _TicketBook:
    """Which names have places on the eager board."""

    room_bytes: int
    used_bytes: int = 0
    """For even turns; it takes as much for odd ones."""
    tickets: dict[str, int] = field(default_factory=dict)
    variants: dict[str, dict[Signature, Ticket]] = field(default_factory=dict)

    def issue(self, name: str, signature: Signature) -> Ticket | None:
        """Return a place for this operation, if it is small and there is room."""
        known = self.variants.setdefault(name, {})
        if signature in known:
            return known[signature]
        nbytes = eager.slot_bytes(size_of(signature))
        if (
            signature.kind not in _EAGER_KINDS
            or signature.device != "cpu"
            or nbytes > eager.LARGEST_BYTES
            or 2 * (self.used_bytes + nbytes) > self.room_bytes
            or len(known) >= eager.MOST_VARIANTS
            or (name not in self.tickets and len(self.tickets) >= eager.TICKETS)
        ):
            return None
        number = self.tickets.setdefault(name, len(self.tickets))
        known[signature] = Ticket(number, len(known) + 1, self.used_bytes)
        self.used_bytes += nbytes
        return known[signature]


class Coordinator:
    """Collects what ranks submit and decides once all have."""

    def __init__(self, size: int, *, eager_bytes: int = 0, ranks: Sequence[int] = ()) -> None:
        """Begin with nothing submitted.

        Args:
            size: number of ranks.
            eager_bytes: room on the eager board; 0 where there is none.
            ranks: the numbers that users know the ranks by, where these are others.
        """
        self._size = size
        self._ranks = ranks
        self._waiting: dict[str, dict[int, tuple[Signature, Any]]] = {}
        self._complete: dict[str, None] = {}
        self._book = _TicketBook(eager_bytes)
        self._wanted: dict[str, None] = {}
        self._asked: set[str] = set()
        self._owed: dict[int, set[str]] = {}
        """Ranks in the order in which they were heard to join, each with what it had submitted
        before to the eager board, and may yet submit here."""
        self._after: dict[int, int] = {}

    def submit(self, rank: int, name: str, signature: Signature, extra: Any = None) -> None:
        """Take note of one rank's submission."""
        said = self._waiting.setdefault(name, {})
        said[rank] = (signature, extra)
        self.settle(rank, name)

    def join(self, rank: int, owed: Sequence[str], after: int = 0) -> None:
        """Take note of a rank that submits no more until all have joined, but for `owed`.

        Args:
            rank: which.
            owed: names that it has submitted to the eager board.
            after: how many others it saw to have joined. Where gradients are exchanged without
                the coordinator, a rank may be heard before one that joined a step earlier.
        """
        self._owed[rank], self._after[rank] = set(owed), after
        for name, said in self._waiting.items():
            if rank not in said:
                # What was asked before it had joined, it took for somebody else's affair.
                self._asked.discard(name)
            self._check(name)

    def settle(self, rank: int, name: str) -> None:
        """Take note that a rank owes a name no more."""
        if rank in self._owed:
            self._owed[rank].discard(name)
        self._check(name)

    def decide(self) -> list[Decision]:
        """Return the decisions that have become possible, in the order in which all run them."""
        single: list[Decision] = []
        agreed: list[Signature | None] = []
        for name in self._complete:
            said = self._waiting.pop(name)
            self._asked.discard(name)
            signatures = [said[rank][0] if rank in said else None for rank in range(self._size)]
            present = next(each for each in signatures if each is not None)
            extras = [
                said[rank][1] if rank in said else _extra_of_absent(present)
                for rank in range(self._size)
            ]
            error = mismatch(name, signatures, self._ranks) or self._refusal(name, signatures)
            ticket = None if error else self._book.issue(name, present)
            absent = present if None in signatures and not error else None
            single.append(Decision([name], error, [extras], [ticket], [absent]))
            agreed.append(None if error else present)
        decisions = [
            Decision(
                [single[i].names[0] for i in batch],
                single[batch[0]].error,
                [single[i].extras[0] for i in batch],
                [single[i].tickets[0] for i in batch],
                [single[i].absent[0] for i in batch],
            )
            for batch in fused(agreed)
        ]
        self._complete.clear()
        if self._wanted:
            decisions.append(Decision([], "", [], [], [], wanted=tuple(self._wanted)))
            self._wanted.clear()
        if len(self._owed) == self._size and not self._waiting and not any(self._owed.values()):
            last = max(reversed(self._owed), key=self._after.__getitem__)
            decisions.append(Decision([], "", [], [], [], last))
            self._owed.clear()
        return decisions

    def missing(self) -> dict[str, list[int]]:
        """Return, for every operation that some ranks have submitted, the ranks that have not."""
        return {
            name: [
                rank
                for rank in range(self._size)
                if rank not in said and (rank not in self._owed or name in self._owed[rank])
            ]
            for name, said in self._waiting.items()
        }

    def _check(self, name: str) -> None:
        """Let a name be decided on if everybody has submitted it who will."""
        said = self._waiting.get(name)
        if said and (len(said) == self._size or self._rest_has_joined(name, said)):
            self._complete[name] = None

    def _rest_has_joined(self, name: str, said: dict[int, tuple[Signature, Any]]) -> bool:
        if not self._owed:
            return False
        missing = [rank for rank in range(self._size) if rank not in said]
        if next(iter(said.values()))[0].kind == _WITH_JOINED:
            if name not in self._asked and any(rank in self._owed for rank in missing):
                self._asked.add(name)
                self._wanted[name] = None
            return False
        return all(rank in self._owed and name not in self._owed[rank] for rank in missing)

    def _refusal(self, name: str, signatures: Sequence[Signature | None]) -> str:
        """Return why an operation cannot go on without the ranks that have joined, or ''."""
        absent = [rank for rank, each in enumerate(signatures) if each is None]
        if not absent:
            return ""
        present = next(each for each in signatures if each is not None)
        kind = present.kind
        who = named([self._ranks[rank] if self._ranks else rank for rank in absent])
        if kind.startswith(_WITHOUT_JOINED):
            for each in present.members or (present,):
                if neutral(each.op, each.dtype, each.prescale) is None:
                    return (
                        f"{kind} {name!r} multiplies {each.dtype} that are scaled by "
                        f"{each.prescale:g} first, but {who} called join(), and no {each.dtype} "
                        "scaled so is 1. Scale the tensor yourself, before the call."
                    )
            return ""
        return (
            f"{kind} {name!r} needs all ranks, but {who} called join(). While ranks have joined "
            "only allreduce goes on; call join() here, too, or let all ranks take part."
        )


def fused(signatures: Sequence[Signature | None]) -> list[list[int]]:
    """Return which operations run as one: all-reduces that are small and alike, the others alone.

    The same on every rank, in the order of the first of each; None is an operation that fails.
    """
    batches: list[list[int]] = []
    filling: dict[Signature, tuple[list[int] | None, int]] = {}
    for i, signature in enumerate(signatures):
        if (
            signature is None
            or signature.kind != "allreduce"
            or signature.device != "cpu"
            or (nbytes := size_of(signature)) > FUSE_EACH_BYTES
        ):
            batches.append([i])
            continue
        key = signature._replace(shape=())
        batch, total = filling.get(key, (None, 0))
        if batch is None or total + nbytes > FUSE_TOTAL_BYTES:
            batch, total = [], 0
            batches.append(batch)
        batch.append(i)
        filling[key] = batch, total + nbytes
    return batches


def _extra_of_absent(signature: Signature) -> Any:
    """Return what a rank that has joined would say: of rows it has none."""
    if signature.members:
        return [_extra_of_absent(member) for member in signature.members]
    return 0 if signature.kind in ("meeting", "sparse gradient") else None


def size_of(signature: Signature) -> int:
    """Return the bytes that a tensor of this signature has."""
    return count_of(signature.shape) * STORAGE[signature.dtype].itemsize


def count_of(shape: Sequence[int]) -> int:
    """Return the number of elements of a shape."""
    count = 1
    for extent in shape:
        count *= extent
    return count


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


# Their storage says nothing about them.
_SMALLEST_AND_LARGEST = {"float16": (2.0**-14, 65504.0), "bfloat16": (2.0**-126, 3.38e38)}
# Integers are scaled in float64, in which the largest of 64 bits would be one too many.
_LARGEST_INT64 = 2**63 - 1024


def neutral(op: str, dtype: str, prescale: float = 1.0) -> float | None:
    """Return what to bring to a reduction so that its result is that of the others.

    Args:
        op: of the reduction.
        dtype: a key of STORAGE.
        prescale: what everybody's values are multiplied by first.

    Returns:
        The value, or None if this type has none: no integer times 3 is 1.
    """
    if op == "product":
        return _one_when_scaled(dtype, prescale)
    if op not in ("min", "max") or dtype.startswith("complex") or not prescale:
        return 0
    highest = (op == "min") == (prescale > 0)
    if dtype == "bool":
        return highest
    if not _is_integer(dtype):
        return math.inf if highest else -math.inf
    least, most = int(np.iinfo(STORAGE[dtype]).min), int(np.iinfo(STORAGE[dtype]).max)
    if prescale == 1.0:
        return most if highest else least
    # What is beyond its type's range when scaled would come out at the other end of it.
    most = min(most, _LARGEST_INT64)
    least = max(least, -most) if prescale < 0 else least
    return int((most if highest else least) / max(abs(prescale), 1.0))


def _one_when_scaled(dtype: str, prescale: float) -> float | None:
    if prescale in (0.0, 1.0) or dtype == "bool":
        return 1
    if not math.isfinite(prescale):
        return None
    if not _is_integer(dtype):
        smallest, largest = _SMALLEST_AND_LARGEST.get(dtype) or _limits_of_float(dtype)
        return 1 / prescale if smallest <= abs(1 / prescale) <= largest else None
    limits = np.iinfo(STORAGE[dtype])
    if 1 / abs(prescale) > limits.max:
        return None
    least = math.ceil(1 / abs(prescale))
    for size in (least, least + 1):
        value = size if prescale > 0 else -size
        if limits.min <= value <= limits.max and math.trunc(value * prescale) == 1:
            return value
    return None


def _is_integer(dtype: str) -> bool:
    return dtype not in HALF_TYPES and np.issubdtype(STORAGE[dtype], np.integer)


def _limits_of_float(dtype: str) -> tuple[float, float]:
    limits = np.finfo(STORAGE[dtype])
    return float(limits.tiny), float(limits.max)
