"""The job script: what sbatch gets, written from flags; pure."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from farandole.errors import UsageError

# SLURM looks at its clock every 30 s or so, and 60 s let a script end a step and save.
WARNING_S = 60
_SAFE_NAME = re.compile(r"[^A-Za-z0-9._-]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class JobScript:
    """A job, fully decided."""

    command: tuple[str, ...]
    """What the job runs on its first node: `farandole run`, which starts the steps."""
    cwd: str
    """Where it runs; a folder that all nodes see."""
    num_workers: int
    num_nodes: int | None = None
    """None: as SLURM likes."""
    per_node: int | None = None
    cpus_per_task: int | None = None
    name: str = "farandole"
    output: str = "farandole-%j.out"
    options: Options = ()
    """Further options of sbatch."""
    setup: str = ""
    """Lines of the user's, run before the command: modules, an environment."""


def render(job: JobScript) -> str:
    """Write the script."""
    lines = ["#!/bin/bash"]
    lines += [f"#SBATCH {option}" for option in _options(job)]
    lines += ["", "# Written by `farandole run --launcher slurm`; sbatch takes it as it is.", ""]
    lines.append(f"cd {shlex.quote(job.cwd)} || exit")
    if job.setup:
        lines += ["", *job.setup.rstrip("\n").split("\n")]
    lines += [
        "",
        "# exec: SLURM's warning before the time limit (USR1) is meant for what runs here.",
        f"exec {_command(job.command)}",
    ]
    return "\n".join(lines) + "\n"


def job_name(command: Sequence[str]) -> str:
    """Name a job after its script: `train` for `python train.py --lr 0.1`."""
    scripts = [part for part in command if part.endswith(".py")]
    place = next((at + 1 for at, part in enumerate(command) if part == "-m"), None)
    if scripts:
        word = scripts[0].rpartition("/")[2].removesuffix(".py")
    elif place is not None and place < len(command):
        word = command[place]
    else:
        word = command[0].rpartition("/")[2] if command else ""
    return _SAFE_NAME.sub("-", word).strip("-.") or "farandole"


def _options(job: JobScript) -> list[str]:
    given = dict(job.options)
    own: dict[str, str | None] = {"job-name": job.name}
    if job.num_nodes is not None:
        own["nodes"] = str(job.num_nodes)
    if job.per_node is not None:
        own["ntasks-per-node"] = str(job.per_node)
    else:
        own["ntasks"] = str(job.num_workers)
    if job.cpus_per_task is not None:
        own["cpus-per-task"] = str(job.cpus_per_task)
    own["output"] = job.output
    # To the batch script alone (B:), which passes it on as a clean stop.
    own["signal"] = f"B:USR1@{WARNING_S}"
    merged = {**{name: value for name, value in own.items() if name not in given}, **given}
    return [
        f"--{name}" if value is None else f"--{name}={_quoted(value)}"
        for name, value in merged.items()
    ]


def _quoted(value: str) -> str:
    return f'"{value}"' if " " in value else value


def _command(argv: Sequence[str]) -> str:
    return " ".join(shlex.quote(part) for part in argv)


_NAME = re.compile(r"[a-z][a-z0-9-]*")
# A line of the script that begins with #SBATCH is read by SLURM, not by a shell.
_VALUE = re.compile(r"[^\s\"'\\#][^\n\r\"'\\#]*")
# Options without a value; after a comma, other words without `=` belong to the value before them.
_BARE = {
    *("contiguous", "exclusive", "hold", "ignore-pbs", "kill-on-invalid-dep", "no-kill"),
    *("no-requeue", "overcommit", "oversubscribe", "reboot", "requeue", "spread-job"),
    *("test-only", "use-min-nodes", "verbose"),
}
# What the flags of farandole say, and what the job cannot do without.
_OURS = {
    "nodes": "use -N for this",
    "ntasks": "use -np for this",
    "ntasks-per-node": "use --ntasks-per-node, without --sbatch, for this",
    "array": "leave it away, a job has one launch",
    "chdir": "leave it away, the job runs in the folder in which it is submitted",
    "error": "leave it away, errors go to the job's one output file",
    "input": "leave it away, workers read no input",
    "open-mode": "leave it away, each job has its own output file",
    "output": "leave it away, the output is followed, and kept in farandole-JOB.out",
    "parsable": "leave it away, it is set",
    "test-only": "use --script-only to see what would be submitted",
    "wait": "leave it away, the job is followed to its end",
    "wrap": "write the command behind --",
}

Options = tuple[tuple[str, str | None], ...]
"""Names with their values, in the order in which they were given; None: an option without one."""


def parse_options(texts: Iterable[str]) -> Options:
    """Read `--sbatch` flags; an option that comes twice has the value of the last.

    Raises:
        UsageError: A part cannot be read, or is for a flag of Farandole to say.
    """
    found: dict[str, str | None] = {}
    for text in texts:
        for name, value in _parts(text):
            if name in _OURS:
                raise UsageError(f"--sbatch {name}: {_OURS[name]}.")
            found.pop(name, None)
            found[name] = value
    return tuple(found.items())


def _parts(text: str) -> list[tuple[str, str | None]]:
    found: list[tuple[str, str | None]] = []
    for part in _split(text):
        name, equals, value = part.partition("=")
        name = name.strip().removeprefix("--").replace("_", "-")
        if not equals and name not in _BARE and found and found[-1][1] is not None:
            # nodelist=n1,n2 and mail-type=END,FAIL
            found[-1] = (found[-1][0], f"{found[-1][1]},{part.strip()}")
            continue
        if not _NAME.fullmatch(name) or (not equals and name not in _BARE):
            raise UsageError(
                f"--sbatch {text}: {part!r} is not an option with a value. Write long names of "
                "sbatch's options, as --sbatch account=abc,partition=gpu,time=1:00:00."
            )
        found.append((name, value.strip() if equals else None))
    for name, given in found:
        if given is not None and not _VALUE.fullmatch(given):
            raise UsageError(
                f"--sbatch {name}={given}: a value must not be empty, nor have quotes, #, "
                "backslashes or line breaks."
            )
    return found


def _split(text: str) -> list[str]:
    """Split at commas outside of brackets: nodelist=n[1,3],time=5 has two parts."""
    parts, depth, part = [], 0, ""
    for letter in text:
        depth += {"[": 1, "]": -1}.get(letter, 0)
        if letter == "," and depth <= 0:
            parts.append(part)
            part = ""
        else:
            part += letter
    return [part for part in (*parts, part) if part.strip()]
