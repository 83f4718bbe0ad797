"""Commands with placeholders, and launchers in them: which, and where they take the workers."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath

from farandole.errors import UsageError


@dataclass(frozen=True, slots=True, kw_only=True)
class Launcher:
    """One launcher that a command may begin with."""

    name: str
    flags: tuple[str, ...]
    """Spellings of its number of workers; the first is the one to add."""
    joined: bool
    """Whether `--flag=value` is its way to write a value; else `--flag value`."""


_TORCHRUN = Launcher(name="torchrun", flags=("--nproc-per-node", "--nproc_per_node"), joined=True)
_ACCELERATE = Launcher(
    name="accelerate launch", flags=("--num_processes", "--num-processes"), joined=True
)
_FARANDOLE = Launcher(
    name="farandole run",
    flags=("-np", "-n", "-w", "--workers", "--np", "--num-proc", "--nproc-per-node"),
    joined=False,
)
_MPIRUNS = ("mpirun", "mpiexec", "orterun", "prterun", "mpiexec.hydra")
_MPI = ("-np", "-n", "--np", "--n", "-c")
_BY_PROGRAM = {
    "torchrun": _TORCHRUN,
    "accelerate-launch": _ACCELERATE,
    "horovodrun": Launcher(name="horovodrun", flags=("-np", "--num-proc"), joined=False),
    "deepspeed": Launcher(name="deepspeed", flags=("--num_gpus",), joined=False),
    "srun": Launcher(name="srun", flags=("-n", "--ntasks"), joined=False),
    **{name: Launcher(name=name, flags=_MPI, joined=False) for name in _MPIRUNS},
}
_JOB_FLAGS = (
    *("--launcher", "slurm", "-np", "{workers}", "-N", "{hosts}"),
    *("--threads", "{threads}"),
)
_BY_MODULE = {
    "torch.distributed.run": _TORCHRUN,
    "torch.distributed.launch": _TORCHRUN,
    "accelerate.commands.launch": _ACCELERATE,
    "farandole.cli.main": _FARANDOLE,
}


_IN_SCRIPT = re.compile(
    r"(?:^|[\s;&|(/])(torchrun|horovodrun|deepspeed|srun|mpirun|mpiexec|accelerate +launch"
    r"|farandole +run|torch\.distributed\.(?:run|launch))(?=\s)",
    re.MULTILINE,
)
"""A launcher in a shell script, where a command begins or behind `python -m`."""

SPREADING = ("srun", *_MPIRUNS)
"""Launchers that spread workers over the nodes of an allocation by themselves."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """A launcher in a command, and the command with a place for the number of workers."""

    launcher: Launcher
    command: tuple[str, ...]
    note: str
    """One line that says what is done with it."""


def find_launcher(command: Sequence[str]) -> Found | None:
    """Recognise a command that brings its own launcher; None for a plain one."""
    place = _after_env(command)
    launcher, length = _recognise(command[place:])
    if launcher is None:
        return None
    own = place + length
    if "workers" in names_in(command):
        filled, how = tuple(command), "{workers} sets its number of workers"
    else:
        filled, flag = _with_flag(command, own, launcher)
        how = f"{flag} is set to each cell's number of workers"
    note = f"This command brings its own launcher, {launcher.name}, and keeps it: {how}."
    return Found(launcher=launcher, command=filled, note=note)


def find_in_script(command: Sequence[str], text: str) -> Found | None:
    """Recognise a shell script that starts its workers by a launcher itself.

    Args:
        command: What is studied.
        text: The script.

    Raises:
        UsageError: It is not told how many workers to start.
    """
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("#")]
    match = _IN_SCRIPT.search("\n".join(lines))
    if match is None:
        return None
    words = match[1].split()
    launcher, _ = _recognise(["-m", *words] if words[0] in _BY_MODULE else words)
    assert launcher is not None
    if "workers" not in names_in(command):
        raise UsageError(
            f"The script starts its workers itself, by {launcher.name}, and is not told how many. "
            "Put {workers} where it takes their number: farandole study -- bash train.sh "
            "'{workers}'"
        )
    note = (
        f"This script starts its workers itself, by {launcher.name}: it is run once per launch, "
        "and {workers} sets their number."
    )
    return Found(launcher=launcher, command=tuple(command), note=note)


def job_command(
    command: Sequence[str], flags: Sequence[str], *, horovod_alias: str
) -> tuple[str, ...]:
    """Return a command that runs another as a job of SLURM's, with a cell's hosts and workers."""
    return (
        *(sys.executable, "-m", "farandole.cli.main", "run"),
        *(*_JOB_FLAGS, "--horovod-alias", horovod_alias, *flags, "--", *command),
    )


def job_parts(command: Sequence[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the flags and the command that `job_command` was given."""
    begin, end = 4 + len(_JOB_FLAGS) + 2, list(command).index("--")
    return tuple(command[begin:end]), tuple(command[end + 1 :])


def _after_env(command: Sequence[str]) -> int:
    """Skip `env NAME=value ...` in front of the program."""
    if not command or PurePath(command[0]).name != "env":
        return 0
    place = 1
    while place < len(command) and "=" in command[place] and not command[place].startswith("-"):
        place += 1
    return place


def _recognise(command: Sequence[str]) -> tuple[Launcher | None, int]:
    """Return the launcher and how many arguments name it."""
    if not command:
        return None, 0
    program = PurePath(command[0]).name
    rest = list(command[1:])
    if program in _BY_PROGRAM:
        return _BY_PROGRAM[program], 1
    if program == "accelerate" and rest[:1] == ["launch"]:
        return _ACCELERATE, 2
    if program == "farandole" and rest[:1] == ["run"]:
        return _FARANDOLE, 2
    if program.startswith("python") or program == "-m":
        module = command if program == "-m" else rest[_interpreter_flags(rest) :]
        if list(module[:1]) == ["-m"] and len(module) > 1 and module[1] in _BY_MODULE:
            launcher = _BY_MODULE[module[1]]
            length = len(command) - len(module) + 2
            if launcher is _FARANDOLE:
                return (launcher, length + 1) if module[2:3] == ["run"] else (None, 0)
            return launcher, length
    return None, 0


def _interpreter_flags(arguments: Sequence[str]) -> int:
    """Count Python's own flags in front of -m or a script: `-u`, `-X faulthandler`."""
    place = 0
    while place < len(arguments) and re.fullmatch(r"-[^-mc].*", arguments[place]):
        place += 2 if arguments[place] in ("-W", "-X") else 1
    return place


def _with_flag(command: Sequence[str], own: int, launcher: Launcher) -> tuple[tuple[str, ...], str]:
    """Put {workers} where the launcher takes its number; add its flag where there is none."""
    argv = list(command)
    for place in range(own, len(argv)):
        part = argv[place]
        if part == "--" or part.endswith(".py"):
            break  # from here on it is the script's
        name, equals, _ = part.partition("=")
        if name not in launcher.flags:
            continue
        if equals:
            argv[place] = f"{name}={{workers}}"
        elif place + 1 < len(argv):
            argv[place + 1] = "{workers}"
        return tuple(argv), name
    flag = launcher.flags[0]
    added = [f"{flag}={{workers}}"] if launcher.joined else [flag, "{workers}"]
    return (*argv[:own], *added, *argv[own:]), flag


KNOWN = ("batch", "global_batch", "workers", "hosts", "threads", "seed", "cell_dir")
"""The names that every study knows; `-L` adds more."""

_PLACEHOLDER = re.compile(r"\{([A-Za-z_][A-Za-z0-9_]*)\}")


def fill(argv: Sequence[str], values: Mapping[str, object]) -> tuple[str, ...]:
    """Put the values into the placeholders; braces around anything else pass untouched."""

    def value(match: re.Match[str]) -> str:
        name = match[1]
        return str(values[name]) if name in values else match[0]

    # One pass over each argument: a value that looks like a placeholder stays as it is.
    return tuple(_PLACEHOLDER.sub(value, part) for part in argv)


def names_in(argv: Iterable[str]) -> frozenset[str]:
    """Name what stands in braces in a command, known or not."""
    return frozenset(name for part in argv for name in _PLACEHOLDER.findall(part))
