"""The workers of all hosts, as the head sees them: by what their agents tell and do."""

from __future__ import annotations

import contextlib
import functools
import selectors
import signal
import socket
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from farandole.errors import DataError, StartError
from farandole.launch import control
from farandole.launch.agent import SILENCE_S, exited
from farandole.launch.control import TELL_BYTES, keep
from farandole.launch.output import Outputs, Stream
from farandole.launch.placement import HostShare, Placement
from farandole.launch.plan import Plan
from farandole.launch.starters import RunningAgents
from farandole.launch.supervisor import GRACE_S, Exited, Look
from farandole.version import __version__
from farandole.world.channel import Connection, Door

# The agents of a job, as the head sees them: waited for, compared, given their shares.

_LOOK_S = 0.01
# Hosts that fail do so at about the same time: one message names all of them.
_MORE_FAILURES_S = 0.5
_FAREWELL_S = 2.0


@dataclass(slots=True, kw_only=True)
class AgentLink:
    """A host whose agent has reported."""

    share: HostShare
    connection: Connection
    hello: control.Hello
    process: RunningAgents
    gone: bool = False
    """Whether nothing is to be expected from it any more."""
    lost: bool = False
    """Whether it went before its time."""
    silent_s: float = 0.0
    taken_bytes: int = 0
    """What has been taken in of its messages, after those before its workers' start."""
    told_bytes: int = 0
    """What it was told of that."""
    stopped: frozenset[int] = field(default_factory=frozenset)
    """Ranks of it of which a process is stopped."""
    exiting: frozenset[int] = field(default_factory=frozenset)
    """Ranks of it that run their exit handlers."""


class GatherInterruptedError(Exception):
    """Somebody ended the launch while its hosts were waited for."""

    def __init__(self, signum: int) -> None:
        super().__init__(signum)
        self.signum = signum


def gather(
    placement: Placement,
    doors: Sequence[Door],
    agents_started: Sequence[RunningAgents],
    *,
    timeout_s: float,
    signals: socket.socket | None = None,
) -> list[AgentLink]:
    """Wait until the agents of all hosts have reported; return them in order.

    Raises:
        StartError: Hosts are missing, or do not fit each other; the message names them.
        GatherInterruptedError: A signal came first.
    """
    started_by = {host: process for process in agents_started for host in process.hosts}
    found: dict[int, AgentLink] = {}
    try:
        _wait_for_all(placement, doors, started_by, found, timeout_s, signals)
        links = [found[number] for number in range(len(placement.hosts))]
        if trouble := disagreement({link.share.name: link.hello for link in links}):
            raise StartError(trouble)
    except BaseException:
        for link in found.values():
            link.connection.close()
        raise
    return links


def start_all(agents: Sequence[AgentLink], share: control.Share, *, timeout_s: float) -> None:
    """Give every agent its share, and wait until all have started their workers.

    Raises:
        StartError: A host cannot start them.
    """
    for agent in agents:
        agent.connection.send(control.encode(share))
    deadline = time.monotonic() + timeout_s
    waiting = list(agents)
    while waiting:
        for agent in list(waiting):
            data = agent.connection.receive_one()
            message = None if data is None else control.decode(data)
            if isinstance(message, control.Started):
                waiting.remove(agent)
            elif isinstance(message, control.Refused):
                raise StartError(f"host {agent.share.name}: {message.reason}")
            elif agent.connection.lost or time.monotonic() > deadline:
                why = agent.connection.why or f"it has started nothing for {timeout_s:g} s"
                raise StartError(f"host {agent.share.name} could not start its workers: {why}.")
        if waiting:
            time.sleep(_LOOK_S)


def say_farewell(agents: Sequence[AgentLink]) -> None:
    """Let the processes of agents that have done their work end by themselves."""
    deadline = time.monotonic() + _FAREWELL_S
    for agent in agents:
        agent.connection.close()
    agents_started = [agent.process for agent in agents if not agent.lost]
    while any(process.poll() is None for process in agents_started) and time.monotonic() < deadline:
        time.sleep(_LOOK_S)


def disagreement(hellos: Mapping[str, control.Hello], own: str = __version__) -> str:
    """Say in which versions hosts differ; '' when they can train together."""
    ours = {host: hello.farandole for host, hello in hellos.items()}
    if strange := {host: version for host, version in ours.items() if version != own}:
        return (
            f"Farandole is {own} here, but {_listed(strange)}. Install the same version on all "
            "hosts."
        )
    # Patches of one minor version of Python go together, builds of one version of torch too.
    pythons = {host: ".".join(h.python.split(".")[:2]) for host, h in hellos.items()}
    if len(set(pythons.values())) > 1:
        return f"Python differs: {_listed(pythons)}. Use the same version on all hosts."
    torches = {host: h.torch.partition("+")[0] or "not there" for host, h in hellos.items()}
    if len(set(torches.values())) > 1:
        return f"torch differs: {_listed(torches)}. Install the same version on all hosts."
    return ""


def _listed(versions: Mapping[str, str]) -> str:
    hosts: dict[str, list[str]] = {}
    for host, version in versions.items():
        hosts.setdefault(version, []).append(host)
    return ", ".join(f"{version} on {', '.join(names)}" for version, names in hosts.items())


def _wait_for_all(
    placement: Placement,
    doors: Sequence[Door],
    started_by: Mapping[str, RunningAgents],
    found: dict[int, AgentLink],
    timeout_s: float,
    signals: socket.socket | None,
) -> None:
    deadline = time.monotonic() + timeout_s
    give_up: float | None = None
    while len(found) < len(placement.hosts):
        _check_signals(signals)
        for door in doors:
            for connection, hello in door.accept():
                _let_in(connection, hello, placement, started_by, found)
        missing = [s for number, s in enumerate(placement.hosts) if number not in found]
        failed = {s.name: said for s in missing if (said := started_by[s.name].poll()) is not None}
        now = time.monotonic()
        if failed and give_up is None:
            give_up = now + _MORE_FAILURES_S
        if give_up is not None and now > give_up and failed:
            raise StartError(_failures(failed, doors))
        if missing and now > deadline:
            raise StartError(_absence([share.name for share in missing], doors, timeout_s))
        if missing:
            time.sleep(_LOOK_S)


def _let_in(
    connection: Connection,
    data: bytes,
    placement: Placement,
    started_by: Mapping[str, RunningAgents],
    found: dict[int, AgentLink],
) -> None:
    hello = None
    with contextlib.suppress(control.MessageError):
        hello = control.decode(data)
    known = isinstance(hello, control.Hello) and 0 <= hello.host < len(placement.hosts)
    if not known or not isinstance(hello, control.Hello) or hello.host in found:
        connection.close()
        return
    share = placement.hosts[hello.host]
    connection.peer = f"the agent on {share.name}"
    connection.notice_loss(SILENCE_S)
    found[hello.host] = AgentLink(
        share=share, connection=connection, hello=hello, process=started_by[share.name]
    )


def _check_signals(signals: socket.socket | None) -> None:
    if signals is None:
        return
    with contextlib.suppress(BlockingIOError):
        for signum in signals.recv(64):
            # Nothing trains yet that a scheduler's warning could stop.
            if signum != signal.SIGUSR1:
                raise GatherInterruptedError(signum)


def _failures(failed: Mapping[str, str], doors: Sequence[Door]) -> str:
    lines = [
        f"{host}: {said or 'its agent ended before it reported'}" for host, said in failed.items()
    ]
    count = "A host" if len(lines) == 1 else f"{len(lines)} hosts"
    return f"{count} cannot be used. " + "; ".join(lines) + _refusals(doors)


def _absence(names: Sequence[str], doors: Sequence[Door], timeout_s: float) -> str:
    places = ", ".join(f"{door.address} port {door.port}" for door in doors)
    which = f"Host {names[0]} has" if len(names) == 1 else f"Hosts {', '.join(names)} have"
    return (
        f"{which} not reported within {timeout_s:g} s. An agent there must reach this host at "
        f"{places}: look for a firewall between them, or give slow hosts more time: "
        "--start-timeout SECONDS." + _refusals(doors)
    )


def _refusals(doors: Sequence[Door]) -> str:
    refused = [why for door in doors for why in door.refused]
    return f" Turned away: {refused[0]}" if refused else ""


# What agents get to end leftovers, beyond the workers' own grace, and between two of their words.
_DRAIN_S = 5.0
# How often connections are asked for silence.
_CHECK_S = 0.5
_STREAMS: dict[str, Stream] = {"stdout": "stdout", "stderr": "stderr"}
# A look later than this means that the head itself slept (Ctrl-Z): nobody else was silent.
_LONGEST_LOOK_S = 6.0


class RemoteWorkers:
    """The workers of all hosts (a WorkerGroup, see launch.supervisor), by way of their agents."""

    def __init__(
        self,
        agents: Sequence[AgentLink],
        outputs: Outputs,
        selector: selectors.BaseSelector,
        *,
        plan: Plan,
        record_dir: Path | None,
    ) -> None:
        self._agents = agents
        self._outputs = outputs
        self._selector = selector
        self._silence_timeout_s = max(plan.silence_timeout_s, 3 * _LONGEST_LOOK_S)
        self._record_dir = record_dir
        self._by_rank = {rank: agent for agent in agents for rank in agent.share.ranks}
        self._exits: list[Exited] = []
        self._ended: set[int] = set()
        self._steps = dict.fromkeys(self._by_rank, 0)
        self._last_look = time.monotonic()
        self._finishing = False
        for agent in agents:
            selector.register(
                agent.connection, selectors.EVENT_READ, functools.partial(self._take, agent)
            )
            # What came with the last word before does not make the socket ready again.
            self._take(agent)

    def patience_s(self) -> float:
        """Say how long it may be left alone; bring up to date what is waited for."""
        for agent in self._agents:
            if agent.gone:
                continue
            if agent.connection.check_silence():
                self._take(agent)
                continue
            wait_to_send = selectors.EVENT_WRITE if agent.connection.backed_up else 0
            self._selector.modify(
                agent.connection,
                selectors.EVENT_READ | wait_to_send,
                functools.partial(self._take, agent),
            )
        return 0.0 if self._exits else _CHECK_S

    def exits(self) -> list[Exited]:
        """Return the workers that have ended since the last call."""
        found, self._exits = self._exits, []
        return found

    def look(self, *, at_states: bool) -> Look:
        """Gather what the agents saw last; find agents that say nothing any more."""
        now = time.monotonic()
        since, self._last_look = min(now - self._last_look, _LONGEST_LOOK_S), now
        stopped: set[int] = set()
        for agent in self._agents:
            agent.silent_s += since
            if not agent.gone and agent.silent_s > self._silence_timeout_s:
                self._lose(agent, f"its agent has said nothing for {agent.silent_s:.0f} s")
            stopped |= agent.stopped
        return Look(
            stopped=frozenset(stopped) if at_states else frozenset(),
            exiting=frozenset(rank for agent in self._agents for rank in agent.exiting),
            steps=self._steps,
        )

    def step(self, rank: int) -> int:
        """Return how many steps a worker has made, as far as its agent told."""
        return self._steps[rank]

    def pids(self, ranks: Sequence[int]) -> list[int]:
        """Return no processes: they are on other hosts, or their agents' business."""
        return []

    def send(self, rank: int, signum: int) -> None:
        """Have a signal sent to a worker."""
        self._say(self._by_rank[rank], control.Signal(rank=rank, signum=signum))

    def let_go(self, rank: int) -> None:
        """Have what a worker has left ended."""
        self.send(rank, signal.SIGKILL)

    def ask_stop(self) -> None:
        """Have all workers asked to stop by themselves."""
        for agent in self._agents:
            self._say(agent, control.AskStop())

    def end_leftovers(self, *, patient: bool) -> None:
        """Have what workers left ended on every host; take in last words and records."""
        self._finishing = True
        for agent in self._agents:
            self._say(agent, control.Finish(patient=patient))
        grace_s = (GRACE_S if patient else 0.0) + _DRAIN_S
        deadline = time.monotonic() + grace_s
        while any(not agent.gone for agent in self._agents) and time.monotonic() < deadline:
            self.patience_s()
            with contextlib.suppress(KeyboardInterrupt):
                for key, _ in self._selector.select(0.1):
                    key.data()
                    # Whoever still sends records is not late.
                    deadline = max(deadline, time.monotonic() + _DRAIN_S)
        for agent in self._agents:
            if not agent.gone:
                self._lose(agent, "its agent did not end in time")

    def close(self) -> None:
        """Hang up: an agent that is still there ends its workers and itself."""
        for agent in self._agents:
            agent.connection.close()

    def _say(self, agent: AgentLink, message: control.Message) -> None:
        agent.connection.send(control.encode(message))

    def _take(self, agent: AgentLink) -> None:
        for data in agent.connection.receive():
            if agent.gone:
                return
            agent.silent_s = 0.0
            agent.taken_bytes += len(data)
            try:
                self._take_one(agent, control.decode(data))
            except (control.MessageError, DataError, OSError) as error:
                self._lose(agent, f"its agent sent what cannot be used ({error})")
        if agent.connection.lost and not agent.gone:
            self._lose(agent, agent.connection.why)
        if agent.taken_bytes - agent.told_bytes >= TELL_BYTES:
            agent.told_bytes = agent.taken_bytes
            self._say(agent, control.Heard(total_bytes=agent.taken_bytes))

    def _take_one(self, agent: AgentLink, message: control.Message) -> None:
        # Where all are to stop is for rank 0 to say.
        rank = getattr(message, "rank", None)
        if isinstance(message, control.LastSteps):
            rank = self._first_worker()
        if rank is not None and rank not in agent.share.ranks:
            raise control.MessageError(f"it speaks for rank {rank}")
        if isinstance(message, control.Output):
            if message.stream not in _STREAMS:
                raise control.MessageError("an unknown stream")
            self._outputs.feed(message.rank, _STREAMS[message.stream], message.data)
        elif isinstance(message, control.Post | control.LastSteps):
            self._pass_on(agent, message)
        elif isinstance(message, control.Ended):
            self._pass_on(agent, message)
            self._steps[message.rank] = message.step
            self._note(exited(message))
        elif isinstance(message, control.Status):
            agent.stopped = frozenset(message.stopped) & frozenset(agent.share.ranks)
            agent.exiting = frozenset(message.exiting) & frozenset(agent.share.ranks)
            for text, step in message.steps.items():
                if text.isdecimal() and int(text) in agent.share.ranks:
                    self._steps[int(text)] = step
        elif isinstance(message, control.Piece):
            if self._record_dir is not None:
                keep(self._record_dir, message)
        elif isinstance(message, control.Leaving):
            if message.reason or not self._finishing:
                self._lose(agent, message.reason or "its agent has gone")
            else:
                self._let_go(agent)

    def _first_worker(self) -> int:
        """Return who is rank 0."""
        return 0

    def _pass_on(self, source: AgentLink, message: control.Message) -> None:
        for agent in self._agents:
            if agent is not source:
                self._say(agent, message)

    def _note(self, exit_: Exited) -> None:
        if exit_.rank not in self._ended:
            self._ended.add(exit_.rank)
            self._exits.append(exit_)

    def _lose(self, agent: AgentLink, why: str) -> None:
        """Take all workers of a host for ended that are not known to be."""
        self._let_go(agent)
        agent.lost = True
        said = agent.process.poll()
        lost = lost_sentence(agent.share.name, self._ranks_of(agent), why, said or "")
        if self._finishing:
            # Its workers have ended before, and the verdict has no place for it.
            missing = " Records from there may be missing." if self._record_dir else ""
            self._outputs.remark(f"{lost}{missing}")
        now, time_ns = time.monotonic(), time.time_ns()
        for rank in agent.share.ranks:
            if rank in self._ended:
                continue
            self._pass_on(
                agent,
                control.Ended(
                    rank=rank,
                    code=-signal.SIGKILL,
                    ago_ns=0,
                    step=self._steps[rank],
                    failure=lost,
                    failure_ago_ns=0,
                    secondary=False,
                    culprit=-1,
                ),
            )
            self._note(Exited(rank=rank, code=-signal.SIGKILL, now=now, time_ns=time_ns, lost=lost))

    def _ranks_of(self, agent: AgentLink) -> Sequence[int]:
        """Return the ranks that a host has, for a message."""
        return agent.share.ranks

    def _let_go(self, agent: AgentLink) -> None:
        agent.gone = True
        self._selector.unregister(agent.connection)


def lost_sentence(host: str, ranks: Sequence[int], why: str, said: str) -> str:
    """Say which host was lost and how: `host n2 (ranks 2, 3) was lost: it has ended.`"""
    which = f" (rank {ranks[0]})" if len(ranks) == 1 else f" (ranks {', '.join(map(str, ranks))})"
    remark = f" ({said})" if said else ""
    return f"host {host}{which if ranks else ''} was lost: {why}{remark}."
