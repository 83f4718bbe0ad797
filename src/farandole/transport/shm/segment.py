"""A stretch of memory that other processes of the same user can map, and that has no name.

Peers open it through /proc/<pid>/fd/<n>. When the last process that maps it is gone, by kill -9
too, the kernel frees it, and a small /dev/shm does not matter.
"""

from __future__ import annotations

import ctypes
import json
import mmap
import os
import secrets
import select
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from farandole.errors import FarandoleError, PeerDiedError
from farandole.transport.protocol import Exchange
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

    def private(self, offset: int, nbytes: int) -> mmap.mmap:
        """Map a stretch of pages once more: others' changes show there, but what is written to a
        page makes that page this process's own."""
        try:
            fd = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                area = mmap.mmap(-1, nbytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
                _map_over(area, nbytes, fd, mmap.MAP_PRIVATE, offset)
            finally:
                os.close(fd)
        except OSError as error:
            raise SegmentError(f"Shared memory cannot be mapped once more ({error}).") from error
        return area

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


def _map_over(area: mmap.mmap, nbytes: int, fd: int, how: int, offset: int = 0) -> None:
    """Let a file take the place of an area's pages."""
    address = ctypes.addressof(ctypes.c_char.from_buffer(area))
    map_ = ctypes.CDLL(None, use_errno=True).mmap
    map_.restype = ctypes.c_void_p
    map_.argtypes = (
        *(ctypes.c_void_p, ctypes.c_size_t),
        *(ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long),
    )
    access = mmap.PROT_READ | mmap.PROT_WRITE
    if map_(address, nbytes, access, how | _MAP_FIXED, fd, offset) == _MAP_FAILED:
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


# The shared memory of one group of ranks: one segment per rank, cut into regions.
#
# Every word has one writer, its segment's owner; a bucket's data are also written by the rank that
# reduces a part of it, between two words that say whose turn it is. No lock lives in shared memory,
# and on x86-64 others see stores in the order in which they were made.

_GONE = "gone"
_PAGE_BYTES = 4096
_NONCE_AT = 64
"""Where a segment has its nonce, in bytes: on its first page, away from the word of those gone."""

_pidfds: dict[int, tuple[int, int]] = {}
"""By process the descriptor that tells of its end, which all fabrics share, and their number."""
_pidfds_lock = threading.Lock()


class Fabric:
    """Maps the segments of all ranks of a group and watches over their processes."""

    def __init__(
        self,
        rank: int,
        segments: list[Segment],
        offsets: Mapping[str, int],
        pids: list[int],
        names: Sequence[int],
    ) -> None:
        self.rank = rank
        self.size = len(segments)
        self._names = names
        self.peers = [(rank + i) % self.size for i in range(1, self.size)]
        """The other ranks, beginning with the next, so that not everybody reads rank 0 first."""
        self._segments = segments
        self._offsets = offsets
        self._pids = pids
        self._gone = [segment.words(offsets[_GONE], 1) for segment in segments]
        self._pidfds: dict[int, int] = {}
        self._poll = select.poll()
        for peer in self.peers:
            self._watch(peer)

    @classmethod
    def open(
        cls,
        rank: int,
        size: int,
        exchange: Exchange,
        regions: Mapping[str, int],
        *,
        of_first: Mapping[str, int] | None = None,
        among: Sequence[int] | None = None,
        numbers: Sequence[int] = (),
    ) -> Fabric:
        """Make my segment and map the others'.

        Args:
            rank: my rank in the group.
            size: the number of ranks in the group.
            exchange: a rendezvous of these ranks, or of more.
            regions: name and bytes of each region; the same on every rank.
            of_first: the same of those that only rank 0 has, behind the others.
            among: the numbers that the ranks of the group have in the rendezvous and in messages,
                where it is of more; they open groups of their own meanwhile.
            numbers: those of the ranks in messages, where they are others.

        Raises:
            SegmentError: on every rank alike, if one of them could not make or map a segment.
        """
        names = range(size) if among is None else among
        number = (numbers or names)[rank]
        offsets = {_GONE: 0}
        end = _lay_out(regions, offsets, _PAGE_BYTES)
        ends = [_lay_out(of_first or {}, offsets, end), *[end] * (size - 1)]
        segments: dict[int, Segment] = {}
        try:
            nonce = secrets.randbits(63)
            error = _attempt(segments, rank, lambda: _create(ends[rank], nonce))
            path = segments[rank].path if not error else ""
            mine = {"pid": os.getpid(), "path": path, "bytes": ends[rank], "nonce": nonce}
            everyone = _agree(exchange, mine, error, number)
            hellos = [everyone[name] for name in names]
            if not error and (sizes := [hello["bytes"] for hello in hellos]) != ends:
                error = (
                    f"ranks {', '.join(map(str, numbers or names))} lay out their shared memory "
                    f"differently, in {', '.join(map(str, sizes))} bytes. Give the same arguments "
                    "on all ranks."
                )
            for peer, hello in enumerate(hellos):
                if peer != rank and not error:
                    attach = partial(_attach, hello["path"], ends[peer], hello["nonce"])
                    error = _attempt(segments, peer, attach)
            _agree(exchange, {}, error, number)
        except BaseException:
            for segment in segments.values():
                segment.close()
            raise
        in_order = [segments[peer] for peer in range(size)]
        return cls(rank, in_order, offsets, [hello["pid"] for hello in hellos], numbers or names)

    def words(self, rank: int, region: str, offset: int, count: int) -> memoryview:
        """Return words of a rank's region, `offset` bytes from its start."""
        return self._segments[rank].words(self._offsets[region] + offset, count)

    def bytes(self, rank: int, region: str, offset: int, nbytes: int) -> Array:
        """Return a stretch of a rank's region as bytes."""
        return self._segments[rank].bytes(self._offsets[region] + offset, nbytes)

    def array(self, rank: int, region: str, offset: int, count: int, dtype: np.dtype[Any]) -> Array:
        """Return a stretch of a rank's region as an array."""
        return self._segments[rank].array(self._offsets[region] + offset, count, dtype)

    def private(self, rank: int, region: str, nbytes: int) -> mmap.mmap:
        """Map a rank's region once more (see Segment.private)."""
        return self._segments[rank].private(self._offsets[region], nbytes)

    def check_peers(self) -> None:
        """Raise PeerDiedError if a peer's process has ended or has left the group."""
        for fd, _ in self._poll.poll(0):
            raise self._ended(next(rank for rank, pidfd in self._pidfds.items() if pidfd == fd))
        for peer in self.peers:
            if self._gone[peer][0]:
                raise PeerDiedError(
                    f"Rank {self._names[peer]} has called shutdown() while rank "
                    f"{self._names[self.rank]} was waiting for it.",
                    culprit=self._names[peer],
                )
            if peer not in self._pidfds and not _alive(self._pids[peer]):
                raise self._ended(peer)

    def close(self) -> None:
        """Leave the group; memory goes when no peer maps it any more."""
        self._gone[self.rank][0] = 1
        self._segments[self.rank].close()
        for peer in self._pidfds:
            _release_pidfd(self._pids[peer])
        self._pidfds.clear()
        self._poll = select.poll()

    def _ended(self, peer: int) -> PeerDiedError:
        return PeerDiedError(
            f"Rank {self._names[peer]} (process {self._pids[peer]}) has ended while rank "
            f"{self._names[self.rank]} was waiting for it.",
            culprit=self._names[peer],
        )

    def _watch(self, peer: int) -> None:
        if hasattr(os, "pidfd_open"):
            try:
                self._pidfds[peer] = _share_pidfd(self._pids[peer])
            except OSError:
                return
            self._poll.register(self._pidfds[peer], select.POLLIN)


def _lay_out(regions: Mapping[str, int], offsets: dict[str, int], begin: int) -> int:
    """Note where regions begin, one behind the other; return where the last one ends."""
    for name, nbytes in regions.items():
        offsets[name] = begin
        begin += round_up(nbytes, _PAGE_BYTES)
    return begin


def _create(nbytes: int, nonce: int) -> Segment:
    """Make a segment that can be told from all others."""
    segment = Segment.create(nbytes)
    segment.words(_NONCE_AT, 1)[0] = nonce
    return segment


def _attach(path: str, nbytes: int, nonce: int) -> Segment:
    """Map a peer's segment, and make sure that it is the one meant."""
    segment = Segment.attach(path, nbytes)
    if segment.words(_NONCE_AT, 1)[0] != nonce:
        raise SegmentError(
            f"{path} is not the shared memory that a peer announced: the peer has ended and its "
            "process number was given out again, or it runs in another PID namespace."
        )
    return segment


def _attempt(segments: dict[int, Segment], rank: int, make: Callable[[], Segment]) -> str:
    """Add a rank's segment; return why that is not possible."""
    try:
        segments[rank] = make()
    except SegmentError as error:
        return str(error)
    return ""


def _agree(
    exchange: Exchange, hello: dict[str, Any], error: str, number: int
) -> list[dict[str, Any]]:
    """Exchange greetings; raise on all ranks if one of them reports an error."""
    error = error and f"Rank {number}: {error}"
    answers = [json.loads(answer) for answer in exchange(json.dumps([hello, error]).encode())]
    for _, reason in answers:
        if reason:
            raise SegmentError(reason)
    return [hello for hello, _ in answers]


def _share_pidfd(pid: int) -> int:
    with _pidfds_lock:
        fd, users = _pidfds.get(pid) or (os.pidfd_open(pid), 0)
        _pidfds[pid] = fd, users + 1
    return fd


def _release_pidfd(pid: int) -> None:
    with _pidfds_lock:
        fd, users = _pidfds.pop(pid)
        if users > 1:
            _pidfds[pid] = fd, users - 1
        else:
            os.close(fd)


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
