"""Named operations: an operation runs when every rank has submitted its name, in any order.

Two ways lead through here. The first time, and for anything large, a rank tells the coordinator
(rank 0), which decides when and in which order all run it. A small operation that was agreed on
before goes by the eager board (transport.shm.eager) and needs no message at all.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from farandole.engine.coordinator import Coordinator, Decision, Ticket
from farandole.engine.handle import Handle
from farandole.engine.lane import Lane
from farandole.engine.operations import Allreduce, Broadcast, Operation, fused_allreduce
from farandole.engine.signature import Signature, mismatch
from farandole.errors import CollectiveError, FarandoleError, MismatchError
from farandole.transport.protocol import Steps, Transport
from farandole.transport.reduction import fold
from farandole.transport.shm.eager import DATA_BYTES, SLOW, EagerBoard, Place


class DuplicateNameError(FarandoleError, ValueError):
    """A name was submitted again while its previous operation is still under way."""


@dataclass(slots=True)
class _Ticketed:
    """A name that has a place on the eager board."""

    number: int
    turn: int = 0
    variants: dict[Signature, Place] = field(default_factory=dict)


class _Pending(Handle):
    """A submitted operation that has not ended, and what its submitter holds."""

    __slots__ = ("_lane", "name", "operation", "place", "turn")

    def __init__(
        self,
        lane: NamedLane,
        name: str,
        operation: Operation,
        place: Place | None = None,
        turn: int = 0,
    ) -> None:
        """Begin; `place` is its place on the eager board, None when the coordinator has it."""
        # Handle's own __init__ written out: a call less for every operation.
        self.done = self._polled = False
        self.error = self.result = None
        self._lane, self.name, self.operation = lane, name, operation
        self.place, self.turn = place, turn

    def check(self) -> bool:
        """Return whether it is done; on the eager board whoever asks completes it."""
        return self.done or self._lane.complete(self)


class NamedLane:
    """The named operations of one group of ranks (an Advancing of the progress loop)."""

    def __init__(self, transport: Transport, device_transport: Callable[[], Transport]) -> None:
        """Begin with nothing submitted.

        Args:
            transport: moves host memory, and carries the messages of agreement.
            device_transport: returns the one that moves device memory; opened when first needed,
                which is at the same decision on every rank.
        """
        self._transport = transport
        self._device_transport = device_transport
        self._board: EagerBoard | None = getattr(transport, "eager", None)
        self._coordinator: Coordinator | None = None
        if transport.rank == 0:
            room = DATA_BYTES if self._board else 0
            self._coordinator = Coordinator(transport.size, eager_bytes=room)
        self._pending: dict[str, _Pending] = {}
        self._ticketed: dict[str, _Ticketed] = {}
        self._detours = 0
        self._running = Lane(in_order=True, check_peers=transport.check_peers)

    @property
    def busy(self) -> bool:
        """Whether any operation has not ended."""
        return bool(self._pending) or self._running.busy

    def check_peers(self) -> None:
        """Raise PeerDiedError if a peer is gone."""
        self._transport.check_peers()

    def eager(self, name: str, operation: Operation) -> Handle | None:
        """Submit by the eager board, if this operation has a place there.

        Needs no lock: no other thread touches an operation before it is pending.
        """
        known = self._ticketed.get(name)
        if known is None or (place := known.variants.get(operation.signature)) is None:
            return None
        if name in self._pending:
            self._refuse_duplicate(name)
        known.turn = turn = known.turn + 1
        self._pending[name] = pending = _Pending(self, name, operation, place, turn)
        sends = operation.signature.root in (-1, self._transport.rank)
        if place.submit(turn, operation.source.data if sends else None):  # type: ignore[attr-defined]
            # A peer took a detour before this was pending: look at detours once more.
            self._detours = -1
        return pending

    def submit(self, name: str, operation: Operation) -> Handle:
        """Submit through the coordinator; call with the loop's lock held."""
        self._refuse_duplicate(name)
        pending = _Pending(self, name, operation)
        self._pending[name] = pending
        if (known := self._ticketed.get(name)) is not None and self._board is not None:
            known.turn += 1
            self._board.detour(known.number, known.turn)
        self._tell_coordinator(pending)
        return pending

    def advance(self) -> bool:
        """Handle messages, follow detours, decide (rank 0), run."""
        moved = False
        if self._board is not None and (detours := self._board.detours()) != self._detours:
            self._detours = detours
            self._follow_detours()
            moved = True
        for rank, message in self._transport.link.receive():
            moved = True
            if self._coordinator is not None:
                name, signature, extra = json.loads(message)
                self._coordinator.submit(rank, name, Signature.parse(signature), extra)
            else:
                self._carry_out(Decision.decode(message))
        if self._coordinator is not None:
            for decision in self._coordinator.decide():
                moved = True
                if self._transport.size > 1:
                    self._transport.link.send(decision.encode())
                self._carry_out(decision)
        return self._running.advance() or moved

    def close(self) -> None:
        """Fail what is under way: nobody will advance it any more."""
        error = CollectiveError(
            f"Rank {self._transport.rank} called shutdown() while this operation was under way."
        )
        self._running.fail(error)
        while self._pending:
            self._pending.popitem()[1].fail(error)

    def _tell_coordinator(self, pending: _Pending) -> None:
        signature, extra = pending.operation.signature, pending.operation.extra
        if self._coordinator is not None:
            self._coordinator.submit(0, pending.name, signature, extra)
        else:
            self._transport.link.send(json.dumps([pending.name, signature, extra]).encode())

    def _carry_out(self, decision: Decision) -> None:
        pendings = [self._pending.pop(name) for name in decision.names]
        if decision.error:
            for pending in pendings:
                pending.fail(MismatchError(decision.error))
            return
        for pending, ticket in zip(pendings, decision.tickets, strict=True):
            if ticket is not None:
                known = self._ticketed.setdefault(pending.name, _Ticketed(ticket.ticket))
                known.variants[pending.operation.signature] = self._place(pending, ticket)
        try:
            steps = self._steps([pending.operation for pending in pendings], decision)
        except Exception as error:
            # Such as no memory for the result: for its submitter, not for whoever drives the loop.
            for pending in pendings:
                pending.fail(error)
            return
        overlaps = getattr(pendings[0].operation, "overlaps", False)
        self._running.start(steps, *pendings, overlaps=overlaps)

    def _steps(self, operations: list[Operation], decision: Decision) -> Steps:
        if len(operations) == 1:
            on_host = operations[0].signature.device == "cpu"
            transport = self._transport if on_host else self._device_transport()
            return operations[0].steps(transport, decision.extras[0])
        return fused_allreduce(
            [operation for operation in operations if isinstance(operation, Allreduce)],
            self._transport,
        )

    def complete(self, pending: _Pending) -> bool:
        """Finish an operation of the eager board if every rank has submitted it."""
        place = pending.place
        if place is None:
            # It goes through the coordinator, where the progress loop ends it.
            return False
        complete = place.complete(pending.turn)
        if complete:
            slots = place.slots[pending.turn & 1]
            operation = pending.operation
            if isinstance(operation, Allreduce):
                fold(slots, [operation.target.data], operation.target.dtype, operation.how)
            elif isinstance(operation, Broadcast):
                np.copyto(operation.target.data, slots[operation.signature.root])
            del self._pending[pending.name]
            pending.finish()
            return True
        if complete is None:
            variants = place.variants(pending.turn)
            if SLOW not in variants:
                del self._pending[pending.name]
                signatures = self._signatures(pending.name)
                said = [signatures[variant] for variant in variants if variant is not None]
                pending.fail(MismatchError(mismatch(pending.name, said)))
                return True
        return False

    def _place(self, pending: _Pending, ticket: Ticket) -> Place:
        assert self._board is not None
        operation = pending.operation
        assert isinstance(operation, Allreduce | Broadcast)
        source = operation.source.data
        return self._board.place(*ticket, source.nbytes, source.dtype)

    def _signatures(self, name: str) -> dict[int, Signature]:
        variants = self._ticketed[name].variants
        return {place.variant: signature for signature, place in variants.items()}

    def _follow_detours(self) -> None:
        """Send to the coordinator what a peer has sent there instead of to the eager board."""
        for pending in list(self._pending.values()):
            place = pending.place
            if place is None or self._board is None:
                continue
            if SLOW in place.variants(pending.turn):
                pending.place = None
                self._board.detour(place.ticket, pending.turn)
                self._tell_coordinator(pending)

    def _refuse_duplicate(self, name: str) -> None:
        earlier = self._pending.get(name)
        if earlier is None or earlier.check():
            return
        raise DuplicateNameError(
            f"{earlier.operation.signature.kind} {name!r} was submitted again while it is still "
            "under way on this rank. Synchronize it first, or give the second one another name."
        )
