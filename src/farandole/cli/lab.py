"""`farandole lab`: one of the built-in labs, or all; its questions answered from real runs."""

from __future__ import annotations

import argparse
import json
import shlex
import sys
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from farandole.cli.flags import add_flags
from farandole.errors import FarandoleError, UsageError

if TYPE_CHECKING:
    from farandole.labs.lab import Asked, DataFacts, Lab, Plan, Size
    from farandole.labs.report import LabReport
    from farandole.study.progress import Listener

SCHEMA = 1
ALL = "all"
_BUDGET = "15m"

_EPILOG = """\
examples:
  farandole lab                                  the labs, with a line each
  farandole lab cifar10 --quick                  about a minute, without intervals
  farandole lab mnist --budget 30m --data DIR    what fits into 30 minutes, on real data
  farandole lab driving --full --out driving     as the lab report did it
  farandole lab mnist --dry-run                  what would be run, with minutes
  farandole lab all --quick                      all labs, and one page with their answers
  farandole lab mnist --exercise                 a notebook: predict, run, compare

A lab is nothing but `farandole study` of a script in examples/, several times, and one report: each
command is shown as you could type it. The same command with the same --out goes on after Ctrl-C.
"""
_RECIPES = (
    "ways to set the learning rate: fixed, linear, warmup, longer; original where a lab's own rate "
    "is worth seeing (default: the lab's)"
)
_WEIGHTS = (
    "what the network of fruits and caltech begins with: pretrained, none (random) or a file "
    "(default: pretrained where installed)"
)


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
    parser.add_argument("name", metavar="NAME", nargs="?", help="a lab, or all (default: list)")
    add_flags(
        parser.add_argument_group("how much (one of these)"),
        ("--quick", None, "about a minute (faces: four), one launch of each kind"),
        ("--budget", "TIME", f"what fits into this time, reports included (default {_BUDGET})"),
        ("--full", None, "the lab's literal protocol: hours"),
    )
    add_flags(
        parser.add_argument_group("on what"),
        ("--data", "DIR", "real data (default: generated or bundled data); all: DIR/NAME"),
        (
            "-np -n -w --workers",
            "N,...",
            "numbers of workers: 1,2,4 or 1-4 (default: the lab's)",
            {"dest": "workers"},
        ),
        ("--recipe", "NAME,...", _RECIPES, {"dest": "recipes"}),
        ("--weights", "WHAT", _WEIGHTS),
    )
    add_flags(
        parser.add_argument_group("where, and the rest"),
        ("--out", "DIR", "the lab's folder (default: a new one here)"),
        ("--anonymous", None, "leave names of hosts, users, paths and commits out of the report"),
        ("--exercise", None, "write a notebook that asks before it shows, and end"),
        ("--dry-run", None, "print the plan with times, and end"),
        ("--json", None, "print the answers as JSON, schema 1"),
    )
    parser.set_defaults(func=main)


def main(args: argparse.Namespace) -> int:
    """List the labs, or run one or all; return 0 when there is something to say."""
    from farandole.labs import lab as labs

    if args.name is None:
        return _list(args)
    if args.name == ALL:
        return _all(args)
    lab = labs.load_lab(args.name)
    if args.exercise:
        return _exercise(lab, args)
    asked = asked_for(args)
    out = Path(args.out).absolute() if args.out is not None else _new_folder(lab.name)
    _check(lab, asked)
    if args.dry_run:
        _show_plan(lab, asked, out, as_json=args.json)
        return 0
    try:
        report, page = _run(lab, asked, out, anonymous=args.anonymous)
    except KeyboardInterrupt as stop:
        return _interrupted(stop, asked.command(lab.name, _shown(out)))
    from farandole.labs.report import terminal_lines, to_json

    if args.json:
        print(json.dumps(to_json(report), indent=1, allow_nan=False))
    else:
        print("\n".join(["", *terminal_lines(report, _shown(page))]), flush=True)
    return 0


def _run(lab: Lab, asked: Asked, out: Path, *, anonymous: bool) -> tuple[LabReport, Path]:
    """Run a lab and write its report."""
    began_s = time.monotonic()
    from farandole.labs.report import anonymous as without_names
    from farandole.labs.report import write_lab
    from farandole.labs.run import run_lab

    report = run_lab(lab, asked, out, listening=_listening, say=_say, began_s=began_s)
    report = without_names(report) if anonymous else report
    return report, write_lab(report, out)


def _all(args: argparse.Namespace) -> int:
    """Run all labs, each in a folder of its own, and write one page about them."""
    from dataclasses import replace

    from farandole.labs import lab as labs

    asked = asked_for(args)
    out = Path(args.out).absolute() if args.out is not None else _new_folder(ALL)
    reports: dict[str, LabReport] = {}
    failed: dict[str, str] = {}
    code = 0
    for name in labs.lab_names():
        _say(f"\nLab {name}")
        try:
            lab = labs.load_lab(name)
            data = asked.data / name if asked.data and (asked.data / name).is_dir() else None
            weights = asked.weights if lab.check_weights else None
            wish = replace(asked, data=data, weights=weights)
            _check(lab, wish)
            if args.dry_run:
                _show_plan(lab, wish, out / name, as_json=args.json)
            else:
                reports[name], _ = _run(lab, wish, out / name, anonymous=args.anonymous)
        except (FarandoleError, OSError) as error:
            failed[name] = str(error)
            _say(f"farandole: the lab {name} failed, the others go on: {error}")
        except KeyboardInterrupt as stop:
            code = _interrupted(stop, asked.command(ALL, _shown(out)))
            break
    if args.dry_run or not (reports or failed):
        return code
    from farandole.labs.overview import overview, terminal_lines
    from farandole.labs.report import to_json
    from farandole.report import render

    page = render.write(overview(reports, failed), out, figures=(), tables=("csv", "md"))
    if args.json:
        content = {"labs": {name: to_json(one) for name, one in reports.items()}, "failed": failed}
        print(json.dumps({"schema": SCHEMA, **content}, indent=1, allow_nan=False))
    else:
        print("\n".join(terminal_lines(reports, failed, _shown(page))), flush=True)
    return code or (0 if reports else 1)


def _interrupted(stop: KeyboardInterrupt, again: Sequence[str]) -> int:
    what = "the lab was interrupted, and what is finished is kept. Go on with: "
    _say(f"farandole: {what}{shlex.join(again)}")
    signum: int | None = getattr(stop, "signum", None)
    return 130 if signum is None else 128 + signum


def _exercise(lab: Lab, args: argparse.Namespace) -> int:
    from farandole.labs.exercise import write_notebook

    path = write_notebook(lab, Path(args.out or ".").absolute() / f"{lab.name}-exercise.ipynb")
    print(f"Open it in Jupyter: {_shown(path)}")
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

    given = {"--quick": args.quick, "--budget": args.budget is not None, "--full": args.full}
    sizes = [flag for flag, is_given in given.items() if is_given]
    if len(sizes) > 1:
        raise UsageError(f"{' and '.join(sizes)} say different sizes. Give one of them.")
    size: Size = "quick" if args.quick else "full" if args.full else "budget"
    budget_s = values.seconds(args.budget or _BUDGET, flag="--budget")
    recipes = [] if args.recipes is None else args.recipes.split(",")
    return Asked(
        size=size,
        budget_s=budget_s if size == "budget" else None,
        data=None if args.data is None else Path(args.data).absolute(),
        workers=() if args.workers is None else values.counts(args.workers, flag="-np"),
        recipes=tuple(dict.fromkeys(lab_recipe(name.strip()).name for name in recipes)),
        cores=read_cores().available,
        weights=_weights(args.weights),
    )


def _check(lab: Lab, asked: Asked) -> None:
    """Refuse what a lab does not have, and a machine that it cannot run on.

    Raises:
        UsageError: Names what there is.
        MissingExtraError: A package is not installed.
        DataError: The weights are another network's.
    """
    from farandole.labs.lab import check_packages
    from farandole.labs.plan import ORIGINAL
    from farandole.recipes import RECIPES

    if ORIGINAL.name in asked.recipes and not lab.original:
        raise UsageError(
            f"--recipe {ORIGINAL.name}: the lab {lab.name} has no learning rate of its own to try. "
            f"There are {', '.join(RECIPES)}."
        )
    if asked.weights is not None and lab.check_weights is None:
        raise UsageError(
            f"--weights {asked.weights}: the lab {lab.name} trains its networks from scratch. "
            "Weights are for fruits and caltech."
        )
    if sys.platform == "win32":
        raise UsageError("workers cannot be started on Windows itself. Use WSL2, and run it there.")
    check_packages(lab.name)
    if asked.weights is not None and lab.check_weights is not None:
        lab.check_weights(asked.weights)


def _weights(given: str | None) -> str | None:
    """Return what the script is told, wherever it runs: a file by its whole path."""
    if given is None:
        return None
    from farandole.labs.networks import NONE, PRETRAINED

    if given in (NONE, PRETRAINED):
        return given
    return str(Path(given).expanduser().absolute())


def _new_folder(name: str) -> Path:
    number = 1
    while (path := Path.cwd() / f"lab-{name}-{number}").exists():
        number += 1
    return path


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
        return 0
    width = max((len(lab.name) for lab in listed), default=0) + 2
    print("\n".join(f"  {lab.name:<{width}}{lab.line}" for lab in listed))
    print("\nfarandole lab NAME --quick runs one in about a minute; --help has the rest.")
    return 0


def _show_plan(lab: Lab, asked: Asked, out: Path, *, as_json: bool) -> None:
    from dataclasses import asdict

    from farandole.labs.run import planned

    data = lab.data(asked.data)
    plan = planned(lab, asked, data, out)
    if as_json:
        content = {"schema": SCHEMA, "lab": lab.name, "data": asdict(data), "plan": plan.to_json()}
        content["estimate_s"] = plan.estimate_s
        print(json.dumps(content, indent=1, allow_nan=False))
    else:
        print("\n".join(_plan_lines(lab, data, plan)))


def _plan_lines(lab: Lab, data: DataFacts, plan: Plan) -> list[str]:
    """Say what would be run, how long each part takes, and where it differs from the lab."""
    from farandole.labs.run import data_lines
    from farandole.study.progress import duration

    lines = [
        *data_lines(lab, data),
        *(f"  {one.name}: {one.title}, about {duration(one.estimate_s)}" for one in plan.studies),
        f"About {duration(plan.estimate_s)} in all.",
    ]
    if plan.choices:
        lines.append("The lab / here:")
    for choice in plan.choices:
        why = f" ({choice.why})" if choice.why else ""
        lines.append(f"  {choice.what}: {choice.lab} / {choice.here}{why}")
    return lines


def _shown(path: Path) -> str:
    from farandole.study.folder import shown

    return shown(path, Path.cwd())


def _listening() -> AbstractContextManager[Listener]:
    from farandole.cli.progress import listener

    return listener(sys.stderr)


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
