"""Small named operations without any message: data in slots, one word per name and turn.

An operation that all ranks have agreed on before has a *ticket*, the same on every rank. To submit
its k-th turn a rank copies its data into its own slot and stores (k, variant) in a word; whoever
waits reads everybody's. Slots and words are double: turn k+2 may overwrite turn k, because nobody
submits a turn before its previous one has ended, and that takes everybody's word for it.

The *variant* says which shape, type and reduction was submitted. Different variants in one turn are
a mismatch that every rank sees for itself; variant SLOW sends that turn through the coordinator.

The slots of even turns lie together, and so do those of odd turns.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from farandole.transport.reduction import Array
from farandole.transport.shm.segment import LINE_BYTES, Fabric, round_up

TICKETS = 4096
DATA_BYTES = 4 * 1024 * 1024
LARGEST_BYTES = 32 * 1024
"""Above this, folding on every rank costs more than sharing the work."""
REGION = "eager"
SLOW = 0

_HALF_BYTES = DATA_BYTES // 2
_HEADER_BYTES = LINE_BYTES
_WORDS_BYTES = 2 * TICKETS * 8
_VARIANT_BITS = 8
MOST_VARIANTS = (1 << _VARIANT_BITS) - 1


class EagerBoard:
    """The words and slots of all ranks."""

    NBYTES = _HEADER_BYTES + _WORDS_BYTES + DATA_BYTES

    def __init__(self, fabric: Fabric) -> None:
        ranks = range(fabric.size)
        self._detours = [fabric.words(r, REGION, 0, 1) for r in ranks]
        self._joins = [fabric.words(r, REGION, 8, 1) for r in ranks]
        self._words = [fabric.words(r, REGION, _HEADER_BYTES, 2 * TICKETS) for r in ranks]
        data = _HEADER_BYTES + _WORDS_BYTES
        self._data = [fabric.bytes(r, REGION, data, DATA_BYTES) for r in ranks]
        self._peers = fabric.peers
        self._rank = fabric.rank

    def place(
        self,
        ticket: int,
        variant: int,
        offset: int,
        nbytes: int,
        dtype: np.dtype[Any],
        *,
        combine: Callable[[Sequence[Array], Array], None],
        sends: bool = True,
    ) -> Place:
        """Return where operations of this ticket and variant meet.

        Args:
            ticket: the operation's.
            variant: that of its signature.
            offset: where its slots begin.
            nbytes: the size of its data.
            dtype: the type of its data.
            combine: makes the result of everybody's data.
            sends: whether this rank brings data.
        """
        starts = (offset, offset + _HALF_BYTES)
        slots = [[data[at : at + nbytes].view(dtype) for data in self._data] for at in starts]
        pairs = [words[2 * ticket : 2 * ticket + 2] for words in self._words]
        return Place(pairs, self._rank, self._peers, ticket, variant, slots, combine, sends)

    def detour(self, ticket: int, turn: int) -> None:
        """Say that this turn goes through the coordinator, for everybody."""
        self._words[self._rank][2 * ticket + (turn & 1)] = turn << _VARIANT_BITS | SLOW
        self._detours[self._rank][0] += 1

    def detours(self) -> int:
        """Return a number that grows when a peer takes a detour or joins."""
        return sum(self._detours[peer][0] for peer in self._peers)

    def join(self, number: int) -> None:
        """Say that this rank submits no more until all ranks have joined for this time."""
        self._joins[self._rank][0] = number
        self._detours[self._rank][0] += 1

    def joined(self, number: int) -> list[int]:
        """Return the peers that have joined for this time."""
        return [peer for peer in self._peers if self._joins[peer][0] == number]


def slot_bytes(nbytes: int) -> int:
    """Return the room that data of this size take for even turns, and once more for odd ones."""
    return round_up(max(nbytes, 1))


class Place:
    """The words and slots of one operation, every view of them made once.

    Where ranks share cores a call's latency is the sum of what all of them compute, so that each
    microsecond here counts as many times.
    """

    __slots__ = (
        "_all_words",
        "_my_slots",
        "_my_words",
        "_peer_words",
        "_sends",
        "combine",
        "slots",
        "ticket",
        "variant",
    )

    def __init__(
        self,
        pairs: list[memoryview],
        rank: int,
        peers: list[int],
        ticket: int,
        variant: int,
        slots: list[list[Array]],
        combine: Callable[[Sequence[Array], Array], None],
        sends: bool,
    ) -> None:
        self._all_words = pairs
        self._my_words = pairs[rank]
        self._peer_words = [pairs[peer] for peer in peers]
        self._my_slots = [slots[0][rank], slots[1][rank]]
        self._sends = sends
        self.combine = combine
        self.slots = slots
        """Every rank's slot in rank order, for even and for odd turns."""
        self.ticket = ticket
        self.variant = variant

    def submit(self, turn: int, data: Array) -> bool:
        """Put my data into my slot, if it counts, and say so.

        Returns:
            Whether a peer took a detour.
        """
        parity = turn & 1
        if self._sends:
            self._my_slots[parity][...] = data
        self._my_words[parity] = turn << _VARIANT_BITS | self.variant
        slow = turn << _VARIANT_BITS | SLOW
        for words in self._peer_words:  # noqa: SIM110 (a generator would cost 1 us)
            if words[parity] == slow:
                return True
        return False

    def complete(self, turn: int) -> bool | None:
        """Return True when all ranks have submitted this turn, False when one has not, and None
        when all have but not all the same."""
        parity = turn & 1
        wanted = turn << _VARIANT_BITS | self.variant
        agreed = True
        for words in self._peer_words:
            word = words[parity]
            if word != wanted:
                if word >> _VARIANT_BITS < turn:
                    return False
                agreed = False
        return True if agreed else None

    def variants(self, turn: int) -> list[int | None]:
        """Return what each rank submitted in this turn; None for a rank that has not yet."""
        words = [words[turn & 1] for words in self._all_words]
        return [w & MOST_VARIANTS if w >> _VARIANT_BITS == turn else None for w in words]
