"""Small named operations without any message: data in slots, one word per name and turn.

An operation that all ranks have agreed on before has a *ticket*, the same on every rank. To submit
its k-th turn a rank copies its data into its own slot and stores (k, variant) in a word; whoever
waits reads everybody's. Slots and words are double: turn k+2 may overwrite turn k, because nobody
submits a turn before its previous one has ended, and that takes everybody's word for it.

The *variant* says which shape, type and reduction was submitted. Different variants in one turn are
a mismatch that every rank sees for itself; variant SLOW sends that turn through the coordinator.
"""

from __future__ import annotations

from collections.abc import Iterator

from farandole.transport.reduction import Array
from farandole.transport.shm.fabric import Fabric
from farandole.transport.shm.segment import LINE_BYTES

TICKETS = 4096
DATA_BYTES = 4 * 1024 * 1024
LARGEST_BYTES = 32 * 1024
"""Above this, folding on every rank costs more than sharing the work."""
REGION = "eager"
SLOW = 0

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
        self._words = [fabric.words(r, REGION, _HEADER_BYTES, 2 * TICKETS) for r in ranks]
        data = _HEADER_BYTES + _WORDS_BYTES
        self._data = [fabric.bytes(r, REGION, data, DATA_BYTES) for r in ranks]
        self._mine = self._words[fabric.rank]
        self._peers = fabric.peers
        self._rank = fabric.rank

    def submit(self, ticket: int, turn: int, variant: int) -> None:
        """Say that my data of this turn is in its slot."""
        self._mine[2 * ticket + (turn & 1)] = turn << _VARIANT_BITS | variant

    def detour(self, ticket: int, turn: int) -> None:
        """Say that this turn goes through the coordinator, for everybody."""
        self.submit(ticket, turn, SLOW)
        self._detours[self._rank][0] += 1

    def detours(self) -> int:
        """Return a number that grows when a peer takes a detour."""
        return sum(self._detours[peer][0] for peer in self._peers)

    def complete(self, ticket: int, turn: int, variant: int) -> bool | None:
        """Return True when all ranks have submitted this turn, False when one has not, and None
        when all have but not all the same."""
        at = 2 * ticket + (turn & 1)
        wanted = turn << _VARIANT_BITS | variant
        agreed = True
        for peer in self._peers:
            word = self._words[peer][at]
            if word != wanted:
                if word >> _VARIANT_BITS < turn:
                    return False
                agreed = False
        return True if agreed else None

    def variants(self, ticket: int, turn: int) -> list[int | None]:
        """Return what each rank submitted in this turn; None for a rank that has not yet."""
        at = 2 * ticket + (turn & 1)
        words = [words[at] for words in self._words]
        return [w & MOST_VARIANTS if w >> _VARIANT_BITS == turn else None for w in words]

    def slots(self, offset: int, nbytes: int, turn: int) -> Iterator[Array]:
        """Return every rank's slot of this turn, in rank order."""
        start = offset + (turn & 1) * nbytes
        return (data[start : start + nbytes] for data in self._data)

    def slot(self, offset: int, nbytes: int, turn: int) -> Array:
        """Return my slot of this turn."""
        start = offset + (turn & 1) * nbytes
        return self._data[self._rank][start : start + nbytes]
