"""`farandole`: find the command, run it, and turn errors into one plain line."""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
from collections.abc import Iterator, Sequence
from importlib import import_module
from typing import Any, TextIO

from farandole.cli.command import did_you_mean
from farandole.errors import FarandoleError, OutputError, UsageError
from farandole.version import __version__

# In the order in which they are shown; each is a module here.
_COMMANDS = {
    "demo": "train a small network with 1 and then 2 workers: no download",
    "run": "start a training script on several workers",
    "study": "measure how a training script scales",
    "report": "write a study's report again, or compare studies",
    "doctor": "find what is silently wrong with a distributed script",
    "project": "predict time, cost and accuracy with more workers",
}
_MORE = {
    "lab": "six built-in lab reports, answered by runs on this machine",
    "bench": "compare Farandole with Gloo, DDP, Open MPI and the limit",
    "backtest": "score projections against published measurements",
    "env": "show this machine and what is installed",
    "horovodrun": "Horovod's command line, with Farandole's workers",
}

# What a shell says of a command that SIGPIPE ended.
_PIPE_CLOSED = 141


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command of the command line; return its exit code."""
    if not _open_closed_streams():
        print(
            "farandole: stdout is closed, so output has nowhere to go. Leave out >&-, or "
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
    debug = arguments[:1] == ["--debug"]
    arguments = arguments[debug:]
    try:
        if arguments[:1] == ["help"]:
            arguments = [*arguments[1:2], "--help"]
        if not arguments or arguments[0] in ("-h", "--help", "--help-all"):
            print(overview())
            return 0
        if arguments[0] in ("-V", "--version"):
            print(f"farandole {__version__}")
            return 0
        module, args = parse(arguments)
        debug = debug or args.debug
        code: int = module.main(args)
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
            "Train on several workers, and find out how many are worth using.",
            "",
            *first,
            "",
            "more:",
            *more,
            "",
            "farandole COMMAND --help explains a command, with an example.",
        ]
    )


def commands() -> list[str]:
    """Name the commands."""
    return [*_COMMANDS, *_MORE]


def parse(arguments: Sequence[str]) -> tuple[Any, argparse.Namespace]:
    """Return the module of the command that is wanted, and its flags; no other one is imported.

    Raises:
        UsageError: There is no such command, or it does not take these flags.
    """
    name, *rest = arguments
    if name not in commands():
        noun = "flag" if name.startswith("-") else "command"
        near = did_you_mean(name, commands())
        raise UsageError(f"there is no {noun} {name}.{near} Commands: {', '.join(commands())}.")
    module = import_module(f"farandole.cli.{name}")
    return module, module.COMMAND.parse(rest)


if __name__ == "__main__":
    raise SystemExit(main())
