"""Where the workers of a study run, here or on hosts, and a function for them to call."""

from __future__ import annotations

import contextlib
import json
import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from farandole.errors import UsageError
from farandole.launch.call import CALL_FD, RESULT_FD
from farandole.launch.placement import Placement, Slots, numbered
from farandole.study.command import SPREADING, find_launcher
from farandole.study.folder import write_bytes
from farandole.study.spec import Room

if TYPE_CHECKING:
    from farandole.launch.launcher import Outcome, Watch
    from farandole.launch.output import Show
    from farandole.launch.plan import Plan
    from farandole.launch.starters import Starter

_FUNCTION_FILE = "function.pickle"
_CALL = (sys.executable, "-m", "farandole.launch.call")
Descriptors = Callable[[int], Mapping[str, int]]
"""For a rank, what it inherits, by the variable that tells the number."""


@dataclass(frozen=True, slots=True)
class Function:
    """A function as bytes that `farandole.launch.call` understands."""

    data: bytes

    @contextlib.contextmanager
    def descriptors(self, workers: int) -> Iterator[Descriptors]:
        """Open what the workers inherit: the call, and a place for each one's value."""
        with contextlib.ExitStack() as stack:
            call = stack.enter_context(tempfile.TemporaryFile())
            call.write(self.data)
            call.flush()
            results = [stack.enter_context(tempfile.TemporaryFile()) for _ in range(workers)]
            yield lambda rank: {CALL_FD: call.fileno(), RESULT_FD: results[rank].fileno()}

    def save(self, study: Path) -> None:
        """Write it into a study's folder, so that the study can be resumed."""
        write_bytes(study / _FUNCTION_FILE, self.data, durable=False)


def saved_function(study: Path) -> Function | None:
    """Return the function of a study; None where it is of a command."""
    path = study / _FUNCTION_FILE
    return Function(path.read_bytes()) if path.is_file() else None


def command_of(fn: Callable[..., Any]) -> tuple[str, ...]:
    """Return the command of a study of this function: by its name no other one extends it."""
    name = getattr(fn, "__qualname__", type(fn).__qualname__)
    return (*_CALL, f"{getattr(fn, '__module__', '')}.{name}")


def function_name(command: Sequence[str]) -> str | None:
    """Return the name of the function that a command calls; None where it calls none."""
    called = tuple(command[1:3]) == _CALL[1:] and len(command) > 3
    return command[3].rpartition(".")[2] if called else None


def call_with_params(fn: Callable[..., Any], names: tuple[str, ...]) -> Any:
    """Call a function with those of a launch's values that it has parameters for."""
    given = json.loads(os.environ.get("FARANDOLE_PARAMS", "{}"))
    return fn(**{name: given[name] for name in names if name in given})


def read_room(environ: Mapping[str, str]) -> Room:
    """Read what of this machine decides a plan."""
    from farandole.launch.plan import count_gpus
    from farandole.world.cores import read_cores

    cores = read_cores()
    return Room(cores=cores.available, physical=cores.physical, gpus=count_gpus(environ))


@dataclass(frozen=True, slots=True, kw_only=True)
class Hosts:
    """Hosts in order, and a way to start workers on them."""

    names: tuple[str, ...]
    starter: Starter
    room: Room
    """What each of them has."""

    def launch(
        self, plan: Plan, num_hosts: int, *, environ: Mapping[str, str], show: Show, watch: Watch
    ) -> Outcome:
        """Start the workers of a plan on the first hosts and stay until all have ended."""
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
    """Return the nodes of the SLURM job around this process; None where a command stays here."""
    from farandole.launch.slurm_allocation import nodes_to_reach, step_tasks
    from farandole.launch.starters import SrunStarter

    own = find_launcher(command)
    if own is not None and own.launcher.name not in SPREADING:
        return None  # torchrun and its like start their workers on this host
    tasks = step_tasks(environ)
    if tasks is not None:
        raise UsageError(
            f"srun has started this study {tasks} times (SLURM_NTASKS={tasks}). Start it once, in "
            "the batch script itself: it starts the steps of the job."
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
    """
    from farandole.launch.hosts import ask_hosts
    from farandole.launch.starters import SshStarter

    starter = SshStarter(rsh, environ=environ)
    names = tuple(host.name for host in slots)
    found = ask_hosts(share_out(names, len(names)), starter, environ=environ)
    cores, least = min(hello.cores for hello in found), min(host.count for host in slots)
    room = Room(cores=cores, physical=cores, hosts=len(names), slots=least)
    return Hosts(names=names, starter=starter, room=room)


def share_out(names: tuple[str, ...], num_workers: int) -> Placement:
    """Share workers as evenly as hosts can, the first ones having one more where it does not go."""
    each, more = divmod(num_workers, len(names))
    return numbered((name, each + (number < more)) for number, name in enumerate(names))
