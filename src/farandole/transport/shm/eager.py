"""Small named operations without any message: data in slots, one word per name and turn.

An operation that all ranks have agreed on before has a *ticket*, the same on every rank. To submit
its k-th turn a rank copies its data into its own slot and stores (k, variant) in a word; whoever
waits reads everybody's. Slots and words are double: turn k+2 may overwrite turn k, because nobody
submits a turn before its previous one has ended, and that takes everybody's word for it.

The *variant* says which shape, type and reduction was submitted. Different variants in one turn are
a mismatch that every rank sees for itself; variant SLOW sends that turn through the coordinator.

The slots of even turns lie together, and so do those of odd turns: operations of one *kind* that
were agreed on one after the other have neighbouring slots, which can be written and read as one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

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


class Kind(NamedTuple):
    """What operations have in common whose slots can be combined as one."""

    elements: int
    dtype: np.dtype[Any]
    combine: Callable[[Sequence[Array], Array], None]
    """Makes the result of everybody's data, element by element."""
    sends: bool
    """Whether this rank brings data."""
    stride: int
    """From one slot to the next, in bytes."""


Words = tuple[Array, Array]
"""Where words stand among a rank's, and what they say."""


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
        self._kinds: dict[Kind, Kind] = {}
        tables = [np.frombuffer(words, np.int64) for words in self._words]
        self._my_table = tables[fabric.rank]
        self._peer_tables = [tables[peer] for peer in fabric.peers]

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
        kind = Kind(nbytes // dtype.itemsize, dtype, combine, sends, slot_bytes(nbytes))
        kind = self._kinds.setdefault(kind, kind)
        starts = (offset, offset + _HALF_BYTES)
        slots = [[data[at : at + nbytes].view(dtype) for data in self._data] for at in starts]
        return Place(self._words, self._rank, self._peers, ticket, variant, kind, starts, slots)

    def write(self, kind: Kind, start: int, arrays: Sequence[Array]) -> None:
        """Put my data into neighbouring slots of one kind."""
        rows = _rows(self._data[self._rank], kind, start, len(arrays))
        if rows.flags.c_contiguous:
            np.concatenate(arrays, out=rows.reshape(-1))
        else:
            rows[...] = np.concatenate(arrays).reshape(rows.shape)

    def combine(self, kind: Kind, start: int, count: int) -> Array:
        """Return the results of operations in neighbouring slots of one kind, a row of each."""
        parts = [_rows(data, kind, start, count).reshape(-1) for data in self._data]
        results: Array = np.empty(len(parts[0]), kind.dtype)
        kind.combine(parts, results)
        return results.reshape(count, kind.elements)

    @staticmethod
    def words(places: Sequence[Place], turns: Sequence[int]) -> Words:
        """Return where the words of several turns stand, and what they say when these come."""
        numbers = np.array(turns)
        at = 2 * np.array([place.ticket for place in places]) + (numbers & 1)
        return at, numbers << _VARIANT_BITS | np.array([place.variant for place in places])

    def announce(self, words: Words) -> bool:
        """Submit several turns whose data are there; return whether a peer took a detour in one."""
        at, said = words
        self._my_table[at] = said
        slow = said >> _VARIANT_BITS << _VARIANT_BITS | SLOW
        return any((table[at] == slow).any() for table in self._peer_tables)

    def complete(self, words: Words) -> bool:
        """Say whether all peers have submitted the same as I in all of these turns."""
        at, said = words
        return all((table[at] == said).all() for table in self._peer_tables)

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


def _rows(data: Array, kind: Kind, start: int, count: int) -> Array:
    stretch = data[start : start + count * kind.stride].view(kind.dtype)
    rows: Array = stretch.reshape(count, -1)[:, : kind.elements]
    return rows


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
        "kind",
        "slots",
        "starts",
        "ticket",
        "variant",
    )

    def __init__(
        self,
        words: list[memoryview],
        rank: int,
        peers: list[int],
        ticket: int,
        variant: int,
        kind: Kind,
        starts: tuple[int, int],
        slots: list[list[Array]],
    ) -> None:
        pairs = [each[2 * ticket : 2 * ticket + 2] for each in words]
        self._all_words = pairs
        self._my_words = pairs[rank]
        self._peer_words = [pairs[peer] for peer in peers]
        self._my_slots = [slots[0][rank], slots[1][rank]]
        self._sends = kind.sends
        self.combine = kind.combine
        self.kind = kind
        """The same object for all operations of a kind."""
        self.slots = slots
        """Every rank's slot in rank order, for even and for odd turns."""
        self.starts = starts
        """Where these begin."""
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
