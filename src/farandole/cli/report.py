"""`farandole report`: draw and tabulate what studies hold."""

from __future__ import annotations

import argparse
import contextlib
import threading
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from farandole.cli.command import JSON, PREFER, TARGET, Command, flag, print_json, say
from farandole.errors import UsageError

if TYPE_CHECKING:
    from farandole.model.analyse import Comparison, ScalingInfo
    from farandole.model.curves import Prefer
    from farandole.study.records import Study

_SEVERAL = "farandole-report"

COMMAND = Command(
    name="report",
    text="Write report.html, report.md, figures/ and tables/ of a study, or of several side by "
    "side.",
    usage="[options] DIR ...",
    flags={
        "options": (
            flag("folders", "DIR", "folders of studies", nargs="+"),
            flag(
                *("--out", "DIR"),
                f"where to write (default: the study's folder; ./{_SEVERAL} for several)",
            ),
            flag("--figures", "LIST", "png, svg, pdf, or none (default png)", default="png"),
            flag("--tables", "LIST", "csv, md, tex, or none (default csv,md)", default="csv,md"),
            flag("--price", "P", "cost of a worker per hour, in any currency"),
            TARGET,
            PREFER,
            flag("--serve", "", "show it in a browser, up to date until Ctrl-C"),
            flag("--anonymous", "", "leave out names of hosts, users, paths and commits"),
            JSON,
        )
    },
    usual="folders --out --figures --price --target --serve --anonymous --json",
    examples="""
farandole report DIR
farandole report laptop/ cluster/ --out both --figures png,pdf
farandole report DIR --price 2.5 --target val_accuracy=0.98
""",
    notes="With --json, files are written only where --out says.",
)


def main(args: argparse.Namespace) -> int:
    """Write the report of one study or of several; return 0."""
    figures = endings(args.figures, flag="--figures", known=("png", "svg", "pdf"))
    tables = endings(args.tables, flag="--tables", known=("csv", "md", "tex"))
    price = None if args.price is None else _price(args.price)
    target = None if args.target is None else read_target(args.target)
    from farandole.study.values import choice

    prefer = choice(args.prefer, flag="--prefer", choices=("time", "money", "balance"))
    from farandole.report.anonymous import anonymous
    from farandole.report.figures import studies
    from farandole.report.study import terminal_lines, to_json, write

    def found_now(*, notes: bool = True) -> ScalingInfo | Comparison:
        found = load(args.folders, price=price, target=target, prefer=prefer, notes=notes)
        return anonymous(found) if args.anonymous else found

    found = found_now()
    if target is not None and not any(info.each("metrics") for info in studies(found)):
        raise UsageError(
            f"--target {args.target}: this study recorded no metric. Measure accuracy "
            "(farandole study --measure both), or leave out --target."
        )
    if args.serve:
        return _serve(args.folders, partial(found_now, notes=False))
    page = None
    if args.out is not None or not args.json:
        place = args.out or (_SEVERAL if len(args.folders) > 1 else args.folders[0])
        page = write(found, place, figures=figures, tables=tables)
    if args.json:
        print_json(to_json(found))
    else:
        print("\n".join(terminal_lines(found, page)))
    return 0


def _serve(folders: Sequence[str], load: Callable[[], ScalingInfo | Comparison]) -> int:
    """Show the report in a browser until Ctrl-C; return 0."""
    from farandole.report.live import LivePage, watch

    with LivePage(load, Path(folders[0])) as page:
        print(f"Report, on this machine only, until Ctrl-C: {page.address}", flush=True)
        with contextlib.suppress(KeyboardInterrupt):
            watch(page, [Path(one) for one in folders], threading.Event())
    return 0


def load(
    folders: Sequence[str | Path],
    *,
    price: float | None = None,
    target: tuple[str, float] | None = None,
    prefer: Prefer = "balance",
    notes: bool = True,
) -> ScalingInfo | Comparison:
    """Read studies and compute what they say, side by side if there are several.

    What was projected from a single one is projected again, from what it holds now.
    """
    from farandole.study.read import read_study

    studies = [read_study(folder) for folder in folders]
    if notes:
        say_notes(*studies)
    if len(studies) == 1:
        from farandole.cli.project import with_earlier_projection
        from farandole.model.analyse import analyse

        found = analyse(studies[0], price_per_worker_hour=price, target=target, prefer=prefer)
        return with_earlier_projection(studies[0], found, Path(folders[0]))
    from farandole.model.analyse import compare

    return compare(studies, price_per_worker_hour=price, target=target, prefer=prefer)


def say_notes(*studies: Study) -> None:
    """Say what of these studies could not be read, one line each."""
    for study in studies:
        for note in study.notes:
            say(f"farandole: {note}")


def endings(text: str, *, flag: str, known: tuple[str, ...]) -> tuple[str, ...]:
    """Return the endings of a list like "png,svg"; "none" for none."""
    given = tuple(dict.fromkeys(part.strip().lower() for part in text.split(",") if part.strip()))
    if given == ("none",):
        return ()
    unknown = [part for part in given if part not in known]
    if unknown or not given:
        shown = unknown[0] if unknown else repr(text)
        raise UsageError(f"{flag} {shown} is not known. Choose from {', '.join(known)}, or none.")
    return given


def _price(text: str) -> float:
    value = _finite(text)
    if value is None or value <= 0:
        raise UsageError(f"--price {text} is not a number above 0. Give what a worker-hour costs.")
    return value


def read_target(text: str) -> tuple[str, float]:
    """Read METRIC=VALUE; raise UsageError where it is not that."""
    name, equals, given = text.rpartition("=")
    value = _finite(given)
    if not equals or not name.strip() or value is None:
        raise UsageError(f"--target {text} is not METRIC=VALUE, as in val_accuracy=0.98.")
    return name.strip(), value


def _finite(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if value - value == 0 else None
