"""Whole lines into a file, by one call each time: what was written is there after kill -9."""

from __future__ import annotations

import os
import sys


class Writer:
    """Appends blocks of lines; a disk that is full ends the recording, never the training."""

    def __init__(self, path: str, *, exclusive: bool = False) -> None:
        """Create the file.

        Raises:
            FileExistsError: `exclusive`, and it is there already.
            OSError: the folder cannot be written to.
        """
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        self._path = path
        self._fd: int | None = os.open(path, flags | (os.O_EXCL if exclusive else 0), 0o644)

    @property
    def open(self) -> bool:
        """Whether lines still arrive."""
        return self._fd is not None

    def write(self, lines: list[str]) -> None:
        """Append these lines."""
        if self._fd is None or not lines:
            return
        block = ("\n".join(lines) + "\n").encode()
        try:
            written = os.write(self._fd, block)
            if written < len(block):
                # A disk that fills up takes a part; the next call says why.
                os.write(self._fd, block[written:])
        except OSError as error:
            sys.stderr.write(
                f"farandole: {self._path} cannot be written ({error.strerror}): recording ends "
                "here, training goes on.\n"
            )
            self.close()

    def close(self) -> None:
        """Let go of the file."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None
