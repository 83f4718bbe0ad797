"""`farandole study`: measure how a script scales, by launches of the command that a user has."""

from __future__ import annotations

import argparse
import os
import shlex
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from farandole.cli.command import (
    JOB_FLAGS,
    JSON,
    Command,
    check_platform,
    flag,
    interrupted,
    print_json,
    say,
    shown,
    user_command,
)
from farandole.errors import UsageError
from farandole.format import plural
from farandole.study.options import HOSTS, MEASURE, OPTIONS, VARY, WHERE, check_resume

if TYPE_CHECKING:
    from farandole.report.live import LivePage
    from farandole.study.hosts import Hosts
    from farandole.study.progress import Listener
    from farandole.study.runner import StudyRun
    from farandole.study.spec import Room

COMMAND = Command(
    name="study",
    text="Measure how a training script scales: launch it with several numbers of workers, repeat, "
    "and compare.",
    usage="[options] -- COMMAND ...\n--resume DIR\nimport TABLE.csv --out DIR",
    flags={
        title: tuple(
            flag(
                " ".join(option.flags),
                option.metavar,
                option.help,
                repeated=option.repeated,
                dest=option.name,
            )
            for option in OPTIONS
            if option.group == title
        )
        + (JOB_FLAGS if title == HOSTS else ())
        for title in (VARY, MEASURE, WHERE, HOSTS)
    },
    usual="-np --scaling -L --measure --repeats --seeds --time-limit --throughput --out --resume "
    "--live --dry-run --json",
    examples="""
farandole study -- python train.py --batch-size '{batch}'
farandole study -np 1,2,4 -L batch=64,256 -- python train.py --bs '{batch}'
farandole study -L lr=0.1,0.2 --measure both -- python train.py --lr '{lr}'
""",
    notes="""
Placeholders: {batch} per worker, {global_batch}, {workers}, {hosts}, {threads},
{seed}, {cell_dir}, and names given by -L. Other braces pass unchanged.
""",
    more="""
A script can read values without placeholders: farandole.param("batch", 32).
Commands that bring their own launcher keep it:
  farandole study -np 1,2 -- torchrun --nproc-per-node '{workers}' train.py
Figures can be read from the output:
  farandole study --throughput 'img/sec: ([0-9.]+)' -- ./train.sh '{workers}'
Every launch is on disk before the next one starts.
""",
    takes_command=True,
)
_IMPORT = Command(
    name="study import",
    text="Make a study of figures that were measured elsewhere.",
    usage="TABLE.csv --out DIR",
    flags={
        "options": (
            flag("table", "TABLE.csv", "one row per run; columns such as workers, batch, epoch_s"),
            flag("--out", "DIR", "the study's folder: a new one"),
            flag("--label", "TEXT", "the study's name in its report"),
            flag("--no-report", "", "do not write a report"),
            JSON,
        )
    },
    examples="farandole study import figures.csv --out elsewhere",
    notes="docs/reference/study-folder.md lists the columns.",
)


def main(args: argparse.Namespace) -> int:
    """Run, resume or import a study; return 0 when it has something to say."""
    if args.command_line[:1] == ["import"]:
        return _import(args)
    check_platform()
    from farandole.cli.progress import listener
    from farandole.study.runner import finished

    with ExitStack() as stack:
        progress = stack.enter_context(listener(sys.stderr))
        live = None
        if args.live:
            from farandole.report.live import LiveListener

            live = LiveListener(progress)
        run = _prepare(args, live or progress)
        path = run.path
        if args.dry_run:
            say(*run.notes)
            print("\n".join(run.plan_lines(dry=True)))
            return 0
        run.check()
        say(*run.notes, *run.plan_lines(), f"Writing to {shown(path)}")
        if live is not None:
            live.page = stack.enter_context(_live_page(path))
        try:
            run.go()
            if live is not None:
                live.finish(stopped=False)
        except KeyboardInterrupt as stop:
            named = {"-H": args.hosts, "--hostfile": args.hostfile, "--rsh": args.rsh}
            again = ["farandole", "study", "--resume", shown(path)]
            again += [x for pair in named.items() if pair[1] is not None for x in pair]
            say(
                "farandole: the study was interrupted; finished launches are saved. Continue with: "
                f"{shlex.join(again)}"
            )
            if live is not None:
                live.finish(stopped=True)
            return interrupted(stop)
    _report(path, as_json=args.json, files=not args.no_report)
    return 0 if any(one.succeeded and not one.cell.today for one in finished(path)) else 1


def _live_page(path: Path) -> LivePage:
    """Return the page that shows this study while it is made, and say where it is."""
    from farandole.cli.report import load
    from farandole.report.live import LivePage

    page = LivePage(lambda: load([path], notes=False), path)
    say(f"Live report, on this machine only: {page.address}")
    return page


def _prepare(args: argparse.Namespace, progress: Listener) -> StudyRun:
    """Decide a study from flags, or read what an earlier one was asked for."""
    from farandole.study.command import name_of_command
    from farandole.study.folder import new_folder
    from farandole.study.runner import prepare

    command, hosts = user_command(args), _hosts(args)
    given: dict[str, Any] = {"listener": progress, "label": args.label or "", "hosts": hosts}
    if args.resume is not None:
        if args.command_line or args.out is not None:
            raise UsageError(
                f"--resume {args.resume} needs nothing else: its folder knows the command. To add "
                f"values, use --out {args.resume} with the whole command."
            )
        check_resume(vars(args), args.resume)
        return prepare(None, vars(args), Path(args.resume).absolute(), **given)
    if args.per_cell_jobs:
        given["job_flags"] = [part for text in args.sbatch for part in ("--sbatch", text)]
        if args.setup:
            given["job_flags"] += ["--setup", str(Path(args.setup).absolute())]
        given["room"] = _room_of_jobs(args)
    path = new_folder(f"study-{name_of_command(command)}", Path.cwd())
    if args.out is not None:
        path = Path(args.out).absolute()
    options = {option.name: getattr(args, option.name) for option in OPTIONS if option.decides}
    return prepare(command, options, path, **given)


def _hosts(args: argparse.Namespace) -> Hosts | None:
    """Return the hosts that are named; refuse flags that do not go together."""
    from farandole.launch.placement import named_hosts
    from farandole.study.hosts import hosts_by_ssh

    given = "--sbatch" if args.sbatch else "--setup" if args.setup else None
    if given and args.resume is not None:
        raise UsageError(
            f"--resume {args.resume} submits jobs as before: leave out {given}. To change it, use "
            f"--out {args.resume} with the whole command."
        )
    if given and not args.per_cell_jobs:
        raise UsageError(f"{given} is for --per-cell-jobs. Add that flag, or leave out {given}.")
    slots = named_hosts(args.hosts, args.hostfile, os.environ)
    if slots is not None and args.per_cell_jobs:
        raise UsageError("--per-cell-jobs lets SLURM choose the nodes. Leave out -H.")
    if slots is None:
        return None
    return hosts_by_ssh(slots, args.rsh or os.environ.get("FARANDOLE_RSH"), os.environ)


def _room_of_jobs(args: argparse.Namespace) -> Room:
    """Return what SLURM's nodes have."""
    from farandole.launch.slurm_jobs import Slurm, parse_options
    from farandole.study.spec import Room

    partition = dict(parse_options(args.sbatch)).get("partition")
    cpus, nodes = Slurm(os.environ).nodes(partition)
    return Room(cores=cpus, physical=cpus, hosts=nodes)


def _report(path: Path, *, as_json: bool, files: bool) -> None:
    """Write the report of what there is, and end with its answer; with neither, do nothing."""
    if not files and not as_json:
        return
    from farandole.cli.report import load
    from farandole.report.study import terminal_lines, to_json, write

    found = load([path])
    page = write(found, path) if files else path
    if as_json:
        print_json(to_json(found))
    else:
        lines = with_folder(terminal_lines(found, shown(page)), shown(path))
        print("\n".join(["", *lines]), flush=True)


def with_folder(lines: Sequence[str], folder: str) -> list[str]:
    """Put the study's folder into lines to copy."""
    resume, output = f"--resume {shlex.quote(folder)}", f" {folder}/launches/"
    return [line.replace("--resume DIR", resume).replace(" launches/", output) for line in lines]


def _import(args: argparse.Namespace) -> int:
    """Make a study of a table."""
    from farandole.study.import_table import import_table

    args = _IMPORT.parse(args.command_line[1:], args)
    if args.out is None:
        raise UsageError("study import needs a folder for the study: --out DIR.")
    path = Path(args.out).absolute()
    study, imported = import_table(Path(args.table), path, label=args.label)
    say(*imported.notes)
    say(f"{plural(len(study.launches), 'row')} became a study in {shown(path)}")
    _report(path, as_json=args.json, files=not args.no_report)
    return 0
