"""A launch on a Ray cluster: room is reserved, and agents are started there."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from farandole.launch.hosts import launch_hosts
from farandole.launch.output import Show
from farandole.launch.placement import Placement
from farandole.launch.plan import Plan
from farandole.launch.room import connected, reserved
from farandole.launch.starters.ray import RayStarter
from farandole.launch.supervision import Outcome


@dataclass(frozen=True, slots=True, kw_only=True)
class Landed:
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
) -> Landed:
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
        return Landed(outcome=outcome, placement=room.placement, answers=starter.answers)
