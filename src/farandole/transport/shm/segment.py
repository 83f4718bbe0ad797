"""A stretch of memory that other processes of the same user can map, and that has no name.

Peers open it through /proc/<pid>/fd/<n>. When the last process that maps it is gone, by kill -9
too, the kernel frees it, and a small /dev/shm does not matter.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import weakref
from pathlib import Path
from typing import Any

import numpy as np

from farandole.errors import FarandoleError
from farandole.transport.reduction import Array
from farandole.world.descriptors import out_of_descriptors

LINE_BYTES = 64
"""A cache line: words of different purposes stand that far apart."""

_MAP_FIXED = 0x10
"""Linux's; Python's mmap does not have it."""
_MAP_FAILED = ctypes.c_void_p(-1).value
_all: weakref.WeakSet[Segment] = weakref.WeakSet()


class SegmentError(FarandoleError, OSError):
    """Shared memory cannot be had, or a peer's cannot be opened."""


class Segment:
    """Shared memory: made by its owner, attached by peers."""

    def __init__(self, fd: int, nbytes: int, path: str) -> None:
        self.path = path
        self.nbytes = nbytes
        self._fd = fd
        self._map = _mapped(fd, nbytes)
        _all.add(self)

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
                _shortage(error)
                or f"No shared memory: {nbytes / 1e6:.1f} MB were asked for ({error})."
            ) from error

    @classmethod
    def attach(cls, path: str, nbytes: int) -> Segment:
        """Map a peer's segment."""
        fd = -1
        try:
            fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
            segment = cls(fd, nbytes, path)
            # Only its owner's descriptor is of use to others.
            segment.close()
            return segment
        except (OSError, ValueError) as error:
            _close(fd)
            raise SegmentError(
                _shortage(error)
                or f"A peer's shared memory cannot be opened ({error}). Workers in different "
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

    def keep_changes_private(self) -> None:
        """Map the memory once more in its place, so that nobody sees what is written to it.

        Only the owner can: it has the descriptor. Peers' segments are written by operations alone,
        which a forked process is refused.
        """
        if self._fd >= 0:
            _map_over(self._map, self.nbytes, self._fd, mmap.MAP_PRIVATE)

    def close(self) -> None:
        """Close the descriptor; the mapping goes when the last view of it does."""
        _close(self._fd)
        self._fd = -1


def keep_changes_private() -> None:
    """Let nobody see what this process, just forked, writes to memory that its parent shares.

    Its gradients lie there, and an optimizer or backward may write to them.
    """
    for segment in list(_all):
        segment.keep_changes_private()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=keep_changes_private)


def _mapped(fd: int, nbytes: int) -> mmap.mmap:
    """Map a file without a descriptor of the mapping's own, which mmap.mmap(fd) would keep."""
    size = os.fstat(fd).st_size
    if size < nbytes:
        raise ValueError(f"it has {size} bytes, not {nbytes}")
    # An area that Python unmaps when its last view goes; the file takes the place of its pages.
    area = mmap.mmap(-1, nbytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    _map_over(area, nbytes, fd, mmap.MAP_SHARED)
    return area


def _map_over(area: mmap.mmap, nbytes: int, fd: int, how: int) -> None:
    """Let a file take the place of an area's pages."""
    address = ctypes.addressof(ctypes.c_char.from_buffer(area))
    map_ = ctypes.CDLL(None, use_errno=True).mmap
    map_.restype = ctypes.c_void_p
    map_.argtypes = (
        *(ctypes.c_void_p, ctypes.c_size_t),
        *(ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long),
    )
    access = mmap.PROT_READ | mmap.PROT_WRITE
    if map_(address, nbytes, access, how | _MAP_FIXED, fd, 0) == _MAP_FAILED:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def _shortage(error: Exception) -> str:
    return out_of_descriptors(error) if isinstance(error, OSError) else ""


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
