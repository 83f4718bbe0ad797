"""Collectives on private memory over several hosts, through slots in shared memory.

Each rank of a host has a few slots of a window each. What other hosts are to get, and what comes
from them, lies in the leader's. In a window that has parts for all ranks, those of one host lie
together; hosts come in the order of their lowest ranks.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

from farandole.transport.hierarchical.relay import LEADER, Crossing, Pipeline, Relay, padded
from farandole.transport.hosts import Hosts
from farandole.transport.protocol import Buffer, Steps
from farandole.transport.reduction import Array, Reduction, by_hosts, fold
from farandole.transport.shm.segment import LINE_BYTES, Fabric, round_up

SLOTS = 8
"""Windows between the ranks' hands and the other hosts: some on the way, some prepared."""
SLOT_BYTES = 1024 * 1024
REGION = "host slots"

_LARGEST_ITEM_BYTES = 16


class HostSlots:
    """Runs one collective after the other, in the same order on every rank."""

    def __init__(
        self, fabric: Fabric, relay: Relay, rank: int, hosts: Hosts, crossing: Crossing | None
    ) -> None:
        """Map the slots.

        Args:
            fabric: of the ranks of this host.
            relay: moves windows through their stages.
            rank: my rank among all.
            hosts: which ranks share a host.
            crossing: to the other leaders; None unless I am one.
        """
        self._rank, self._hosts, self._relay, self._crossing = rank, hosts, relay, crossing
        self._host = hosts.of(rank)
        self._here = hosts.ranks[self._host]
        self._me = fabric.rank
        self._in_order = [each for ranks in hosts.ranks for each in ranks]
        self._most = max(map(len, hosts.ranks))
        nbytes = slot_bytes(hosts)
        self._slots = [
            [fabric.bytes(r, REGION, i * nbytes, nbytes) for i in range(SLOTS)]
            for r in range(fabric.size)
        ]

    def allreduce(self, source: Buffer, target: Buffer, how: Reduction) -> Steps:
        """Combine all sources into every target (see Transport)."""
        inside, across = by_hosts(how, source.dtype, self._hosts.size)
        per_window = SLOT_BYTES // source.data.itemsize
        starts = range(0, len(source), per_window)

        def piece(of: Buffer, window: int) -> Array:
            data: Array = of.data[starts[window] : starts[window] + per_window]
            return data

        def put(window: int, number: int) -> None:
            mine, slot = piece(source, window), self._slot(self._me, number, source)
            low, high = share_of(self._relay.folders, self._me, len(mine))
            # What I fold myself nobody else needs to see.
            slot[:low] = mine[:low]
            slot[high : len(mine)] = mine[high:]

        def combine(window: int, number: int) -> None:
            mine = piece(source, window)
            low, high = share_of(self._relay.folders, self._me, len(mine))
            if low < high:
                parts = self._parts(number, low, high, source)
                parts[self._me] = mine[low:high]
                outcome = self._slot(LEADER, number, source)[low:high]
                fold(parts, [outcome], source.dtype, inside)

        def outcome(window: int, number: int) -> Array:
            length = padded(len(piece(source, window)), len(self._hosts.ranks))
            return self._slot(LEADER, number, source)[:length]

        def take(window: int, number: int) -> None:
            into = piece(target, window)
            into[...] = self._slot(LEADER, number, target)[: len(into)]

        legs = self._crossing.combining(source.dtype, across, outcome) if self._crossing else ()
        return self._relay.run(
            Pipeline(windows=len(starts), put=put, fold=combine, legs=legs, take=take)
        )

    def broadcast(self, buffer: Buffer, root: int) -> Steps:
        """Copy the root's buffer into everybody's."""
        per_window = SLOT_BYTES // buffer.data.itemsize
        starts = range(0, len(buffer), per_window)
        holder = self._here.index(root) if root in self._here else LEADER

        def piece(window: int) -> Array:
            data: Array = buffer.data[starts[window] : starts[window] + per_window]
            return data

        def put(window: int, number: int) -> None:
            if self._rank == root:
                mine = piece(window)
                self._slot(holder, number, buffer)[: len(mine)] = mine

        def leg(window: int, number: int) -> Steps:
            assert self._crossing is not None
            sent = self._slot(holder, number, buffer)[: len(piece(window))]
            between, host = self._crossing.transport, self._hosts.of(root)
            yield from between.broadcast(Buffer(sent, buffer.dtype), host)

        def take(window: int, number: int) -> None:
            if self._rank != root:
                into = piece(window)
                into[...] = self._slot(holder, number, buffer)[: len(into)]

        return self._relay.run(Pipeline(windows=len(starts), put=put, legs=[leg], take=take))

    def allgather(self, source: Buffer, target: Buffer, counts: Sequence[int]) -> Steps:
        """Put the sources one behind the other."""
        # Each host has as much room as the one with the most ranks, so that one gather does.
        room = SLOT_BYTES // source.data.itemsize // len(self._hosts.ranks)
        each = room // self._most
        offsets = _starts(counts)

        def place(rank: int, sizes: Sequence[int]) -> int:
            host = self._hosts.of(rank)
            before = [sizes[other] for other in self._hosts.ranks[host] if other < rank]
            return host * block(sizes) + sum(before)

        def block(sizes: Sequence[int]) -> int:
            return max(self._blocks(sizes))

        def put(window: int, number: int) -> None:
            sizes = _cut(counts, window, each)
            slot, at = self._slot(LEADER, number, source), place(self._rank, sizes)
            begin, size = window * each, sizes[self._rank]
            slot[at : at + size] = source.data[begin : begin + size]

        def leg(window: int, number: int) -> Steps:
            assert self._crossing is not None
            size = block(_cut(counts, window, each))
            slot = self._slot(LEADER, number, source)[: size * len(self._hosts.ranks)]
            sent = self._crossing.borrow(size, slot)
            sent[...] = slot[self._host * size : (self._host + 1) * size]
            yield from self._crossing.transport.allgather(
                Buffer(sent, source.dtype),
                Buffer(slot, source.dtype),
                [size] * len(self._hosts.ranks),
            )
            self._crossing.give_back(sent)

        def take(window: int, number: int) -> None:
            sizes = _cut(counts, window, each)
            slot = self._slot(LEADER, number, target)
            for rank, size in enumerate(sizes):
                at, begin = place(rank, sizes), offsets[rank] + window * each
                target.data[begin : begin + size] = slot[at : at + size]

        windows = -(-max(counts) // each)
        return self._relay.run(Pipeline(windows=windows, put=put, legs=[leg], take=take))

    def reducescatter(
        self, source: Buffer, target: Buffer, counts: Sequence[int], how: Reduction
    ) -> Steps:
        """Combine all sources; rank r keeps the r-th stretch."""
        inside, across = by_hosts(how, source.dtype, self._hosts.size)
        each = SLOT_BYTES // source.data.itemsize // self._hosts.size
        offsets = _starts(counts)

        def put(window: int, number: int) -> None:
            sizes, places = self._laid_out(counts, window, each)
            slot = self._slot(self._me, number, source)
            for rank, size in enumerate(sizes):
                begin = offsets[rank] + window * each
                slot[places[rank] : places[rank] + size] = source.data[begin : begin + size]

        def combine(window: int, number: int) -> None:
            sizes = _cut(counts, window, each)
            low, high = share_of(self._relay.folders, self._me, sum(sizes))
            if low < high:
                parts = self._parts(number, low, high, source)
                fold(parts, [parts[LEADER]], source.dtype, inside)

        def leg(window: int, number: int) -> Steps:
            assert self._crossing is not None
            sizes, places = self._laid_out(counts, window, each)
            blocks = self._blocks(sizes)
            slot = self._slot(LEADER, number, source)
            ours = slot[places[self._here[0]] :][: blocks[self._host]]
            received = self._crossing.borrow(len(ours) * len(blocks), slot)
            yield from self._crossing.transport.alltoall(
                Buffer(slot[: sum(blocks)], source.dtype),
                Buffer(received, source.dtype),
                [blocks] * len(blocks),
            )
            parts = [received[h * len(ours) : (h + 1) * len(ours)] for h in range(len(blocks))]
            if len(ours):
                fold(parts, [ours], source.dtype, across)
            self._crossing.give_back(received)

        def take(window: int, number: int) -> None:
            sizes, places = self._laid_out(counts, window, each)
            begin, size, place = window * each, sizes[self._rank], places[self._rank]
            result = self._slot(LEADER, number, target)[place : place + size]
            target.data[begin : begin + size] = result

        windows = -(-max(counts) // each)
        return self._relay.run(
            Pipeline(windows=windows, put=put, fold=combine, legs=[leg], take=take)
        )

    def alltoall(self, source: Buffer, target: Buffer, counts: Sequence[Sequence[int]]) -> Steps:
        """Send counts[i][j] elements from rank i to rank j."""
        half = slot_bytes(self._hosts) // 2 // LINE_BYTES * LINE_BYTES // source.data.itemsize
        each = int(half // (self._most * self._hosts.size))
        here, ranks = self._here, self._in_order
        begins = _starts(counts[self._rank])
        places = _starts([row[self._rank] for row in counts])

        def size(i: int, j: int, window: int) -> int:
            return max(0, min(counts[i][j] - window * each, each))

        def leaving(window: int) -> dict[tuple[int, int], int]:
            """Where the part from i to j is among what leaves this host."""
            pairs = [(i, j) for to in self._hosts.ranks for i in here for j in to]
            return dict(zip(pairs, _starts([size(*pair, window) for pair in pairs]), strict=True))

        def arriving(window: int) -> dict[tuple[int, int], int]:
            """Where the part from i to j is among what arrives here."""
            pairs = [(i, j) for i in ranks for j in here]
            return dict(zip(pairs, _starts([size(*pair, window) for pair in pairs]), strict=True))

        def put(window: int, number: int) -> None:
            slot, where = self._slot(LEADER, number, source), leaving(window)
            for j in range(self._hosts.size):
                length, place = size(self._rank, j, window), where[self._rank, j]
                begin = begins[j] + window * each
                slot[place : place + length] = source.data[begin : begin + length]

        def leg(window: int, number: int) -> Steps:
            assert self._crossing is not None
            slot = self._slot(LEADER, number, source)
            blocks = [
                [
                    sum(size(i, j, window) for i in left for j in right)
                    for right in self._hosts.ranks
                ]
                for left in self._hosts.ranks
            ]
            out, into = sum(blocks[self._host]), sum(row[self._host] for row in blocks)
            yield from self._crossing.transport.alltoall(
                Buffer(slot[:out], source.dtype),
                Buffer(slot[half : half + into], source.dtype),
                blocks,
            )

        def take(window: int, number: int) -> None:
            slot, where = self._slot(LEADER, number, target)[half:], arriving(window)
            for i in range(self._hosts.size):
                length, place = size(i, self._rank, window), where[i, self._rank]
                begin = places[i] + window * each
                target.data[begin : begin + length] = slot[place : place + length]

        windows = -(-max(map(max, counts)) // each)
        return self._relay.run(Pipeline(windows=windows, put=put, legs=[leg], take=take))

    def _slot(self, local: int, number: int, like: Buffer) -> Array:
        """Return a window's slot of a rank of this host."""
        return self._slots[local][number % SLOTS].view(like.data.dtype)

    def _parts(self, number: int, low: int, high: int, like: Buffer) -> list[Array]:
        """Return a stretch of all slots of this host."""
        return [self._slot(r, number, like)[low:high] for r in range(len(self._here))]

    def _laid_out(
        self, counts: Sequence[int], window: int, each: int
    ) -> tuple[list[int], dict[int, int]]:
        """Return how much of each rank's stretch is in a window, and where in it."""
        sizes = _cut(counts, window, each)
        places = _starts([sizes[rank] for rank in self._in_order])
        return sizes, dict(zip(self._in_order, places, strict=True))

    def _blocks(self, sizes: Sequence[int]) -> list[int]:
        """Return how much of a window belongs to each host."""
        return [sum(sizes[rank] for rank in ranks) for ranks in self._hosts.ranks]


def slot_bytes(hosts: Hosts) -> int:
    """Return the bytes of a slot: a window, what fills it up, a part from and to everybody."""
    filled = SLOT_BYTES + len(hosts.ranks) * _LARGEST_ITEM_BYTES
    parts = 2 * max(map(len, hosts.ranks)) * hosts.size * _LARGEST_ITEM_BYTES + 2 * LINE_BYTES
    return round_up(max(filled, parts), 4096)


def share_of(folders: range, rank: int, length: int) -> tuple[int, int]:
    """Return the bounds of what a rank of this host folds of a window."""
    if rank not in folders:
        return 0, 0
    # Whole cache lines of the smallest type, so that no two ranks write to one.
    each = -(-length // len(folders) // LINE_BYTES) * LINE_BYTES
    place = rank - folders[0]
    return min(place * each, length), min((place + 1) * each, length)


def _cut(counts: Sequence[int], window: int, each: int) -> list[int]:
    """Return how many of each rank's elements are in a window."""
    return [max(0, min(count - window * each, each)) for count in counts]


def _starts(lengths: Sequence[int]) -> list[int]:
    return [0, *accumulate(lengths)][: len(lengths)]
