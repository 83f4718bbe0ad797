"""The hosts of a study: which of them a cell's workers are on, and what starts them there."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from farandole.errors import UsageError
from farandole.launch.placement import Placement, Slots, numbered
from farandole.study.launchers import SPREADING, find_launcher
from farandole.study.spec import Room

if TYPE_CHECKING:
    from farandole.launch.output import Show
    from farandole.launch.plan import Plan
    from farandole.launch.starters import Starter
    from farandole.launch.supervision import Outcome, Watch


@dataclass(frozen=True, slots=True, kw_only=True)
class Hosts:
    """Hosts in order, and a way to start workers on them."""

    names: tuple[str, ...]
    starter: Starter
    room: Room
    """What each of them has."""

    def launch(
        self,
        plan: Plan,
        num_hosts: int,
        *,
        environ: Mapping[str, str],
        show: Show,
        watch: Watch,
    ) -> Outcome:
        """Start the workers of a plan on the first hosts and stay until all have ended.

        Raises:
            StartError: A host cannot be used.
        """
        from farandole.launch.hosts import launch_hosts

        return launch_hosts(
            plan,
            share_out(self.names[:num_hosts], plan.num_workers),
            self.starter,
            environ=environ,
            show=show,
            # What this launch sets for its workers, whatever it is called.
            extra_variables=[
                f"{name}={text}" for name, text in environ.items() if os.environ.get(name) != text
            ],
            watch=watch,
        )


def find_hosts(command: Sequence[str], environ: Mapping[str, str]) -> Hosts | None:
    """Return the nodes of the job around this process; None where a command stays on this host."""
    own = find_launcher(command)
    if own is not None and own.launcher.name not in SPREADING:
        return None  # torchrun and its like start their workers on this host
    return hosts_around(environ)


def hosts_around(environ: Mapping[str, str]) -> Hosts | None:
    """Return the nodes of the SLURM job around this process; None where it has this host alone.

    Raises:
        UsageError: This process is one of many tasks, or the job's variables cannot be read.
    """
    from farandole.launch.slurm.allocation import nodes_to_reach, step_tasks
    from farandole.launch.starters.srun import SrunStarter

    tasks = step_tasks(environ)
    if tasks is not None:
        raise UsageError(
            f"srun has started this study {tasks} times (SLURM_NTASKS={tasks}). Start it once, in "
            "the batch script itself: it makes steps of the job by itself."
        )
    found = nodes_to_reach(environ)
    if found is None:
        return None
    cpus = min(found.cpus)
    return Hosts(
        names=found.hosts,
        starter=SrunStarter(environ=environ),
        room=Room(cores=cpus, physical=cpus, gpus=found.gpus, hosts=len(found.hosts)),
    )


def hosts_by_ssh(slots: Sequence[Slots], rsh: str | None, environ: Mapping[str, str]) -> Hosts:
    """Return hosts that users name, once all of them have answered.

    Hosts share workers evenly, so that the least of their slots and cores counts for all.

    Raises:
        UsageError: There is no such remote shell.
        StartError: A host cannot be used.
    """
    from farandole.launch.hosts import ask_hosts
    from farandole.launch.starters.ssh import SshStarter

    starter = SshStarter(rsh, environ=environ)
    names = tuple(host.name for host in slots)
    found = ask_hosts(share_out(names, len(names)), starter, environ=environ)
    cores = min(hello.cores for hello in found)
    return Hosts(
        names=names,
        starter=starter,
        room=Room(
            cores=cores,
            physical=cores,
            hosts=len(names),
            slots=min(host.count for host in slots),
        ),
    )


def share_out(names: tuple[str, ...], num_workers: int) -> Placement:
    """Share workers as evenly as hosts can, the first ones having one more where it does not go."""
    each, more = divmod(num_workers, len(names))
    return numbered((name, each + (number < more)) for number, name in enumerate(names))
