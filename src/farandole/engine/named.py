"""Named operations: an operation runs when every rank has submitted its name, in any order.

Two ways lead through here. The first time, and for anything large, a rank tells the coordinator
(rank 0), which decides when and in which order all run it. A small operation that was agreed on
before goes by the eager board (transport.shm.eager) and needs no message at all.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from farandole.engine import tracing
from farandole.engine.coordinator import Agreement, Decision, Ticket, neutral
from farandole.engine.handle import Handle, Pending
from farandole.engine.loop import Lane
from farandole.engine.operations import (
    AdasumReduce,
    Allgather,
    Allreduce,
    Broadcast,
    Grouped,
    Operation,
    fused_allreduce,
)
from farandole.engine.signature import Signature, mismatch
from farandole.errors import CollectiveError, FarandoleError, MismatchError
from farandole.stalls.pages import JOIN
from farandole.transport.protocol import Buffer, Steps, Transport
from farandole.transport.reduction import HALF_TYPES, STORAGE, Array, Reduction, narrow, small_fold
from farandole.transport.shm.eager import DATA_BYTES, SLOW, EagerBoard, Place


class DuplicateNameError(FarandoleError, ValueError):
    """A name was submitted again while its previous operation is still under way."""


class NamedLane:
    """The named operations of one group of ranks (an Advancing of the progress loop)."""

    def __init__(
        self,
        transport: Transport,
        device_transport: Callable[[], Transport],
        ranks: Sequence[int] = (),
    ) -> None:
        """Begin with nothing submitted.

        Args:
            transport: moves host memory, and carries the messages of agreement.
            device_transport: returns the one that moves device memory; opened when first needed,
                which is at the same decision on every rank.
            ranks: the numbers that users know the ranks by, where these are others.
        """
        self._transport = transport
        self._device_transport = device_transport
        self._ranks = ranks
        self._board = transport.eager
        room = DATA_BYTES if self._board else 0
        self._agreement = Agreement(transport, eager_bytes=room, ranks=ranks)
        self._pending: dict[str, Pending] = {}
        self._claiming = threading.Lock()
        self._told = 0
        """How many of them the coordinator has."""
        self.queued: dict[str, deque[Pending]] = {}
        """By name, what waits for an earlier operation of its name."""
        self._ticketed: dict[str, Ticketed] = {}
        self._detours = 0
        self._joining: Handle | None = None
        self._joins = 0
        """How often all ranks have joined."""
        self._absent: list[int] = []
        """The peers that have joined, while not all have."""
        self._settled: deque[str] = deque()
        self.wanted: set[str] = set()
        """What the others ask this rank to submit, though it has joined."""
        self._running = Lane(in_order=True, check_peers=transport.check_peers)

    @property
    def busy(self) -> bool:
        """Whether any operation has not ended."""
        return bool(self._pending) or self.pressing

    @property
    def pressing(self) -> bool:
        """Whether any of them stands still unless it is advanced.

        Not those of the eager board, once they are sent.
        """
        return bool(self._told or self.queued or self._running.busy or self._joining is not None)

    def check_peers(self) -> None:
        """Raise PeerDiedError if a peer is gone."""
        self._transport.check_peers()

    def eager(
        self, name: str, operation: Operation, queued: Pending | None = None
    ) -> Handle | None:
        """Submit by the eager board, if this operation has a place there.

        Needs no lock: no other thread touches an operation before it is pending. One that was
        `queued` others may wait for, so that it has its place only when its data are there.
        """
        known = self._ticketed.get(name)
        if known is None:
            return None
        signature, place = operation.signature, known.last_place
        if place is None or known.last_signature is not signature:
            place = known.place(signature)
            if place is None:
                return None
        if name in self._pending:
            self._refuse_duplicate(name)
        known.turn = turn = known.turn + 1
        pending = queued or Pending(self, name, operation, place, turn)
        self._pending[name] = pending
        if tracing.tracer is not None:
            tracing.tracer.submitted(name)
        if place.submit(turn, operation.source.data) or self._absent:  # type: ignore[attr-defined]
            # A peer took a detour before this was pending: look at detours once more.
            self._detours = -1
        if queued is not None:
            queued.turn, queued.place = turn, place
        return pending

    def submit(self, name: str, operation: Operation, queued: Pending | None = None) -> Handle:
        """Submit through the coordinator; call with the loop's lock held."""
        self._refuse_duplicate(name)
        pending = queued or Pending(self, name, operation)
        self._pending[name] = pending
        if tracing.tracer is not None:
            tracing.tracer.submitted(name)
        self.wanted.discard(name)
        self._take_turn(name)
        self._tell_coordinator(pending)
        return pending

    def taken(self, name: str) -> bool:
        """Say whether a name has an operation that has not ended."""
        earlier = self._pending.get(name)
        return name in self.queued or (earlier is not None and not earlier.check())

    def queue(self, name: str, operation: Operation) -> Handle:
        """Submit once what has this name now has ended; call with the loop's lock held."""
        handle = Pending(self, name, operation)
        self.queued.setdefault(name, deque()).append(handle)
        return handle

    def join(self) -> Handle:
        """Take part in what the others submit until all have joined; call with the lock held.

        The result is the last rank to join.
        """
        if self._joining is not None:
            raise DuplicateNameError("join() was called while it is under way on this rank.")
        self._joining = Handle()
        # What lies on the eager board is on its way, and must not count as absent.
        owed = [name for name, pending in self._pending.items() if pending.place is not None]
        after = [] if self._board is None else self._board.joined(self._joins + 1)
        self._agreement.join(owed, len(after))
        if self._board is not None:
            self._board.join(self._joins + 1)
        return self._joining

    def advance(self) -> bool:
        """Handle messages, follow detours, decide (rank 0), run."""
        moved = False
        if self._board is not None and (detours := self._board.detours()) != self._detours:
            self._detours = detours
            self._absent = self._board.joined(self._joins + 1)
            self._follow_detours()
            moved = True
        if self._joining is not None:
            # Whoever has joined waits for none of them, and must end them all the same.
            for pending in list(self._pending.values()):
                pending.check()
        if self.queued:
            moved |= self._begin_queued()
        while self._settled:
            self._agreement.settle(self._settled.popleft())
        heard, decisions = self._agreement.hear()
        for decision in decisions:
            self._carry_out(decision)
        return self._running.advance() or heard or moved

    def waiting(self) -> dict[str, list[int] | None]:
        """Return what some rank has not submitted, with those ranks where they are known here."""
        missing = self._agreement.missing()
        found: dict[str, list[int] | None] = {}
        for pending in list(self._pending.values()):
            place = pending.place
            if place is None:
                found[pending.name] = missing.get(pending.name)
            elif place.complete(pending.turn) is False:
                said = place.variants(pending.turn)
                found[pending.name] = [peer for peer, variant in enumerate(said) if variant is None]
        if self._joining is not None:
            found[JOIN] = None
        return found

    def close(self) -> None:
        """Fail what is under way: nobody will advance it any more."""
        error = CollectiveError(
            f"Rank {self._transport.rank} called shutdown() while this operation was under way."
        )
        self._running.fail(error)
        while self._pending:
            self._pending.popitem()[1].fail(error)
        while self.queued:
            for queued in self.queued.popitem()[1]:
                queued.fail(error)
        if self._joining is not None:
            self._joining.fail(error)

    def _tell_coordinator(self, pending: Pending) -> None:
        self._told += 1
        operation = pending.operation
        self._agreement.submit(pending.name, operation.signature, operation.extra)

    def _carry_out(self, decision: Decision) -> None:
        if decision.last_joined >= 0:
            self._all_joined(decision.last_joined)
            return
        if self._joining is not None:
            self.wanted.update(name for name in decision.wanted if name not in self._pending)
        if decision.error:
            for name in decision.names:
                if name in self._pending:
                    self._take(name).fail(MismatchError(decision.error))
                else:
                    self._take_turn(name)
            return
        pendings = [
            self._take(name) if name in self._pending else self._stand_in(name, signature)
            for name, signature in zip(decision.names, decision.absent, strict=True)
        ]
        if not pendings:
            return
        for pending, ticket in zip(pendings, decision.tickets, strict=True):
            if ticket is not None:
                known = self._ticketed.setdefault(pending.name, Ticketed(ticket.ticket))
                assert self._board is not None
                known.variants[pending.operation.signature] = place_of(
                    *(self._board, ticket, pending.operation),
                    rank=self._transport.rank,
                    size=self._transport.size,
                )
        try:
            steps = self._steps([pending.operation for pending in pendings], decision)
        except Exception as error:
            # Such as no memory for the result: for its submitter, not for whoever drives the loop.
            for pending in pendings:
                pending.fail(error)
            return
        if tracing.tracer is not None:
            kind = pendings[0].operation.signature.kind
            steps = tracing.tracer.follow(steps, decision.names, kind)
        overlaps = getattr(pendings[0].operation, "overlaps", False)
        self._running.start(steps, *pendings, overlaps=overlaps)

    def _take(self, name: str) -> Pending:
        """Return what the coordinator has decided on; it is no longer pending."""
        self._told -= 1
        return self._pending.pop(name)

    def _begin_queued(self) -> bool:
        begun = False
        for name, waiting in list(self.queued.items()):
            earlier = self._pending.get(name)
            if earlier is None or earlier.check():
                first = waiting.popleft()
                if self.eager(name, first.operation, first) is None:
                    self.submit(name, first.operation, first)
                begun = True
                if not waiting:
                    del self.queued[name]
        return begun

    def _stand_in(self, name: str, signature: Signature | None) -> Pending:
        """Return an operation of the others in which this rank, having joined, takes part."""
        assert signature is not None
        self._take_turn(name)
        return Pending(self, name, stand_in(signature))

    def _take_turn(self, name: str) -> None:
        """Count a turn of the eager board that goes through the coordinator."""
        if (known := self._ticketed.get(name)) is not None and self._board is not None:
            known.turn += 1
            self._board.detour(known.number, known.turn)

    def _all_joined(self, last: int) -> None:
        self._joins += 1
        self._absent = []
        # A peer may have joined again before this rank has heard of the first time.
        self._detours = -1
        self.wanted.clear()
        joining, self._joining = self._joining, None
        assert joining is not None
        joining.finish(self._ranks[last] if self._ranks else last)

    def _steps(self, operations: list[Operation], decision: Decision) -> Steps:
        if len(operations) == 1:
            on_host = operations[0].signature.device == "cpu"
            transport = self._transport if on_host else self._device_transport()
            return operations[0].steps(transport, decision.extras[0])
        return fused_allreduce(
            [operation for operation in operations if isinstance(operation, Allreduce)],
            self._transport,
        )

    def complete(self, pending: Pending) -> bool:
        """Finish an operation of the eager board if every rank has submitted it."""
        place = pending.place
        if place is None:
            # It goes through the coordinator, where the progress loop ends it.
            return False
        complete = place.complete(pending.turn)
        if complete:
            self._end(pending, place)
            return pending.done
        if complete is None:
            variants = place.variants(pending.turn)
            if SLOW not in variants and self._claim(pending):
                signatures = self._ticketed[pending.name].signatures()
                said = [None if v is None else signatures[v] for v in variants]
                pending.fail(MismatchError(mismatch(pending.name, said, self._ranks)))
                return True
        return False

    def _end(self, pending: Pending, place: Place) -> None:
        """Finish an operation that every rank has submitted, unless another thread has."""
        # Held to the end: nobody may submit this name again before its slots are read.
        with self._claiming:
            if self._pending.get(pending.name) is not pending:
                return
            operation, tracer = pending.operation, tracing.tracer
            if tracer is not None:
                tracer.agreed([pending.name], operation.signature.kind)
            target: Array = operation.target.data  # type: ignore[attr-defined]
            place.combine(place.slots[pending.turn & 1], target)
            pending.done = True
            self._forget(pending)
        if tracer is not None:
            tracer.ended([pending.name], operation.signature.kind)

    def _claim(self, pending: Pending) -> bool:
        """Take an operation of the eager board to end it; False if another thread has."""
        with self._claiming:
            if self._pending.get(pending.name) is not pending:
                return False
            self._forget(pending)
        return True

    def _forget(self, pending: Pending) -> None:
        del self._pending[pending.name]
        if self._joining is not None:
            # It may have been owed; whoever advances the loop tells.
            self._settled.append(pending.name)

    def _follow_detours(self) -> None:
        """Send to the coordinator what a peer has sent there instead of to the eager board."""
        assert self._board is not None
        for pending in list(self._pending.values()):
            place = pending.place
            if place is None:
                continue
            variants = place.variants(pending.turn)
            if SLOW in variants or any(variants[peer] is None for peer in self._absent):
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


@dataclass(slots=True)
class Ticketed:
    """A name that has a place on the eager board."""

    number: int
    turn: int = 0
    variants: dict[Signature, Place] = field(default_factory=dict)
    last_signature: Signature | None = None
    """What was looked for last: mostly the same object is, and needs neither hash nor search."""
    last_place: Place | None = None

    def place(self, signature: Signature) -> Place | None:
        """Return the place of operations of this signature, if they have one."""
        place = self.variants.get(signature)
        if place is not None:
            self.last_signature, self.last_place = signature, place
        return place

    def signatures(self) -> dict[int, Signature]:
        """Return what the variants stand for."""
        return {place.variant: signature for signature, place in self.variants.items()}


def place_of(
    board: EagerBoard, ticket: Ticket, operation: Operation, *, rank: int, size: int
) -> Place:
    """Return where the next turns of an operation meet."""
    assert isinstance(operation, Allreduce | Broadcast)
    source, root = operation.source, operation.signature.root
    return board.place(
        *ticket,
        source.nbytes,
        source.data.dtype,
        combine=(
            small_fold(source.dtype, operation.how, size)
            if isinstance(operation, Allreduce)
            else _copy_of(root)
        ),
        sends=root in (-1, rank),
    )


def _copy_of(root: int) -> Callable[[Sequence[Array], Array], None]:
    return lambda slots, out: np.copyto(out, slots[root])


def stand_in(signature: Signature) -> Operation:
    """Return this rank's part in an operation that it has not submitted."""
    if signature.members:
        return Grouped(signature, [stand_in(member) for member in signature.members])
    if signature.kind in ("meeting", "sparse gradient"):
        return _no_rows(signature)
    how = Reduction(op=signature.op, prescale=signature.prescale, postscale=signature.postscale)
    value = neutral(signature.op, signature.dtype, signature.prescale)
    # The coordinator refuses what has none.
    assert value is not None
    buffer = _filled(signature, value)
    if signature.kind == "adasum":
        return AdasumReduce(signature, buffer, buffer, how)
    return Allreduce(signature, buffer, buffer, how)


def _filled(signature: Signature, value: float) -> Buffer:
    count = int(np.prod(signature.shape, dtype=np.int64))
    if signature.device != "cpu":
        import torch

        dtype = getattr(torch, signature.dtype)
        full = torch.full((count,), value, dtype=dtype, device=signature.device)
        return Buffer(full, signature.dtype)
    if signature.dtype not in HALF_TYPES:
        return Buffer(np.full(count, value, STORAGE[signature.dtype]), signature.dtype)
    bits: Array = np.empty(count, STORAGE[signature.dtype])
    narrow(np.full(count, value, np.float32), bits, signature.dtype)
    return Buffer(bits, signature.dtype)


def _no_rows(signature: Signature) -> Allgather:
    mine = signature._replace(shape=(0, *signature.shape[1:]))

    def allocate(rows: Sequence[Any]) -> Buffer:
        return _filled(signature._replace(shape=(sum(rows), *signature.shape[1:])), 0)

    return Allgather(mine, _filled(mine, 0), allocate)
