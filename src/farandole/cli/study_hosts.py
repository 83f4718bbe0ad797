"""Where the workers of a study run, by the flags of `farandole study`."""

from __future__ import annotations

import argparse
import os
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

from farandole.cli.flags import add_flag
from farandole.cli.slurm import add_job_flags
from farandole.errors import UsageError
from farandole.format import plural

if TYPE_CHECKING:
    from farandole.study.hosts import Hosts
    from farandole.study.spec import Room, Spec


def add_flags(parser: Any) -> None:
    """Add flags for hosts and for jobs."""
    hosts = parser.add_argument_group(
        "several hosts (in a SLURM allocation its nodes, without any flag: docs/slurm.md)"
    )
    add_flag(hosts, "-H", "--hosts", metavar="HOSTS", help="hosts to reach by ssh: n1:4,n2:4")
    add_flag(hosts, "--hostfile", metavar="FILE", help="the same from a file")
    add_flag(hosts, "--rsh", metavar="COMMAND", help="another remote shell, with flags")
    add_flag(
        hosts,
        "--per-cell-jobs",
        action="store_true",
        help="submit each launch as a job of SLURM's, one after the other",
    )
    add_job_flags(hosts)


def find(args: argparse.Namespace) -> Hosts | None:
    """Find the hosts of a study: those that are named, or the nodes of the job around it."""
    from farandole.launch.placement import named_hosts
    from farandole.study.hosts import hosts_around, hosts_by_ssh
    from farandole.study.launchers import SPREADING, find_launcher

    if args.sbatch or args.setup:
        _check_jobs(args, "--sbatch" if args.sbatch else "--setup")
    slots = named_hosts(args.hosts, args.hostfile, os.environ)
    if args.per_cell_jobs:
        if slots is not None:
            raise UsageError("--per-cell-jobs lets SLURM choose the nodes. Leave -H away.")
        return None
    if slots is not None:
        return hosts_by_ssh(slots, args.rsh or os.environ.get("FARANDOLE_RSH"), os.environ)
    own = find_launcher(args.command_line[args.command_line[:1] == ["--"] :])
    if own is not None and own.launcher.name not in SPREADING:
        return None  # torchrun and its like start their workers on this host
    return hosts_around(os.environ)


def _check_jobs(args: argparse.Namespace, flag: str) -> None:
    if args.resume is not None:
        raise UsageError(
            f"--resume {args.resume} submits jobs as they were begun: leave {flag} away. To change "
            f"it, use --out {args.resume} with the whole command."
        )
    if not args.per_cell_jobs:
        raise UsageError(f"{flag} is for --per-cell-jobs. Add it, or leave {flag} away.")


def room(args: argparse.Namespace, hosts: Hosts | None) -> Room:
    """Read what decides a plan: of this machine, of the hosts, or of SLURM's nodes."""
    from farandole.launch.slurm.client import Slurm
    from farandole.launch.slurm.script import parse_options
    from farandole.study.command import read_room
    from farandole.study.spec import Room

    if not args.per_cell_jobs:
        return read_room(os.environ) if hosts is None else hosts.room
    options = dict(parse_options(args.sbatch))
    cpus, nodes = Slurm(os.environ).nodes(options.get("partition"))
    return Room(cores=cpus, physical=cpus, hosts=nodes)


def job_flags(args: argparse.Namespace) -> list[str] | None:
    """Return the flags of each launch's `farandole run --launcher slurm`; None: no jobs."""
    if not args.per_cell_jobs:
        return None
    flags = [part for text in args.sbatch for part in ("--sbatch", text)]
    return [*flags, *(("--setup", str(Path(args.setup).absolute())) if args.setup else ())]


def again(args: argparse.Namespace) -> str:
    """Return what a resumed study needs beside its folder: the flags that name its hosts."""
    given = (("-H", args.hosts), ("--hostfile", args.hostfile), ("--rsh", args.rsh))
    return "".join(f" {flag} {shlex.quote(text)}" for flag, text in given if text is not None)


def check_resumed(spec: Spec, hosts: Hosts | None) -> None:
    """Refuse to go on with a study on fewer hosts than it was begun on.

    Raises:
        UsageError: There are fewer.
    """
    have = 1 if hosts is None else hosts.room.hosts
    if not spec.jobs and have < spec.room.hosts:
        raise UsageError(
            f"The study was begun on {plural(spec.room.hosts, 'host')}, and here are "
            f"{have}. Resume it in an "
            f"allocation of {plural(spec.room.hosts, 'node')}, or name hosts with -H."
        )
