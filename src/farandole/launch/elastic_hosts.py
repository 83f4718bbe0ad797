"""Elastic runs on several hosts: an agent is started on a host that gets workers, at any time."""

from __future__ import annotations

import contextlib
import functools
import json
import platform
import secrets
import selectors
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from farandole.errors import FarandoleError
from farandole.launch import control
from farandole.launch.agent import SILENCE_S
from farandole.launch.elastic import ElasticRun
from farandole.launch.hosts import SECRET_BYTES, marked, open_door, share_of, towards
from farandole.launch.launcher import Outcome, Supervision, opened_outputs
from farandole.launch.local_workers import caught_signals
from farandole.launch.membership import Start
from farandole.launch.output import Outputs, Show
from farandole.launch.placement import HostShare, Placement
from farandole.launch.plan import Plan, threads_from
from farandole.launch.remote_workers import AgentLink, RemoteWorkers, disagreement, say_farewell
from farandole.launch.restarts import with_restarts
from farandole.launch.starters import OneByOne, RunningAgents
from farandole.launch.supervisor import Exited
from farandole.launch.variables import passed_on
from farandole.world.channel import Connection, Door
from farandole.world.cores import threads_per_worker
from farandole.world.environment import is_loopback
from farandole.world.generations import Assignment

# How often it is looked who has called, while somebody is to.
_COMING_S = 0.02


@dataclass(slots=True, kw_only=True)
class _Coming:
    """A host whose agent has been started, and has not reported yet."""

    host: str
    process: RunningAgents
    deadline_s: float
    starts: list[control.StartWorker] = field(default_factory=list)
    """What it is to do first."""


def launch_elastic_hosts(
    plan: Plan,
    starter: OneByOne,
    *,
    environ: Mapping[str, str],
    show: Show,
    extra_variables: Sequence[str] = (),
    started: Callable[[Plan], None] | None = None,
) -> Outcome:
    """Train with workers of several hosts, which may come and go, until all have ended.

    Args:
        plan: What to start, with its elastic options.
        starter: What starts an agent on a host.
        environ: The head's environment; what belongs to a job is passed on.
        show: Shows one tagged line.
        extra_variables: More variables to pass on: NAME or NAME=VALUE.
        started: Called with the plan before workers are started.

    Raises:
        UsageError: Something of the plan cannot be had.
    """
    variables = passed_on(environ, extra_variables)

    def one_round(plan: Plan) -> Outcome:
        elastic = plan.elastic
        assert elastic is not None
        with contextlib.ExitStack() as stack:
            outputs = opened_outputs(plan, show, stack)
            signals = stack.enter_context(caught_signals())
            folder, mark = stack.enter_context(marked(plan, environ))
            selector = stack.enter_context(selectors.DefaultSelector())
            share = replace(
                share_of(plan, Placement(hosts=()), None, variables, folder, mark), elastic=True
            )
            workers = ElasticHosts(
                starter, outputs, selector, plan=plan, share=share, environ=environ
            )
            stack.callback(workers.close)
            run = stack.enter_context(
                contextlib.closing(
                    ElasticRun(
                        elastic,
                        workers,
                        num_workers=plan.num_workers,
                        start_timeout_s=plan.start_timeout_s,
                        here=platform.node() or "localhost",
                        start=workers.start,
                        remark=outputs.remark,
                        here_only=False,
                    )
                )
            )
            workers.rank_of = run.membership.rank_of
            if started is not None and not plan.restart:
                started(plan)
            supervision = Supervision(
                workers,
                outputs,
                selector,
                size=0,
                elastic=run,
                silence_timeout_s=plan.silence_timeout_s,
                exit_timeout_s=plan.exit_timeout_s,
                clean_stop=plan.clean_stop,
            )
            outcome = supervision.until_all_ended(signals)
            say_farewell(workers.agents)
            return outcome

    return with_restarts(plan, one_round, show=show)


class ElasticHosts(RemoteWorkers):
    """The workers of hosts that come and go, by way of their agents, which have the boards."""

    def __init__(
        self,
        starter: OneByOne,
        outputs: Outputs,
        selector: selectors.BaseSelector,
        *,
        plan: Plan,
        share: control.Share,
        environ: Mapping[str, str],
    ) -> None:
        """Begin without agents.

        Args:
            starter: What starts one.
            outputs: Of the workers.
            selector: Whoever waits on it calls the data of what is ready, without arguments.
            plan: What to start.
            share: What all agents are told, but for what depends on their host.
            environ: The head's environment.
        """
        self.agents: list[AgentLink] = []
        """Those that have reported, also those that have gone since."""
        folder = Path(share.record_dir) if share.record_dir else None
        super().__init__(self.agents, outputs, selector, plan=plan, record_dir=folder)
        self._starter, self._plan, self._share, self._environ = starter, plan, share, environ
        self._secret = secrets.token_bytes(SECRET_BYTES)
        self._addresses: dict[str, str] = {}
        self._doors: dict[str, Door] = {}
        self._coming: dict[int, _Coming] = {}
        """By the number of the agent."""
        self._numbers = 0
        self._processes: list[RunningAgents] = []
        self._left: dict[int, int] = {}
        self._with_state: set[int] = set()
        self._first = 0
        self.rank_of: Callable[[int], int] = lambda worker: worker
        """Says which rank a worker has or had."""

    # Workers: what the supervisor and the elastic run ask for.

    def start(self, one: Start) -> None:
        """Start a worker, on a host that may have to be reached first."""
        rank = one.assignment.workers.index(one.worker)
        self._outputs.add(rank)
        self._steps[one.worker] = 0
        message = control.StartWorker(
            worker=one.worker,
            generation=one.assignment.number,
            assignment=one.assignment.encode().decode(),
        )
        for agent in self.agents:
            if agent.share.name == one.host and not agent.gone:
                self._start_on(agent, message)
                return
        coming = next((each for each in self._coming.values() if each.host == one.host), None)
        if coming is None:
            try:
                coming = self._call(one.host, [name for name, _ in one.assignment.hosts])
            except FarandoleError as error:
                self._fail([message], f"host {one.host} cannot be used: {error}")
                return
        coming.starts.append(message)

    def exits(self) -> list[Exited]:
        """Return the workers that have ended since the last call; let in agents that call."""
        if self._coming:
            self._welcome()
        return super().exits()

    def patience_s(self) -> float:
        """Say how long it may be left alone."""
        patience_s = super().patience_s()
        return min(patience_s, _COMING_S) if self._coming else patience_s

    def send(self, rank: int, signum: int) -> None:
        """Have a signal sent to a worker, or have it not started at all."""
        if rank in self._by_rank:
            super().send(rank, signum)
            return
        for coming in self._coming.values():
            mine = [each for each in coming.starts if each.worker == rank]
            if mine:
                coming.starts = [each for each in coming.starts if each.worker != rank]
                self._note(self._exited(rank, -signum, ""))

    def let_go(self, rank: int) -> None:
        """Do nothing: agents do it by themselves."""

    def end_leftovers(self, *, patient: bool) -> None:
        """Have what workers left ended on every host; nobody needs to come any more."""
        self._coming.clear()
        super().end_leftovers(patient=patient)

    def close(self) -> None:
        """Hang up, and end the processes of agents."""
        super().close()
        for door in self._doors.values():
            door.close()
        for process in self._processes:
            process.close()

    # Boards: every agent has one.

    def form(self, number: int, assignment: bytes) -> None:
        """Let workers begin a generation."""
        self._first = Assignment.decode(number, assignment).workers[0]
        self._tell(control.FormGeneration(generation=number, assignment=assignment.decode()))

    def break_generation(self, number: int) -> None:
        """Let all hear that a generation has lost a worker."""
        self._tell(control.BreakGeneration(generation=number))

    def note_change(self, time_ns: int, *, added: bool, removed: bool) -> None:
        """Let all hear what has changed on the hosts."""
        self._tell(control.HostsChange(added=added, removed=removed))

    def dismiss(self, worker: int) -> None:
        """Let a worker hear that there is no place for it."""
        self._tell(control.DismissWorker(worker=worker))

    def left(self, worker: int) -> int | None:
        """Return which generation a worker has left last."""
        return self._left.get(worker)

    def has_state(self, worker: int) -> bool:
        """Say whether a worker has the state of training."""
        return worker in self._with_state

    def _tell(self, message: control.Message) -> None:
        for agent in self.agents:
            if not agent.gone:
                self._say(agent, message)

    # Agents: called, let in, lost.

    def _call(self, host: str, hosts: Sequence[str]) -> _Coming:
        """Start the agent of a host, one of these in use.

        Raises:
            UsageError: Its remote shell cannot be started.
            StartError: Nobody could be heard from there.
        """
        for name in hosts:
            if name not in self._addresses:
                address = self._addresses[name] = towards(self._starter, name, self._environ)
                if address not in self._doors:
                    self._doors[address] = open_door(address, self._secret)
        # An agent on this very host is to call from an address that the others reach.
        away = [door for address, door in self._doors.items() if not is_loopback(address)]
        greeting = {
            "addresses": [[door.address, door.port] for door in away or self._doors.values()],
            "secret": self._secret.hex(),
            "master_port": "",
        }
        process = self._starter.start_one(
            host,
            self._numbers,
            [sys.executable, "-m", "farandole.launch.agent"],
            json.dumps(greeting).encode() + b"\n",
        )
        self._processes.append(process)
        coming = _Coming(
            host=host, process=process, deadline_s=time.monotonic() + self._plan.start_timeout_s
        )
        self._coming[self._numbers] = coming
        self._numbers += 1
        return coming

    def _welcome(self) -> None:
        """Let in agents that have called; take those for lost that did not in time."""
        for door in self._doors.values():
            for connection, data in door.accept():
                self._let_in(connection, data)
        now_s = time.monotonic()
        for number, coming in list(self._coming.items()):
            said = coming.process.poll()
            if said is None and now_s < coming.deadline_s:
                continue
            del self._coming[number]
            if said is None:
                said = f"it has not reported within {self._plan.start_timeout_s:g} s"
            said = said or "its agent ended before it reported"
            self._fail(coming.starts, f"host {coming.host} cannot be used: {said}")

    def _let_in(self, connection: Connection, data: bytes) -> None:
        hello = None
        with contextlib.suppress(control.MessageError):
            hello = control.decode(data)
        if not isinstance(hello, control.Hello) or hello.host not in self._coming:
            connection.close()
            return
        coming = self._coming.pop(hello.host)
        others = {agent.share.name: agent.hello for agent in self.agents if not agent.lost}
        if trouble := disagreement({**others, coming.host: hello}):
            connection.close()
            self._fail(coming.starts, f"host {coming.host} cannot be used: {trouble}")
            return
        connection.peer = f"the agent on {coming.host}"
        connection.notice_loss(SILENCE_S)
        agent = AgentLink(
            share=HostShare(name=coming.host, ranks=()),
            connection=connection,
            hello=hello,
            process=coming.process,
        )
        self.agents.append(agent)
        self._selector.register(
            connection, selectors.EVENT_READ, functools.partial(self._take, agent)
        )
        if not self._share.master_addr:
            self._share = replace(
                self._share, master_addr=hello.address, master_port=hello.master_port
            )
        self._say(agent, self._share_for(hello, coming))
        for message in coming.starts:
            self._start_on(agent, message)
        # What came with its first word does not make the socket ready again.
        self._take(agent)

    def _share_for(self, hello: control.Hello, coming: _Coming) -> control.Share:
        threads = self._plan.threads
        if coming.starts and not self._plan.override_threads and not threads_from(self._environ):
            first = coming.starts[0]
            assignment = Assignment.decode(first.generation, first.assignment.encode())
            threads = threads_per_worker(hello.cores, dict(assignment.hosts)[coming.host])
        return replace(self._share, threads=threads)

    def _start_on(self, agent: AgentLink, message: control.StartWorker) -> None:
        agent.share = replace(agent.share, ranks=(*agent.share.ranks, message.worker))
        self._by_rank[message.worker] = agent
        self._say(agent, message)

    def _fail(self, starts: Sequence[control.StartWorker], why: str) -> None:
        """Take workers for lost that could not be started."""
        for message in starts:
            self._note(self._exited(message.worker, -signal.SIGKILL, f"{why.rstrip('.')}."))

    def _exited(self, worker: int, code: int, lost: str) -> Exited:
        return Exited(
            rank=worker, code=code, now=time.monotonic(), time_ns=time.time_ns(), lost=lost
        )

    def _take_one(self, agent: AgentLink, message: control.Message) -> None:
        if isinstance(message, control.Left):
            if message.worker in agent.share.ranks:
                self._left[message.worker] = message.generation
        elif isinstance(message, control.HasState):
            self._with_state |= {message.worker} & set(agent.share.ranks)
        elif isinstance(message, control.Refused):
            self._lose(agent, message.reason)
        else:
            super()._take_one(agent, message)

    def _ranks_of(self, agent: AgentLink) -> Sequence[int]:
        running = [worker for worker in agent.share.ranks if worker not in self._ended]
        return sorted(self.rank_of(worker) for worker in running)

    def _first_worker(self) -> int:
        return self._first
