"""`farandole project`: what more workers would bring, from a study."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from farandole.cli.flags import add_flag
from farandole.errors import DataError, FarandoleError, UsageError
from farandole.report.escape import visible

if TYPE_CHECKING:
    from farandole.model.analyse import ScalingInfo
    from farandole.model.projection.question import Question
    from farandole.study.records import Study

_FILE = "projection.json"

_EPILOG = """\
examples:
  farandole project DIR -np 8,16,64
  farandole project DIR -np 8,16,64 --link 25Gbit --per-host 4 --price 12/host-h
  farandole project DIR -np 8,16 --price 2.5 --target val_accuracy=0.98 --deadline 2h
  farandole project DIR --offer 'A: 4, nvlink, 12/host-h' \\
      --offer 'B: 32, 8 per host, 100Gbit, 98/host-h, speed 1.4'
  farandole project DIR --fleet 32
  farandole project DIR -np 16 --json | jq .rows

Every figure has a 90 % interval. Beyond 16 times what was measured there are bounds only.
"""


def add_parser(subparsers: Any) -> None:
    """Add `project` to the command line's parsers."""
    parser: argparse.ArgumentParser = subparsers.add_parser(
        "project",
        help="say what more workers would bring, from a study",
        description="Project time, cost and accuracy on more workers from a study of few.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("folder", metavar="DIR", help="the folder of a study")
    where = parser.add_argument_group("where to")
    add_flag(
        where,
        "-np",
        "-n",
        "-w",
        "--workers",
        dest="workers",
        metavar="N,...",
        help="numbers of workers: 8,16,64",
    )
    add_flag(
        where,
        "--link",
        dest="links",
        action="append",
        default=[],
        metavar="LINK",
        help="between hosts: 10Gbit, 25Gbit, 100Gbit, nvlink or RATE[,LATENCY] "
        "(default: the first three of these, beyond the measured host)",
    )
    add_flag(
        where,
        "--per-host",
        metavar="N",
        help="workers on one host (default: as many as the measured one has)",
    )
    add_flag(
        where,
        "--offer",
        dest="offers",
        action="append",
        default=[],
        metavar="'NAME: ...'",
        help="machines to compare: 'B: 32, 8 per host, 100Gbit, 98/host-h, speed 1.4'",
    )
    add_flag(where, "--fleet", metavar="N", help="one job of N workers, or several small ones?")
    add_flag(
        where,
        "--only",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="which cells of the study to stand on: device=V100 (default: those of its answer)",
    )
    what = parser.add_argument_group("what for")
    add_flag(what, "--target", metavar="METRIC=VALUE", help="the value to reach")
    add_flag(what, "--deadline", metavar="TIME", help="the cheapest within 90s, 20m, 2h")
    add_flag(what, "--price", metavar="P", help="of an hour: 2.5 (a worker), 12/host-h")
    add_flag(what, "--budget", metavar="SUM", help="the soonest that costs no more")
    how = parser.add_argument_group("what if")
    add_flag(how, "--batch", metavar="N", help="per worker (default: as the study scales)")
    add_flag(how, "--bucket-size", metavar="MB", help="of gradients sent together")
    add_flag(how, "--fp16", action="store_true", help="gradients travel in half of their bytes")
    add_flag(how, "--accumulate", metavar="N", help="backward passes per step (default 1)")
    rest = parser.add_argument_group("the rest")
    add_flag(
        rest,
        "--json",
        action="store_true",
        help="print one JSON object (docs/project.md), and write files only with --out",
    )
    add_flag(
        rest, "--out", metavar="DIR", help="where to write the report (default: the study's folder)"
    )
    parser.set_defaults(func=main)


def main(args: argparse.Namespace) -> int:
    """Project, and write it into the study's report; return 0."""
    question = read_question(args)
    info = projected(args.folder, question)
    from farandole.report.projection import terminal_lines, to_json

    if args.json:
        if args.out is not None:
            _write(info, args, question)
        print(json.dumps(to_json(info), indent=1, allow_nan=False))
        return 0
    # At once: drawing takes longer than projecting.
    print("\n".join(terminal_lines(info, folder=args.folder)), flush=True)
    print(f"\nreport: {visible(_write(info, args, question))}")
    return 0


def projected(folder: str | Path, question: Question) -> ScalingInfo:
    """Read a study, and return what it says with what it promises."""
    from dataclasses import replace

    from farandole.cli.report import say_notes
    from farandole.model.analyse import analyse
    from farandole.model.projection.advice import project
    from farandole.study.read import read_study

    study = read_study(folder)
    say_notes(study)
    info = analyse(study)
    return replace(info, projection=project(study, info, question))


def read_question(args: argparse.Namespace) -> Question:
    """Read the flags of a command line.

    Raises:
        UsageError: one of them is not what it should be.
    """
    from farandole.cli.report import read_target
    from farandole.model.projection.question import (
        Question,
        amount_above_zero,
        parse_link,
        parse_offer,
        parse_only,
        parse_price,
    )
    from farandole.study import values

    def optional_count(text: str | None, flag: str) -> int | None:
        return None if text is None else values.count(text, flag=flag)

    budget = None
    if args.budget is not None:
        budget = amount_above_zero(args.budget)
        if budget is None:
            raise UsageError(f"--budget {args.budget} is not a number above 0.")
    bucket_bytes = None
    if args.bucket_size is not None:
        size = amount_above_zero(args.bucket_size.lower().removesuffix("mb"))
        if size is None:
            raise UsageError(f"--bucket-size {args.bucket_size} is no number of MB above 0.")
        bucket_bytes = max(1, round(size * 1e6))
    deadline = args.deadline
    return Question(
        workers=() if args.workers is None else values.counts(args.workers, flag="-np"),
        links=tuple(parse_link(text) for text in args.links),
        per_host=optional_count(args.per_host, "--per-host"),
        price=None if args.price is None else parse_price(args.price),
        target=None if args.target is None else read_target(args.target),
        deadline_s=None if deadline is None else values.seconds(deadline, flag="--deadline"),
        budget=budget,
        batch=optional_count(args.batch, "--batch"),
        bucket_bytes=bucket_bytes,
        fp16=args.fp16,
        accumulate=optional_count(args.accumulate, "--accumulate") or 1,
        offers=tuple(parse_offer(line) for line in args.offers),
        fleet=optional_count(args.fleet, "--fleet"),
        only=parse_only(args.only),
    )


def _write(info: ScalingInfo, args: argparse.Namespace, question: Question) -> Path:
    """Write the report, and the question beside it, so that `farandole report` answers it again."""
    from farandole.report import write
    from farandole.report.projection import to_json
    from farandole.study.folder import write_json

    place = Path(args.out or args.folder)
    # Elsewhere there may be pictures of another study.
    since = _last_launch(place) if args.out is None else None
    page = write(info, place, drawn_since=since)
    write_json(place / _FILE, {**to_json(info), "asked": question.flags()})
    return page


def _last_launch(folder: Path) -> float:
    """Return when the study last changed, as Unix time."""
    from farandole.study.folder import LAUNCH_FILE, ROWS_FILE, finished_folders

    files = [one / LAUNCH_FILE for one in finished_folders(folder)] or [folder / ROWS_FILE]
    return max(file.stat().st_mtime for file in files)


def with_earlier_projection(study: Study, info: ScalingInfo, folder: Path) -> ScalingInfo:
    """Answer again what `farandole project` was asked of this study, if it was.

    The answer is made anew, since the study may have grown. A question that it can no longer
    answer, or a file that cannot be read, is left out, and a line says so.
    """
    from dataclasses import replace

    from farandole.model.projection.advice import project

    try:
        question = _earlier_question(folder)
        if question is None:
            return info
        return replace(info, projection=project(study, info, question))
    except FarandoleError as error:
        print(f"{folder / _FILE} is not shown: {error}", file=sys.stderr)
        return info


def _earlier_question(folder: Path) -> Question | None:
    """Return the question that a study's projection.json keeps; None where there is none.

    Raises:
        FarandoleError: the file is not one of these, or is of another version.
    """
    parser = _Flags(exit_on_error=False)
    # Parsers of commands are made by the class of the parser that they are added to.
    add_parser(parser.add_subparsers())
    try:
        flags = json.loads((folder / _FILE).read_text(encoding="utf-8"))["asked"]
        if not isinstance(flags, list) or not all(isinstance(flag, str) for flag in flags):
            raise TypeError("asked is no list of flags")
        args = parser.parse_args(["project", str(folder), *flags])
    except FileNotFoundError:
        return None
    except (
        *(OSError, ValueError, KeyError, TypeError, argparse.ArgumentError),
        # `--help` among the flags.
        SystemExit,
    ) as error:
        raise DataError(
            f"it holds no question that can be asked again ({type(error).__name__}: {error}). Run "
            "farandole project once more, or remove it."
        ) from error
    return read_question(args)


class _Flags(argparse.ArgumentParser):
    """Reads flags without ending the program, nor writing to a terminal, over a wrong one."""

    def error(self, message: str) -> NoReturn:
        """Raise what was wrong."""
        raise UsageError(message)
