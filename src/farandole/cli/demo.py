"""`farandole demo`: a study of the bundled digits, on 1 and 2 workers."""

from __future__ import annotations

import argparse
import importlib.util
import shlex
import sys

from farandole.cli.command import JSON, Command, flag, say
from farandole.errors import MissingExtraError
from farandole.study.values import count

COMMAND = Command(
    name="demo",
    text="Train a small CNN on scikit-learn's digits with 1 and with 2 workers, and compare. "
    "Takes less than a minute.",
    usage="[options]",
    flags={
        "options": (
            flag("--out", "DIR", "the study's folder (default: a new one here)"),
            flag("--seeds", "N", "runs per number of workers (default 10)", default="10"),
            flag("--epochs", "N", "epochs per run (default 8)", default="8"),
            JSON,
        )
    },
    examples="""
farandole demo
farandole demo --seeds 20 --out digits
farandole demo --json > demo.json
""",
    notes="""
Nothing is downloaded: the data come with scikit-learn. The demo runs `farandole
study` on the script farandole/labs/digits.py; its first line is that command.
""",
)


def main(args: argparse.Namespace) -> int:
    """Run the study; return what it returns."""
    from farandole.cli import main as command_line

    argv = study_argv(args)
    _check_packages()
    say(f"$ farandole {shlex.join(argv)}")
    return command_line.main([*argv[:1], *["--debug"] * args.debug, *argv[1:]])


def study_argv(args: argparse.Namespace) -> list[str]:
    """Return the study's command line, the one that a user would type."""
    seeds, epochs = count(args.seeds, flag="--seeds"), count(args.epochs, flag="--epochs")
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
            "Run: pip install 'farandole[torch,demo]' (on a machine without a GPU the smaller CPU "
            "build of torch will do; pytorch.org shows its pip line)."
        )
