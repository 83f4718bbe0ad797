"""Bytes that a worker leaves with its launcher, which outlive it: states for the next restart.

Two anonymous files of the launcher per worker, written in turn: a death in the middle of one leaves
the other as it was. A file's header is written last, and is the sign that the file is whole.
"""

from __future__ import annotations

import functools
import mmap
import os
import struct
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from farandole.errors import StartError

VARIABLE = "FARANDOLE_STORED_STATE"
RESTART = "FARANDOLE_RESTART"
_HEADER = struct.Struct("<QQQQ")
_HEADER_BYTES = 64
_MAGIC = 0x4641_524B_4550_5431
# The kernel takes no more parts of one write.
_MOST_PARTS = 512


class StateFiles:
    """The two files of one worker, in the process that keeps them alive."""

    def __init__(self) -> None:
        self._fds: list[int] = []
        self.paths: list[str] = []
        """Where a worker finds them."""
        for _ in range(2):
            if hasattr(os, "memfd_create"):
                fd = os.memfd_create("farandole-state", os.MFD_CLOEXEC)
                self.paths.append(f"/proc/{os.getpid()}/fd/{fd}")
            else:
                fd, path = tempfile.mkstemp(prefix="farandole-state-")
                self.paths.append(path)
            self._fds.append(fd)

    @property
    def variable(self) -> str:
        """The value of a worker's variable FARANDOLE_STORED_STATE."""
        return ":".join(self.paths)

    def close(self) -> None:
        """Let go of them, and of what they hold."""
        for fd, path in zip(self._fds, self.paths, strict=True):
            os.close(fd)
            if not path.startswith("/proc/"):
                Path(path).unlink(missing_ok=True)
        self._fds = []


class StoredState:
    """What a worker has with its launcher."""

    def __init__(self, paths: Sequence[str]) -> None:
        """Open the files.

        Raises:
            StartError: They cannot be opened.
        """
        self._fds: list[int] = []
        try:
            for path in paths:
                self._fds.append(os.open(path, os.O_RDWR | os.O_CLOEXEC))
        except OSError as error:
            self.close()
            raise StartError(
                f"{VARIABLE}={':'.join(paths)} cannot be opened ({error.strerror}): the launcher "
                "has ended, or this worker runs in another container."
            ) from error
        self.written = False
        """Whether this process has written anything."""

    def write(self, parts: Sequence[bytes | memoryview]) -> None:
        """Put these bytes in the place of those before.

        Raises:
            OSError: There is no room for them; what was there before stays.
        """
        sequences = [self._header(fd)[0] for fd in self._fds]
        fd = self._fds[sequences.index(min(sequences))]
        os.pwrite(fd, bytes(_HEADER.size), 0)
        place = _HEADER_BYTES
        views = [memoryview(part).cast("B") for part in parts if len(part)]
        while views:
            written = os.pwritev(fd, views[:_MOST_PARTS], place)
            place += written
            while views and written >= len(views[0]):
                written -= len(views.pop(0))
            if written:
                views[0] = views[0][written:]
        if os.fstat(fd).st_size > place:
            os.truncate(fd, place)
        sequence, length = max(sequences) + 1, place - _HEADER_BYTES
        header = _HEADER.pack(_MAGIC, sequence, length, _MAGIC ^ sequence ^ length)
        os.pwrite(fd, header, 0)
        self.written = True

    def read(self) -> memoryview | None:
        """Return what is there, in one piece; None where nothing is."""
        headers = [self._header(fd) for fd in self._fds]
        sequence, length = newest = max(headers)
        if not sequence:
            return None
        if not length:
            return memoryview(b"")
        fd = self._fds[headers.index(newest)]
        mapped = mmap.mmap(fd, _HEADER_BYTES + length, access=mmap.ACCESS_READ)
        return memoryview(mapped)[_HEADER_BYTES:]

    def close(self) -> None:
        """Close the files."""
        for fd in self._fds:
            os.close(fd)
        self._fds = []

    @staticmethod
    def _header(fd: int) -> tuple[int, int]:
        """Return the sequence number and the length of what a file has; zeros: nothing whole."""
        data = os.pread(fd, _HEADER.size, 0)
        if len(data) < _HEADER.size:
            return 0, 0
        magic, sequence, length, check = _HEADER.unpack(data)
        whole = magic == _MAGIC and check == magic ^ sequence ^ length
        return (sequence, length) if whole else (0, 0)


@functools.cache
def _from_paths(paths: str) -> StoredState:
    return StoredState(paths.split(":"))


def stored_state(environ: Mapping[str, str] = os.environ) -> StoredState | None:
    """Return what this process has with its launcher; None where that keeps nothing."""
    paths = environ.get(VARIABLE)
    return _from_paths(paths) if paths else None


def restarts(environ: Mapping[str, str] = os.environ) -> int:
    """Return how often all workers of this job have been started again."""
    text = environ.get(RESTART, "")
    return int(text) if text.isdecimal() else 0
