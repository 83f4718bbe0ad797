"""`farandole`: find the command, run it, and turn errors into one plain line."""

from __future__ import annotations

import argparse
import contextlib
import difflib
import os
import sys
from collections.abc import Iterator, Sequence
from importlib import import_module
from typing import Any, NoReturn, TextIO

from farandole.errors import FarandoleError, OutputError, UsageError
from farandole.version import __version__

# In the order in which they are shown; each is a module here.
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
    if not _open_closed_streams():
        print(
            "farandole: stdout is closed, so that output has nowhere to go. Leave out >&-, or "
            "write to a file or to /dev/null.",
            file=sys.stderr,
        )
        return 1
    streams = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = _Output("stdout", sys.stdout), _Output("stderr", sys.stderr)
    try:
        try:
            return _run(argv)
        finally:
            sys.stdout.flush()
    except BrokenPipeError:
        # Whoever read our output has seen enough; what is left of it has nowhere to go.
        code = _PIPE_CLOSED
    except OutputError as error:
        code = 1
        with contextlib.suppress(OSError):
            print(f"farandole: {error}", file=sys.stderr)
    finally:
        sys.stdout, sys.stderr = streams
    for stream in streams:
        try:
            stream.flush()
        except OSError:
            # Python would try again at its end.
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
    return code


class _Output:
    """A standard stream whose errors can be told from those of files."""

    def __init__(self, name: str, stream: TextIO) -> None:
        self._name, self._stream = name, stream

    def write(self, text: str) -> int:
        with self._named_errors():
            return self._stream.write(text)

    def flush(self) -> None:
        with self._named_errors():
            self._stream.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    @contextlib.contextmanager
    def _named_errors(self) -> Iterator[None]:
        try:
            yield
        except BrokenPipeError:
            raise
        except OSError as error:
            raise OutputError(f"{self._name} cannot be written to: {error.strerror}.") from error


def _open_closed_streams() -> bool:
    """Put /dev/null into the place of closed standard streams; say whether stdout was open.

    Their numbers are free otherwise: the next file that is opened would get what is printed.
    """
    for fd in range(3):
        try:
            os.fstat(fd)
        except OSError:
            opened = os.open(os.devnull, os.O_RDWR)  # the lowest number that is free
            os.set_inheritable(opened, True)
    if sys.stderr is None:
        sys.stderr = os.fdopen(os.dup(2), "w")
    return sys.stdout is not None


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
    except OutputError:
        raise
    except FarandoleError as error:
        if debug:
            raise
        print(f"farandole: {error}", file=sys.stderr)
        return 2 if isinstance(error, UsageError) else 1
    except KeyboardInterrupt:
        return 130


def overview() -> str:
    """List the commands, the ones to begin with first."""
    first, more = (
        [f"  {name:<12}{text}" for name, text in names.items()] for names in (_COMMANDS, _MORE)
    )
    return "\n".join(
        [
            "usage: farandole COMMAND ...",
            "",
            "Data-parallel training, and how many workers it pays to use.",
            "",
            *first,
            "",
            "more:",
            *more,
            "",
            "farandole COMMAND --help explains a command, with examples.",
        ]
    )


def commands() -> list[str]:
    """Name the commands."""
    return [*_COMMANDS, *_MORE]


def _parse(arguments: list[str]) -> argparse.Namespace:
    """Parse with the parser of the one command that is wanted; the others are not imported."""
    name = arguments[0]
    if name not in commands():
        meant = did_you_mean(name, commands())
        raise UsageError(
            f"there is no command {name!r}.{meant} Choose from {', '.join(commands())}."
        )
    parser = _Parser(prog="farandole")
    subparsers = parser.add_subparsers(dest="command", parser_class=_Parser)
    module = import_module(f"farandole.cli.{name}")
    module.add_parser(subparsers)
    command: _Parser = subparsers.choices[name]
    command.add_argument("--debug", action="store_true", help="show tracebacks of errors")
    command.set_defaults(func=module.main)
    args, unknown = parser.parse_known_args(arguments)
    if unknown:
        flags = [flag for action in command._actions for flag in action.option_strings]
        meant = did_you_mean(unknown[0].partition("=")[0], flags)
        command.error(f"unknown arguments: {' '.join(unknown)}", meant)
    return args


def did_you_mean(word: str, known: Sequence[str]) -> str:
    """Return a question about the nearest known word; empty where none is near."""
    near = difflib.get_close_matches(word, known, n=1)
    return f" Did you mean {near[0]}?" if near else ""


class _Parser(argparse.ArgumentParser):
    """A parser that raises what it has to say, for one plain line without the usage."""

    def _print_message(self, message: str, file: Any = None) -> None:
        # argparse's own keeps quiet if it cannot write.
        (file or sys.stdout).write(message)

    def error(self, message: str, meant: str = "") -> NoReturn:
        command = self.prog.removeprefix("farandole").strip()
        hint = f" See {self.prog} --help." if command else ""
        raise UsageError(f"{message}.{meant}{hint}")


if __name__ == "__main__":
    raise SystemExit(main())
