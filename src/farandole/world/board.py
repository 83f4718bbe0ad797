"""The launcher's bulletin board: one page per rank that everybody of a job may read.

It is a memfd of the launcher, which workers open as /proc/<launcher>/fd/<n>: it has no name that
could leak after `kill -9`, and needs no inherited descriptor that a wrapper script could close.
Every word has exactly one writer and is 8 bytes, aligned, so that no reader sees half of it.
"""

from __future__ import annotations

import mmap
import os
import secrets
import stat
import tempfile
import zlib
from dataclasses import dataclass
from pathlib import Path

from farandole.errors import StartError, UsageError

_MAGIC = 0x4641_5242_4F41_5244  # "FARBOARD"
_LAYOUT = 3
_HEADER_BYTES = 64
# Behind magic, layout and size: words of the whole job. The launcher writes the first, rank 0 the
# others; on hosts without rank 0 the agent does, in its place.
_STOP_ASKED, _LAST_STEP, _LAST_RECORDED, _NONCE = 3, 4, 5, 6
MAX_STARTED = 4096
"""How many workers may be started in one elastic run: each has a record of its own."""
POST_BYTES = 4096
"""The longest payload of one post."""
FAILURE_BYTES = 2048
"""The longest text of a failure note; longer ones are cut."""

# One rank's record, in words of 8 bytes. The launcher writes the first three, the worker the rest.
_PID, _EXIT, _DISMISSED = 0, 1, 2
_STEP = 8
_FAIL_LENGTH, _FAIL_TIME, _FAIL_SECONDARY, _FAIL_TEXT = 9, 10, 11, 16
_EXITING, _FAIL_CULPRIT, _LEFT, _STATE = 12, 13, 14, 15
_POST = _FAIL_TEXT + FAILURE_BYTES // 8
_POST_ROUND, _POST_LENGTH, _POST_CRC, _POST_TEXT = 0, 1, 2, 8
_POST_WORDS = _POST_TEXT + POST_BYTES // 8
_RECORD_WORDS = _POST + 2 * _POST_WORDS
# Behind the records, words on generations (elastic runs; the launcher writes them), and the
# assignments of the latest two.
_GENERATION, _BROKEN, _CHANGED_NS, _CHANGED = 0, 1, 2, 3
_ADDED, _REMOVED = 1, 2
_ASSIGNMENTS = 8
_ASSIGNMENT_BYTES = 1 << 16
_ASSIGNMENT_WORDS = 2 + _ASSIGNMENT_BYTES // 8
_GENERATION_WORDS = _ASSIGNMENTS + 2 * _ASSIGNMENT_WORDS
# Zero means "still running", so that exit statuses are shifted away from it.
_EXIT_SHIFT = 1 << 32


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """What a worker wrote about its own end."""

    time_ns: int
    """Wall-clock time of the failure, comparable between ranks of one host."""
    text: str
    """Such as `ValueError: bad loss (train.py:12)`."""
    secondary: bool
    """True when the worker failed only because another one had."""
    culprit: int | None = None
    """The rank that it waited for in vain, or that went away."""


class Board:
    """Posts, steps, failures and exit statuses of all ranks of one launch, in shared memory."""

    def __init__(self, fd: int, path: str, *, size: int | None = None, owner: bool = False) -> None:
        # The descriptor stays open in the owner only: it is what the path of the board leads to.
        self._fd: int | None = fd if owner else None
        self._owner = owner
        self.path = path
        self._map = mmap.mmap(fd, 0)
        self._bytes = memoryview(self._map)
        self._words = self._bytes.cast("q")
        if size is not None:
            self._words[1], self._words[2] = _LAYOUT, size
            self._words[_NONCE] = secrets.randbits(63)
            self._words[0] = _MAGIC
        if self._words[0] != _MAGIC or self._words[1] != _LAYOUT:
            self.close()
            raise StartError(
                f"FARANDOLE_BOARD={path} is not a board of this version of Farandole. "
                "Use one installation for the launcher and all workers."
            )
        self.size = self._words[2]

    @classmethod
    def create(cls, size: int) -> Board:
        """Make a board for `size` ranks, in the process that keeps it alive.

        Memory is taken by records that are written to, not by those that may be.
        """
        length = _HEADER_BYTES + (size * _RECORD_WORDS + _GENERATION_WORDS) * 8
        if hasattr(os, "memfd_create"):
            fd = os.memfd_create("farandole-board", os.MFD_CLOEXEC)
            path = f"/proc/{os.getpid()}/fd/{fd}"
        else:
            fd, path = tempfile.mkstemp(prefix="farandole-board-")
        try:
            os.ftruncate(fd, length)
            return cls(fd, path, size=size, owner=True)
        except BaseException:
            os.close(fd)
            raise

    @classmethod
    def open(cls, path: str) -> Board:
        """Open the board at the path that the launcher gave."""
        try:
            fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        except OSError as error:
            raise StartError(
                f"The launcher's board {path} cannot be opened ({error.strerror}): the launcher "
                "has ended, or this worker runs in another container or as another user. "
                "Start workers and launcher on one host, as one user, in one container."
            ) from error
        try:
            status = os.fstat(fd)
            if not stat.S_ISREG(status.st_mode) or status.st_size < _HEADER_BYTES:
                raise StartError(f"FARANDOLE_BOARD={path} is not a board.")
            return cls(fd, path)
        except (OSError, TypeError, ValueError) as error:  # a foreign file may not be mapped
            raise StartError(f"FARANDOLE_BOARD={path} is not a board: {error}.") from error
        finally:
            os.close(fd)

    def close(self) -> None:
        """Let go of the memory; in the process that made the board, end it."""
        if self._map.closed:
            return
        self._words.release()
        self._bytes.release()
        self._map.close()
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None
            if not self.path.startswith("/proc/"):
                Path(self.path).unlink(missing_ok=True)

    def __enter__(self) -> Board:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def nonce(self) -> int:
        """A number that tells this board from all others, also from a later one at its path."""
        return self._words[_NONCE]

    # The launcher's words

    def note_pid(self, rank: int, pid: int) -> None:
        """Write a worker's process id (launcher only)."""
        self._words[self._record(rank) + _PID] = pid

    def note_exit(self, rank: int, code: int) -> None:
        """Write how a worker ended: its exit code, or minus the signal (launcher only)."""
        self._words[self._record(rank) + _EXIT] = code + _EXIT_SHIFT

    def pid(self, rank: int) -> int | None:
        """Read a worker's process id; None when nobody noted it."""
        return self._words[self._record(rank) + _PID] or None

    def exit_code(self, rank: int) -> int | None:
        """Read how a worker ended (minus the signal where one ended it); None while it runs."""
        word = self._words[self._record(rank) + _EXIT]
        return word - _EXIT_SHIFT if word else None

    # Generations: sets of workers that train together (farandole.world.generations). The numbers
    # of records are those of processes then, counted over the run; ranks change.

    def form(self, number: int, assignment: bytes) -> None:
        """Put up who is in a generation; workers that wait for one see it (launcher only)."""
        if len(assignment) > _ASSIGNMENT_BYTES:
            raise UsageError(
                f"{len(assignment)} bytes name more workers than a board has room for."
            )
        start = self._assignment(number)
        self._words[start] = len(assignment)
        self._words[start + 1] = _checksum(assignment, number)
        place = (start + 2) * 8
        self._bytes[place : place + len(assignment)] = assignment
        self._words[self._generations + _CHANGED] = 0
        self._words[self._generations + _CHANGED_NS] = 0
        self._words[self._generations + _GENERATION] = number

    @property
    def generation(self) -> int:
        """The number of the latest generation; 0 before the first."""
        return self._words[self._generations + _GENERATION]

    def assignment(self, number: int) -> bytes | None:
        """Read who is in a generation; None when another one is there by now."""
        start = self._assignment(number)
        place, length = (start + 2) * 8, self._words[start]
        text = bytes(self._bytes[place : place + length])
        return text if _checksum(text, number) == self._words[start + 1] else None

    def break_generation(self, number: int) -> None:
        """Note that a generation has lost a worker, and cannot go on (launcher only)."""
        self._words[self._generations + _BROKEN] = number

    @property
    def broken(self) -> int:
        """The latest generation that has lost a worker; 0 for none."""
        return self._words[self._generations + _BROKEN]

    def note_change(self, time_ns: int, *, added: bool, removed: bool) -> None:
        """Note what has changed on the hosts in the latest generation (launcher only)."""
        start = self._generations
        self._words[start + _CHANGED] |= added * _ADDED | removed * _REMOVED
        self._words[start + _CHANGED_NS] = time_ns

    @property
    def change(self) -> tuple[int, bool, bool] | None:
        """The time of the latest change in this generation, whether workers were added, removed."""
        start = self._generations
        time_ns, flags = self._words[start + _CHANGED_NS], self._words[start + _CHANGED]
        return (time_ns, bool(flags & _ADDED), bool(flags & _REMOVED)) if time_ns else None

    def dismiss(self, worker: int) -> None:
        """Tell a worker that there is no place for it in any further generation (launcher only)."""
        self._words[self._record(worker) + _DISMISSED] = 1

    def dismissed(self, worker: int) -> bool:
        """Say whether a worker is not needed any more."""
        return bool(self._words[self._record(worker) + _DISMISSED])

    def leave(self, worker: int, number: int) -> None:
        """Say that this worker has left a generation, and waits for a later one; 0: its first."""
        self._words[self._record(worker) + _LEFT] = number + 1

    def left(self, worker: int) -> int | None:
        """Read which generation a worker has left last; None when it has not come yet."""
        word = self._words[self._record(worker) + _LEFT]
        return word - 1 if word else None

    def note_state(self, worker: int) -> None:
        """Say that this worker has the state of training, and can hand it on."""
        self._words[self._record(worker) + _STATE] = 1

    def has_state(self, worker: int) -> bool:
        """Say whether a worker has the state of training: it said so, or has made a step."""
        start = self._record(worker)
        return bool(self._words[start + _STATE] or self._words[start + _STEP])

    # Words of the whole job

    def ask_stop(self) -> None:
        """Ask the workers to stop at a step that they agree on (launcher only)."""
        self._words[_STOP_ASKED] = 1

    @property
    def stop_asked(self) -> bool:
        """Say whether the workers are to stop at a common step."""
        return bool(self._words[_STOP_ASKED])

    @property
    def last_step(self) -> int:
        """The step of training at which all workers stop; 0 while there is none."""
        return self._words[_LAST_STEP]

    @last_step.setter
    def last_step(self, step: int) -> None:
        self._words[_LAST_STEP] = step

    @property
    def last_recorded(self) -> int:
        """The step after which a study has seen enough, as recorders count; 0 before that."""
        return self._words[_LAST_RECORDED]

    @last_recorded.setter
    def last_recorded(self, step: int) -> None:
        self._words[_LAST_RECORDED] = step

    def check(self) -> None:
        """Miss nobody: a job that is not elastic has one set of workers (GenerationBoard.check)."""

    # Each worker's own words

    def post(self, rank: int, round: int, payload: bytes) -> None:
        """Put up this rank's payload of a round, in place of its payload of two rounds before.

        A round is a barrier: who posts round k + 2 has seen everybody's post of round k + 1, and
        everybody had read round k before posting that.
        """
        if len(payload) > POST_BYTES:
            raise UsageError(f"A post of {len(payload)} bytes is longer than {POST_BYTES}.")
        start = self._post(rank, round)
        words = self._words
        # Unpublish first, so that a reader who looks in between finds nothing.
        words[start + _POST_ROUND] = 0
        text = (start + _POST_TEXT) * 8
        self._bytes[text : text + len(payload)] = payload
        words[start + _POST_LENGTH] = len(payload)
        words[start + _POST_CRC] = _checksum(payload, round)
        words[start + _POST_ROUND] = round + 1

    def posted(self, rank: int, round: int) -> bytes | None:
        """Read a rank's payload of a round; None when it has not been posted."""
        start = self._post(rank, round)
        words = self._words
        if words[start + _POST_ROUND] != round + 1:
            return None
        length = words[start + _POST_LENGTH]
        text = (start + _POST_TEXT) * 8
        payload = bytes(self._bytes[text : text + length])
        # Not every processor shows stores in the order in which they were made: a payload that
        # has not arrived whole counts as not posted, and the reader looks again.
        return payload if _checksum(payload, round) == words[start + _POST_CRC] else None

    def rounds(self, rank: int) -> int:
        """Count the rounds that a rank has posted; the number of its next one."""
        return max(self._words[self._post(rank, round) + _POST_ROUND] for round in (0, 1))

    def note_failure(
        self,
        rank: int,
        text: str,
        *,
        time_ns: int,
        secondary: bool = False,
        culprit: int | None = None,
    ) -> None:
        """Write why this worker is about to end. The first note stays."""
        start = self._record(rank)
        if self._words[start + _FAIL_LENGTH]:
            return
        payload = text.encode(errors="replace")[:FAILURE_BYTES]
        place = (start + _FAIL_TEXT) * 8
        self._bytes[place : place + len(payload)] = payload
        self._words[start + _FAIL_TIME] = time_ns
        self._words[start + _FAIL_SECONDARY] = int(secondary)
        self._words[start + _FAIL_CULPRIT] = 0 if culprit is None else culprit + 1
        self._words[start + _FAIL_LENGTH] = len(payload)

    def failure(self, rank: int) -> Failure | None:
        """Read a worker's failure note; None when it left none."""
        start = self._record(rank)
        length = self._words[start + _FAIL_LENGTH]
        if not length:
            return None
        place = (start + _FAIL_TEXT) * 8
        culprit = self._words[start + _FAIL_CULPRIT] - 1
        return Failure(
            time_ns=self._words[start + _FAIL_TIME],
            # A long text may be cut inside a letter.
            text=bytes(self._bytes[place : place + length]).decode(errors="ignore"),
            secondary=bool(self._words[start + _FAIL_SECONDARY]),
            culprit=culprit if culprit >= 0 else None,
        )

    def note_step(self, rank: int, step: int) -> None:
        """Write how many steps this worker has made."""
        self._words[self._record(rank) + _STEP] = step

    def step(self, rank: int) -> int:
        """Read how many steps a worker has made; 0 when it does not count."""
        return self._words[self._record(rank) + _STEP]

    def exiting_at(self, rank: int) -> int:
        """Return where a worker writes a byte when its exit handlers begin.

        At its end a worker is not to import this module for that (launch.startup).
        """
        return (self._record(rank) + _EXITING) * 8

    def exiting(self, rank: int) -> bool:
        """Say whether a worker's script has ended, and Python runs its exit handlers."""
        return bool(self._words[self._record(rank) + _EXITING])

    def _record(self, rank: int) -> int:
        if not 0 <= rank < self.size:
            raise UsageError(f"Rank {rank} has no place on a board of {self.size} ranks.")
        return _HEADER_BYTES // 8 + rank * _RECORD_WORDS

    @property
    def _generations(self) -> int:
        return _HEADER_BYTES // 8 + self.size * _RECORD_WORDS

    def _assignment(self, number: int) -> int:
        return self._generations + _ASSIGNMENTS + (number % 2) * _ASSIGNMENT_WORDS

    def _post(self, rank: int, round: int) -> int:
        return self._record(rank) + _POST + (round % 2) * _POST_WORDS


def _checksum(payload: bytes, round: int) -> int:
    """Return the checksum of a post; the round is part of it, so that an older one never passes."""
    return zlib.crc32(payload, round + 1)
