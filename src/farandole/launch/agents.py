"""The agents of a job, as the head sees them: waited for, compared, given their shares."""

from __future__ import annotations

import contextlib
import signal
import socket
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from farandole.errors import StartError
from farandole.launch import control
from farandole.launch.agent import SILENCE_S
from farandole.launch.placement import HostShare, Placement
from farandole.launch.starters.protocol import RunningAgents
from farandole.version import __version__
from farandole.world.channel import Connection, Door

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
