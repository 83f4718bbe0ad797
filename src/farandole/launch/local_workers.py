"""The workers: the workers of this host, started, read, looked at, signalled and ended."""

from __future__ import annotations

import contextlib
import functools
import os
import secrets
import selectors
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, NamedTuple

from farandole.errors import UsageError
from farandole.launch.lifeline import Lifeline
from farandole.launch.output import Feed, Stream
from farandole.launch.supervisor import GRACE_S, Exited, Look
from farandole.launch.warm import WarmChild, WarmServer
from farandole.world.board import Board
from farandole.world.descriptors import reserve_descriptors

_CHUNK = 1 << 16
# How often ends are looked for where the system cannot wake us (no pidfd).
_POLL_S = 0.05
# What leftover processes of ended workers get to write before the pipes are given up.
_DRAIN_S = 0.5
# Both ends of two pipes for output and of its life line, one that tells of its end.
_DESCRIPTORS = 8
_STREAMS: tuple[Stream, Stream] = ("stdout", "stderr")


class LocalWorkers:
    """The workers that this process has started (a WorkerGroup, see launch.supervisor)."""

    def __init__(
        self,
        board: Board,
        selector: selectors.BaseSelector,
        feed: Feed,
        *,
        own_process: bool = False,
        warm: WarmServer | None = None,
    ) -> None:
        """Begin without workers.

        Args:
            board: Where process numbers and ends are noted, and failures are found.
            selector: Whoever waits on it calls the data of what is ready, without arguments.
            feed: Takes what workers write.
            own_process: Whether this process does nothing but launch, so that it may become the
                parent of what workers leave behind.
            warm: What to fork the workers from.
        """
        self._orphans = Orphans(adopt=own_process, warm=warm)
        self._warm = warm
        self._board = board
        self._selector = selector
        self._feed = feed
        self._workers: dict[int, WorkerProcess] = {}
        self._running: list[int] = []
        self._ended: list[int] = []
        """Those to let go of when their output has been read."""
        self._pipes: dict[IO[bytes], Callable[[], None]] = {}
        self._paused = False

    def start(
        self,
        rank: int,
        argv: Sequence[str],
        *,
        environ: Mapping[str, str],
        fds: Sequence[int] = (),
        cwd: Path | None = None,
    ) -> None:
        """Start a worker.

        Raises:
            UsageError: It cannot be started.
        """
        if lack := reserve_descriptors(_DESCRIPTORS):
            raise UsageError(f"rank {rank} cannot be started: its launcher is {lack}")
        environ = {
            **environ,
            MARK: self._orphans.mark,
            "FARANDOLE_EXITING_AT": str(self._board.exiting_at(rank)),
        }
        worker = WorkerProcess(
            argv, rank=rank, environ=environ, pass_fds=fds, cwd=cwd, warm=self._warm
        )
        self._workers[rank] = worker
        self._running.append(rank)
        self._board.note_pid(rank, worker.pid)
        for stream in _STREAMS:
            pipe = worker.pipes[stream]
            os.set_blocking(pipe.fileno(), False)
            self._pipes[pipe] = functools.partial(self._read, pipe, rank, stream)
            if not self._paused:
                self._selector.register(pipe, selectors.EVENT_READ, self._pipes[pipe])
        if worker.exit_fd is not None:
            wake = functools.partial(self._selector.unregister, worker.exit_fd)
            self._selector.register(worker.exit_fd, selectors.EVENT_READ, wake)

    def let_go(self, rank: int) -> None:
        """End what a worker has left behind, and forget it: others may take its place."""
        self._workers[rank].send(signal.SIGKILL)
        self._ended.append(rank)

    def _forget_ended(self) -> None:
        for rank in list(self._ended):
            worker = self._workers[rank]
            if any(pipe in self._pipes for pipe in worker.pipes.values()):
                continue  # there is more to read, or somebody else still holds it
            self._ended.remove(rank)
            if worker.exit_fd is not None:
                with contextlib.suppress(KeyError):
                    self._selector.unregister(worker.exit_fd)
            worker.close()
            del self._workers[rank]

    def pause(self, paused: bool) -> None:
        """Leave output in the workers' pipes for a while, or read it again."""
        if paused == self._paused:
            return
        self._paused = paused
        for pipe, read in self._pipes.items():
            if paused:
                self._selector.unregister(pipe)
            else:
                self._selector.register(pipe, selectors.EVENT_READ, read)

    def patience_s(self) -> float:
        """Say how long nobody needs to look whether a worker has ended."""
        blind = any(self._workers[rank].exit_fd is None for rank in self._running)
        return _POLL_S if blind else float("inf")

    def exits(self) -> list[Exited]:
        """Return the workers that have ended since the last call."""
        if self._ended:
            self._forget_ended()
        # One time for all that are found ended together: their order is not known.
        now, time_ns = time.monotonic(), time.time_ns()
        found = []
        for rank in list(self._running):
            code = self._workers[rank].ended()
            if code is None:
                continue
            self._running.remove(rank)
            self._board.note_exit(rank, code)
            failure = self._board.failure(rank)
            found.append(Exited(rank=rank, code=code, now=now, time_ns=time_ns, failure=failure))
        return found

    def look(self, *, at_states: bool) -> Look:
        """Look at the workers that run."""
        stopped: frozenset[int] = frozenset()
        if at_states:
            states = group_states(self._workers[rank].pid for rank in self._running)
            stopped = frozenset(r for r in self._running if "T" in states[self._workers[r].pid])
            self._orphans.reap(self._pids())
        return Look(
            stopped=stopped,
            exiting=frozenset(rank for rank in self._running if self._board.exiting(rank)),
            steps={rank: self.step(rank) for rank in self._running},
        )

    def step(self, rank: int) -> int:
        """Return how many steps a worker has made."""
        return self._board.step(rank)

    def pids(self, ranks: Sequence[int]) -> list[int]:
        """Return the processes of workers."""
        return [self._workers[rank].pid for rank in ranks]

    def send(self, rank: int, signum: int) -> None:
        """Send a signal to a worker's process group."""
        if rank in self._workers:
            self._workers[rank].send(signum)

    def ask_stop(self) -> None:
        """Ask the workers to stop by themselves, at a step that they agree on."""
        self._board.ask_stop()
        # Scripts that know the signal themselves get it; others it would end.
        groups = [self._workers[rank].pid for rank in self._running]
        for pid in catching(groups, signal.SIGUSR1):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGUSR1)

    def end_leftovers(self, *, patient: bool) -> None:
        """End what ended workers left behind, and read what is still in the pipes."""
        self.pause(False)
        self._drain(time.monotonic() + _DRAIN_S, until=self._pipes_closed)
        if not self._left() and not self._orphans.find(self._pids()):
            return
        for signum, grace_s in (
            (signal.SIGTERM, GRACE_S if patient else _DRAIN_S),
            (signal.SIGKILL, _DRAIN_S),
        ):
            for worker in self._workers.values():
                worker.send(signum)
            self._drain(
                time.monotonic() + grace_s,
                until=functools.partial(self._told_all_are_gone, signum),
            )
        self._drain(time.monotonic() + _DRAIN_S, until=self._pipes_closed)

    def close(self) -> None:
        """End and reap everything, whatever happened before."""
        for worker in self._workers.values():
            worker.close()
        self._orphans.close()

    def _pids(self) -> list[int]:
        return [worker.pid for worker in self._workers.values()]

    def _told_all_are_gone(self, signum: int) -> bool:
        return not self._orphans.send(signum, self._pids()) and not self._left()

    def _left(self) -> bool:
        """Say whether anything runs in the groups of the workers."""
        return any(states - {"Z"} for states in group_states(self._pids()).values())

    def _read(self, pipe: IO[bytes], rank: int, stream: Stream) -> None:
        try:
            data = os.read(pipe.fileno(), _CHUNK)
        except BlockingIOError:
            return
        if data:
            self._feed(rank, stream, data)
        else:
            self._selector.unregister(pipe)
            del self._pipes[pipe]

    def _drain(self, deadline: float, *, until: Callable[[], bool]) -> None:
        while not until() and time.monotonic() < deadline:
            with contextlib.suppress(KeyboardInterrupt):
                for key, _ in self._selector.select(0.02):
                    key.data()

    def _pipes_closed(self) -> bool:
        return not self._pipes


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
        warm: WarmServer | None = None,
    ) -> None:
        """Start it. Call from the main thread: a worker ends with the thread that started it."""
        self.rank = rank
        self._code: int | None = None
        self._lifeline = Lifeline()
        environ = {**environ, "FARANDOLE_LIFELINE_FD": str(self._lifeline.read_end)}
        self._process: subprocess.Popen[bytes] | WarmChild
        try:
            if warm is not None:
                self._process = warm.fork(
                    argv, environ=environ, lifeline=self._lifeline, pass_fds=pass_fds, cwd=cwd
                )
            else:
                self._process = self._lifeline.start(
                    argv,
                    cwd=cwd,
                    env=environ,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    pass_fds=pass_fds,
                    bufsize=0,
                )
        except OSError as error:
            self._lifeline.cut()
            raise UsageError(f"{argv[0]} cannot be started: {error.strerror or error}.") from error
        self.pid = self._process.pid
        self._pidfd = None if warm is not None else _pidfd(self.pid)

    @property
    def pipes(self) -> dict[str, IO[bytes]]:
        """The read ends of its standard output and error."""
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        return {"stdout": self._process.stdout, "stderr": self._process.stderr}

    @property
    def exit_fd(self) -> int | None:
        """The descriptor that becomes readable at its end; None where the system has none."""
        return self._process.fileno() if isinstance(self._process, WarmChild) else self._pidfd

    def ended(self) -> int | None:
        """Return how the worker ended (minus the signal where one ended it), or None.

        Where the system can tell without reaping, the process stays a zombie until `close`: so
        long its number is not given to another process, and signals reach the right group.
        """
        if self._code is None:
            if isinstance(self._process, WarmChild) or not hasattr(os, "waitid"):
                self._code = self._process.poll()
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
        self._process.wait()
        for pipe in self.pipes.values():
            pipe.close()
        if self._pidfd is not None:
            os.close(self._pidfd)
            self._pidfd = None


class Orphans:
    """What workers have started outside of their groups, in sessions of its own.

    A process that does nothing but launch (`adopt`) asks the kernel for the orphans of its workers
    (PR_SET_CHILD_SUBREAPER): all of its children that are not workers are then of this launch. In
    a notebook, or where there were children before, nobody can say whose a child is. There only
    those count that have this launch's mark in their environment, and init reaps them.
    """

    def __init__(self, *, adopt: bool, warm: WarmServer | None = None) -> None:
        # What a forked process has in its environment is what its parent was started with.
        self.mark = secrets.token_hex(8) if warm is None else warm.mark
        self._server = None if warm is None else warm.pid
        linux = sys.platform == "linux"
        self._adopts = adopt and linux and not _have_children() and _adopt_orphans(True)
        self._told: set[tuple[int, int]] = set()

    def find(self, workers: Collection[int]) -> list[int]:
        """Return those that run; reap those that have ended."""
        if not self._adopts:
            return [
                pid
                for pid, stat in _stats().items()
                if stat.group not in (*workers, self._server) and self._marked(pid)
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


def catching(groups: Iterable[int], signum: int) -> list[int]:
    """List the processes of these groups that have a handler of their own for a signal."""
    wanted = set(groups)
    found = []
    for pid in [pid for pid, stat in _stats().items() if stat.group in wanted]:
        try:
            status = Path(f"/proc/{pid}/status").read_text()
            mask = int(status.partition("SigCgt:")[2].split()[0], 16)
        except (OSError, IndexError):
            continue  # it has just ended
        if mask >> (signum - 1) & 1:
            found.append(pid)
    return found


def _pidfd(pid: int) -> int | None:
    if not hasattr(os, "pidfd_open"):
        return None
    try:
        return os.pidfd_open(pid)
    except OSError:  # an old kernel, or a sandbox without it
        return None


def hold_port(environ: Mapping[str, str], address: str = "127.0.0.1") -> socket.socket:
    """Bind a port of an address and keep it, so that no other launch can be given the same.

    The user's MASTER_PORT is taken when it is set. The socket does not listen: rank 0 inherits it
    and lets torch listen on it, and a program that binds MASTER_PORT by itself still can.

    Raises:
        UsageError: MASTER_PORT is no port, or another program has it.
    """
    text = environ.get("MASTER_PORT", "").strip()
    if "TORCHELASTIC_RUN_ID" in environ:
        # A launch inside a worker: the port is the outer launch's, not the user's wish.
        text = ""
    if text and not (text.isdecimal() and int(text) < 65536):
        raise UsageError(f"MASTER_PORT={text} is not a port. Unset it to have a free one found.")
    port = int(text or 0)
    held = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        if port:
            # A port that was used a minute ago may be taken again.
            held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        held.bind((address, port))
    except OSError as error:
        held.close()
        raise UsageError(
            f"MASTER_PORT={text} is set, but port {port} cannot be used ({error.strerror}). "
            "Unset MASTER_PORT to have a free one found."
        ) from error
    # Only after binding: the kernel then gave a port that nobody had, and lets a program which
    # asks for this very port have it beside us.
    held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    return held


# SIGUSR1 is a scheduler's warning before the time is over: a wish to stop, not an end.
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1)


@contextlib.contextmanager
def caught_signals() -> Iterator[socket.socket | None]:
    """Let SIGINT, SIGTERM, SIGHUP and SIGUSR1 arrive at a socket, one byte each.

    Where they cannot be caught (not in the main thread) or somebody else catches them (a
    notebook has its own SIGINT handler), nothing is changed and there is no socket.
    """
    foreign = signal.getsignal(signal.SIGINT) not in (
        signal.default_int_handler,
        signal.SIG_DFL,
        signal.SIG_IGN,
    )
    if threading.current_thread() is not threading.main_thread() or foreign:
        yield None
        return
    receiver, sender = socket.socketpair()
    with receiver, sender:
        receiver.setblocking(False)
        sender.setblocking(False)
        before_fd = signal.set_wakeup_fd(sender.fileno(), warn_on_full_buffer=False)
        before = {}
        for signum in _SIGNALS:
            # `nohup farandole run` ignores SIGHUP on purpose.
            if signal.getsignal(signum) is not signal.SIG_IGN or signum == signal.SIGINT:
                before[signum] = signal.signal(signum, lambda *_: None)
        try:
            yield receiver
        finally:
            for signum, handler in before.items():
                signal.signal(signum, handler)
            signal.set_wakeup_fd(before_fd)
