"""`farandole study`: measure how a script scales, by launches of the command that a user has."""

from __future__ import annotations

import argparse
import json
import os
import shlex
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from farandole.cli import study_hosts
from farandole.cli.flags import add_flag
from farandole.errors import UsageError
from farandole.format import plural

if TYPE_CHECKING:
    from farandole.study.hosts import Hosts
    from farandole.study.spec import Spec

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
    what = parser.add_argument_group("what to vary")
    add_flag(
        what,
        "-np",
        "-n",
        "-w",
        "--workers",
        dest="workers",
        metavar="N,...",
        help="numbers of workers: 1,2,4 or 1-4 or auto (default 1, 2, 4, ... up to cores or GPUs); "
        "2x4: hosts x workers on each",
    )
    add_flag(
        what,
        "--scaling",
        metavar="WAY",
        help="weak: the batch per worker stays (default); strong: -L batch is shared by all "
        "workers; both",
    )
    add_flag(
        what,
        "-L",
        "--vary",
        dest="factors",
        action="append",
        default=[],
        metavar="NAME=V1,V2",
        help="values of a factor; batch=32,64,...,max finds the largest batch that fits",
    )
    add_flag(
        what, "--threads", metavar="N,...", help="threads per worker (default: the same in all)"
    )
    add_flag(what, "--split", metavar="all", help="all splits of the cores into workers x threads")
    add_flag(
        what, "--transport", metavar="NAME,...", help="auto, shm, gloo, mpi, nccl (default auto)"
    )
    how = parser.add_argument_group("how to measure")
    add_flag(how, "--measure", metavar="WHAT", help="speed (default), accuracy or both")
    add_flag(how, "--repeats", metavar="N", help="launches per cell for speed (default 3)")
    add_flag(how, "--seeds", metavar="N", help="launches per cell for accuracy (default 3)")
    add_flag(
        how, "--precision", metavar="SHARE", help="of a launch's median step time (default 3%%)"
    )
    add_flag(how, "--steps", metavar="N", help="end each launch for speed after N steps instead")
    add_flag(how, "--epochs", metavar="N", help="end each launch for speed after N epochs instead")
    add_flag(how, "--time-limit", metavar="TIME", help="fit repeats into this time: 20m, 1h30m")
    add_flag(how, "--launch-timeout", metavar="TIME", help="end a launch after this time (15m)")
    add_flag(how, "--memory", metavar="SIZE", help="of each worker (default: 80%% of what is free)")
    add_flag(how, "--throughput", metavar="REGEX", help="read samples/s from the output")
    add_flag(
        how,
        "--metric",
        dest="metrics",
        action="append",
        default=[],
        metavar="NAME=REGEX",
        help="read a metric from the output",
    )
    add_flag(how, "--no-epoch", action="store_true", help="no launch of one whole epoch per count")
    add_flag(how, "--no-today", action="store_true", help="no cell of one process with all cores")
    add_flag(how, "--no-batch-check", action="store_true", help="do not compare batches seen")
    add_flag(
        how,
        "--no-calibration",
        action="store_true",
        help="measure neither the workers' link nor what they cost each other without it",
    )
    add_flag(
        how, "--keep-busy", action="store_true", help="no second try when others disturbed one"
    )
    where = parser.add_argument_group("where, and the rest")
    add_flag(where, "--out", metavar="DIR", help="the study's folder; more values there extend it")
    add_flag(where, "--resume", metavar="DIR", help="go on with a study that was interrupted")
    add_flag(where, "--label", metavar="TEXT", help="what the study is called in its report")
    add_flag(
        where, "--cwd", metavar="here|cell", help="run in this folder, or in each launch's own"
    )
    add_flag(where, "--prepare", metavar="CMD", help="run this before each launch")
    add_flag(where, "--horovod-alias", metavar="on|off", help="off: use an installed Horovod")
    add_flag(where, "--no-report", action="store_true", help="leave it to `farandole report DIR`")
    add_flag(where, "--dry-run", action="store_true", help="print the plan with times, and end")
    add_flag(where, "--json", action="store_true", help="print the answer as JSON, schema 1")
    study_hosts.add_flags(parser)
    parser.add_argument("command_line", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    parser.set_defaults(func=main)


def main(args: argparse.Namespace) -> int:
    """Run, resume or import a study; return 0 when it has something to say."""
    if args.command_line[:1] == ["import"]:
        return _import(args)
    if sys.platform == "win32":
        raise UsageError("workers cannot be started on Windows itself. Use WSL2, and run it there.")
    from farandole.cli.progress import listener
    from farandole.launch.horovod_alias import wants_horovod
    from farandole.study.attempt import Interrupted, Setting
    from farandole.study.command import kept_function
    from farandole.study.runner import Run, check, finished

    begin_s = time.monotonic()
    hosts = study_hosts.find(args)
    path, spec, notes = _resumed(args, hosts) if args.resume is not None else _asked(args, hosts)
    if not args.dry_run:
        check(spec, os.environ)
    for line in notes:
        _say(line)
    if spec.launcher is None and spec.horovod_alias and wants_horovod(spec.command):
        _say("Farandole answers `import horovod`")
    if args.dry_run:
        print("\n".join(_plan_lines(path, spec, dry=True)))
        return 0
    for line in _plan_lines(path, spec, dry=False):
        _say(line)
    _say(f"Writing to {_shown(path)}")
    try:
        with listener(sys.stderr) as shown:
            setting = Setting(
                spec=spec,
                environ=os.environ,
                listener=shown,
                function=kept_function(path),
                hosts=hosts,
            )
            Run(path, setting, label=args.label or "", begin_s=begin_s).go()
    except KeyboardInterrupt as stop:
        _say(
            "farandole: the study was interrupted, and finished launches are kept. Go on with: "
            f"farandole study --resume {shlex.quote(_shown(path))}{study_hosts.again(args)}"
        )
        return 128 + stop.signum if isinstance(stop, Interrupted) else 130
    if not args.no_report:
        _report(path, as_json=args.json)
    good = [launch for launch in finished(path) if launch.outcome in ("ok", "stopped")]
    return 0 if good else 1


def _asked(args: argparse.Namespace, hosts: Hosts | None) -> tuple[Path, Spec, list[str]]:
    """Decide a study from flags; with the folder of an earlier one it is extended."""
    from farandole.study import values
    from farandole.study.ask import Asked, make_spec
    from farandole.study.command import name_of_command, new_folder, script_reader, shell_script
    from farandole.study.runner import extended

    command: list[str] = args.command_line
    command = command[1:] if command[:1] == ["--"] else command
    spec, notes = make_spec(
        Asked(
            command=command,
            workers=args.workers,
            scaling=args.scaling,
            factors=values.factors(args.factors),
            threads=args.threads,
            split=args.split,
            transport=args.transport,
            measure=args.measure,
            seeds=args.seeds,
            repeats=args.repeats,
            steps=args.steps,
            epochs=args.epochs,
            precision=args.precision,
            time_limit=args.time_limit,
            launch_timeout=args.launch_timeout,
            memory=args.memory,
            cwd=args.cwd,
            prepare=_words(args.prepare),
            throughput=args.throughput,
            metrics=args.metrics,
            no_epoch=args.no_epoch,
            no_today=args.no_today,
            no_batch_check=args.no_batch_check,
            keep_busy=args.keep_busy,
            no_calibration=args.no_calibration,
            horovod_alias=args.horovod_alias,
            job_flags=study_hosts.job_flags(args),
        ),
        room=study_hosts.room(args, hosts),
        folder=str(Path.cwd()),
        reads=script_reader(command),
        script=shell_script(command),
    )
    if args.out is None:
        path = new_folder(name_of_command(command), Path.cwd())
    else:
        path = Path(args.out).absolute()
    return path, extended(path, spec), notes.lines


# What a study in a folder has decided already, by its argparse name; other flags go with --resume.
_DECIDED = {
    "workers": "-np",
    "scaling": "--scaling",
    "factors": "-L",
    "threads": "--threads",
    "split": "--split",
    "transport": "--transport",
    "measure": "--measure",
    "repeats": "--repeats",
    "seeds": "--seeds",
    "precision": "--precision",
    "steps": "--steps",
    "epochs": "--epochs",
    "launch_timeout": "--launch-timeout",
    "memory": "--memory",
    "throughput": "--throughput",
    "metrics": "--metric",
    "no_epoch": "--no-epoch",
    "no_today": "--no-today",
    "no_batch_check": "--no-batch-check",
    "no_calibration": "--no-calibration",
    "cwd": "--cwd",
    "prepare": "--prepare",
    "horovod_alias": "--horovod-alias",
}


def _resumed(args: argparse.Namespace, hosts: Hosts | None) -> tuple[Path, Spec, list[str]]:
    """Read what an earlier study was asked for; the folder has all that is needed."""
    from dataclasses import replace

    from farandole.study import values
    from farandole.study.read import read_head
    from farandole.study.spec import check_resumable, spec_from_json

    if args.command_line or args.out is not None:
        raise UsageError(
            f"--resume {args.resume} needs nothing else: its folder knows the command. To add "
            f"values, use --out {args.resume} with the whole command."
        )
    given = [
        flag for name, flag in _DECIDED.items() if getattr(args, name) not in (None, False, [])
    ]
    if given:
        raise UsageError(
            f"--resume {args.resume} goes on as the study was begun: leave {given[0]} away. To "
            f"change it, use --out {args.resume} with the whole command."
        )
    path = Path(args.resume).absolute()
    head = read_head(path)
    spec = spec_from_json(head.spec)
    check_resumable(spec)
    study_hosts.check_resumed(spec, hosts)
    if head.complete and not args.keep_busy:
        # All launches have been made: what is left to ask for is those that others disturbed.
        spec = replace(spec, retry_busy=True)
    if args.time_limit is not None:
        limit_s = values.seconds(args.time_limit, flag="--time-limit")
        spec = replace(spec, time_limit_s=limit_s)
    try:
        os.chdir(spec.folder)
    except OSError as error:
        raise UsageError(
            f"The study's command runs in {spec.folder}, which cannot be entered "
            f"({error.strerror}). Put it back, or begin a new study with --out."
        ) from error
    return path, spec, []


def _plan_lines(path: Path, spec: Spec, *, dry: bool) -> list[str]:
    """Say what will be done: all of it in a dry run, in two lines before a real one."""
    from farandole.study.plan import estimate, fitting, left_out, make_plan, pending
    from farandole.study.progress import begin_lines, duration, plan_lines
    from farandole.study.runner import finished, nothing_to_do, preview

    cells = preview(spec)
    planned = make_plan(spec, cells)
    if not planned:
        raise UsageError(nothing_to_do(spec))
    done = finished(path)
    lines = left_out(spec, cells)
    if spec.find_max:
        lines.append("The largest batch that fits is found first, and is not in these figures.")
    whole = estimate(spec, planned, done)
    open_ones = pending(spec, planned, done, earlier=len(done))
    rest = estimate(spec, open_ones, done)
    if not dry:
        return lines + begin_lines(whole, rest)
    shown = [cell for cell in cells if any(one.cell == cell for one in planned)]
    lines += plan_lines(shown, whole, rest)
    if spec.time_limit_s is not None and rest.launches:
        room = fitting(spec, open_ones, done, left_s=spec.time_limit_s)
        lines.append(
            f"--time-limit {duration(spec.time_limit_s)} has room for about {room} of "
            f"{plural(rest.launches, 'launch')}."
        )
    return lines


def _report(path: Path, *, as_json: bool) -> None:
    """Write the report of what there is, and end with its answer."""
    from farandole.cli.report import load
    from farandole.report import terminal_lines, to_json, write

    found = load([path])
    page = write(found, path)
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
    if not args.no_report:
        _report(path, as_json=given.json)
    return 0


def _words(text: str | None) -> list[str]:
    if text is None:
        return []
    try:
        return shlex.split(text)
    except ValueError as error:
        raise UsageError(f"--prepare {text}: {error}.") from error


def _shown(path: Path) -> str:
    from farandole.study.folder import shown

    return shown(path, Path.cwd())


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
