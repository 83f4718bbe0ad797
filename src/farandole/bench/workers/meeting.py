"""A barrier between processes from the standard library alone: one counter per rank, in a memfd.

The limit must not use what it judges, so it brings its own.
"""

from __future__ import annotations

import mmap
import os
import time

LINE_BYTES = 64
"""One cache line per rank, so that a rank's store does not disturb the others' words."""

_SPINS = 100
_YIELDS = 100
_SLEEP_S = 50e-6


class Meeting:
    """Bring `num_ranks` processes that inherited the same file descriptor together."""

    def __init__(self, *, fd: int, rank: int, num_ranks: int) -> None:
        self._words = memoryview(mmap.mmap(fd, num_ranks * LINE_BYTES)).cast("Q")
        self._stride = LINE_BYTES // 8
        self._rank = rank
        self._num_ranks = num_ranks
        self._count = 0

    def wait(self) -> None:
        """Return when every rank has called this as often as this rank has."""
        self._count += 1
        self._words[self._rank * self._stride] = self._count
        for peer in range(self._num_ranks):
            self._wait_for(peer)

    def _wait_for(self, peer: int) -> None:
        word = peer * self._stride
        tries = 0
        while self._words[word] < self._count:
            tries += 1
            if tries > _SPINS + _YIELDS:
                time.sleep(_SLEEP_S)
            elif tries > _SPINS:
                os.sched_yield()
