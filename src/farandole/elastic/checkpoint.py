"""States in files: written beside training, found again when everything else was lost.

A file is whole or not there: it is written under another name, then renamed. Its first line says
what it is, and the sum over the rest is compared before anything of it is used.
"""

from __future__ import annotations

import contextlib
import os
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path
from threading import Thread
from typing import Any

from farandole import wire
from farandole.errors import FarandoleError, UsageError

_FIRST = "farandole-state-1"
_PREFIX, _SUFFIX, _UNFINISHED = "state-", ".farandole", ".part"
_DIGITS = 12


class CheckpointFiles:
    """The files of a state in one folder."""

    def __init__(self, folder: Path, *, every: int, keep: int) -> None:
        """Begin.

        Args:
            folder: Where the files are; it is made.
            every: How many commits a file is for.
            keep: How many files stay.

        Raises:
            UsageError: The numbers cannot be, or there is no such folder to be made.
        """
        for name, value in (("every", every), ("keep", keep)):
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise UsageError(f"save_to({name}={value!r}): give a whole number of at least 1.")
        self.folder, self.every, self.keep = folder, every, keep
        self._writing: Thread | None = None
        self._complaint = ""
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UsageError(f"save_to({str(folder)!r}): {error.strerror}.") from error

    def committed(self, commits: int, contents: Any) -> None:
        """Write a file if it is time, unless one is being written still.

        Args:
            commits: How many there have been.
            contents: Plain data; copied before this returns.
        """
        if commits % self.every or (self._writing is not None and self._writing.is_alive()):
            return
        data = wire.encode(contents, allow_pickle=False)
        self._writing = Thread(target=self._write, args=(commits, data), name="farandole-save")
        self._writing.start()

    def finish(self) -> None:
        """Wait for the file that is being written."""
        if self._writing is not None:
            self._writing.join()

    def newest(self) -> dict[str, Any] | None:
        """Return what the newest whole file holds; None: there is none. Say which are not whole."""
        for path in sorted(self._files(), reverse=True):
            try:
                return _read(path)
            except (OSError, FarandoleError) as error:
                _say(f"{path} is not a whole state ({error}). The one before it is taken.")
        return None

    def _files(self) -> Iterator[Path]:
        return self.folder.glob(f"{_PREFIX}*{_SUFFIX}")

    def _write(self, commits: int, data: bytes) -> None:
        path = self.folder / f"{_PREFIX}{commits:0{_DIGITS}d}{_SUFFIX}"
        unfinished = path.with_suffix(_SUFFIX + _UNFINISHED)
        try:
            with unfinished.open("wb") as file:
                file.write(f"{_FIRST} {len(data)} {zlib.crc32(data)}\n".encode())
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            unfinished.replace(path)
            for old in sorted(self._files())[: -self.keep]:
                old.unlink(missing_ok=True)
            self._complaint = ""
        except OSError as error:
            with contextlib.suppress(OSError):
                unfinished.unlink()
            complaint = f"{path} could not be written: {error.strerror}. Training goes on."
            if error.strerror != self._complaint:
                self._complaint = str(error.strerror)
                _say(complaint)


def _read(path: Path) -> dict[str, Any]:
    data = path.read_bytes()
    first, _, body = data.partition(b"\n")
    words = first.decode(errors="replace").split(" ")
    if words[0] != _FIRST or len(words) != 3:
        raise UsageError("it is no file of this version of Farandole")
    if [str(len(body)), str(zlib.crc32(body))] != words[1:]:
        raise UsageError("it was cut short or damaged")
    found: dict[str, Any] = wire.decode(body, allow_pickle=False)
    return found


def _say(sentence: str) -> None:
    sys.stderr.write(f"farandole: {sentence}\n")
