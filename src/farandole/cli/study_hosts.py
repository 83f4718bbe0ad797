"""Where the workers of a study run, by the flags of `farandole study`."""

from __future__ import annotations

import argparse
import os
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

from farandole.errors import UsageError

if TYPE_CHECKING:
    from farandole.study.hosts import Hosts
    from farandole.study.spec import Room


def find(args: argparse.Namespace) -> Hosts | None:
    """Find the hosts of a study: those that are named, or the nodes of the job around it."""
    from farandole.launch.placement import named_hosts
    from farandole.study.hosts import find_hosts, hosts_by_ssh

    if args.sbatch or args.setup:
        _check_jobs(args, "--sbatch" if args.sbatch else "--setup")
    slots = named_hosts(args.hosts, args.hostfile, os.environ)
    if args.per_cell_jobs:
        if slots is not None:
            raise UsageError("--per-cell-jobs lets SLURM choose the nodes. Leave -H away.")
        return None
    if slots is not None:
        return hosts_by_ssh(slots, args.rsh or os.environ.get("FARANDOLE_RSH"), os.environ)
    return find_hosts(args.command_line[args.command_line[:1] == ["--"] :], os.environ)


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
    from farandole.study.hosts import read_room
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
