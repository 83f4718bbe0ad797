"""Gradient buckets in shared memory: written where they are reduced, nothing is copied in.

Rank r folds the r-th chunk of everybody's bucket and writes the result into everybody's, while it
is still in its cache. Words per bucket and rank carry the step's number:

    ready    my gradients are in the bucket (with flags; the note says more): peers may write to it,
    reduced  I have written my chunk into all buckets.

When all have reduced, nobody touches my bucket any more before I say ready again: it may be
clipped, unscaled or filled by the next step.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Sequence
from typing import Literal

import numpy as np

from farandole.transport.protocol import Exchange
from farandole.transport.reduction import (
    BLOCK_ELEMENTS,
    STORAGE,
    Array,
    Fold,
    Reduction,
    fold,
    small_fold,
)
from farandole.transport.shm.segment import LINE_BYTES, Fabric, round_up

REGION = "buckets"

_FLAG_BITS = 8
_FLAGS = (1 << _FLAG_BITS) - 1
_WORDS = ("ready", "reduced")
_ODD, _NOTELESS = 1, 2


class SharedBuckets:
    """The buckets of one plan. `arrays` is my memory; the same layout on every rank."""

    by_name: Literal[False] = False
    """Each is reduced when all are ready: their words are the agreement."""

    def __init__(
        self,
        rank: int,
        size: int,
        exchange: Exchange,
        shapes: Sequence[tuple[int, str]],
        note_bytes: int,
        *,
        numbers: Sequence[int] = (),
    ) -> None:
        """Allocate.

        Args:
            rank: my rank.
            size: number of ranks.
            exchange: a rendezvous of these ranks.
            shapes: elements and type of each bucket.
            note_bytes: length of the note that accompanies a bucket.
            numbers: those of the ranks in messages, where they are others.
        """
        self._rank, self._size = rank, size
        self.busy_s = 0.0
        """How long this rank has moved data, since the beginning."""
        self._shapes = list(shapes)
        line = LINE_BYTES + round_up(note_bytes)
        header = len(_WORDS) * LINE_BYTES * len(shapes) + line * len(shapes)
        offsets, end = [], round_up(header, 4096)
        for count, dtype in shapes:
            offsets.append(end)
            end += round_up(count * STORAGE[dtype].itemsize, 4096)
        self._fabric = fabric = Fabric.open(rank, size, exchange, {REGION: end}, numbers=numbers)
        ranks = range(size)
        self.data = [
            [
                fabric.array(r, REGION, offset, count, STORAGE[dtype])
                for offset, (count, dtype) in zip(offsets, shapes, strict=True)
            ]
            for r in ranks
        ]
        """Everybody's memory, by rank and bucket."""
        self.arrays: list[Array] = self.data[rank]
        self._ready, self._reduced = (
            [
                [
                    fabric.words(r, REGION, (kind * len(shapes) + k) * LINE_BYTES, 1)
                    for k in range(len(shapes))
                ]
                for r in ranks
            ]
            for kind in range(len(_WORDS))
        )
        notes = len(_WORDS) * len(shapes) * LINE_BYTES
        self._notes = [
            [fabric.bytes(r, REGION, notes + k * line, note_bytes) for k in range(len(shapes))]
            for r in ranks
        ]
        self._unread: list[Array] = [np.empty(0, np.uint8)] * size
        self._noted: list[Array | None] = [None] * len(shapes)
        """The note that stands with each of my buckets."""
        mine = [slice(*self.chunk(bucket, rank)) for bucket in range(len(shapes))]
        self._chunks = [
            [self.data[r][bucket][chunk] for r in ranks] for bucket, chunk in enumerate(mine)
        ]
        """What I fold of each bucket, in everybody's."""
        self._small: dict[str, tuple[Reduction, Fold]] = {}
        """What folds small chunks, by type: for the last reduction, which mostly comes again."""
        self.reduce: Callable[[int, Reduction, list[int], list[Array]], None] | None = None
        """What is done instead of folding when all are ready: with a bucket, the reduction,
        everybody's flags and notes. It is over when every rank has done it."""

    def allreduce(
        self, bucket: int, step: int, how: Reduction, flags: int, note: Array
    ) -> Generator[bool, None, list[tuple[int, Array]]]:
        """Reduce a bucket in place; return every rank's flags and note.

        Args:
            bucket: which.
            step: number of the step, counting from 1.
            how: the reduction.
            flags: a small number for the peers. If any rank's is odd, nothing is reduced; if all
                have 2 in them, nobody reads the notes, and those returned are empty.
            note: bytes for the peers; a note that stays the same had better be the same object.
        """
        rank, peers, ready = self._rank, self._fabric.peers, self._ready
        if self._noted[bucket] is not note:
            self._notes[rank][bucket][...] = note
            self._noted[bucket] = note
        ready[rank][bucket][0] = step << _FLAG_BITS | flags
        yield from _until(ready, peers, bucket, step << _FLAG_BITS)
        said = [words[bucket][0] & _FLAGS for words in ready]
        some, every = 0, _FLAGS
        for each in said:
            some |= each
            every &= each
        notes = self._unread
        if not every & _NOTELESS:
            notes = [each[bucket].copy() for each in self._notes]
        if not some & _ODD:
            began_s = time.monotonic()
            if self.reduce is None:
                self._fold(bucket, how)
            else:
                self.reduce(bucket, how, said, notes)
            self.busy_s += time.monotonic() - began_s
        self._reduced[rank][bucket][0] = step
        yield from _until(self._reduced, peers, bucket, step)
        return list(zip(said, notes, strict=True))

    def begun_by_all(self, step: int) -> bool:
        """Say whether every rank was ready in this step, in any bucket."""
        return any(
            all(words[bucket][0] >> _FLAG_BITS >= step for words in self._ready)
            for bucket in range(len(self._shapes))
        )

    def begun(self, step: int) -> bool:
        """Say whether a peer has begun this step, and is not beyond it."""
        words = [word[0] for peer in self._fabric.peers for word in self._ready[peer]]
        return any(word >> _FLAG_BITS == step for word in words)

    def check_peers(self) -> None:
        """Raise PeerDiedError if a peer is gone."""
        self._fabric.check_peers()

    def close(self) -> None:
        """Leave; tensors that still point into the memory keep it."""
        self.reduce = None
        self._fabric.close()

    def _fold(self, bucket: int, how: Reduction) -> None:
        chunks, dtype = self._chunks[bucket], self._shapes[bucket][1]
        mine = chunks[0]
        if len(mine) > BLOCK_ELEMENTS:
            fold(chunks, chunks, dtype, how)
        elif len(mine):
            known = self._small.get(dtype)
            if known is None or known[0] is not how:
                known = self._small[dtype] = how, small_fold(dtype, how, len(chunks))
            known[1](chunks, mine)
            for other in chunks[1:]:
                other[...] = mine

    def chunk(self, bucket: int, rank: int) -> tuple[int, int]:
        """Return where the part of a bucket that a rank folds begins and ends."""
        count = self._shapes[bucket][0]
        each = -(-count // self._size // LINE_BYTES) * LINE_BYTES
        return min(rank * each, count), min((rank + 1) * each, count)


def _until(
    words: list[list[memoryview]], peers: Sequence[int], bucket: int, least: int
) -> Generator[bool, None, None]:
    moved = True
    for peer in peers:
        word = words[peer][bucket]
        while word[0] < least:
            yield moved
            moved = False
