"""`farandole demo`: a study of the bundled digits, on 1 and 2 workers."""

from __future__ import annotations

import argparse
import importlib.util
import shlex
import sys
from typing import Any

from farandole.errors import MissingExtraError, UsageError

_SEEDS = 3
_EPOCHS = 8

_EPILOG = """\
example:
  farandole demo
  farandole demo --seeds 5 --out digits
  farandole demo --json > demo.json

The data come with scikit-learn; nothing is downloaded. The script is farandole/labs/digits.py, and
the demo is nothing but the `farandole study` of it that the first line shows.
"""


def add_parser(subparsers: Any) -> None:
    """Add `demo` to the command line's parsers."""
    parser: argparse.ArgumentParser = subparsers.add_parser(
        "demo",
        help="train a small CNN with 1 and 2 workers and compare (about a minute)",
        description="Study how a small CNN on scikit-learn's digits scales to 2 workers.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--json", action="store_true", help="print the answer as JSON, schema 1")
    parser.add_argument("--out", metavar="DIR", help="the study's folder (default: a new one here)")
    parser.add_argument(
        "--seeds",
        metavar="N",
        default=str(_SEEDS),
        help=f"launches per number of workers, taking turns (default {_SEEDS})",
    )
    parser.add_argument(
        "--epochs", metavar="N", default=str(_EPOCHS), help=f"per launch (default {_EPOCHS})"
    )
    parser.set_defaults(func=main)


def main(args: argparse.Namespace) -> int:
    """Run the study; return what it returns."""
    from farandole.cli import main as command_line

    argv = study_argv(args)
    _check_packages()
    print(f"$ farandole {shlex.join(argv)}", file=sys.stderr, flush=True)
    return command_line.main([*argv, "--debug"] if args.debug else argv)


def study_argv(args: argparse.Namespace) -> list[str]:
    """Return the study's command line, the one that a user would type."""
    seeds = _count(args.seeds, flag="--seeds")
    epochs = _count(args.epochs, flag="--epochs")
    return [
        "study",
        *("-np", "1,2", "--measure", "accuracy", "--seeds", str(seeds), "--label", "digits"),
        *(("--out", args.out) if args.out is not None else ()),
        *(("--json",) if args.json else ()),
        "--",
        # Without "python": the first one on PATH need not be the one that has Farandole, for
        # example when a virtual environment was not activated, as by `make demo`.
        *("-m", "farandole.labs.digits", "--epochs", str(epochs)),
        *("--batch-size", "{batch}", "--seed", "{seed}"),
    ]


def _check_packages() -> None:
    missing = [name for name in ("torch", "sklearn") if importlib.util.find_spec(name) is None]
    if missing:
        named = " and ".join({"sklearn": "scikit-learn"}.get(name, name) for name in missing)
        raise MissingExtraError(
            f"farandole demo needs {named}, which this Python ({sys.executable}) does not have. "
            "Run: pip install 'farandole[torch,demo]' (a machine without a GPU can do with the "
            "smaller CPU build of torch; pytorch.org shows its pip line)."
        )


def _count(text: str, *, flag: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise UsageError(f"{flag} {text} is not a number of at least 1.")
    return int(text)
