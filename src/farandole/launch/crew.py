"""The crew: the workers of this host, started, read, looked at, signalled and ended."""

from __future__ import annotations

import contextlib
import functools
import os
import selectors
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO

from farandole.errors import UsageError
from farandole.launch.output import Feed, Stream
from farandole.launch.process import MARK, Orphans, WorkerProcess, catching, group_states
from farandole.launch.supervision import Look
from farandole.launch.supervisor import GRACE_S, Exited
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


class Crew:
    """The workers that this process has started (a Troupe, see launch.supervision)."""

    def __init__(
        self,
        board: Board,
        selector: selectors.BaseSelector,
        feed: Feed,
        *,
        own_process: bool = False,
    ) -> None:
        """Begin without workers.

        Args:
            board: Where process numbers and ends are noted, and failures are found.
            selector: Whoever waits on it calls the data of what is ready, without arguments.
            feed: Takes what workers write.
            own_process: Whether this process does nothing but launch, so that it may become the
                parent of what workers leave behind.
        """
        self._orphans = Orphans(adopt=own_process)
        self._board = board
        self._selector = selector
        self._feed = feed
        self._workers: dict[int, WorkerProcess] = {}
        self._running: list[int] = []
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
        worker = WorkerProcess(argv, rank=rank, environ=environ, pass_fds=fds, cwd=cwd)
        self._workers[rank] = worker
        self._running.append(rank)
        self._board.note_pid(rank, worker.pid)
        for stream in _STREAMS:
            pipe = worker.pipes[stream]
            os.set_blocking(pipe.fileno(), False)
            self._pipes[pipe] = functools.partial(self._read, pipe, rank, stream)
            if not self._paused:
                self._selector.register(pipe, selectors.EVENT_READ, self._pipes[pipe])
        if worker.pidfd is not None:
            wake = functools.partial(self._selector.unregister, worker.pidfd)
            self._selector.register(worker.pidfd, selectors.EVENT_READ, wake)

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
        blind = any(self._workers[rank].pidfd is None for rank in self._running)
        return _POLL_S if blind else float("inf")

    def exits(self) -> list[Exited]:
        """Return the workers that have ended since the last call."""
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
