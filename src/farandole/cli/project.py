"""`farandole project`: what more workers would bring, from a study."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from farandole.cli.command import JSON, PREFER, TARGET, Command, flag, print_json, say
from farandole.errors import DataError, FarandoleError
from farandole.report.escape import visible

if TYPE_CHECKING:
    from farandole.model.analyse import ScalingInfo
    from farandole.model.projection.question import Question
    from farandole.study.records import Study

_FILE = "projection.json"

COMMAND = Command(
    name="project",
    text="Predict time, cost and accuracy with more workers, from a study of few.",
    usage="DIR [options]",
    flags={
        "how many workers, and where": (
            flag("folder", "DIR", "the folder of a study"),
            flag("-np -n -w --workers", "N,...", "numbers of workers: 8,16,64", dest="workers"),
            flag(
                *("--link", "LINK"),
                "network between hosts: 10Gbit, 25Gbit, nvlink or RATE[,LATENCY] (default: 10, 25 "
                "and 100 Gbit)",
                repeated=True,
                dest="links",
            ),
            flag("--per-host", "N", "workers per host (default: as measured)"),
            flag(
                *("--offer", "'NAME: ...'"),
                "machines to compare: 'B: 32, 8 per host, 100Gbit, 98/host-h, speed 1.4'",
                repeated=True,
                dest="offers",
            ),
            flag("--fleet", "N", "is one job of N workers better, or several small ones?"),
            flag(
                *("--only", "NAME=VALUE"),
                "cells of the study to use: device=V100 (default: those of its answer)",
                repeated=True,
            ),
        ),
        "goals": (
            TARGET,
            flag("--deadline", "TIME", "the cheapest that ends within 90s, 20m, 2h"),
            flag("--price", "P", "cost per hour: 2.5 (of a worker), 12/host-h"),
            flag("--budget", "SUM", "the fastest that costs no more"),
            PREFER,
        ),
        "what if": (
            flag("--batch", "N", "batch per worker (default: as the study scales)"),
            flag("--bucket-size", "MB", "size of gradient buckets"),
            flag("--fp16", "", "send gradients with half of the bytes"),
            flag("--accumulate", "N", "backward passes per step (default 1)"),
        ),
        "output": (
            flag("--out", "DIR", "where to write the report (default: the study's folder)"),
            JSON,
        ),
    },
    usual="folder -np --link --per-host --target --price --out --json",
    examples="""
farandole project DIR -np 8,16,64
farandole project DIR -np 8,16 --link 25Gbit --per-host 4 --price 12/host-h
farandole project DIR -np 16 --json | jq .rows
""",
    notes="""
Figures have 90 % intervals. Far beyond what was measured they are bounds,
marked "indicative". With --json, files are written only where --out says.
""",
)


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
        print_json(to_json(info))
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
        wrong = f"--bucket-size {text} is not a number of MB above 0."
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
    from farandole.report.projection import to_json
    from farandole.report.study import write
    from farandole.study.folder import write_json

    place = Path(args.out or args.folder)
    page = write(info, place)
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
        say(f"{folder / _FILE} is not shown: {error}")
        return info


def _earlier_question(folder: Path) -> Question | None:
    """Return the question that a study's projection.json keeps; None where there is none.

    Raises:
        FarandoleError: the file is not one of these, or is of another version.
    """
    try:
        flags = json.loads((folder / _FILE).read_text(encoding="utf-8"))["asked"]
        if not isinstance(flags, list) or not all(isinstance(flag, str) for flag in flags):
            raise TypeError("asked is no list of flags")
        if "--help" in flags:
            raise ValueError("--help is no question")
        args = COMMAND.parse([str(folder), *flags])
    except FileNotFoundError:
        return None
    except (OSError, LookupError, TypeError, ValueError) as error:
        raise DataError(
            f"it holds no question that can be asked again ({type(error).__name__}: {error}). Run "
            "farandole project again, or remove it."
        ) from error
    return read_question(args)
