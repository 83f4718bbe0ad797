"""A trace file that several ranks add to, and that is whole and valid at every moment.

Every addition makes a new file and renames it into the old one's place: a reader, or who looks
after a kill -9, finds one or the other. Copying what is there already makes additions dearer the
longer the file is; who adds waits the longer for it (see recorder.live).
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any

_BEGIN, _BETWEEN, _END = b"[\n", b",\n", b"\n]\n"
_HEADER_BYTES = 1 << 16
_CHUNK_BYTES = 1 << 22


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """Whose events a file has: all ranks of a job say the same."""

    job: str
    number: int
    """Counts the timelines of the job that go to the same file."""

    def follows(self, other: Session) -> bool:
        """Say whether this is the same session or a later one of the same job."""
        return self.job == other.job and self.number >= other.number


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """The zero of a file's times, and on whose clock: of the rank that began it."""

    host: str
    monotonic_s: float
    unix_s: float


class TraceFile:
    """One timeline in the making."""

    def __init__(self, path: Path, session: Session) -> None:
        self._path, self._session = path, session

    def begin(self, mine: Origin) -> Origin:
        """Begin the file unless another rank has; return the zero that counts for all.

        Raises:
            OSError: It cannot be written.
        """
        with self._locked():
            there = self._header()
            if there is not None and there[0].follows(self._session):
                return there[1]
            header = {
                "name": "timeline",
                "ph": "M",
                "pid": 0,
                "args": {
                    "session": asdict(self._session),
                    "origin": asdict(mine),
                    "start_time_since_epoch_in_micros": round(mine.unix_s * 1e6),
                },
            }
            self._replace(None, [json.dumps(header)])
            return mine

    def add(self, lines: Sequence[str]) -> None:
        """Add events; those of a timeline that has been replaced by a later one are dropped.

        Raises:
            OSError: It cannot be written.
        """
        with self._locked():
            there = self._header()
            if there is not None and there[0] == self._session:
                with self._path.open("rb") as before:
                    self._replace(before, lines)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        # The folder, since the file itself is another one after every addition.
        folder = os.open(self._path.parent, os.O_RDONLY | os.O_CLOEXEC)
        try:
            fcntl.flock(folder, fcntl.LOCK_EX)
            yield
        finally:
            os.close(folder)

    def _header(self) -> tuple[Session, Origin] | None:
        try:
            with self._path.open("rb") as file:
                head = file.read(_HEADER_BYTES).splitlines()
        except FileNotFoundError:
            return None
        try:
            arguments: dict[str, Any] = json.loads(head[1].rstrip(b","))["args"]
            return Session(**arguments["session"]), Origin(**arguments["origin"])
        except (IndexError, KeyError, TypeError, ValueError):
            return None  # somebody else's file, which the user has named

    def _replace(self, before: IO[bytes] | None, lines: Sequence[str]) -> None:
        unfinished = self._path.with_name(f".{self._path.name}.{os.getpid()}")
        try:
            with unfinished.open("wb") as file:
                if before is None:
                    file.write(_BEGIN)
                else:
                    _copy(before, file, os.fstat(before.fileno()).st_size - len(_END))
                    file.write(_BETWEEN)
                file.write(_BETWEEN.join(line.encode() for line in lines) + _END)
            unfinished.replace(self._path)
        except BaseException:
            unfinished.unlink(missing_ok=True)
            raise


def _copy(source: IO[bytes], target: IO[bytes], count: int) -> None:
    while count > 0:
        chunk = source.read(min(count, _CHUNK_BYTES))
        if not chunk:
            raise OSError("the timeline has been cut short")
        target.write(chunk)
        count -= len(chunk)
