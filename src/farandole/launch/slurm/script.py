"""The job script: what sbatch gets, written from flags; pure."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass

from farandole.launch.slurm.options import Options

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
