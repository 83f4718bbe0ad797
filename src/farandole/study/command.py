"""What a study runs, a command or a function, and where: on this machine or on hosts."""

from __future__ import annotations

import contextlib
import os
import re
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from farandole.errors import UsageError
from farandole.launch.call import CALL_FD, RESULT_FD
from farandole.launch.placement import Placement, Slots, numbered
from farandole.study.launchers import SPREADING, find_launcher
from farandole.study.spec import Room

if TYPE_CHECKING:
    from farandole.launch.output import Show
    from farandole.launch.plan import Plan
    from farandole.launch.starters import Starter
    from farandole.launch.supervision import Outcome, Watch

# Scripts are small; what is larger is data.
_MOST_SCRIPT_BYTES = 2_000_000
_SHELL = re.compile(r"#!\s*\S*/(?:env\s+)?(?:ba|da|k|z)?sh(?:\s|$)")


def read_room(environ: Mapping[str, str]) -> Room:
    """Read what of this machine decides a plan."""
    from farandole.launch.plan import count_gpus
    from farandole.world.cores import read_cores

    cores = read_cores()
    return Room(cores=cores.available, physical=cores.physical, gpus=count_gpus(environ))


def script_reader(command: Sequence[str]) -> Callable[[str], bool]:
    """Return a test whether the script of a command reads a name by `farandole.param`."""
    texts = [text for path in _scripts(command) if (text := _source(path)) is not None]

    def reads(name: str) -> bool:
        pattern = re.compile(rf"""\bparam\(\s*['"]{re.escape(name)}['"]""")
        return any(pattern.search(text) for text in texts)

    return reads


def shell_script(command: Sequence[str]) -> str:
    """Return the text of the shell script that a command runs; empty where it runs none."""
    named = Path(command[0]).name if command else ""
    rest = command[1:] if named in ("sh", "bash", "dash", "ksh", "zsh") else command
    script = next((part for part in rest if not part.startswith("-")), None)
    text = ("" if script is None else _source(Path(script))) or ""
    shebang = text.partition("\n")[0]
    if script is not None and (script.endswith(".sh") or _SHELL.match(shebang)):
        return text
    return ""


def _scripts(command: Sequence[str]) -> list[Path]:
    """Name the files of a command that may be its script."""
    found = [Path(part) for part in command if part.endswith(".py")]
    for place, part in enumerate(command[:-1]):
        if part == "-m":
            try:
                # The user's modules are found where they stand, as `python -m` would.
                sys.path.insert(0, str(Path.cwd()))
                module = find_spec(command[place + 1])
            except (ImportError, ValueError):
                continue
            finally:
                sys.path.pop(0)
            if module is not None and module.origin:
                found.append(Path(module.origin))
    return found


def _source(path: Path) -> str | None:
    try:
        if path.stat().st_size > _MOST_SCRIPT_BYTES:
            return None
        return path.read_text(errors="replace")
    except OSError:
        return None


def new_folder(name: str, parent: Path) -> Path:
    """Return a folder for a new study that is not there yet: `study-train-1`."""
    number = 1
    while (path := parent / f"study-{name}-{number}").exists():
        number += 1
    return path


def name_of_command(command: Sequence[str]) -> str:
    """Return a short name of what a command runs: its script's, its module's, its program's."""
    for place, part in enumerate(command):
        if part.endswith(".py"):
            return Path(part).stem
        if part == "-m" and place + 1 < len(command):
            module = command[place + 1]
            if module not in ("farandole", "farandole.cli.main") and not module.startswith(
                ("torch.distributed", "accelerate")
            ):
                return module.rpartition(".")[2]
    return Path(command[0]).name if command else "study"


FUNCTION_FILE = "function.pickle"
COMMAND = (sys.executable, "-m", "farandole.launch.call")
"""What each worker runs; behind it stands the function's name, which nobody reads but people."""
Descriptors = Callable[[int], Mapping[str, int]]
"""For a rank, what it inherits, by the variable that tells the number."""


@dataclass(frozen=True, slots=True, kw_only=True)
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

    def keep(self, study: Path) -> None:
        """Keep it in a study's folder, so that the study can be gone on with."""
        temporary = study / f".{FUNCTION_FILE}.{os.getpid()}.tmp"
        temporary.write_bytes(self.data)
        temporary.replace(study / FUNCTION_FILE)


def command_of(fn: Callable[..., Any]) -> tuple[str, ...]:
    """Return the command of a study of this function: by its name no other one extends it."""
    name = getattr(fn, "__qualname__", type(fn).__qualname__)
    return (*COMMAND, f"{getattr(fn, '__module__', '')}.{name}")


def function_name(command: Sequence[str]) -> str | None:
    """Return the name of the function that a command calls; None where it calls none."""
    called = list(command[1:3]) == list(COMMAND[1:])
    return command[3].rpartition(".")[2] if called and len(command) > 3 else None


def kept_function(study: Path) -> Function | None:
    """Return the function of a study; None where it is of a command."""
    path = study / FUNCTION_FILE
    return Function(data=path.read_bytes()) if path.is_file() else None


def call_with_params(fn: Callable[..., Any], names: tuple[str, ...]) -> Any:
    """Call a function with those of a launch's values that it has parameters for."""
    import json

    given = json.loads(os.environ.get("FARANDOLE_PARAMS", "{}"))
    return fn(**{name: given[name] for name in names if name in given})


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
