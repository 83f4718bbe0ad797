"""The head of a job on several hosts: starts an agent on each, and supervises all their workers."""

from __future__ import annotations

import contextlib
import json
import secrets
import selectors
import socket
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from farandole.errors import StartError
from farandole.launch import control
from farandole.launch.control import RECEIVE_BYTES
from farandole.launch.launcher import Outcome, Supervision, Watch, look_every_s, opened_outputs
from farandole.launch.local_workers import caught_signals
from farandole.launch.output import Show
from farandole.launch.placement import Placement
from farandole.launch.plan import Plan, threads_from
from farandole.launch.remote_workers import (
    AgentLink,
    GatherInterruptedError,
    RemoteWorkers,
    gather,
    say_farewell,
    start_all,
)
from farandole.launch.restarts import with_restarts
from farandole.launch.starters import OneByOne, Starter
from farandole.launch.supervisor import Verdict
from farandole.launch.variables import passed_on
from farandole.world.channel import Door
from farandole.world.cores import threads_per_worker
from farandole.world.environment import DEFAULT_START_TIMEOUT_S, is_loopback, scaled_start_timeout_s
from farandole.world.routes import address_towards, wished_address

SECRET_BYTES = 32


def launch_hosts(
    plan: Plan,
    placement: Placement,
    starter: Starter,
    *,
    environ: Mapping[str, str],
    show: Show,
    extra_variables: Sequence[str] = (),
    started: Callable[[Plan], None] | None = None,
    watch: Watch | None = None,
) -> Outcome:
    """Start the workers of a plan on several hosts and stay until all have ended.

    Args:
        plan: What to start.
        placement: Which ranks go where.
        starter: What starts an agent on every host.
        environ: The head's environment; what belongs to a job is passed on.
        show: Shows one tagged line.
        extra_variables: More variables to pass on: NAME or NAME=VALUE.
        started: Called with the final plan once all workers have been started.
        watch: Called ten times a second, without processes: none is here. True ends the launch as
            SIGTERM would.

    Raises:
        UsageError: Something of the plan cannot be had.
        StartError: A host cannot be used, or they do not fit each other; nothing was trained.
    """
    variables = passed_on(environ, extra_variables)

    def one_round(plan: Plan) -> Outcome:
        first = None if plan.restart else started
        return _one_round(plan, placement, starter, environ, show, variables, first, watch)

    return with_restarts(plan, one_round, show=show)


def _one_round(
    plan: Plan,
    placement: Placement,
    starter: Starter,
    environ: Mapping[str, str],
    show: Show,
    variables: Mapping[str, str],
    started: Callable[[Plan], None] | None,
    watch: Watch | None,
) -> Outcome:
    """Start the workers once."""
    with contextlib.ExitStack() as stack:
        outputs = opened_outputs(plan, show, stack)
        signals = stack.enter_context(caught_signals())
        try:
            agents = _gathered(
                placement, starter, environ, stack, timeout_s=plan.start_timeout_s, signals=signals
            )
        except GatherInterruptedError as error:
            return Outcome(verdict=Verdict(kind="interrupted", exit_code=128 + error.signum))
        plan = _fitted(plan, agents, environ)
        folder, mark = stack.enter_context(marked(plan, environ))
        share = share_of(plan, placement, agents[0].hello, variables, folder, mark)
        start_all(agents, share, timeout_s=plan.start_timeout_s)
        selector = stack.enter_context(selectors.DefaultSelector())
        workers = RemoteWorkers(agents, outputs, selector, plan=plan, record_dir=folder)
        stack.callback(workers.close)
        supervision = Supervision(
            workers,
            outputs,
            selector,
            size=placement.size,
            silence_timeout_s=plan.silence_timeout_s,
            exit_timeout_s=plan.exit_timeout_s,
            watch=watch,
            clean_stop=plan.clean_stop,
        )
        if started is not None:
            started(plan)
        outcome = supervision.until_all_ended(signals)
        say_farewell(agents)
        return outcome


def ask_hosts(
    placement: Placement, starter: Starter, *, environ: Mapping[str, str]
) -> list[control.Hello]:
    """Ask all hosts what they are, in order; nothing is started there but an agent, which goes.

    Raises:
        UsageError: An agent cannot be started.
        StartError: A host cannot be used, or they do not fit each other.
    """
    with contextlib.ExitStack() as stack:
        agents = _gathered(placement, starter, environ, stack, timeout_s=DEFAULT_START_TIMEOUT_S)
        say_farewell(agents)
        return [agent.hello for agent in agents]


def _gathered(
    placement: Placement,
    starter: Starter,
    environ: Mapping[str, str],
    stack: contextlib.ExitStack,
    *,
    timeout_s: float,
    signals: socket.socket | None = None,
) -> list[AgentLink]:
    """Start an agent on every host, and wait until all have reported; the stack ends them."""
    secret = secrets.token_bytes(SECRET_BYTES)
    doors = _open_doors(placement, starter, environ, secret, stack)
    greeting = {
        "addresses": [[door.address, door.port] for door in doors],
        "secret": secret.hex(),
        "master_port": _wished_port(environ),
    }
    argv = [sys.executable, "-m", "farandole.launch.agent"]
    started = starter.start(placement.host_names, argv, json.dumps(greeting).encode() + b"\n")
    for process in started:
        stack.callback(process.close)
    agents = gather(placement, doors, started, timeout_s=timeout_s, signals=signals)
    for agent in agents:
        stack.callback(agent.connection.close)
    for door in doors:
        # Everybody is here: from now on nobody needs to be let in.
        door.close()
    return agents


def _open_doors(
    placement: Placement,
    starter: Starter,
    environ: Mapping[str, str],
    secret: bytes,
    stack: contextlib.ExitStack,
) -> list[Door]:
    """Listen on the interfaces towards the hosts, and on no other."""
    names = dict.fromkeys(towards(starter, host, environ) for host in placement.host_names)
    # An agent on this very host is to call from the address that the others reach.
    away = [address for address in names if not is_loopback(address)]
    doors = []
    for address in away or names:
        doors.append(open_door(address, secret))
        stack.callback(doors[-1].close)
    return doors


def towards(starter: Starter | OneByOne, host: str, environ: Mapping[str, str]) -> str:
    """Return the address of this host's interface towards another host."""
    return wished_address(environ) or address_towards(starter.network_name(host))


def open_door(address: str, secret: bytes) -> Door:
    """Listen for agents on an interface.

    Raises:
        StartError: The address cannot be had.
    """
    try:
        return Door(
            address,
            secret,
            me="the head",
            most_bytes=control.MOST_BYTES,
            receive_bytes=RECEIVE_BYTES,
        )
    except OSError as error:
        raise StartError(f"The head cannot listen on {address}: {error.strerror}.") from error


def _wished_port(environ: Mapping[str, str]) -> str:
    # A launch inside a worker: the port is the outer launch's, not the user's wish.
    return "" if "TORCHELASTIC_RUN_ID" in environ else environ.get("MASTER_PORT", "")


def _fitted(plan: Plan, agents: Sequence[AgentLink], environ: Mapping[str, str]) -> Plan:
    """Decide what depends on the cores of the hosts."""
    threads = plan.threads
    if not plan.override_threads and threads_from(environ) is None:
        # Workers take their steps together: the same everywhere, and what the fullest host has.
        threads = min(
            threads_per_worker(agent.hello.cores, len(agent.share.ranks)) for agent in agents
        )
    start_timeout_s = plan.start_timeout_s
    if not plan.start_timeout_given:
        start_timeout_s = max(
            scaled_start_timeout_s(len(agent.share.ranks), agent.hello.cores) for agent in agents
        )
    return replace(plan, threads=threads, start_timeout_s=start_timeout_s)


@contextlib.contextmanager
def marked(plan: Plan, environ: Mapping[str, str]) -> Iterator[tuple[Path | None, str]]:
    """Put a mark into the folder of records, by which hosts find out whether they share it."""
    text = str(plan.record_dir or environ.get("FARANDOLE_RECORD_DIR", ""))
    if not text:
        yield None, ""
        return
    mark = Path(text).absolute() / f".farandole-{secrets.token_hex(8)}"
    mark.parent.mkdir(parents=True, exist_ok=True)
    mark.touch()
    try:
        yield mark.parent, mark.name
    finally:
        mark.unlink(missing_ok=True)


def share_of(
    plan: Plan,
    placement: Placement,
    first: control.Hello | None,
    variables: Mapping[str, str],
    folder: Path | None,
    mark: str,
) -> control.Share:
    """Return what agents are told to run; `first` is the agent of rank 0, where it is known."""
    return control.Share(
        job_id=secrets.token_hex(8),
        argv=list(plan.argv),
        cwd=str(plan.cwd or Path.cwd()),
        variables=dict(variables),
        hosts=list(placement.host_names),
        counts=[len(share.ranks) for share in placement.hosts],
        master_addr=first.address if first else "",
        master_port=first.master_port if first else 0,
        threads=plan.threads,
        override_threads=plan.override_threads,
        transport=plan.transport,
        start_timeout_s=plan.start_timeout_s,
        look_every_s=look_every_s(min(plan.silence_timeout_s, plan.exit_timeout_s)),
        horovod_alias=plan.horovod_alias,
        clean_stop=plan.clean_stop,
        timeline=plan.timeline is not None,
        restart=plan.restart,
        max_restarts=plan.elastic.max_restarts if plan.elastic else 0,
        elastic=False,
        record_dir=str(folder or ""),
        record_mark=mark,
    )
