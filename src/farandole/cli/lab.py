"""`farandole lab`: one of the built-in labs, its questions answered from real runs."""

from __future__ import annotations

import argparse
import json
import shlex
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from farandole.cli.flags import add_flag
from farandole.errors import UsageError

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from farandole.labs.lab import Asked, DataFacts, Lab, Plan, Size
    from farandole.labs.report import LabReport
    from farandole.study.progress import Listener

SCHEMA = 1
_BUDGET = "15m"
_MOST_NAMED = 10
"""Files that could not be read, on the terminal."""

_EPILOG = """\
examples:
  farandole lab                                  the labs, with a line each
  farandole lab cifar10 --quick                  about a minute, without intervals
  farandole lab mnist --budget 30m --data DIR    what fits into 30 minutes, on real data
  farandole lab driving --full --out driving     as the lab report did it
  farandole lab mnist --dry-run                  what would be run, with minutes

A lab is nothing but `farandole study` of a script in examples/, several times, and one report: each
command is shown as you could type it. The same command with the same --out goes on after Ctrl-C.
"""


def add_parser(subparsers: Any) -> None:
    """Add `lab` to the command line's parsers."""
    parser: argparse.ArgumentParser = subparsers.add_parser(
        "lab",
        help="list the built-in labs, or run one: its questions answered from real runs",
        description="Run a lab: the studies that answer its questions, and one report of them.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("name", metavar="NAME", nargs="?", help="a lab; without one: all labs")
    size = parser.add_argument_group("how much (one of these)")
    add_flag(
        size,
        "--quick",
        action="store_true",
        help="about a minute (faces: four), one launch of each kind",
    )
    add_flag(
        size,
        "--budget",
        metavar="TIME",
        help=f"what fits into this time, reports included: 15m, 1h (default {_BUDGET})",
    )
    add_flag(size, "--full", action="store_true", help="the lab's literal protocol: hours")
    what = parser.add_argument_group("on what")
    add_flag(what, "--data", metavar="DIR", help="real data (default: generated or bundled data)")
    add_flag(
        what,
        "-np",
        "-n",
        "-w",
        "--workers",
        dest="workers",
        metavar="N,...",
        help="numbers of workers: 1,2,4 or 1-4 (default: the lab's)",
    )
    add_flag(
        what,
        "--recipe",
        dest="recipes",
        metavar="NAME,...",
        help="ways to set the learning rate: fixed, linear, warmup, longer; original where a lab's "
        "own rate is worth seeing (default: the lab's)",
    )
    add_flag(
        what,
        "--weights",
        metavar="WHAT",
        help="what the network of fruits and caltech begins with: pretrained, none (random) or a "
        "file (default: pretrained where installed)",
    )
    rest = parser.add_argument_group("where, and the rest")
    add_flag(rest, "--out", metavar="DIR", help="the lab's folder (default: a new one here)")
    add_flag(
        rest,
        "--anonymous",
        action="store_true",
        help="leave names of hosts, users, paths and commits out of the report",
    )
    add_flag(rest, "--dry-run", action="store_true", help="print the plan with times, and end")
    add_flag(rest, "--json", action="store_true", help="print the answers as JSON, schema 1")
    parser.set_defaults(func=main)


def main(args: argparse.Namespace) -> int:
    """List the labs, or run one; return 0 when it has something to say."""
    from farandole.labs import lab as labs

    if args.name is None:
        return _list(args)
    began_s = time.monotonic()
    lab = labs.load_lab(args.name)
    asked = asked_for(args)
    _check_original(lab, asked)
    _check_weights(lab, asked)
    out = _folder(args)
    if sys.platform == "win32":
        raise UsageError("workers cannot be started on Windows itself. Use WSL2, and run it there.")
    labs.check_packages(args.name)
    if asked.weights is not None and lab.check_weights is not None:
        lab.check_weights(asked.weights)
    data = lab.data(asked.data)
    if args.dry_run:
        from farandole.labs.run import planned

        _show_plan(lab, data, planned(lab, asked, data, out), as_json=args.json)
        return 0
    from farandole.labs.report import lab_report
    from farandole.labs.run import LabRun

    _say(data_line(lab, data))
    for line in left_out(data):
        _say(line)
    run = LabRun(lab, asked, data, out, listening=_listening, say=_say, began_s=began_s)
    _say(f"Writing to {_shown(out)}")
    try:
        _finish(lab_report(lab, run.go(), created=run.created), out, args)
    except KeyboardInterrupt as stop:
        again = shlex.join(asked.command(lab.name, _shown(out)))
        _say(
            "farandole: the lab was interrupted, and what is finished is kept. Go on with: " + again
        )
        signum: int | None = getattr(stop, "signum", None)
        return 130 if signum is None else 128 + signum
    return 0


def asked_for(args: argparse.Namespace) -> Asked:
    """Check the flags and return what they ask for.

    Raises:
        UsageError: Something cannot be used as given.
    """
    from farandole.labs.lab import Asked
    from farandole.labs.plan import lab_recipe
    from farandole.study import values
    from farandole.world.cores import read_cores

    sizes = [
        flag
        for flag, given in (
            ("--quick", args.quick),
            ("--budget", args.budget is not None),
            ("--full", args.full),
        )
        if given
    ]
    if len(sizes) > 1:
        raise UsageError(f"{' and '.join(sizes)} say different sizes. Give one of them.")
    size: Size = "quick" if args.quick else "full" if args.full else "budget"
    recipes = [] if args.recipes is None else args.recipes.split(",")
    return Asked(
        size=size,
        budget_s=values.seconds(args.budget or _BUDGET, flag="--budget")
        if size == "budget"
        else None,
        data=None if args.data is None else Path(args.data).absolute(),
        workers=() if args.workers is None else values.counts(args.workers, flag="-np"),
        recipes=tuple(dict.fromkeys(lab_recipe(name.strip()).name for name in recipes)),
        cores=read_cores().available,
        weights=_weights(args.weights),
    )


def _check_original(lab: Lab, asked: Asked) -> None:
    """Refuse the original's own rate where a lab does not have it.

    Raises:
        UsageError: Names the recipes that there are.
    """
    from farandole.labs.plan import ORIGINAL
    from farandole.recipes import RECIPES

    if ORIGINAL.name in asked.recipes and not lab.original:
        raise UsageError(
            f"--recipe {ORIGINAL.name}: the lab {lab.name} has no learning rate of its own to try. "
            f"There are {', '.join(RECIPES)}."
        )


def _check_weights(lab: Lab, asked: Asked) -> None:
    """Refuse weights where a lab has no network that begins with any.

    Raises:
        UsageError: Names the labs that do.
    """
    if asked.weights is not None and lab.check_weights is None:
        raise UsageError(
            f"--weights {asked.weights}: the lab {lab.name} trains its networks from scratch. "
            "Weights are for fruits and caltech."
        )


def _weights(given: str | None) -> str | None:
    """Return what the script is told, wherever it runs: a file by its whole path."""
    if given is None:
        return None
    from farandole.labs.networks import NONE, PRETRAINED

    if given in (NONE, PRETRAINED):
        return given
    return str(Path(given).expanduser().absolute())


def _folder(args: argparse.Namespace) -> Path:
    if args.out is not None:
        return Path(args.out).absolute()
    number = 1
    while (path := Path.cwd() / f"lab-{args.name}-{number}").exists():
        number += 1
    return path


def _finish(report: LabReport, out: Path, args: argparse.Namespace) -> None:
    """Write the lab's report, and end with the answers."""
    from farandole.labs.report import anonymous, terminal_lines, to_json, write_lab

    if args.anonymous:
        report = anonymous(report)
    page = write_lab(report, out)
    if args.json:
        print(json.dumps(to_json(report), indent=1, allow_nan=False))
    else:
        print("\n".join(["", *terminal_lines(report, _shown(page))]), flush=True)


def _list(args: argparse.Namespace) -> int:
    from farandole.labs import lab as labs

    listed = [labs.load_lab(name) for name in labs.lab_names()]
    if args.json:
        content = [
            {
                "name": lab.name,
                "title": lab.title,
                "line": lab.line,
                "questions": {question.key: question.text for question in lab.questions},
            }
            for lab in listed
        ]
        print(json.dumps({"schema": SCHEMA, "labs": content}, indent=1))
    else:
        print("\n".join(list_lines(listed)))
    return 0


def list_lines(labs: Sequence[Lab]) -> list[str]:
    """Return the labs with a line each, and how to run one."""
    width = max((len(lab.name) for lab in labs), default=0) + 2
    return [
        *(f"  {lab.name:<{width}}{lab.line}" for lab in labs),
        "",
        "farandole lab NAME --quick runs one in about a minute; farandole lab --help has the rest.",
    ]


def _show_plan(lab: Lab, data: DataFacts, plan: Plan, *, as_json: bool) -> None:
    if as_json:
        from dataclasses import asdict

        content = {"schema": SCHEMA, "lab": lab.name, "data": asdict(data), "plan": plan.to_json()}
        content["estimate_s"] = plan.estimate_s
        print(json.dumps(content, indent=1, allow_nan=False))
    else:
        print("\n".join(plan_lines(lab, data, plan)))


def plan_lines(lab: Lab, data: DataFacts, plan: Plan) -> list[str]:
    """Say what would be run, how long each part takes, and where it differs from the lab."""
    from farandole.study.progress import duration

    lines = [
        data_line(lab, data),
        *left_out(data),
        *(f"  {one.name}: {one.title}, about {duration(one.estimate_s)}" for one in plan.studies),
        f"About {duration(plan.estimate_s)} in all.",
    ]
    if plan.choices:
        lines.append("The lab / here:")
    for choice in plan.choices:
        why = f" ({choice.why})" if choice.why else ""
        lines.append(f"  {choice.what}: {choice.lab} / {choice.here}{why}")
    return lines


def data_line(lab: Lab, data: DataFacts) -> str:
    """Say what is run on what."""
    return (
        f"{lab.title}. Data: {data.source}; {data.train:,} samples to train on and {data.test:,} "
        f"to test, {data.sample} each."
    )


def left_out(data: DataFacts) -> list[str]:
    """Name what could not be read, and count it: a large data set has many such files."""
    lines = [f"left out: {line}" for line in data.skipped[:_MOST_NAMED]]
    if len(data.skipped) > 1:
        rest = "; the report names more of them" if len(data.skipped) > _MOST_NAMED else ""
        lines.append(f"left out: {len(data.skipped):,} in all{rest}")
    return lines


def _shown(path: Path) -> str:
    from farandole.study.folder import shown

    return shown(path, Path.cwd())


def _listening() -> AbstractContextManager[Listener]:
    from farandole.cli.progress import listener

    return listener(sys.stderr)


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
