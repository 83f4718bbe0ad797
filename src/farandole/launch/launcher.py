"""The launcher: starts the workers of a plan on this host, and stays until all have ended."""

from __future__ import annotations

import contextlib
import os
import platform
import secrets
import selectors
import signal
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from farandole.launch.local_workers import LocalWorkers, caught_signals, hold_port
from farandole.launch.output import OutputFiles, Outputs, Show
from farandole.launch.placement import numbered
from farandole.launch.plan import Plan
from farandole.launch.restarts import JobStates, job_states, with_restarts
from farandole.launch.supervisor import (
    Event,
    Interrupted,
    Looked,
    Send,
    Supervisor,
    Verdict,
    WorkerGroup,
)
from farandole.launch.variables import Job, launcher_environ, worker_environ
from farandole.launch.warm import WarmServer
from farandole.world.board import MAX_STARTED, Board

if TYPE_CHECKING:
    # Imported on use: most runs are not elastic.
    from farandole.launch.elastic import ElasticRun
    from farandole.launch.membership import Start

# The shell around the supervisor: waits for workers, tells it what happened, does what it says.

# How often workers that were told to end are looked at.
_LAST_LOOKS_S = 0.1
# How often a caller's watch is asked: often enough to end a worker before it has all the memory.
_WATCH_S = 0.1

Watch = Callable[[Sequence[int]], bool]
"""Gets the processes of the workers that run here; True ends the launch as SIGTERM would."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How a launch ended, with what is needed to tell."""

    verdict: Verdict
    step: int = 0
    """Steps that the failed rank had made; 0 when it did not count."""
    last_lines: tuple[str, ...] = ()
    """The end of the failed rank's error output."""
    asked_to_stop: bool = False
    """Whether the workers were asked to stop by themselves."""
    told_by: int | None = None
    """The worker that can tell of it: by its rank, or by its number in an elastic run."""
    workers: tuple[int, ...] = ()
    """In an elastic run the workers of the last generation, by rank."""
    failures: tuple[str, ...] = ()
    """How each round before the last one failed (--max-restarts)."""
    warm: bool = False
    """Whether the workers were forked from a process that had their imports."""


def look_every_s(timeout_s: float) -> float:
    """Say how often workers are looked at, to find in time those that are stopped or hang."""
    return min(5.0, max(0.1, timeout_s / 6))


class Supervision:
    """One launch under way."""

    def __init__(
        self,
        workers: WorkerGroup,
        outputs: Outputs,
        selector: selectors.BaseSelector,
        *,
        size: int,
        silence_timeout_s: float,
        exit_timeout_s: float,
        watch: Watch | None = None,
        clean_stop: bool = True,
        elastic: ElasticRun | None = None,
    ) -> None:
        self._elastic = elastic
        self._clean_stop = clean_stop
        self._asked_to_stop = False
        self._workers = workers
        self._outputs = outputs
        self._selector = selector
        self._watch = watch
        self._next_watch = time.monotonic()
        self._supervisor = Supervisor(
            size,
            silence_timeout_s,
            exit_timeout_s,
            membership=None if elastic is None else elastic.membership,
        )
        self._look_every_s = look_every_s(min(silence_timeout_s, exit_timeout_s))
        self._next_look = time.monotonic() + self._look_every_s
        self._steps: dict[int, int] = {}

    def until_all_ended(self, signals: socket.socket | None) -> Outcome:
        """Serve the workers until none runs; then end what they left behind."""
        if signals is not None:
            self._selector.register(
                signals, selectors.EVENT_READ, lambda: self._take_signals(signals)
            )
        interrupted: KeyboardInterrupt | None = None
        while self._supervisor.active:
            try:
                self._serve()
            except KeyboardInterrupt as error:
                # Only where SIGINT is not ours to catch: a notebook's stop button.
                interrupted = error
                self._interrupt(signal.SIGINT)
        if signals is not None:
            # All have ended: there is nothing left to interrupt.
            self._selector.unregister(signals)
        # A launch that failed has spent its patience on the workers already.
        self._workers.end_leftovers(patient=not self._supervisor.ending)
        if interrupted is not None:
            raise interrupted
        return self._outcome()

    def _serve(self) -> None:
        for key, _ in self._selector.select(self._patience()):
            key.data()
        if self._outputs.broken_pipe:
            self._outputs.broken_pipe = False
            self._interrupt(signal.SIGPIPE)
        exits = self._workers.exits()
        if exits and self._elastic is not None:
            # What those that still run have done before counts.
            self._handle(self._elastic.waited())
        for exited in exits:
            if self._elastic is not None:
                self._elastic.ended(exited.rank)
                self._workers.let_go(exited.rank)
            self._handle(exited)
        if self._elastic is not None:
            self._handle(self._elastic.waited())
        now = time.monotonic()
        if now >= self._next_look:
            self._next_look = now + self._look_every_s
            self._look(now)
        if self._watch is not None and now >= self._next_watch and not self._supervisor.ending:
            self._next_watch = now + _WATCH_S
            running = self._supervisor.running
            if running and self._watch(self._workers.pids(running)):
                self._interrupt(signal.SIGTERM)

    def _look(self, now: float) -> None:
        found = self._workers.look(at_states=not self._supervisor.ending)
        moved = {rank for rank, step in found.steps.items() if step != self._steps.get(rank, 0)}
        self._steps.update(found.steps)
        active = frozenset(self._outputs.heard | moved)
        self._outputs.heard.clear()
        self._handle(
            Looked(
                now=now,
                time_ns=time.time_ns(),
                stopped=found.stopped,
                exiting=found.exiting,
                active=active,
            )
        )

    def _take_signals(self, signals: socket.socket) -> None:
        for signum in signals.recv(64):
            if signum == signal.SIGUSR1 and self._clean_stop:
                self._asked_to_stop = True
                self._workers.ask_stop()
            else:
                self._interrupt(signum)

    def _interrupt(self, signum: int) -> None:
        self._handle(Interrupted(signum=signum, now=time.monotonic(), time_ns=time.time_ns()))

    def _handle(self, event: Event) -> None:
        borne = len(self._supervisor.borne)
        for instruction in self._supervisor.handle(event):
            if isinstance(instruction, Send):
                self._workers.send(instruction.rank, instruction.signum)
            elif self._elastic is not None and (formed := self._elastic.do(instruction)):
                for rank, worker in enumerate(formed.workers):
                    self._outputs.rename(worker, rank)
        if self._elastic is not None:
            for end in self._supervisor.borne[borne:]:
                self._elastic.say_lost(end)
        if self._supervisor.ending and self._look_every_s != _LAST_LOOKS_S:
            # From now on time matters: whoever does not go is killed.
            self._look_every_s = _LAST_LOOKS_S
            self._next_look = time.monotonic() + _LAST_LOOKS_S

    def _patience(self) -> float:
        now = time.monotonic()
        patience = min(self._next_look - now, self._workers.patience_s())
        if self._watch is not None:
            patience = min(patience, self._next_watch - now)
        if self._elastic is not None:
            patience = min(patience, self._elastic.patience_s())
        return max(0.0, patience)

    def _outcome(self) -> Outcome:
        verdict = self._supervisor.verdict()
        self._outputs.end()
        if self._outputs.error is not None:
            raise self._outputs.error
        worker, witness = verdict.rank, verdict.witness
        outcome = Outcome(verdict=verdict, asked_to_stop=self._asked_to_stop)
        if self._elastic is not None:
            outcome = replace(
                outcome,
                verdict=self._elastic.by_rank(verdict),
                workers=self._elastic.membership.members,
            )
        if worker is None:
            return outcome
        return replace(
            outcome,
            step=self._workers.step(worker),
            last_lines=self._outputs.last_lines(worker),
            told_by=worker if witness is None else witness,
        )


__all__ = ["Outcome", "launch", "opened_outputs"]


def launch(
    plan: Plan,
    *,
    environ: Mapping[str, str],
    show: Show,
    worker_fds: Callable[[int], Mapping[str, int]] | None = None,
    started: Callable[[], None] | None = None,
    watch: Watch | None = None,
    own_process: bool = False,
    warm: WarmServer | None = None,
) -> Outcome:
    """Start the workers of a plan and stay until all have ended.

    Args:
        plan: What to start.
        environ: The environment to build the workers' from.
        show: Shows one tagged line.
        worker_fds: Descriptors to hand down, by the variable that tells the number; gets a rank,
            in an elastic run the number of a worker.
        started: Called once all workers have been started.
        watch: Called ten times a second with the processes of the workers that run; True ends the
            launch as SIGTERM would.
        own_process: Whether this process does nothing but this launch (see LocalWorkers).
        warm: What to fork the workers from, where they do not start from nothing.

    Raises:
        UsageError: Nothing was started, since something of the plan cannot be had.
        KeyboardInterrupt: Python's own, where the caller is not in the main thread or has its own
            way with signals (a notebook); all workers have ended by then.
    """
    with job_states(plan) as kept:

        def one_round(plan: Plan) -> Outcome:
            return _one_round(
                plan,
                environ=environ,
                show=show,
                worker_fds=worker_fds,
                started=None if plan.restart else started,
                watch=watch,
                own_process=own_process,
                warm=warm,
                kept=kept,
            )

        return with_restarts(plan, one_round, show=show)


def _one_round(
    plan: Plan,
    *,
    environ: Mapping[str, str],
    show: Show,
    worker_fds: Callable[[int], Mapping[str, int]] | None,
    started: Callable[[], None] | None,
    watch: Watch | None,
    own_process: bool,
    warm: WarmServer | None,
    kept: JobStates | None,
) -> Outcome:
    """Start the workers once."""
    with contextlib.ExitStack() as stack:
        held = stack.enter_context(hold_port(environ))
        elastic = plan.elastic if plan.elastic is not None and plan.elastic.in_place else None
        outputs = opened_outputs(plan, show, stack)
        board = stack.enter_context(
            Board.create(plan.num_workers if elastic is None else MAX_STARTED)
        )
        job = Job(
            job_id=secrets.token_hex(8),
            launcher_pid=os.getpid(),
            board_path=board.path,
            master_port=held.getsockname()[1],
            hostname=platform.node() or "localhost",
        )
        selector = stack.enter_context(selectors.DefaultSelector())
        if warm and not warm.prepare(plan.argv, worker_environ(environ, plan, job, 0)):
            warm = None
        workers = stack.enter_context(
            contextlib.closing(
                LocalWorkers(board, selector, outputs.feed, own_process=own_process, warm=warm)
            )
        )

        def start(rank: int, plan: Plan, job: Job, extra: Mapping[str, str], worker: int) -> None:
            fds = dict(worker_fds(worker)) if worker_fds else {}
            if worker == 0:
                fds["FARANDOLE_MASTER_FD"] = held.fileno()
            if plan.own_launcher:
                variables, fds = launcher_environ(environ, plan), {}
            else:
                variables = {**worker_environ(environ, plan, job, rank), **extra}
            if kept is not None:
                running = None
                if run is not None and run.membership.generation == 0:
                    running = run.running
                first = run is None or running is not None
                files = kept.of(worker, rank, first=first, running=running)
                variables["FARANDOLE_STORED_STATE"] = files.variable
            variables |= {name: str(fd) for name, fd in fds.items()}
            workers.start(
                worker, plan.argv, environ=variables, fds=list(fds.values()), cwd=plan.cwd
            )

        def start_one(one: Start) -> None:
            rank = one.assignment.workers.index(one.worker)
            outputs.add(rank)
            start(
                rank,
                replace(plan, num_workers=len(one.assignment.workers)),
                replace(job, hostname=one.host, placement=numbered(one.assignment.hosts)),
                {"FARANDOLE_WORKER": str(one.worker), "HOROVOD_ELASTIC": "1"},
                one.worker,
            )

        run: ElasticRun | None = None
        if elastic is not None:
            from farandole.launch.elastic import ElasticRun

            run = stack.enter_context(
                contextlib.closing(
                    ElasticRun(
                        elastic,
                        board,
                        num_workers=plan.num_workers,
                        start_timeout_s=plan.start_timeout_s,
                        here=job.hostname,
                        start=start_one,
                        formed=None if kept is None else kept.keep_only,
                        remark=outputs.remark,
                        restarted=kept is not None and plan.restart > 0,
                    )
                )
            )
        supervision = Supervision(
            workers,
            outputs,
            selector,
            size=plan.num_workers if run is None else 0,
            elastic=run,
            silence_timeout_s=plan.silence_timeout_s,
            exit_timeout_s=plan.exit_timeout_s,
            watch=watch,
            clean_stop=plan.clean_stop,
        )
        signals = stack.enter_context(caught_signals())
        for rank in range(plan.num_workers) if run is None else ():
            start(rank, plan, job, {}, rank)
        if started is not None:
            started()
        outcome = replace(supervision.until_all_ended(signals), warm=warm is not None)
        if kept is not None:
            kept.next_round(outcome.workers)
        return outcome


def opened_outputs(plan: Plan, show: Show, stack: contextlib.ExitStack) -> Outputs:
    """Prepare the outputs of all ranks, with their files; the stack ends them.

    Raises:
        UsageError: The folder for files cannot be written to.
    """
    elastic = plan.elastic if plan.elastic is not None and plan.elastic.in_place else None
    files = None
    if plan.output_dir is not None:
        most = 0 if elastic is None else elastic.max_np
        files = OutputFiles(plan.output_dir, plan.num_workers, most=most, append=plan.restart > 0)
    size = 0 if elastic is not None else plan.num_workers
    outputs = Outputs(size, show=show, tag=plan.tag, shown=plan.shown, files=files)
    stack.callback(outputs.end)
    return outputs
