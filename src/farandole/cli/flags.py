"""Flags of the command line, in all their spellings."""

from __future__ import annotations

import argparse
import os
from typing import Any

from farandole.world.stall_times import SHUTDOWN, WARNING, read_stall_times


def add_flag(parser: Any, *names: str, aliases: tuple[str, ...] = (), **options: Any) -> None:
    """Add a flag; its spellings with underscores and its aliases work too, without being shown."""
    shown = parser.add_argument(*names, **options)
    spellings = [*names, *aliases]
    hidden = [
        *aliases,
        *(f"--{name[2:].replace('-', '_')}" for name in spellings if "-" in name[2:]),
    ]
    if hidden:
        options |= {"dest": shown.dest, "help": argparse.SUPPRESS, "default": argparse.SUPPRESS}
        parser.add_argument(*hidden, **options)


def add_flags(parser: Any, *rows: tuple[Any, ...]) -> None:
    """Add a table of flags: names, metavar (None: a switch), help, and more options if any."""
    for names, metavar, words, *more in rows:
        options = {"metavar": metavar} if metavar else {"action": "store_true"}
        add_flag(parser, *names.split(), help=words, **options, **(more[0] if more else {}))


def add_stall_flags(parser: Any) -> None:
    """Add the flags about stalled operations to a parser."""
    add_flag(
        parser,
        "--stall-warning",
        metavar="S",
        help="seconds after which an operation that some ranks have not submitted is reported, "
        "with where they are (default 60; 0: never)",
    )
    add_flag(
        parser,
        "--stall-shutdown",
        metavar="S",
        help="seconds after which such an operation ends the job (default: never)",
    )


def add_job_flags(group: Any) -> None:
    """Add the flags that say how SLURM's jobs are submitted."""
    add_flag(
        group,
        "--sbatch",
        action="append",
        default=[],
        metavar="K=V,...",
        help="options of sbatch: account=abc,partition=gpu,time=1:00:00",
    )
    add_flag(group, "--setup", metavar="FILE", help="shell lines to run first: modules, conda")


def tell_workers(args: argparse.Namespace) -> None:
    """Put the stall flags into the variables that workers read, on other hosts too.

    Raises:
        UsageError: It cannot be used as given.
    """
    given = {WARNING: args.stall_warning, SHUTDOWN: args.stall_shutdown}
    given = {name: value for name, value in given.items() if value is not None}
    read_stall_times(os.environ, given)
    os.environ.update(given)
