"""`farandole`: find the command, run it, and turn errors into one plain line."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.util import find_spec
from typing import NoReturn

from farandole.errors import FarandoleError, UsageError
from farandole.version import __version__

# In the order in which they are shown. A command is there when its module is.
_COMMANDS = {
    "demo": "train a small network with 1 and then 2 workers, and compare: no download",
    "run": "start a training script on several workers",
    "study": "measure how a script scales, with repeats and intervals",
    "report": "make the report of a study again",
    "project": "say what more workers would bring, from a study",
}
_MORE = {
    "lab": "built-in labs: their questions answered from real runs, in one command",
    "bench": "measure all-reduce and training against Gloo and DDP",
    "backtest": "check projections against figures that are known",
    "env": "what this machine and this installation have",
    "horovodrun": "`horovodrun` as it was, with workers of Farandole",
}

# What a shell says of a command that SIGPIPE ended.
_PIPE_CLOSED = 141


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command of the command line; return its exit code."""
    try:
        code = _run(argv)
        sys.stdout.flush()
        return code
    except BrokenPipeError:
        # Whoever read our output has seen enough; what is left of it has nowhere to go.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return _PIPE_CLOSED


def _run(argv: Sequence[str] | None) -> int:
    arguments = list(sys.argv[1:] if argv is None else argv)
    debug = False
    try:
        if arguments[:1] == ["--debug"]:
            debug = True
            arguments.pop(0)
        if not arguments or arguments[0] in ("-h", "--help", "help"):
            print(overview())
            return 0
        if arguments[0] in ("-V", "--version"):
            print(f"farandole {__version__}")
            return 0
        args = _parse(arguments)
        debug = debug or args.debug
        code: int = args.func(args)
        return code
    except FarandoleError as error:
        if debug:
            raise
        print(f"farandole: {error}", file=sys.stderr)
        return 2 if isinstance(error, UsageError) else 1
    except KeyboardInterrupt:
        return 130


def overview() -> str:
    """List the commands that exist, the ones to begin with first."""
    lines = [
        "usage: farandole COMMAND ...",
        "",
        "Data-parallel training, and how many workers it pays to use.",
        "",
        *_listed(_COMMANDS),
    ]
    more = _listed(_MORE)
    if more:
        lines += ["", "more:", *more]
    return "\n".join([*lines, "", "farandole COMMAND --help explains a command, with examples."])


def commands() -> list[str]:
    """Name the commands that exist in this installation."""
    return [name for name in (*_COMMANDS, *_MORE) if find_spec(f"farandole.cli.{name}")]


def _listed(names: dict[str, str]) -> list[str]:
    present = commands()
    return [f"  {name:<12}{text}" for name, text in names.items() if name in present]


def _parse(arguments: list[str]) -> argparse.Namespace:
    """Parse with the parser of the one command that is wanted; the others are not imported."""
    name = arguments[0]
    if name not in commands():
        raise UsageError(f"there is no command {name!r}. Choose from {', '.join(commands())}.")
    parser = _Parser(prog="farandole")
    subparsers = parser.add_subparsers(dest="command", parser_class=_Parser)
    module = import_module(f"farandole.cli.{name}")
    module.add_parser(subparsers)
    command: argparse.ArgumentParser = subparsers.choices[name]
    command.add_argument("--debug", action="store_true", help="show tracebacks of errors")
    command.set_defaults(func=module.main)
    args, unknown = parser.parse_known_args(arguments)
    if unknown:
        command.error(f"unrecognized arguments: {' '.join(unknown)}")
    return args


class _Parser(argparse.ArgumentParser):
    """A parser that raises what it has to say, for one plain line without the usage."""

    def error(self, message: str) -> NoReturn:
        command = self.prog.removeprefix("farandole").strip()
        hint = f" See {self.prog} --help." if command else ""
        raise UsageError(f"{message}.{hint}")


if __name__ == "__main__":
    raise SystemExit(main())
