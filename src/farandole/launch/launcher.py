"""The launcher: the shell around the supervisor that starts, reads, looks and signals."""

from __future__ import annotations

import contextlib
import os
import platform
import secrets
import selectors
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import IO

from farandole.launch.output import Show, Stream, WorkerOutput, open_files
from farandole.launch.plan import Plan
from farandole.launch.port import hold_port
from farandole.launch.process import WorkerProcess, group_states
from farandole.launch.supervisor import (
    GRACE_S,
    Event,
    Exited,
    Interrupted,
    Looked,
    Supervisor,
    Verdict,
)
from farandole.launch.variables import Job, launcher_environ, worker_environ
from farandole.world.board import Board

_CHUNK = 1 << 16
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
# How often ends are looked for where the system cannot wake us (no pidfd).
_POLL_S = 0.05
# How often workers that were told to end are looked at.
_LAST_LOOKS_S = 0.1
# How often a caller's watch is asked: often enough to end a worker before it has all the memory.
_WATCH_S = 0.1
# What leftover processes of ended workers get to write before the pipes are given up.
_DRAIN_S = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How a launch ended, with what is needed to tell."""

    verdict: Verdict
    step: int = 0
    """Steps that the failed rank had made; 0 when it did not count."""
    last_lines: tuple[str, ...] = ()
    """The end of the failed rank's error output."""


def launch(
    plan: Plan,
    *,
    environ: Mapping[str, str],
    show: Show,
    worker_fds: Callable[[int], Mapping[str, int]] | None = None,
    started: Callable[[], None] | None = None,
    watch: Callable[[Sequence[int]], bool] | None = None,
) -> Outcome:
    """Start the workers of a plan and stay until all have ended.

    Args:
        plan: What to start.
        environ: The environment to build the workers' from.
        show: Shows one tagged line.
        worker_fds: For a rank, descriptors to hand down, by the variable that tells the number.
        started: Called once all workers have been started.
        watch: Called ten times a second with the processes of the workers that run; True ends the
            launch as SIGTERM would.

    Raises:
        UsageError: Nothing was started, since something of the plan cannot be had.
        KeyboardInterrupt: Python's own, where the caller is not in the main thread or has its own
            way with signals (a notebook); all workers have ended by then.
    """
    with contextlib.ExitStack() as stack:
        held = stack.enter_context(hold_port(environ))
        files = None
        if plan.output_dir is not None:
            files = open_files(plan.output_dir, plan.num_workers)
            for opened in files:
                for file in opened.values():
                    stack.callback(file.close)
        board = stack.enter_context(Board.create(plan.num_workers))
        job = Job(
            job_id=secrets.token_hex(8),
            launcher_pid=os.getpid(),
            board_path=board.path,
            master_port=held.getsockname()[1],
            hostname=platform.node() or "localhost",
        )
        run = stack.enter_context(contextlib.closing(_Run(plan, board, show, watch)))
        signals = stack.enter_context(_caught_signals())
        for rank in range(plan.num_workers):
            fds = dict(worker_fds(rank)) if worker_fds else {}
            if rank == 0:
                fds["FARANDOLE_MASTER_FD"] = held.fileno()
            if plan.own_launcher:
                variables, fds = launcher_environ(environ, plan), {}
            else:
                variables = worker_environ(environ, plan, job, rank)
            variables |= {name: str(fd) for name, fd in fds.items()}
            run.start(rank, variables, list(fds.values()), files[rank] if files else {})
        if started is not None:
            started()
        return run.until_all_ended(signals)


class _Run:
    """The started workers of one launch."""

    def __init__(
        self,
        plan: Plan,
        board: Board,
        show: Show,
        watch: Callable[[Sequence[int]], bool] | None,
    ) -> None:
        self._watch = watch
        self._next_watch = time.monotonic()
        self._plan = plan
        self._board = board
        self._show_line = show
        self._workers: list[WorkerProcess] = []
        self._outputs: list[dict[Stream, WorkerOutput]] = []
        self._selector = selectors.DefaultSelector()
        self._supervisor = Supervisor(plan.num_workers, plan.silence_timeout_s)
        self._look_every_s = min(5.0, max(0.1, plan.silence_timeout_s / 6))
        self._next_look = time.monotonic() + self._look_every_s
        self._heard: set[int] = set()
        self._steps = [0] * plan.num_workers
        self._broken_pipe = False

    def start(
        self,
        rank: int,
        environ: Mapping[str, str],
        fds: Sequence[int],
        files: Mapping[Stream, IO[bytes]],
    ) -> None:
        outputs: dict[Stream, WorkerOutput] = {}
        shown = self._plan.shown is None or rank in self._plan.shown
        streams: tuple[Stream, Stream] = ("stdout", "stderr")
        for stream in streams:
            outputs[stream] = WorkerOutput(
                rank=rank,
                stream=stream,
                show=self._show if shown else _show_nothing,
                tag=self._plan.tag,
                file=files.get(stream),  # type: ignore[arg-type]
            )
        # Its outputs are there before it is, so that closing finds both.
        self._outputs.append(outputs)
        worker = WorkerProcess(
            self._plan.argv, rank=rank, environ=environ, pass_fds=fds, cwd=self._plan.cwd
        )
        self._workers.append(worker)
        self._board.note_pid(rank, worker.pid)
        for stream in streams:
            pipe = worker.pipes[stream]
            os.set_blocking(pipe.fileno(), False)
            self._selector.register(pipe, selectors.EVENT_READ, outputs[stream])
        if worker.pidfd is not None:
            self._selector.register(worker.pidfd, selectors.EVENT_READ, worker)

    def until_all_ended(self, signals: socket.socket | None) -> Outcome:
        """Serve the workers until none runs; then end what they left behind."""
        if signals is not None:
            self._selector.register(signals, selectors.EVENT_READ, signals)
        interrupted: KeyboardInterrupt | None = None
        while self._supervisor.running:
            try:
                self._serve(self._patience())
            except KeyboardInterrupt as error:
                # Only where SIGINT is not ours to catch: a notebook's stop button.
                interrupted = error
                self._interrupt(signal.SIGINT)
        self._end_leftovers()
        if interrupted is not None:
            raise interrupted
        return self._outcome()

    def close(self) -> None:
        """End and reap everything, whatever happened before."""
        for worker in self._workers:
            worker.close()
        for outputs in self._outputs:
            for output in outputs.values():
                output.end()
        self._selector.close()

    def _serve(self, patience_s: float) -> None:
        for key, _ in self._selector.select(patience_s):
            if isinstance(key.data, WorkerOutput):
                self._read(key.fd, key.fileobj, key.data)
            elif isinstance(key.data, WorkerProcess):
                self._selector.unregister(key.fileobj)
            elif isinstance(key.data, socket.socket):
                for signum in key.data.recv(64):
                    self._interrupt(signum)
        if self._broken_pipe:
            self._broken_pipe = False
            self._interrupt(signal.SIGPIPE)
        self._reap()
        now = time.monotonic()
        if now >= self._next_look:
            self._next_look = now + self._look_every_s
            self._look(now)
        if self._watch is not None and now >= self._next_watch and not self._supervisor.ending:
            self._next_watch = now + _WATCH_S
            running = [self._workers[rank].pid for rank in self._supervisor.running]
            if running and self._watch(running):
                self._interrupt(signal.SIGTERM)

    def _read(self, fd: int, pipe: object, output: WorkerOutput) -> None:
        try:
            data = os.read(fd, _CHUNK)
        except BlockingIOError:
            return
        if not data:
            self._selector.unregister(pipe)  # type: ignore[arg-type]
            return
        self._heard.add(output.rank)
        output.feed(data)

    def _reap(self) -> None:
        # One time for all that are found ended together: their order is not known.
        now, time_ns = time.monotonic(), time.time_ns()
        for rank in self._supervisor.running:
            code = self._workers[rank].ended()
            if code is None:
                continue
            self._board.note_exit(rank, code)
            self._handle(
                Exited(
                    rank=rank,
                    code=code,
                    now=now,
                    time_ns=time_ns,
                    failure=self._board.failure(rank),
                )
            )

    def _look(self, now: float) -> None:
        running = self._supervisor.running
        stopped: frozenset[int] = frozenset()
        if not self._supervisor.ending:
            states = group_states(self._workers[rank].pid for rank in running)
            stopped = frozenset(r for r in running if "T" in states[self._workers[r].pid])
        steps = [self._board.step(rank) for rank in range(self._plan.num_workers)]
        moved = {rank for rank in running if steps[rank] != self._steps[rank]}
        self._steps = steps
        active = frozenset(self._heard | moved)
        self._heard.clear()
        self._handle(Looked(now=now, time_ns=time.time_ns(), stopped=stopped, active=active))

    def _interrupt(self, signum: int) -> None:
        self._handle(Interrupted(signum=signum, now=time.monotonic(), time_ns=time.time_ns()))

    def _handle(self, event: Event) -> None:
        for send in self._supervisor.handle(event):
            self._workers[send.rank].send(send.signum)
        if self._supervisor.ending and self._look_every_s != _LAST_LOOKS_S:
            # From now on time matters: whoever does not go is killed.
            self._look_every_s = _LAST_LOOKS_S
            self._next_look = time.monotonic() + _LAST_LOOKS_S

    def _patience(self) -> float:
        patience = max(0.0, self._next_look - time.monotonic())
        if any(self._workers[rank].pidfd is None for rank in self._supervisor.running):
            patience = min(patience, _POLL_S)
        if self._watch is not None:
            patience = min(patience, max(0.0, self._next_watch - time.monotonic()))
        return patience

    def _end_leftovers(self) -> None:
        """End what ended workers left in their groups, and read what is still in the pipes."""
        self._drain(time.monotonic() + _DRAIN_S, until=self._pipes_closed)
        groups = [worker.pid for worker in self._workers]
        if not any(states - {"Z"} for states in group_states(groups).values()):
            return
        for worker in self._workers:
            worker.send(signal.SIGTERM)
        # A launch that failed has spent its patience on the workers already.
        grace_s = _DRAIN_S if self._supervisor.ending else GRACE_S
        self._drain(
            time.monotonic() + grace_s,
            until=lambda: not any(s - {"Z"} for s in group_states(groups).values()),
        )
        for worker in self._workers:
            worker.send(signal.SIGKILL)
        self._drain(time.monotonic() + _DRAIN_S, until=self._pipes_closed)

    def _drain(self, deadline: float, *, until: Callable[[], bool]) -> None:
        while not until() and time.monotonic() < deadline:
            with contextlib.suppress(KeyboardInterrupt):
                for key, _ in self._selector.select(0.02):
                    if isinstance(key.data, WorkerOutput):
                        self._read(key.fd, key.fileobj, key.data)
                    elif isinstance(key.data, WorkerProcess):
                        self._selector.unregister(key.fileobj)
                    elif isinstance(key.data, socket.socket):
                        key.data.recv(64)

    def _pipes_closed(self) -> bool:
        return not any(
            isinstance(key.data, WorkerOutput) for key in self._selector.get_map().values()
        )

    def _outcome(self) -> Outcome:
        verdict = self._supervisor.verdict()
        for outputs in self._outputs:
            for output in outputs.values():
                output.end()
        if verdict.rank is None:
            return Outcome(verdict=verdict)
        outputs = self._outputs[verdict.rank]
        last = outputs["stderr"].last_lines or outputs["stdout"].last_lines
        return Outcome(verdict=verdict, step=self._board.step(verdict.rank), last_lines=tuple(last))

    def _show(self, stream: Stream, line: str) -> None:
        try:
            self._show_line(stream, line)
        except BrokenPipeError:
            # Whoever read our output has gone (`| head`): end as a single program would.
            self._broken_pipe = True
            self._show_line = _show_nothing


def _show_nothing(stream: Stream, line: str) -> None:
    """Show nothing: nobody looks, or this rank is not asked for."""


@contextlib.contextmanager
def _caught_signals() -> Iterator[socket.socket | None]:
    """Let SIGINT, SIGTERM and SIGHUP arrive at a socket, one byte each.

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
