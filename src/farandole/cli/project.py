"""`farandole project`: what more workers would bring, from a study."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from farandole.cli.flags import add_flags
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

Every figure has a 90 % interval. Too far beyond what was measured there are bounds only, and the
word "indicative".
"""

_SEVERAL: dict[str, Any] = {"action": "append", "default": []}
_FLAGS: dict[str, tuple[tuple[Any, ...], ...]] = {
    "where to": (
        ("-np -n -w --workers", "N,...", "numbers of workers: 8,16,64", {"dest": "workers"}),
        (
            *("--link", "LINK"),
            "between hosts: 10Gbit, 25Gbit, 100Gbit, nvlink or RATE[,LATENCY] "
            "(default: the first three of these, beyond the measured host)",
            _SEVERAL | {"dest": "links"},
        ),
        ("--per-host", "N", "workers on one host (default: as many as the measured one has)"),
        (
            *("--offer", "'NAME: ...'"),
            "machines to compare: 'B: 32, 8 per host, 100Gbit, 98/host-h, speed 1.4'",
            _SEVERAL | {"dest": "offers"},
        ),
        ("--fleet", "N", "one job of N workers, or several small ones?"),
        (
            *("--only", "NAME=VALUE"),
            "which cells of the study to use: device=V100 (default: those of its answer)",
            _SEVERAL,
        ),
    ),
    "what for": (
        ("--target", "METRIC=VALUE", "the value to reach"),
        ("--deadline", "TIME", "the cheapest within 90s, 20m, 2h"),
        ("--price", "P", "of an hour: 2.5 (a worker), 12/host-h"),
        ("--budget", "SUM", "the soonest that costs no more"),
        (
            *("--prefer", "WHAT"),
            "recommend workers by time, money, or balance: the cheapest within 10%% of the fastest "
            "(default balance)",
            {"default": "balance"},
        ),
    ),
    "what if": (
        ("--batch", "N", "per worker (default: as the study scales)"),
        ("--bucket-size", "MB", "of gradients sent together"),
        ("--fp16", None, "gradients travel in half of their bytes"),
        ("--accumulate", "N", "backward passes per step (default 1)"),
    ),
    "the rest": (
        (
            "--json",
            None,
            "print one JSON object (docs/how-to/project.md), and write files only with --out",
        ),
        ("--out", "DIR", "where to write the report (default: the study's folder)"),
    ),
}


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
    for title, flags in _FLAGS.items():
        add_flags(parser.add_argument_group(title), *flags)
    parser.set_defaults(func=main)


def main(args: argparse.Namespace) -> int:
    """Project, and write it into the study's report; return 0, or 1 for an unanswered target."""
    from dataclasses import replace

    from farandole.cli.report import say_notes
    from farandole.model.analyse import analyse
    from farandole.model.projection.advice import project
    from farandole.report.projection import terminal_lines, to_json
    from farandole.study.read import read_study

    question = read_question(args)
    study = read_study(args.folder)
    say_notes(study)
    info = analyse(study)
    projection = project(study, info, question)
    info = replace(info, projection=projection)
    unanswered = question.target is not None and all(r.time_s is None for r in projection.rows)

    if args.json:
        if args.out is not None:
            _write(info, args, question)
        print(json.dumps(to_json(info), indent=1, allow_nan=False))
        return int(unanswered)
    # At once: drawing takes longer than projecting.
    print("\n".join(terminal_lines(info, folder=args.folder)), flush=True)
    print(f"\nreport: {visible(_write(info, args, question))}")
    return int(unanswered)


def read_question(args: argparse.Namespace) -> Question:
    """Read the flags of a command line.

    Raises:
        UsageError: one of them is not what it should be.
    """
    from farandole.cli.report import read_target
    from farandole.model.projection import question
    from farandole.study import values

    def read(name: str, reader: Callable[[str], Any]) -> Any:
        text = getattr(args, name)
        return None if text is None else reader(text)

    def count(name: str) -> Any:
        flag = f"--{name.replace('_', '-')}"
        return read(name, lambda text: values.count(text, flag=flag))

    def bucket_bytes(text: str) -> int:
        wrong = f"--bucket-size {text} is no number of MB above 0."
        return max(1, round(1e6 * question.parse_amount(text.lower().removesuffix("mb"), wrong)))

    def budget(text: str) -> float:
        return question.parse_amount(text, f"--budget {text} is not a number above 0.")

    return question.Question(
        workers=read("workers", lambda text: values.counts(text, flag="-np")) or (),
        links=tuple(map(question.parse_link, args.links)),
        per_host=count("per_host"),
        price=read("price", question.parse_price),
        target=read("target", read_target),
        deadline_s=read("deadline", lambda text: values.seconds(text, flag="--deadline")),
        budget=read("budget", budget),
        batch=count("batch"),
        bucket_bytes=read("bucket_size", bucket_bytes),
        fp16=args.fp16,
        accumulate=count("accumulate") or 1,
        prefer=values.choice(args.prefer, flag="--prefer", choices=("time", "money", "balance")),
        offers=tuple(map(question.parse_offer, args.offers)),
        fleet=count("fleet"),
        only=question.parse_only(args.only),
    )


def _write(info: ScalingInfo, args: argparse.Namespace, question: Question) -> Path:
    """Write the report, and the question beside it, so that `farandole report` answers it again."""
    from farandole.report import write
    from farandole.report.projection import to_json
    from farandole.study.folder import LAUNCH_FILE, ROWS_FILE, finished_folders, write_json

    place = Path(args.out or args.folder)
    last_launch = None
    if args.out is None:  # elsewhere there may be pictures of another study
        files = [one / LAUNCH_FILE for one in finished_folders(place)] or [place / ROWS_FILE]
        last_launch = max(file.stat().st_mtime for file in files)
    page = write(info, place, drawn_since=last_launch)
    write_json(place / _FILE, {**to_json(info), "asked": question.flags()})
    return page


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
    # SystemExit: `--help` among the flags.
    except (
        OSError,
        LookupError,
        TypeError,
        ValueError,
        argparse.ArgumentError,
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
