"""One worker's process: started in a group of its own, watched, and ended as a group."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import IO

from farandole.errors import UsageError
from farandole.launch.lifeline import Lifeline


class WorkerProcess:
    """A started worker, the leader of its process group."""

    def __init__(
        self,
        argv: Sequence[str],
        *,
        rank: int,
        environ: Mapping[str, str],
        pass_fds: Sequence[int] = (),
        cwd: Path | None = None,
    ) -> None:
        """Start it. Call from the main thread: a worker ends with the thread that started it."""
        self.rank = rank
        self._code: int | None = None
        self._lifeline = Lifeline()
        line = self._lifeline.read_end
        try:
            self._popen = self._lifeline.start(
                argv,
                cwd=cwd,
                env={**environ, "FARANDOLE_LIFELINE_FD": str(line)},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                pass_fds=pass_fds,
                bufsize=0,
            )
        except OSError as error:
            self._lifeline.cut()
            raise UsageError(f"{argv[0]} cannot be started: {error.strerror}.") from error
        self.pid = self._popen.pid
        self.pidfd = _pidfd(self.pid)

    @property
    def pipes(self) -> dict[str, IO[bytes]]:
        """The read ends of its standard output and error."""
        assert self._popen.stdout is not None
        assert self._popen.stderr is not None
        return {"stdout": self._popen.stdout, "stderr": self._popen.stderr}

    def ended(self) -> int | None:
        """Return how the worker ended (minus the signal where one ended it), or None.

        Where the system can tell without reaping, the process stays a zombie until `close`: so
        long its number is not given to another process, and signals reach the right group.
        """
        if self._code is None:
            if not hasattr(os, "waitid"):
                self._code = self._popen.poll()
            else:
                flags = os.WEXITED | os.WNOHANG | os.WNOWAIT
                status = os.waitid(os.P_PID, self.pid, flags)
                if status is not None:
                    exited = status.si_code == os.CLD_EXITED
                    self._code = status.si_status if exited else -status.si_status
        return self._code

    def send(self, signum: int) -> None:
        """Send a signal to the whole group; nobody there any more is no error."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signum)

    def close(self) -> None:
        """End what is left of the group, and reap the worker."""
        self.send(signal.SIGKILL)
        self._lifeline.cut()
        self._popen.wait()
        for pipe in self.pipes.values():
            pipe.close()
        if self.pidfd is not None:
            os.close(self.pidfd)
            self.pidfd = None


def group_states(groups: Iterable[int], proc: Path = Path("/proc")) -> dict[int, set[str]]:
    """Read the states of all processes of these groups: {group: {"S", "T", ...}}."""
    states: dict[int, set[str]] = {group: set() for group in groups}
    try:
        entries = os.listdir(proc)  # noqa: PTH208 - every few seconds, over all processes
    except OSError:
        return states
    for entry in entries:
        if not entry.isdecimal():
            continue
        try:
            with open(f"{proc}/{entry}/stat", "rb") as file:  # noqa: PTH123
                # The name in parentheses may hold anything, parentheses too.
                fields = file.read().rpartition(b")")[2].split()
            group = int(fields[2])
        except (OSError, ValueError, IndexError):
            continue  # it has just ended
        if group in states:
            states[group].add(fields[0].decode())
    return states


def catching(groups: Iterable[int], signum: int, proc: Path = Path("/proc")) -> list[int]:
    """List the processes of these groups that have a handler of their own for a signal."""
    wanted = set(groups)
    found = []
    for folder in proc.glob("[0-9]*"):
        try:
            stat = (folder / "stat").read_bytes()
            if int(stat.rpartition(b")")[2].split()[2]) not in wanted:
                continue
            status = (folder / "status").read_text()
        except (OSError, ValueError, IndexError):
            continue  # it has just ended
        mask = int(status.partition("SigCgt:")[2].split()[0], 16)
        if mask >> (signum - 1) & 1:
            found.append(int(folder.name))
    return found


def _pidfd(pid: int) -> int | None:
    if not hasattr(os, "pidfd_open"):
        return None
    try:
        return os.pidfd_open(pid)
    except OSError:  # an old kernel, or a sandbox without it
        return None
