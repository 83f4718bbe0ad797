"""Following a job: its output as it comes, its end as an exit code, Ctrl-C as its cancellation."""

from __future__ import annotations

import contextlib
import select
import signal
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from farandole.errors import StartError
from farandole.launch.local_workers import caught_signals
from farandole.launch.slurm.client import Status, end_words, waiting_words

# A controller serves thousands of jobs: it is asked often at first, when much happens.
_OFTEN_S, _SELDOM_S, _OFTEN_FOR_S = 1.0, 5.0, 60.0
_TAIL_S = 0.2
# SLURM gives processes 30 s to end (KillWait) before it kills them.
_CANCEL_S = 60.0
# A shared file system may show the last lines later than SLURM the end.
_LAST_LINES_S = 2.0
# A controller that is restarted comes back within this time.
_AWAY_S = 300.0
_CHUNK = 1 << 20


class Cluster(Protocol):
    """What is needed of SLURM (launch.slurm.client)."""

    def look(self, job_id: str) -> Status:
        """Say how a job is."""

    def cancel(self, job_id: str) -> None:
        """End a job."""

    def warn(self, job_id: str) -> None:
        """Ask what runs in a job to stop by itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Followed:
    """How following a job ended."""

    status: Status
    signum: int | None = None
    """The signal on which the job was cancelled; None: it ended by itself."""

    @property
    def exit_code(self) -> int:
        """The job's exit code; 128 plus the signal where one ended it here."""
        return self.status.exit_code if self.signum is None else 128 + self.signum


def follow(
    cluster: Cluster,
    job_id: str,
    *,
    output: Path,
    show: Callable[[bytes], None],
    say: Callable[[str], None],
) -> Followed:
    """Stay until a job has ended.

    Args:
        cluster: Where the job is.
        job_id: Its number.
        output: Its output file, which need not be there yet.
        show: Takes what the job writes.
        say: Takes sentences on the job's way through the queue.

    Raises:
        StartError: SLURM has lost the job.
    """
    with caught_signals() as signals:
        return _Following(cluster, job_id, _Tail(output, show), say).until_ended(signals)


class _Following:
    def __init__(
        self,
        cluster: Cluster,
        job_id: str,
        tail: _Tail,
        say: Callable[[str], None],
    ) -> None:
        self._cluster, self._job_id = cluster, job_id
        self._tail, self._say = tail, say
        self._signum: int | None = None
        self._heard_at = time.monotonic()
        self._cancelled_at: float | None = None
        self._said = ""

    def until_ended(self, signals: socket.socket | None) -> Followed:
        begin = next_look = time.monotonic()
        status = Status(state="PENDING")
        while True:
            self._read()
            now = time.monotonic()
            if now >= next_look:
                status = self._look(now) or status
                self._tell(status)
                if status.ended:
                    break
                early = now - begin < _OFTEN_FOR_S or self._signum is not None
                next_look = now + (_OFTEN_S if early else _SELDOM_S)
            if self._cancelled_at is not None and now - self._cancelled_at > _CANCEL_S:
                self._say(f"job {self._job_id} does not end; see `squeue --job {self._job_id}`.")
                break
            if self._signals(signals):
                break
        with contextlib.suppress(BrokenPipeError):
            self._tail.drain(time.monotonic() + _LAST_LINES_S)
        return Followed(status=status, signum=self._signum)

    def _look(self, now: float) -> Status | None:
        """Ask SLURM; None while its controller is away, which a restart of it takes."""
        try:
            found = self._cluster.look(self._job_id)
        except StartError:
            if now - self._heard_at > _AWAY_S:
                raise
            return None
        self._heard_at = now
        return found

    def _read(self) -> None:
        try:
            self._tail.read()
        except BrokenPipeError:
            # Whoever read our output has gone (`| head`): end as a single program would.
            self._tail.mute()
            if self._signum is None:
                self._end(signal.SIGPIPE)

    def _signals(self, signals: socket.socket | None) -> bool:
        """Wait a moment for signals; say whether somebody has lost patience."""
        if signals is None:
            time.sleep(_TAIL_S)
            return False
        ready, _, _ = select.select([signals], [], [], _TAIL_S)
        for signum in signals.recv(64) if ready else b"":
            if signum == signal.SIGUSR1:
                self._say(f"passing SIGUSR1 on to job {self._job_id}.")
                self._cluster.warn(self._job_id)
                continue
            if self._signum is not None:
                return True
            self._end(signum)
        return False

    def _end(self, signum: int) -> None:
        self._signum = signum
        self._cancelled_at = time.monotonic()
        self._say(f"cancelling job {self._job_id}.")
        self._cluster.cancel(self._job_id)

    def _tell(self, status: Status) -> None:
        if status.waiting:
            words = f"job {self._job_id}: {waiting_words(status)}."
        elif not status.ended:
            words = f"job {self._job_id} runs on {status.nodes}."
        elif status.exit_code and self._signum is None:
            words = f"job {self._job_id} ended: {end_words(status)}."
        else:
            return
        if words != self._said:
            self._said = words
            self._say(words)


class _Tail:
    """Reads what is added to a file."""

    def __init__(self, path: Path, show: Callable[[bytes], None]) -> None:
        self._path, self._show = path, show
        self._place = 0

    def read(self) -> bool:
        """Show what is new; say whether there was anything."""
        found = False
        while data := self._chunk():
            self._place += len(data)
            self._show(data)
            found = True
        return found

    def mute(self) -> None:
        """Show nothing any more."""
        self._show = lambda data: None

    def _chunk(self) -> bytes:
        # A shared file system may show the file late, or let go of it for a moment.
        with contextlib.suppress(OSError), self._path.open("rb") as file:
            file.seek(self._place)
            return file.read(_CHUNK)
        return b""

    def drain(self, deadline: float) -> None:
        """Read to the end, which may come late."""
        quiet_since = time.monotonic()
        while time.monotonic() < deadline:
            if self.read():
                quiet_since = time.monotonic()
            elif self._place and time.monotonic() - quiet_since > 2 * _TAIL_S:
                return
            time.sleep(_TAIL_S / 4)
