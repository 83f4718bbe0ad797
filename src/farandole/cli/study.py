"""`farandole study`: measure how a script scales, by launches of the command that a user has."""

from __future__ import annotations

import argparse
import json
import os
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from farandole.cli.flags import add_flag, add_job_flags
from farandole.errors import UsageError
from farandole.format import plural
from farandole.study.options import HOSTS, MEASURE, OPTIONS, VARY, WHERE, check_resume

if TYPE_CHECKING:
    from farandole.study.hosts import Hosts
    from farandole.study.spec import Room, Spec

_EPILOG = """\
examples:
  farandole study -- python train.py --batch-size '{batch}'
  farandole study -np 1,2,4 --scaling both -L batch=64,256 -- python train.py --bs '{batch}'
  farandole study -L lr=0.1,0.2 --measure both --time-limit 20m -- python train.py --lr '{lr}'
  farandole study -np 1,2 -- torchrun --nproc-per-node '{workers}' train.py
  farandole study --throughput 'img/sec: ([0-9.]+)' -- ./train.sh '{workers}'
  farandole study --resume study-train-1
  farandole study import figures.csv --out elsewhere

Placeholders: {batch} per worker, {global_batch}, {workers}, {hosts}, {threads}, {seed}, {cell_dir},
and the names given by -L; other braces pass untouched. A script can read values without
placeholders: farandole.param("batch", 32). Every launch is kept before the next one starts.
"""


def add_parser(subparsers: Any) -> None:
    """Add `study` to the command line's parsers."""
    parser: argparse.ArgumentParser = subparsers.add_parser(
        "study",
        help="measure how a script scales, with repeats and intervals",
        description="Launch a training command on several numbers of workers, and compare.",
        usage="farandole study [options] -- COMMAND ...\n"
        "       farandole study --resume DIR\n"
        "       farandole study import TABLE.csv --out DIR",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    groups = {title: parser.add_argument_group(title) for title in (VARY, MEASURE, WHERE, HOSTS)}
    for option in OPTIONS:
        kind: dict[str, Any] = {"metavar": option.metavar}
        if not option.metavar:
            kind = {"action": "store_true"}
        elif option.repeated:
            kind |= {"action": "append", "default": []}
        add_flag(groups[option.group], *option.flags, dest=option.name, help=option.help, **kind)
    add_job_flags(groups[HOSTS])
    parser.add_argument("command_line", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    parser.set_defaults(func=main)


def main(args: argparse.Namespace) -> int:
    """Run, resume or import a study; return 0 when it has something to say."""
    if args.command_line[:1] == ["import"]:
        return _import(args)
    if sys.platform == "win32":
        raise UsageError("workers cannot be started on Windows itself. Use WSL2, and run it there.")
    from farandole.cli.progress import listener
    from farandole.study.attempt import Interrupted
    from farandole.study.runner import StudyRun, finished

    command = args.command_line[args.command_line[:1] == ["--"] :]
    hosts = _hosts(args, command)
    path, spec, notes = (_resumed if args.resume is not None else _begun)(args, command, hosts)
    with listener(sys.stderr) as shown:
        run = StudyRun(path, spec, label=args.label or "", listener=shown, hosts=hosts)
        if not args.dry_run:
            run.check()
        for line in notes:
            _say(line)
        if args.dry_run:
            print("\n".join(run.plan_lines(dry=True)))
            return 0
        for line in [*run.plan_lines(), f"Writing to {_shown(path)}"]:
            _say(line)
        try:
            run.go()
        except KeyboardInterrupt as stop:
            named = {"-H": args.hosts, "--hostfile": args.hostfile, "--rsh": args.rsh}
            again = ["farandole", "study", "--resume", _shown(path)]
            again += [x for pair in named.items() if pair[1] is not None for x in pair]
            _say(
                "farandole: the study was interrupted, and finished launches are kept. Go on with: "
                f"{shlex.join(again)}"
            )
            return 128 + stop.signum if isinstance(stop, Interrupted) else 130
    _report(path, as_json=args.json, files=not args.no_report)
    return 0 if any(launch.succeeded for launch in finished(path)) else 1


def _begun(
    args: argparse.Namespace, command: list[str], hosts: Hosts | None
) -> tuple[Path, Spec, list[str]]:
    """Decide a study from flags."""
    from farandole.study.command import name_of_command
    from farandole.study.folder import new_folder
    from farandole.study.runner import begin_spec

    path = new_folder(name_of_command(command), Path.cwd())
    if args.out is not None:
        path = Path(args.out).absolute()
    job_flags = [part for text in args.sbatch for part in ("--sbatch", text)]
    job_flags += ["--setup", str(Path(args.setup).absolute())] if args.setup else []
    return path, *begin_spec(
        command,
        {option.name: getattr(args, option.name) for option in OPTIONS if option.decides},
        path,
        room=_room(args, hosts),
        folder=Path.cwd(),
        job_flags=job_flags if args.per_cell_jobs else None,
    )


def _resumed(
    args: argparse.Namespace, command: list[str], hosts: Hosts | None
) -> tuple[Path, Spec, list[str]]:
    """Read what an earlier study was asked for; the folder has all that is needed."""
    from farandole.study.runner import resume_spec

    if args.command_line or args.out is not None:
        raise UsageError(
            f"--resume {args.resume} needs nothing else: its folder knows the command. To add "
            f"values, use --out {args.resume} with the whole command."
        )
    check_resume(vars(args), args.resume)
    path = Path(args.resume).absolute()
    return path, *resume_spec(path, vars(args), hosts)


def _hosts(args: argparse.Namespace, command: list[str]) -> Hosts | None:
    """Find the hosts of a study: those that are named, or the nodes of the job around it."""
    from farandole.launch.placement import named_hosts
    from farandole.study.hosts import find_hosts, hosts_by_ssh

    flag = "--sbatch" if args.sbatch else "--setup" if args.setup else None
    if flag and args.resume is not None:
        raise UsageError(
            f"--resume {args.resume} submits jobs as they were begun: leave {flag} away. To change "
            f"it, use --out {args.resume} with the whole command."
        )
    if flag and not args.per_cell_jobs:
        raise UsageError(f"{flag} is for --per-cell-jobs. Add it, or leave {flag} away.")
    slots = named_hosts(args.hosts, args.hostfile, os.environ)
    if slots is not None and args.per_cell_jobs:
        raise UsageError("--per-cell-jobs lets SLURM choose the nodes. Leave -H away.")
    if slots is not None:
        return hosts_by_ssh(slots, args.rsh or os.environ.get("FARANDOLE_RSH"), os.environ)
    return None if args.per_cell_jobs else find_hosts(command, os.environ)


def _room(args: argparse.Namespace, hosts: Hosts | None) -> Room:
    """Read what decides a plan: of this machine, of the hosts, or of SLURM's nodes."""
    from farandole.launch.slurm.client import Slurm
    from farandole.launch.slurm.script import parse_options
    from farandole.study.hosts import read_room
    from farandole.study.spec import Room

    if not args.per_cell_jobs:
        return read_room(os.environ) if hosts is None else hosts.room
    partition = dict(parse_options(args.sbatch)).get("partition")
    cpus, nodes = Slurm(os.environ).nodes(partition)
    return Room(cores=cpus, physical=cpus, hosts=nodes)


def _report(path: Path, *, as_json: bool, files: bool) -> None:
    """Write the report of what there is, and end with its answer; with neither, do nothing."""
    if not files and not as_json:
        return
    from farandole.cli.report import load
    from farandole.report import terminal_lines, to_json, write

    found = load([path])
    page = write(found, path) if files else path
    if as_json:
        print(json.dumps(to_json(found), indent=1, allow_nan=False))
    else:
        lines = with_folder(terminal_lines(found, _shown(page)), _shown(path))
        print("\n".join(["", *lines]), flush=True)


def with_folder(lines: Sequence[str], folder: str) -> list[str]:
    """Name the study's folder in lines to copy, which are written for whoever has the folder."""
    resume, output = f"--resume {shlex.quote(folder)}", f" {folder}/launches/"
    return [line.replace("--resume DIR", resume).replace(" launches/", output) for line in lines]


def _import(args: argparse.Namespace) -> int:
    """Make a study of a table."""
    from farandole.study.import_table import import_table

    parser = argparse.ArgumentParser(prog="farandole study import", exit_on_error=False)
    parser.add_argument("table", nargs="?")
    parser.add_argument("--out", default=args.out)
    parser.add_argument("--label", default=args.label)
    parser.add_argument("--json", action="store_true", default=args.json)
    try:
        given, unknown = parser.parse_known_args(args.command_line[1:])
    except argparse.ArgumentError as error:
        raise UsageError(f"study import: {error}.") from error
    if unknown:
        raise UsageError(f"study import does not know {unknown[0]}. Give a table and --out DIR.")
    if given.table is None:
        raise UsageError("study import needs a table: farandole study import TABLE.csv --out DIR.")
    if given.out is None:
        raise UsageError("study import needs a folder for the study: --out DIR.")
    path = Path(given.out).absolute()
    study, imported = import_table(Path(given.table), path, label=given.label)
    for note in imported.notes:
        _say(note)
    _say(f"{plural(len(study.launches), 'row')} became a study in {_shown(path)}")
    _report(path, as_json=given.json, files=not args.no_report)
    return 0


def _shown(path: Path) -> str:
    from farandole.study.folder import shown

    return shown(path, Path.cwd())


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
