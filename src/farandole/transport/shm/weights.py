"""One copy of a model's weights for all ranks of a host, in which scripts may still write.

Updates write to `shared`. A script sees `mine`: the same pages, until it writes to one. That page
becomes this process's own then, so that no other rank sees a change that it has not made itself.
Before an update the ranks compare such changes, one puts them into the shared memory, and all
forget their own pages.
"""

from __future__ import annotations

import mmap
import os
import resource
import weakref
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from farandole.transport.protocol import Exchange
from farandole.transport.reduction import STORAGE, Array
from farandole.transport.shm.segment import LINE_BYTES, Fabric, round_up

_REGION, _WORDS = "weights", "words"
_PAGEMAP = Path("/proc/self/pagemap")
_PAGE_BYTES = mmap.PAGESIZE
# Bits of a page's entry: in memory, swapped out, part of a file (as all are that nobody wrote to).
_PRESENT_OR_SWAPPED, _OF_FILE = np.uint64(3 << 62), np.uint64(1 << 61)

_all: weakref.WeakSet[SharedWeights] = weakref.WeakSet()


class SharedWeights:
    """The weights of a plan's parameters, a flat array for each of its buckets."""

    def __init__(
        self,
        rank: int,
        size: int,
        exchange: Exchange,
        shapes: Sequence[tuple[int, str]],
        *,
        numbers: Sequence[int] = (),
    ) -> None:
        """Allocate, in the memory of rank 0; all ranks do so together.

        Args:
            rank: my rank.
            size: number of ranks.
            exchange: a rendezvous of these ranks.
            shapes: elements and type of each array.
            numbers: those of the ranks in messages, where they are others.
        """
        self._offsets, end = [], 0
        for count, dtype in shapes:
            self._offsets.append(end)
            end += round_up(count * STORAGE[dtype].itemsize, _PAGE_BYTES)
        self._fabric = fabric = Fabric.open(
            *(rank, size, exchange, {_WORDS: LINE_BYTES}),
            of_first={_REGION: end},
            numbers=numbers,
        )
        self._area, self._nbytes = fabric.private(0, _REGION, end), end
        places = list(zip(self._offsets, shapes, strict=True))
        self.shared = [
            fabric.array(0, _REGION, at, count, STORAGE[dtype]) for at, (count, dtype) in places
        ]
        self.mine = [
            np.frombuffer(self._area, STORAGE[dtype], count, at) for at, (count, dtype) in places
        ]
        self.words = [fabric.words(each, _WORDS, 0, 1) for each in range(size)]
        """One number of each rank's, for whoever updates."""
        self.squares = [
            fabric.array(each, _WORDS, 8, 1, np.dtype(np.float64)) for each in range(size)
        ]
        """The same of another kind."""
        self._bytes = np.frombuffer(self._area, np.uint8)
        self._faults = -1
        self.kept = False
        """Whether pages have been made this process's own for a child."""
        _all.add(self)

    def written(self, begin: int, end: int, pages: Array, array: int) -> bool:
        """Say whether elements of an array lie in any of these pages, and differ from the shared.

        Args:
            begin: the first element.
            end: behind the last one.
            pages: what `pages` returned.
            array: its number.
        """
        mine, shared = self.mine[array][begin:end], self.shared[array][begin:end]
        at = self._offsets[array] + begin * mine.itemsize
        ends = at // _PAGE_BYTES, (at + mine.nbytes - 1) // _PAGE_BYTES
        before, until = np.searchsorted(pages, ends[0]), np.searchsorted(pages, ends[1], "right")
        # Bit for bit: a NaN is not another value than itself.
        return bool(until > before and (mine.view(np.uint8) != shared.view(np.uint8)).any())

    def pages(self) -> Array | None:
        """Return the numbers of the pages that are this process's own; None if there are none.

        Whoever writes to a shared page takes a page fault, and as long as there was none in this
        process nobody has: asking for their number takes a microsecond, looking at all pages a
        hundred times that.
        """
        faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        if faults == self._faults:
            return None
        with _PAGEMAP.open("rb", buffering=0) as pagemap:
            first = self._bytes.ctypes.data // _PAGE_BYTES
            raw = os.pread(pagemap.fileno(), self._nbytes // _PAGE_BYTES * 8, first * 8)
        entries = np.frombuffer(raw, np.uint64)
        own = np.flatnonzero(((entries & _PRESENT_OR_SWAPPED) != 0) & ((entries & _OF_FILE) == 0))
        if len(own):
            return own
        self._faults = faults
        return None

    def forget(self) -> None:
        """Give up the pages that are this process's own: `mine` is what is shared again."""
        self._area.madvise(mmap.MADV_DONTNEED)
        self.kept = False

    def keep(self) -> None:
        """Make all pages this process's own, with what is in them now."""
        self.kept = True
        one_per_page = self._bytes[::_PAGE_BYTES]
        np.bitwise_or(one_per_page, 0, out=one_per_page)

    def close(self) -> None:
        """Leave; parameters that still point into the memory keep it."""
        _all.discard(self)
        self._fabric.close()

    def waiting(self) -> dict[str, None]:
        """Return nothing: nobody waits for memory."""
        return {}


def supported() -> bool:
    """Say whether this system tells which pages are a process's own."""
    return _PAGEMAP.exists()


def _keep_all() -> None:
    """Let a child that is about to be forked see the weights as they are now."""
    for weights in list(_all):
        weights.keep()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_keep_all)
