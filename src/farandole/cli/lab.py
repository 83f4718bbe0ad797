"""`farandole lab`: one of the built-in labs, or all; its questions answered from real runs."""

from __future__ import annotations

import argparse
import shlex
import sys
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING

from farandole.cli.command import (
    JSON,
    Command,
    check_platform,
    flag,
    interrupted,
    print_json,
    say,
    shown,
)
from farandole.errors import FarandoleError, UsageError

if TYPE_CHECKING:
    from farandole.labs.lab import Asked, DataFacts, Lab, Plan, Size
    from farandole.labs.report import LabReport
    from farandole.study.progress import Listener

SCHEMA = 1
ALL = "all"
_BUDGET = "15m"

COMMAND = Command(
    name="lab",
    text="Run a built-in lab and report its answers. Without a name, list the labs.",
    usage="[NAME | all] [options]",
    flags={
        "how much (one of these)": (
            flag("name", "NAME", "a lab, or all", nargs="?"),
            flag("--quick", "", "about a minute (faces: three), one launch per setting"),
            flag("--budget", "TIME", f"what fits into this time (default {_BUDGET})"),
            flag("--full", "", "the lab's own protocol: hours"),
        ),
        "on what": (
            flag("--data", "DIR", "real data (default: generated or bundled); all: DIR/NAME"),
            flag(
                *("-np -n -w --workers", "N,..."),
                "numbers of workers: 1,2,4 or 1-4 (default: the lab's)",
                dest="workers",
            ),
            flag(
                *("--recipe", "NAME,..."),
                "learning rates: fixed, linear, warmup, longer, or original where a lab has its "
                "own (default: the lab's)",
                dest="recipes",
            ),
            flag(
                *("--weights", "WHAT"),
                "initial weights of fruits and caltech: pretrained, none (random) or a file "
                "(default: pretrained where installed)",
            ),
        ),
        "output": (
            flag("--out", "DIR", "the lab's folder (default: a new one here)"),
            flag("--dry-run", "", "print the plan with times, and exit"),
            JSON,
            flag("--anonymous", "", "leave out names of hosts, users, paths and commits"),
            flag("--exercise", "", "write a notebook (predict, run, compare), and exit"),
        ),
    },
    usual="name --quick --budget --full --data -np --out --dry-run --json",
    examples="""
farandole lab                                  list the labs
farandole lab cifar10 --quick                  about a minute, no intervals
farandole lab mnist --budget 30m --data DIR    30 minutes, on real data
farandole lab all --quick                      all labs, one page of answers
""",
    notes="""
A lab runs `farandole study` on scripts in examples/, and shows each command.
After Ctrl-C, the same command with the same --out continues.
""",
)


def main(args: argparse.Namespace) -> int:
    """List the labs, or run one or all; return 0 when there is something to say."""
    from farandole.labs import lab as labs

    if args.name is None:
        if asked_for(args).size != "budget" or args.budget or args.dry_run or args.exercise:
            raise UsageError(f"Which lab? Name one of {', '.join(labs.lab_names())}, or all.")
        return _list(args)
    if args.name == ALL:
        return _all(args)
    lab = labs.load_lab(args.name)
    if args.exercise:
        return _exercise(lab, args)
    asked = asked_for(args)
    out = _folder(args, lab.name)
    _check(lab, asked)
    if args.dry_run:
        _show_plan(lab, asked, out, as_json=args.json)
        return 0
    try:
        report, page = _run(lab, asked, out, anonymous=args.anonymous)
    except KeyboardInterrupt as stop:
        return _interrupted(stop, asked.command(lab.name, shown(out)))
    from farandole.labs.report import terminal_lines, to_json

    if args.json:
        print_json(to_json(report))
    else:
        print("\n".join(["", *terminal_lines(report, shown(page))]), flush=True)
    return 0


def _run(lab: Lab, asked: Asked, out: Path, *, anonymous: bool) -> tuple[LabReport, Path]:
    """Run a lab and write its report."""
    began_s = time.monotonic()
    from farandole.labs.report import anonymous as without_names
    from farandole.labs.report import write_lab
    from farandole.labs.run import run_lab

    report = run_lab(lab, asked, out, listening=_listening, say=say, began_s=began_s)
    report = without_names(report) if anonymous else report
    return report, write_lab(report, out)


def _all(args: argparse.Namespace) -> int:
    """Run all labs, each in a folder of its own, and write one page about them."""
    from dataclasses import replace

    from farandole.labs import lab as labs

    asked = asked_for(args)
    out = _folder(args, ALL)
    reports: dict[str, LabReport] = {}
    failed: dict[str, str] = {}
    code = 0
    for name in labs.lab_names():
        say("", f"Lab {name}")
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
            say(f"farandole: the lab {name} failed; the others continue: {error}")
        except KeyboardInterrupt as stop:
            code = _interrupted(stop, asked.command(ALL, shown(out)))
            break
    if args.dry_run or not (reports or failed):
        return code
    from farandole.labs.overview import overview, terminal_lines
    from farandole.labs.report import to_json
    from farandole.report import render

    page = render.write(overview(reports, failed), out, figures=(), tables=("csv", "md"))
    if args.json:
        content = {"labs": {name: to_json(one) for name, one in reports.items()}, "failed": failed}
        print_json({"schema": SCHEMA, **content})
    else:
        print("\n".join(terminal_lines(reports, failed, shown(page))), flush=True)
    return code or (0 if reports else 1)


def _interrupted(stop: KeyboardInterrupt, again: Sequence[str]) -> int:
    what = "the lab was interrupted; what is finished is saved. Continue with: "
    say(f"farandole: {what}{shlex.join(again)}")
    return interrupted(stop)


def _exercise(lab: Lab, args: argparse.Namespace) -> int:
    from farandole.labs.exercise import write_notebook

    path = write_notebook(lab, Path(args.out or ".").absolute() / f"{lab.name}-exercise.ipynb")
    print(f"Open it in Jupyter: {shown(path)}")
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
        raise UsageError(f"{' and '.join(sizes)} exclude each other. Give one of them.")
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
    """Refuse what a lab does not have, and a machine that it cannot run on."""
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
    check_platform()
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


def _folder(args: argparse.Namespace, name: str) -> Path:
    from farandole.study.folder import new_folder

    if args.out is not None:
        return Path(args.out).absolute()
    return new_folder(f"lab-{name}", Path.cwd())


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
        print_json({"schema": SCHEMA, "labs": content})
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
        print_json(content)
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


def _listening() -> AbstractContextManager[Listener]:
    from farandole.cli.progress import listener

    return listener(sys.stderr)
