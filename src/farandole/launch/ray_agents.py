"""Agents on a Ray cluster: on each host an actor of Ray's holds one.

From there on it is as with ssh: the agent connects to the head, and its workers are processes of
their own, not Ray's.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from farandole.launch.call import CALL_FOLDER, call_folder
from farandole.launch.hosts import launch_hosts
from farandole.launch.launcher import Outcome
from farandole.launch.lifeline import Lifeline
from farandole.launch.output import Show
from farandole.launch.placement import Placement
from farandole.launch.plan import Plan
from farandole.launch.reservation import Reservation, connected, reserved
from farandole.launch.starters import RunningAgents

_TAIL_LINES = 5
# What an agent gets to end its workers before it is ended.
_END_S = 10.0


class RayStarter:
    """Starts an agent on every host of a placement group (see launch.starters)."""

    name = "ray"

    def __init__(self, ray: Any, room: Reservation, *, call: bytes | None = None) -> None:
        """Begin.

        Args:
            ray: The ray module, connected.
            room: Where to start agents.
            call: A function's call for all workers, who find it in their host's `call_folder`.
        """
        self._ray = ray
        self._room = room
        self._nodes = {node.name: node for node in room.nodes}
        # By reference: each host fetches it once.
        self._call = None if call is None else ray.put(call)
        self.answers: dict[int, bytes] = {}
        """What the workers have answered to the call; complete when all agents are closed."""

    def network_name(self, host: str) -> str:
        """Return the address under which Ray knows a host."""
        return self._nodes[host].address

    def start(
        self, hosts: Sequence[str], argv: Sequence[str], greeting: bytes
    ) -> list[RunningAgents]:
        """Start an actor on every host, which starts the agent there."""
        from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

        remote = self._ray.remote(AgentActor)
        started: list[RunningAgents] = []
        for number, host in enumerate(hosts):
            actor = remote.options(
                num_cpus=0,
                # One waits for the agent's end, another one may be told to end it.
                max_concurrency=2,
                scheduling_strategy=PlacementGroupSchedulingStrategy(
                    self._room.group, placement_group_bundle_index=self._nodes[host].bundle
                ),
            ).remote(
                [*argv, "--host", str(number)],
                greeting,
                self._call,
                gpus=self._room.gpus,
            )
            started.append(
                _RunningActor(self._ray, host, actor, self.answers if self._call else None)
            )
        return started


class _RunningActor:
    """One host's actor (see launch.starters.RunningAgents)."""

    def __init__(self, ray: Any, host: str, actor: Any, answers: dict[int, bytes] | None) -> None:
        self.hosts: Sequence[str] = (host,)
        self._ray, self._actor = ray, actor
        self._answers = answers
        self._ended = actor.wait.remote()
        self._closed = False

    def poll(self) -> str | None:
        """Say why the agent, or the actor around it, has ended; None while both run."""
        done, _ = self._ray.wait([self._ended], timeout=0)
        if not done:
            return None
        try:
            return self._reason(*self._ray.get(self._ended))
        except self._ray.exceptions.RayError as error:
            return f"Ray's actor on {self.hosts[0]} failed: {_last_line(error)}"

    def close(self) -> None:
        """End the agent, fetch what its workers answered, and end the actor."""
        if self._closed:
            return
        self._closed = True
        # Whatever is wrong with an actor, the others are to be ended, too.
        with contextlib.suppress(self._ray.exceptions.RayError):
            self._ray.get(self._actor.end.remote(), timeout=2 * _END_S)
            if self._answers is not None:
                self._answers.update(self._ray.get(self._actor.answers.remote()))
        self._ray.kill(self._actor)

    @staticmethod
    def _reason(code: int, last: str) -> str:
        if code == 0:
            return ""
        how = f"code {code}" if code > 0 else f"signal {-code}"
        return f"the agent ended with {how}" + (f":\n{last}" if last else "")


class AgentActor:
    """What a Ray actor holds: the agent of its host as a process."""

    def __init__(
        self,
        argv: Sequence[str],
        greeting: bytes,
        call: bytes | None,
        *,
        gpus: bool,
    ) -> None:
        self._stack = contextlib.ExitStack()
        self._folder = None
        environ = dict(os.environ)
        if call is not None:
            self._folder = self._stack.enter_context(call_folder(call))
            environ[CALL_FOLDER] = str(self._folder)
        if gpus and not environ.get("CUDA_VISIBLE_DEVICES"):
            # Ray hides GPUs from an actor that asked for none; they are reserved for its workers.
            environ.pop("CUDA_VISIBLE_DEVICES", None)
        # Should this actor be killed, the kernel ends the agent, and that one's lines its workers.
        line = Lifeline()
        self._stack.callback(line.cut)
        self._process = line.start(
            # This host's own interpreter, which Ray runs in.
            [sys.executable, *argv[1:]],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=environ,
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._stack.callback(self._process.stdout.close)
        # An agent that ends at once is told of by wait().
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(greeting)
            self._process.stdin.flush()

    def wait(self) -> tuple[int, str]:
        """Wait for the agent's end; return its code and the last lines that it wrote."""
        assert self._process.stdout is not None
        lines = deque(self._process.stdout, maxlen=_TAIL_LINES)
        return self._process.wait(), b"".join(lines).decode(errors="replace").rstrip()

    def answers(self) -> dict[int, bytes]:
        """Return what the workers of this host have answered, by rank."""
        with self._stack:
            files = list(self._folder.glob("answer-*")) if self._folder else []
            return {int(file.name.partition("-")[2]): file.read_bytes() for file in files}

    def end(self) -> None:
        """Let the agent end; help it where it does not."""
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):
            self._process.stdin.close()
        for stop in (self._process.terminate, self._process.kill):
            try:
                self._process.wait(_END_S / 2)
                return
            except subprocess.TimeoutExpired:
                stop()
        self._process.wait()


def _last_line(error: BaseException) -> str:
    """Return what a traceback from another process ends with."""
    return (str(error).strip().splitlines() or [type(error).__name__])[-1]


@dataclass(frozen=True, slots=True, kw_only=True)
class RayOutcome:
    """How a launch on Ray ended."""

    outcome: Outcome
    placement: Placement
    answers: Mapping[int, bytes]
    """By rank, what workers answered to a call (launch.call)."""


def launch_on_ray(
    plan: Plan,
    *,
    environ: Mapping[str, str],
    show: Show,
    gpus: float = 0,
    call: bytes | None = None,
    flag: str = "-np ",
    extra_variables: Sequence[str] = (),
    started: Callable[[Plan, Placement], None] | None = None,
) -> RayOutcome:
    """Start the workers of a plan on a Ray cluster and stay until all have ended.

    Args:
        plan: What to start. Each worker gets as many CPUs as the user gave it threads, or one.
        environ: The environment of this program; what belongs to a job is passed on.
        show: Shows one tagged line.
        gpus: GPUs of each worker.
        call: A function's call, for workers that run `farandole.launch.call`.
        flag: What the user set the number of workers with.
        extra_variables: More variables to pass on: NAME or NAME=VALUE.
        started: Called with the final plan and placement once all workers have been started.

    Raises:
        MissingExtraError: Ray is not installed.
        StartError: No cluster runs, it has no room, or a host of it cannot be used.
    """
    plan = replace(
        plan, threads=plan.threads if plan.override_threads else 1, override_threads=True
    )
    with (
        connected() as ray,
        reserved(
            ray,
            plan.num_workers,
            cpus=plan.threads,
            gpus=gpus,
            timeout_s=plan.start_timeout_s,
            flag=flag,
        ) as room,
    ):
        starter = RayStarter(ray, room, call=call)
        outcome = launch_hosts(
            plan,
            room.placement,
            starter,
            environ=environ,
            show=show,
            extra_variables=extra_variables,
            started=None if started is None else lambda final: started(final, room.placement),
        )
        return RayOutcome(outcome=outcome, placement=room.placement, answers=starter.answers)
