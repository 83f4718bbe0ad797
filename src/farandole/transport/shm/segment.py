"""A stretch of memory that other processes of the same user can map, and that has no name.

Peers open it through /proc/<pid>/fd/<n>. When the last process that maps it is gone, by kill -9
too, the kernel frees it, and a small /dev/shm does not matter.
"""

from __future__ import annotations

import mmap
import os
from pathlib import Path
from typing import Any

import numpy as np

from farandole.errors import FarandoleError
from farandole.transport.reduction import Array

LINE_BYTES = 64
"""A cache line: words of different purposes stand that far apart."""


class SegmentError(FarandoleError, OSError):
    """Shared memory cannot be had, or a peer's cannot be opened."""


class Segment:
    """Shared memory: made by its owner, attached by peers."""

    def __init__(self, fd: int, nbytes: int, path: str) -> None:
        self.path = path
        self.nbytes = nbytes
        self._fd = fd
        self._map = mmap.mmap(fd, nbytes)

    @classmethod
    def create(cls, nbytes: int) -> Segment:
        """Make a segment whose memory is really there: running out is an error now, not a signal
        at the first touch."""
        available = _available_bytes()
        if nbytes > available:
            # The kernel would promise it, and then end some process to keep that promise.
            raise SegmentError(
                f"No shared memory: {nbytes / 1e6:.1f} MB were asked for, and "
                f"{available / 1e6:.1f} MB are free."
            )
        fd = -1
        try:
            fd = os.memfd_create("farandole", os.MFD_CLOEXEC)
            os.posix_fallocate(fd, 0, nbytes)
            return cls(fd, nbytes, f"/proc/{os.getpid()}/fd/{fd}")
        except (AttributeError, OSError) as error:
            _close(fd)
            raise SegmentError(
                f"No shared memory: {nbytes / 1e6:.1f} MB were asked for ({error})."
            ) from error

    @classmethod
    def attach(cls, path: str, nbytes: int) -> Segment:
        """Map a peer's segment."""
        fd = -1
        try:
            fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
            return cls(fd, nbytes, path)
        except (OSError, ValueError) as error:
            _close(fd)
            raise SegmentError(
                f"A peer's shared memory cannot be opened ({error}). Workers in different "
                "containers or of different users cannot share memory."
            ) from error

    def words(self, offset: int, count: int) -> memoryview:
        """Return `count` 64-bit words; aligned, so each is read and written whole."""
        return memoryview(self._map)[offset : offset + 8 * count].cast("q")

    def bytes(self, offset: int, nbytes: int) -> Array:
        """Return a stretch as a flat array of bytes."""
        return np.frombuffer(self._map, np.uint8, nbytes, offset)

    def array(self, offset: int, count: int, dtype: np.dtype[Any]) -> Array:
        """Return a stretch as a flat array of `count` elements."""
        return np.frombuffer(self._map, dtype, count, offset)

    def close(self) -> None:
        """Close the descriptor; the mapping goes when the last view of it does."""
        _close(self._fd)
        self._fd = -1


def _close(fd: int) -> None:
    if fd >= 0:
        os.close(fd)


def round_up(nbytes: int, unit: int = LINE_BYTES) -> int:
    """Return the next multiple of `unit`."""
    return -(-nbytes // unit) * unit


def _available_bytes() -> float:
    try:
        with Path("/proc/meminfo").open() as facts:
            for line in facts:
                if line.startswith("MemAvailable:"):
                    return int(line.split()[1]) * 1024
    except OSError:
        pass
    return float("inf")
