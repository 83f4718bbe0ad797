"""Collectives on private memory, through cache-sized slots in shared memory.

Each rank publishes its data a window at a time in a few slots of its own segment. Three words per
rank carry the protocol, each the number of the last window for which the rank has

    ready    published its input,
    reduced  published its share of the result,
    read     taken from its peers all that it needs.

A slot is written again only when every peer has read what it held.
"""

from __future__ import annotations

from collections.abc import Sequence

from farandole.transport.protocol import Buffer, Steps
from farandole.transport.reduction import Array, Reduction, fold
from farandole.transport.shm.segment import LINE_BYTES, Fabric

# The three stages of an all-reduce work on three windows at once; the fourth gives slack.
SLOTS = 4
# A sweep by hand on a noisy machine (44.7 MB, 2 ranks on 2 cores, two medians each): 256 KB 17 and
# 24 ms, 512 KB 10 and 13, 1 MB 9 and 11: it cannot tell 512 KB from 1 MB.
SLOT_BYTES = 1024 * 1024
REGION = "slots"

_HEADER_BYTES = 3 * LINE_BYTES


class SlotChannel:
    """Runs one collective after the other, in the same order on every rank."""

    NBYTES = _HEADER_BYTES + SLOTS * SLOT_BYTES

    def __init__(self, fabric: Fabric) -> None:
        self._fabric = fabric
        self._rank, self._size = fabric.rank, fabric.size
        self._peers = fabric.peers
        ranks = range(fabric.size)
        self._ready = [fabric.words(r, REGION, 0, 1) for r in ranks]
        self._reduced = [fabric.words(r, REGION, LINE_BYTES, 1) for r in ranks]
        self._read = [fabric.words(r, REGION, 2 * LINE_BYTES, 1) for r in ranks]
        self._slots = [
            [
                fabric.bytes(r, REGION, _HEADER_BYTES + i * SLOT_BYTES, SLOT_BYTES)
                for i in range(SLOTS)
            ]
            for r in ranks
        ]
        self._window = 0
        """Number of the last window begun, counted over all operations."""

    def allreduce(self, source: Buffer, target: Buffer, how: Reduction) -> Steps:
        """Combine all sources into every target (see Transport)."""
        if not len(source):
            return
        per_window = self._elements(source.data)
        total = len(source)
        starts = range(0, total, per_window)
        first = self._window + 1
        self._window += len(starts)
        # Three stages run two windows apart, so that a rank seldom waits for the one it has just
        # asked its peers to prepare.
        for i in range(len(starts) + 2):
            if i < len(starts):
                yield from self._until(self._read, first + i - SLOTS)
                self._publish_shares(source, starts[i], per_window, first + i)
            if 0 <= i - 1 < len(starts):
                yield from self._until(self._ready, first + i - 1)
                self._fold_share(source, target, starts[i - 1], per_window, how, first + i - 1)
            if i - 2 >= 0:
                yield from self._until(self._reduced, first + i - 2)
                self._collect_shares(target, starts[i - 2], per_window, first + i - 2)

    def broadcast(self, buffer: Buffer, root: int) -> Steps:
        """Copy the root's buffer into everybody's."""
        counts = [len(buffer) if r == root else 0 for r in range(self._size)]
        yield from self._gather(
            buffer, [buffer if r == root else None for r in range(self._size)], counts
        )

    def allgather(self, source: Buffer, target: Buffer, counts: Sequence[int]) -> Steps:
        """Put the sources one behind the other in every target."""
        offset, stretches = 0, []
        for count in counts:
            stretches.append(Buffer(target.data[offset : offset + count], target.dtype))
            offset += count
        stretches[self._rank].data[...] = source.data
        yield from self._gather(source, stretches, counts)

    def reducescatter(
        self, source: Buffer, target: Buffer, counts: Sequence[int], how: Reduction
    ) -> Steps:
        """Combine all sources; rank r keeps the r-th stretch."""
        share = self._elements(source.data) // self._size
        offsets = [sum(counts[:r]) for r in range(self._size)]
        for start in range(0, max(counts, default=0), share):
            self._window += 1
            window = self._window
            yield from self._until(self._read, window - SLOTS)
            mine = self._view(self._rank, window, source.data)
            for peer in self._peers:
                stop = min(start + share, counts[peer])
                if start < stop:
                    piece = source.data[offsets[peer] + start : offsets[peer] + stop]
                    mine[peer * share : peer * share + len(piece)] = piece
            self._ready[self._rank][0] = window
            yield from self._until(self._ready, window)
            length = min(start + share, counts[self._rank]) - start
            if length > 0:
                at = self._rank * share
                parts = [
                    self._view(r, window, source.data)[at : at + length] for r in range(self._size)
                ]
                begin = offsets[self._rank] + start
                parts[self._rank] = source.data[begin : begin + length]
                fold(parts, [target.data[start : start + length]], source.dtype, how)
            self._finish(window)

    def alltoall(self, source: Buffer, target: Buffer, counts: Sequence[Sequence[int]]) -> Steps:
        """Send counts[i][j] elements from rank i to rank j."""
        per_window = self._elements(source.data)
        rank = self._rank
        begins = [sum(counts[r][:rank]) for r in range(self._size)]
        places = [sum(counts[r][rank] for r in range(peer)) for peer in range(self._size)]
        own = counts[rank][rank]
        target.data[places[rank] : places[rank] + own] = source.data[
            begins[rank] : begins[rank] + own
        ]
        for start in range(0, max(sum(row) for row in counts), per_window):
            self._window += 1
            window = self._window
            yield from self._until(self._read, window - SLOTS)
            piece = source.data[start : start + per_window]
            self._view(rank, window, source.data)[: len(piece)] = piece
            self._ready[rank][0] = window
            yield from self._until(self._ready, window)
            for peer in self._peers:
                low = max(start, begins[peer])
                high = min(start + per_window, begins[peer] + counts[peer][rank])
                if low < high:
                    at = places[peer] + low - begins[peer]
                    sent = self._view(peer, window, source.data)[low - start : high - start]
                    target.data[at : at + high - low] = sent
            self._finish(window)

    def _gather(
        self, source: Buffer, stretches: Sequence[Buffer | None], counts: Sequence[int]
    ) -> Steps:
        """Publish `source`; put what peers publish into `stretches` (None: into `source`)."""
        per_window = self._elements(source.data)
        for start in range(0, max(counts, default=0), per_window):
            self._window += 1
            window = self._window
            yield from self._until(self._read, window - SLOTS)
            if start < counts[self._rank]:
                piece = source.data[start : start + per_window]
                self._view(self._rank, window, source.data)[: len(piece)] = piece
            self._ready[self._rank][0] = window
            yield from self._until(self._ready, window)
            for peer in self._peers:
                length = min(per_window, counts[peer] - start)
                if length > 0:
                    into = stretches[peer] or source
                    sent = self._view(peer, window, source.data)[:length]
                    into.data[start : start + length] = sent
            self._finish(window)

    def _publish_shares(self, source: Buffer, start: int, per_window: int, window: int) -> None:
        mine = self._view(self._rank, window, source.data)
        for low, high in self._shares_but_mine(len(source) - start, per_window):
            mine[low:high] = source.data[start + low : start + high]
        self._ready[self._rank][0] = window

    def _fold_share(
        self,
        source: Buffer,
        target: Buffer,
        start: int,
        per_window: int,
        how: Reduction,
        window: int,
    ) -> None:
        low, high = self._share(self._rank, len(source) - start, per_window)
        if low < high:
            parts = [self._view(r, window, source.data)[low:high] for r in range(self._size)]
            slot = parts[self._rank]
            parts[self._rank] = source.data[start + low : start + high]
            fold(parts, [target.data[start + low : start + high], slot], source.dtype, how)
        self._reduced[self._rank][0] = window

    def _collect_shares(self, target: Buffer, start: int, per_window: int, window: int) -> None:
        left = len(target) - start
        for peer in self._peers:
            low, high = self._share(peer, left, per_window)
            if low < high:
                result = self._view(peer, window, target.data)[low:high]
                target.data[start + low : start + high] = result
        self._read[self._rank][0] = window

    def _share(self, rank: int, left: int, per_window: int) -> tuple[int, int]:
        """Return the bounds, within a window, of what a rank folds."""
        length = min(left, per_window)
        # Whole cache lines of the smallest type, so that no two ranks write to one.
        each = -(-length // self._size // LINE_BYTES) * LINE_BYTES
        return min(rank * each, length), min((rank + 1) * each, length)

    def _shares_but_mine(self, left: int, per_window: int) -> list[tuple[int, int]]:
        """Return the one or two stretches around my share, as few copies as possible."""
        low, high = self._share(self._rank, left, per_window)
        return [pair for pair in ((0, low), (high, min(left, per_window))) if pair[0] < pair[1]]

    def _finish(self, window: int) -> None:
        self._reduced[self._rank][0] = window
        self._read[self._rank][0] = window

    def _until(self, words: list[memoryview], window: int) -> Steps:
        moved = True
        for peer in self._peers:
            word = words[peer]
            while word[0] < window:
                yield moved
                moved = False

    def _view(self, rank: int, window: int, like: Array) -> Array:
        return self._slots[rank][window % SLOTS].view(like.dtype)

    def _elements(self, like: Array) -> int:
        return SLOT_BYTES // int(like.dtype.itemsize)
