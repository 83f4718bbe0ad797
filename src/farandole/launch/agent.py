"""The agent: looks after the workers of one host for the head, the `farandole run` of a job.

A starter (launch.starters) runs it on every host. It reads the head's addresses and the job's
secret from standard input, calls the head, and does what that says. When the head is gone, it ends
its workers and itself; when it is killed itself, the kernel ends them (launch.lifeline).
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import platform
import selectors
import signal
import socket
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from farandole.errors import FarandoleError, StartError, UsageError
from farandole.launch import control
from farandole.launch.control import MOST_BYTES, Ended, LastSteps, Outbox, Post, Records
from farandole.launch.elastic_options import ElasticOptions
from farandole.launch.local_workers import LocalWorkers, caught_signals, hold_port
from farandole.launch.output import Stream
from farandole.launch.placement import numbered
from farandole.launch.plan import Plan
from farandole.launch.supervisor import Exited
from farandole.launch.variables import Job, worker_environ
from farandole.version import __version__
from farandole.world.board import MAX_STARTED, Board, Failure
from farandole.world.channel import Connection, call
from farandole.world.generations import Assignment, first_round

SILENCE_S = 5
"""After so long without an answer from its kernel a host is lost; less than what 10 s leave for
ending its workers."""

_GREETING_BYTES = 1 << 16
_CALL_TIMEOUT_S = 10.0
_CALL_AGAIN_S = 60.0
# Waiting for a share: other hosts may take their time to start an agent.
_SHARE_TIMEOUT_S = 3600.0
# Output that waits to be sent; beyond it, workers wait with theirs, as at a slow terminal.
_MOST_BACKLOG_BYTES = 256 * 1024
# How often the connection is asked for silence; a look for posts comes at least as often.
_CHECK_S = 0.5
# What workers get to end when the head is gone or this agent was told to go.
_GRACE_S = 2.5


def main(arguments: Sequence[str] | None = None) -> int:
    """Serve the head that the greeting on standard input names; return an exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--host", type=int, help="the number of this host (default SLURM_NODEID)")
    given = parser.parse_args(arguments)
    number = given.host if given.host is not None else int(os.environ.get("SLURM_NODEID", "0"))
    line = sys.stdin.buffer.readline(_GREETING_BYTES)
    if not line:
        raise SystemExit("farandole: no greeting came on standard input; `farandole run` sends it.")
    try:
        greeting = json.loads(line)
        deadline = time.monotonic() + _CALL_AGAIN_S
        while True:
            connection = _call_head(greeting)
            with contextlib.closing(connection):
                code = _serve(connection, number, greeting)
            # The head may have hung up because many others called; one that is gone is not reached.
            if code is not None or time.monotonic() > deadline:
                return 1 if code is None else code
    except FarandoleError as error:
        raise SystemExit(f"farandole: {error}") from error


def _call_head(greeting: dict[str, object]) -> Connection:
    """Try the head's addresses in turn: which of them this host reaches depends on the network."""
    reasons = []
    addresses = greeting["addresses"]
    assert isinstance(addresses, list)
    for address, port in addresses:
        try:
            connection = call(
                address,
                port,
                bytes.fromhex(str(greeting["secret"])),
                timeout_s=_CALL_TIMEOUT_S,
                me=f"the agent on {platform.node()}",
                peer=f"the head at {address} port {port}",
                most_bytes=MOST_BYTES,
            )
        except StartError as error:
            reasons.append(str(error))
        else:
            connection.notice_loss(SILENCE_S)
            return connection
    raise StartError(" ".join(reasons))


def _serve(connection: Connection, number: int, greeting: dict[str, object]) -> int | None:
    """Do this host's share; return an exit code, None if the head gave none."""
    with contextlib.ExitStack() as stack:
        address = own_address(connection.local_address)
        held: socket.socket | None = None
        if number == 0:
            wish = {"MASTER_PORT": str(greeting.get("master_port") or "")}
            held = stack.enter_context(hold_port(wish, address))
        connection.send(control.encode(_hello(number, address, held)))
        share = _await_share(connection)
        if share is None:
            return None
        size = MAX_STARTED if share.elastic else sum(share.counts)
        board = stack.enter_context(Board.create(size))
        selector = stack.enter_context(selectors.DefaultSelector())
        signals = stack.enter_context(caught_signals())
        assert signals is not None, "an agent has its process for itself"
        agent = Agent(connection, share, number, board, selector)
        stack.callback(agent.close)
        try:
            agent.start(address, held)
        except FarandoleError as error:
            connection.send(control.encode(control.Refused(reason=str(error))))
            _push(connection)
            return 1
        connection.send(control.encode(control.Started()))
        return agent.until_told_to_go(signals)


def own_address(towards_head: str) -> str:
    """Return where the other hosts reach this one: as its user says, or as the head does."""
    from farandole.world.routes import interface_of, wished_address

    wish = wished_address(os.environ)
    # srun passes the head's on to all hosts; it is meant for the one that has it.
    return wish if wish and interface_of(wish) else towards_head


def _hello(number: int, address: str, held: socket.socket | None) -> control.Hello:
    from farandole.world.cores import read_cores

    return control.Hello(
        host=number,
        name=platform.node() or "localhost",
        address=address,
        master_port=held.getsockname()[1] if held is not None else 0,
        python=platform.python_version(),
        torch=_version_of("torch"),
        farandole=__version__,
        cores=read_cores().available,
    )


def _version_of(package: str) -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(package)
    except PackageNotFoundError:
        return ""


def _await_share(connection: Connection) -> control.Share | None:
    """Wait until the head has heard of all hosts; None when it has gone."""
    deadline = time.monotonic() + _SHARE_TIMEOUT_S
    with selectors.DefaultSelector() as selector:
        selector.register(connection, selectors.EVENT_READ)
        while time.monotonic() < deadline and not connection.lost:
            message = connection.receive_one()
            if message is not None:
                share = control.decode(message)
                return share if isinstance(share, control.Share) else None
            selector.select(1.0)
    return None


class Agent:
    """The workers of this host, and the connection to the head."""

    def __init__(
        self,
        connection: Connection,
        share: control.Share,
        number: int,
        board: Board,
        selector: selectors.BaseSelector,
    ) -> None:
        self._connection = connection
        self._outbox = Outbox(connection)
        self._share = share
        self._placement = numbered(zip(share.hosts, share.counts, strict=True))
        self._number = number
        self._ranks = () if share.elastic else self._placement.hosts[number].ranks
        self._left: dict[int, int] = {}
        """The generation that each worker of an elastic run has left last."""
        self._with_state: set[int] = set()
        self._board = board
        self._selector = selector
        self._workers = LocalWorkers(board, selector, self._feed, own_process=True)
        self._mirror = Mirror(board, self._ranks)
        self._records = Records(share.record_dir, share.record_mark)
        self._next_look = self._next_check = time.monotonic()
        self._running = set(self._ranks)
        self._finish: control.Finish | None = None
        self._leaving = ""
        """Why this agent goes by itself."""

    def start(self, address: str, held: socket.socket | None) -> None:
        """Start the workers.

        Raises:
            UsageError: They cannot be started here.
        """
        self._prepare(address)
        for rank in self._ranks:
            environ = worker_environ(self._base, self._plan, self._job, rank)
            fds = []
            if rank == 0 and held is not None:
                environ["FARANDOLE_MASTER_FD"] = str(held.fileno())
                fds = [held.fileno()]
            self._workers.start(rank, self._plan.argv, environ=environ, fds=fds)

    def _prepare(self, address: str) -> None:
        """Decide what all workers of this host have in common."""
        from farandole.world.routes import interface_of

        share = self._share
        folder = Path(share.cwd)
        if not folder.is_dir():
            raise UsageError(
                f"there is no folder {folder} here. Start the job from a folder that all hosts "
                "have, for example on a shared file system."
            )
        os.chdir(folder)
        self._plan = Plan(
            argv=tuple(share.argv),
            num_workers=self._placement.size,
            threads=share.threads,
            override_threads=share.override_threads,
            transport=share.transport,
            start_timeout_s=share.start_timeout_s,
            record_dir=self._records.folder,
            timeline=Path("timeline") if share.timeline else None,
            horovod_alias=share.horovod_alias,
            restart=share.restart,
            elastic=ElasticOptions(
                min_np=self._placement.size,
                max_np=self._placement.size,
                in_place=False,
                max_restarts=share.max_restarts,
            ),
        )
        self._job = Job(
            job_id=share.job_id,
            launcher_pid=os.getpid(),
            board_path=self._board.path,
            master_port=share.master_port,
            hostname="" if share.elastic else self._placement.hosts[self._number].name,
            master_addr=share.master_addr,
            placement=self._placement,
            address=address,
            interface=interface_of(address),
        )
        self._base = {**os.environ, **share.variables, "PWD": str(folder)}

    def _start_worker(self, message: control.StartWorker) -> None:
        """Start a worker of an elastic run; what goes wrong is its end."""
        assignment = Assignment.decode(message.generation, message.assignment.encode())
        rank = assignment.workers.index(message.worker)
        placement = numbered(assignment.hosts)
        environ = worker_environ(
            self._base,
            replace(self._plan, num_workers=placement.size),
            replace(self._job, hostname=placement.rank_hosts[rank], placement=placement),
            rank,
        )
        environ |= {"FARANDOLE_WORKER": str(message.worker), "HOROVOD_ELASTIC": "1"}
        try:
            self._workers.start(message.worker, self._plan.argv, environ=environ)
        except UsageError as error:
            self._leaving = str(error)
            return
        self._ranks = (*self._ranks, message.worker)
        self._running.add(message.worker)

    def _form(self, message: control.FormGeneration) -> None:
        """Let workers begin a generation."""
        assignment = Assignment.decode(message.generation, message.assignment.encode())
        here = [worker for worker in assignment.workers if worker in self._running]
        self._mirror.follow(here, assignment.workers[0], assignment.number)
        self._board.form(message.generation, message.assignment.encode())

    def until_told_to_go(self, signals: socket.socket) -> int:
        """Serve until the head says that all is done, or is gone; return an exit code."""
        self._selector.register(signals, selectors.EVENT_READ, lambda: self._take_signals(signals))
        self._selector.register(self._connection, selectors.EVENT_READ, self._take_messages)
        # What came together with the share does not make the connection ready again.
        self._take_messages()
        while self._finish is None and not self._connection.lost and not self._leaving:
            self._step()
        if self._finish is None:
            self._outbox.send(control.Leaving(reason=self._leaving))
            self._end_workers()
            return 1
        self._workers.end_leftovers(patient=self._finish.patient)
        for piece in self._records.pieces():
            self._outbox.send(piece)
            self._empty_outbox()
        self._outbox.send(control.Leaving(reason=""))
        self._empty_outbox()
        return 0

    def close(self) -> None:
        """End everything here, whatever happened before."""
        self._workers.close()
        self._records.close()

    def _step(self) -> None:
        waits = [self._workers.patience_s(), self._next_look - time.monotonic()]
        if self._running:
            waits.append(self._mirror.patience_s())
        self._workers.pause(self._outbox.backlog_bytes > _MOST_BACKLOG_BYTES)
        self._wait(min(waits))
        self._tell()
        if time.monotonic() >= self._next_look:
            self._look()

    def _wait(self, patience_s: float) -> None:
        now = time.monotonic()
        if now >= self._next_check:
            self._next_check = now + _CHECK_S
            if not self._connection.lost and self._connection.check_silence():
                self._take_messages()
        if not self._connection.lost:
            wait_to_send = selectors.EVENT_WRITE if self._connection.backed_up else 0
            self._selector.modify(
                self._connection, selectors.EVENT_READ | wait_to_send, self._take_messages
            )
        for key, _ in self._selector.select(max(0.0, patience_s)):
            key.data()

    def _empty_outbox(self) -> None:
        """Wait until the head has room for all; it may sleep as long as it is there."""
        while not self._outbox.empty and not self._connection.lost:
            self._wait(1.0)

    def _tell(self) -> None:
        """Pass on what the workers posted, and who ended."""
        # Ends first looked for, then posts: what a worker posted before its end goes before it.
        exits = self._workers.exits()
        for post in self._mirror.fresh():
            self._outbox.send(post)
        for exited in exits:
            self._running.discard(exited.rank)
            if self._share.elastic:
                self._workers.let_go(exited.rank)
            self._outbox.send(ended(exited, self._workers.step(exited.rank)))
        for worker in self._running if self._share.elastic else ():
            if worker not in self._with_state and self._board.has_state(worker):
                self._with_state.add(worker)
                self._outbox.send(control.HasState(worker=worker))
            number = self._board.left(worker)
            if number is not None and self._left.get(worker) != number:
                self._left[worker] = number
                self._mirror.hurry()
                self._outbox.send(control.Left(worker=worker, generation=number))

    def _look(self) -> None:
        self._next_look = time.monotonic() + self._share.look_every_s
        found = self._workers.look(at_states=True)
        self._outbox.send(
            control.Status(
                steps={str(rank): step for rank, step in found.steps.items()},
                stopped=sorted(found.stopped),
                exiting=sorted(found.exiting),
            )
        )

    def _take_messages(self) -> None:
        messages = self._connection.receive()
        if self._connection.lost:
            # An end that is never read away would wake us for ever.
            self._selector.unregister(self._connection)
        for data in messages:
            message = control.decode(data)
            if isinstance(message, control.Signal):
                if message.rank in self._ranks:
                    self._workers.send(message.rank, message.signum)
            elif isinstance(message, control.Post | control.LastSteps | control.Ended):
                self._mirror.take(message)
            elif isinstance(message, control.AskStop):
                self._workers.ask_stop()
            elif isinstance(message, control.Heard):
                self._outbox.heard(message.total_bytes)
            elif isinstance(message, control.Finish):
                self._finish = message
            elif isinstance(message, control.StartWorker):
                self._start_worker(message)
            elif isinstance(message, control.FormGeneration):
                self._form(message)
            elif isinstance(message, control.BreakGeneration):
                self._board.break_generation(message.generation)
            elif isinstance(message, control.HostsChange):
                self._board.note_change(
                    time.time_ns(), added=message.added, removed=message.removed
                )
            elif isinstance(message, control.DismissWorker):
                self._board.dismiss(message.worker)

    def _take_signals(self, signals: socket.socket) -> None:
        for signum in signals.recv(64):
            if signum == signal.SIGUSR1 and self._share.clean_stop:
                # A scheduler warns all its tasks; the head, elsewhere, may hear nothing of it.
                self._workers.ask_stop()
                continue
            self._leaving = f"its agent was told to end ({signal.Signals(signum).name})"

    def _feed(self, rank: int, stream: Stream, data: bytes) -> None:
        self._outbox.send(control.Output(rank=rank, stream=stream, data=data))

    def _end_workers(self) -> None:
        """End all workers without the head."""
        for rank in self._running:
            self._workers.send(rank, signal.SIGTERM)
        deadline = time.monotonic() + _GRACE_S
        while self._running and time.monotonic() < deadline:
            self._wait(0.02)
            self._tell()
        self._workers.end_leftovers(patient=False)


def _push(connection: Connection) -> None:
    """Wait until the kernel has taken all that was sent."""
    while connection.backed_up:
        connection.advance()
        time.sleep(0.001)


# The boards of all hosts kept alike: what ranks post and how they end is passed on.
#
# Every host has a board for all ranks. Its workers write and read there, as on one host; the agent
# passes on what they post, and writes what it hears of others in their places. A board has two
# places per rank, and that is enough also here: a rank posts round k + 2 only when it has seen
# everybody's post of round k + 1, and nobody posts that before having read round k.

# While workers meet, one round follows the other within milliseconds; later a look costs nothing.
_BUSY_S = 0.002
_IDLE_S = 0.05
_BUSY_FOR_S = 2.0


class Mirror:
    """One host's board, seen from its agent."""

    def __init__(self, board: Board, ranks: Sequence[int]) -> None:
        """Begin.

        Args:
            board: This host's board.
            ranks: The ranks of this host.
        """
        self._board = board
        self._next = dict.fromkeys(ranks, 0)
        self._last_steps = LastSteps(last_step=0, last_recorded=0)
        self._first = 0
        """Who says where all are to stop."""
        self._busy_until = time.monotonic() + _BUSY_FOR_S

    def follow(self, workers: Sequence[int], first: int, generation: int) -> None:
        """Look for the posts of these workers of an elastic run, in a generation.

        Args:
            workers: Those of this host.
            first: The worker that is rank 0, wherever it is.
            generation: Whose posts they are.
        """
        self._next = dict.fromkeys(workers, first_round(generation))
        self._first = first
        self.hurry()

    def hurry(self) -> None:
        """Look often for a while."""
        self._busy_until = time.monotonic() + _BUSY_FOR_S

    def patience_s(self) -> float:
        """Say how long it takes until somebody should look for posts again."""
        return _BUSY_S if time.monotonic() < self._busy_until else _IDLE_S

    def fresh(self) -> list[Post | LastSteps]:
        """Return what the ranks of this host have posted since the last call."""
        posts: list[Post | LastSteps] = []
        for rank, round in self._next.items():
            while (payload := self._board.posted(rank, round)) is not None:
                posts.append(Post(rank=rank, round=round, payload=payload))
                round += 1
            self._next[rank] = round
        if posts:
            self._busy_until = time.monotonic() + _BUSY_FOR_S
        if self._first in self._next:
            said = LastSteps(
                last_step=self._board.last_step, last_recorded=self._board.last_recorded
            )
            if said != self._last_steps:
                self._last_steps = said
                posts.append(said)
        return posts

    def take(self, message: Post | LastSteps | Ended) -> None:
        """Write what a rank of another host has done."""
        if isinstance(message, LastSteps):
            if self._first not in self._next:
                self._board.last_step = message.last_step
                self._board.last_recorded = message.last_recorded
            return
        if message.rank in self._next:
            return
        if isinstance(message, Post):
            self._board.post(message.rank, message.round, message.payload)
            self._busy_until = time.monotonic() + _BUSY_FOR_S
            return
        if message.failure:
            # Before the end, so that whoever sees that finds the reason.
            self._board.note_failure(
                message.rank,
                message.failure,
                time_ns=0,
                secondary=message.secondary,
                culprit=message.culprit if message.culprit >= 0 else None,
            )
        self._board.note_exit(message.rank, message.code)


def ended(exited: Exited, step: int) -> Ended:
    """Put an end into a message, with times that mean something on another host's clock."""
    now_ns = time.time_ns()
    failure = exited.failure
    return Ended(
        rank=exited.rank,
        code=exited.code,
        ago_ns=now_ns - exited.time_ns,
        step=step,
        failure=failure.text if failure else "",
        failure_ago_ns=now_ns - failure.time_ns if failure else 0,
        secondary=failure.secondary if failure else False,
        culprit=-1 if failure is None or failure.culprit is None else failure.culprit,
    )


def exited(message: Ended) -> Exited:
    """Read such a message, on this host's clock."""
    now_ns = time.time_ns()
    failure = None
    if message.failure:
        failure = Failure(
            time_ns=now_ns - message.failure_ago_ns,
            text=message.failure,
            secondary=message.secondary,
            culprit=message.culprit if message.culprit >= 0 else None,
        )
    return Exited(
        rank=message.rank,
        code=message.code,
        now=time.monotonic(),
        time_ns=now_ns - message.ago_ns,
        failure=failure,
    )


if __name__ == "__main__":
    sys.exit(main())
