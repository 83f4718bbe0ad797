"""One worker's process: started in a group of its own, watched, and ended as a group."""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import IO, NamedTuple

from farandole.errors import UsageError
from farandole.launch.lifeline import Lifeline

MARK = "FARANDOLE_LAUNCH"
"""The variable that tells a launch's processes from all others."""

# What a process gets to vanish once it was killed.
_KILLED_S = 1.0


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


class Orphans:
    """What workers have started outside of their groups, in sessions of its own.

    A process that does nothing but launch (`adopt`) asks the kernel for the orphans of its workers
    (PR_SET_CHILD_SUBREAPER): all of its children that are not workers are then of this launch. In
    a notebook, or where there were children before, nobody can say whose a child is. There only
    those count that have this launch's mark in their environment, and init reaps them.
    """

    def __init__(self, *, adopt: bool) -> None:
        self.mark = secrets.token_hex(8)
        linux = sys.platform == "linux"
        self._adopts = adopt and linux and not _have_children() and _adopt_orphans(True)
        self._told: set[tuple[int, int]] = set()

    def find(self, workers: Collection[int]) -> list[int]:
        """Return those that run; reap those that have ended."""
        if not self._adopts:
            return [
                pid
                for pid, stat in _stats().items()
                if stat.group not in workers and self._marked(pid)
            ]
        found = []
        for pid, stat in _stats().items():
            if stat.parent != os.getpid() or pid in workers:
                continue
            with contextlib.suppress(ChildProcessError):
                # What is in a worker's group gets its signals with the group.
                if os.waitpid(pid, os.WNOHANG) == (0, 0) and stat.group not in workers:
                    found.append(pid)
        return found

    def reap(self, workers: Collection[int]) -> None:
        """Reap those that have ended."""
        if self._adopts:
            self.find(workers)

    def send(self, signum: int, workers: Collection[int]) -> bool:
        """Send a signal once to each of those that run; return whether there are any.

        What they have started themselves becomes an orphan by their end, and is found then.
        """
        found = self.find(workers)
        for pid in found:
            if (pid, signum) not in self._told:
                self._told.add((pid, signum))
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signum)
        return bool(found)

    def close(self) -> None:
        """End and reap all that are left; call it when the workers are reaped."""
        deadline = time.monotonic() + _KILLED_S
        while not (self._adopts and not _have_children()) and self.send(signal.SIGKILL, ()):
            if time.monotonic() > deadline:
                break  # in the kernel, waiting for a file system perhaps
            time.sleep(0.005)
        if self._adopts:
            self._adopts = not _adopt_orphans(False)

    def _marked(self, pid: int) -> bool:
        try:
            with open(f"/proc/{pid}/environ", "rb") as file:  # noqa: PTH123
                return f"{MARK}={self.mark}".encode() in file.read().split(b"\0")
        except OSError:
            return False  # of another user, or it has just ended


def _have_children() -> bool:
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


def _adopt_orphans(wanted: bool) -> bool:
    """Become the parent of orphaned descendants, or no longer; return whether that was done."""
    import ctypes

    prctl_set_child_subreaper = 36
    return bool(ctypes.CDLL(None).prctl(prctl_set_child_subreaper, int(wanted), 0, 0, 0) == 0)


class _Stat(NamedTuple):
    state: str
    parent: int
    group: int


def _stats(proc: Path = Path("/proc")) -> dict[int, _Stat]:
    """Read state, parent and group of all processes."""
    found = {}
    try:
        entries = os.listdir(proc)  # noqa: PTH208 - every few seconds, over all processes
    except OSError:
        return {}
    for entry in entries:
        if not entry.isdecimal():
            continue
        try:
            with open(f"{proc}/{entry}/stat", "rb") as file:  # noqa: PTH123
                # The name in parentheses may hold anything, parentheses too.
                fields = file.read().rpartition(b")")[2].split()
            found[int(entry)] = _Stat(fields[0].decode(), int(fields[1]), int(fields[2]))
        except (OSError, ValueError, IndexError):
            continue  # it has just ended
    return found


def group_states(groups: Iterable[int], proc: Path = Path("/proc")) -> dict[int, set[str]]:
    """Read the states of all processes of these groups: {group: {"S", "T", ...}}."""
    states: dict[int, set[str]] = {group: set() for group in groups}
    for stat in _stats(proc).values():
        if stat.group in states:
            states[stat.group].add(stat.state)
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
