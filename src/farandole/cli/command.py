"""What all commands share: flags and help as data, and how they speak to the user."""

from __future__ import annotations

import argparse
import difflib
import itertools
import json
import re
import sys
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

from farandole.errors import UsageError

_WIDTH, _INDENT = 80, 24


@dataclass(frozen=True, slots=True)
class Flag:
    """One flag, or one argument without dashes."""

    names: tuple[str, ...]
    """All spellings; a short help shows the first."""
    metavar: str
    """What its value is called; empty: a switch."""
    text: str
    options: Mapping[str, Any]
    """Further options of `add_argument`."""

    def add_to(self, parser: argparse.ArgumentParser, *, underscores: bool) -> None:
        """Add it to a parser; spellings with underscores may work too, without being shown."""
        kind = {"metavar": self.metavar} if self.metavar else {"action": "store_true"}
        options: dict[str, Any] = {**kind, **self.options}
        shown = parser.add_argument(*self.names, **options)
        long = [name for name in self.names if underscores and "-" in name[2:]]
        if hidden := [f"--{name[2:].replace('-', '_')}" for name in long]:
            same = {"dest": shown.dest, "default": argparse.SUPPRESS}
            parser.add_argument(*hidden, **options | same)

    def lines(self, *, every_name: bool) -> list[str]:
        """Return its lines of a help."""
        shown = self.names if every_name else self.names[:1]
        head = ", ".join(shown) if self.names[0].startswith("-") else ""
        head = f"  {head} {self.metavar}".rstrip() if head else f"  {self.metavar}"
        indent = " " * _INDENT
        wrapped = textwrap.wrap(
            self.text,
            _WIDTH,
            initial_indent=indent,
            subsequent_indent=indent,
            break_on_hyphens=False,
        )
        if len(head) > _INDENT - 2:
            return [head, *wrapped]
        return [head.ljust(_INDENT) + wrapped[0].lstrip(), *wrapped[1:]]


def flag(names: str, metavar: str, text: str, *, repeated: bool = False, **options: Any) -> Flag:
    """Return a flag; its names are separated by spaces."""
    if repeated:
        options = {"action": "append", "default": [], **options}
    return Flag(tuple(names.split()), metavar, text, options)


JSON = flag("--json", "", "print the answer as one JSON object (schema 1)")
TARGET = flag("--target", "METRIC=VALUE", "a value to reach: val_accuracy=0.98")
PREFER = flag(
    *("--prefer", "WHAT"),
    "recommend workers by time, money or balance: the cheapest within 10 % of the fastest "
    "(default balance)",
    default="balance",
)
JOB_FLAGS = (
    flag(
        *("--sbatch", "K=V,..."),
        "options of sbatch: account=abc,partition=gpu,time=1:00:00",
        repeated=True,
    ),
    flag("--setup", "FILE", "shell lines to run first: modules, conda"),
)


class _Help(argparse.Action):
    """Prints a command's help and ends."""

    def __call__(self, parser: argparse.ArgumentParser, *given: Any) -> None:
        assert isinstance(parser, _Parser)
        sys.stdout.write(parser.command.help(everything=given[-1] == "--help-all"))
        parser.exit()


_ALWAYS = (
    flag("--debug", "", "show tracebacks of errors"),
    flag("-h --help", "", "show the usual flags", action=_Help, nargs=0),
    flag("--help-all", "", "show all flags", action=_Help, nargs=0),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """One command: its parser and its help follow from it."""

    name: str
    text: str
    """What it does, in a sentence or two."""
    usage: str
    """What follows its name; one line for each way of use."""
    flags: Mapping[str, Sequence[Flag]]
    """By title, in the order of the help."""
    usual: str = ""
    """The flags that `--help` shows; empty: all of them."""
    examples: str
    notes: str = ""
    """What else `--help` says."""
    more: str = ""
    """What else `--help-all` says."""
    takes_command: bool = False
    """Whether a user's own command follows its flags."""
    abbreviations: bool = False
    """Whether flags may be cut short."""
    hidden: Sequence[Flag] = field(default=())
    """Flags that are taken and mean nothing here."""

    def parser(self) -> _Parser:
        """Return its parser, whose errors are UsageErrors."""
        return _Parser(self)

    def parse(
        self, arguments: Sequence[str], known: argparse.Namespace | None = None
    ) -> argparse.Namespace:
        """Read arguments; what `known` has already stays unless they say otherwise.

        Raises:
            UsageError: They cannot be used as given.
        """
        parser = self.parser()
        args, unknown = parser.parse_known_args(arguments, known)
        if unknown:
            names = [name for action in parser._actions for name in action.option_strings]
            noun = "flag" if unknown[0].startswith("-") else "argument"
            near = did_you_mean(unknown[0].partition("=")[0], names)
            parser.error(f"there is no {noun} {unknown[0]}", near)
        return args

    def help(self, *, everything: bool = False) -> str:
        """Return its help: the usual flags, or everything."""
        usage = [f"farandole {self.name} {line}".rstrip() for line in self.usage.splitlines()]
        usual = set(self.usual.split())
        parts = ["usage: " + "\n       ".join(usage), textwrap.fill(self.text, _WIDTH)]
        if everything:
            for title, flags in {**self.flags, "always": _ALWAYS}.items():
                lines = [line for one in flags for line in one.lines(every_name=True)]
                parts.append("\n".join([f"{title}:", *lines]))
        else:
            every = itertools.chain(*self.flags.values())
            shown = [one for one in every if not usual or usual & set(one.names)]
            parts.append("\n".join(line for one in shown for line in one.lines(every_name=False)))
        parts.append("examples:\n" + textwrap.indent(self.examples.strip("\n"), "  "))
        parts += [self.notes.strip()] if self.notes else []
        parts += [self.more.strip()] if everything and self.more else []
        if usual and not everything:
            left_out = sum(map(len, self.flags.values())) - len(shown)
            parts.append(f"farandole {self.name} --help-all has {left_out} more flags.")
        return "\n\n".join(parts) + "\n"


class _Parser(argparse.ArgumentParser):
    """A parser that raises what it has to say, for one plain line without the usage."""

    def __init__(self, command: Command) -> None:
        super().__init__(
            prog=f"farandole {command.name}", add_help=False, allow_abbrev=command.abbreviations
        )
        self.command = command
        for one in itertools.chain(_ALWAYS, *command.flags.values(), command.hidden):
            # One that is cut short must not be ambiguous.
            one.add_to(self, underscores=not command.abbreviations)
        if command.takes_command:
            self.add_argument("command_line", nargs=argparse.REMAINDER)

    def error(self, message: str, near: str = "") -> NoReturn:
        # argparse names a flag by all of its spellings.
        message = re.sub(r"^argument ([^\s/:]+)[^\s:]*: ", r"\1: ", message)
        message = re.sub(r"^the following arguments are required: (.*)", r"\1 is missing", message)
        raise UsageError(f"{message}.{near} See {self.prog} --help.")


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return a question about the nearest known word; empty where none is near."""
    near = difflib.get_close_matches(word, list(known), n=1)
    return f" Did you mean {near[0]}?" if near else ""


def user_command(args: argparse.Namespace) -> list[str]:
    """Return the command behind a command's flags, without the dashes that may part them."""
    words: list[str] = args.command_line
    return words[words[:1] == ["--"] :]


def check_platform() -> None:
    """Refuse to start workers on Windows."""
    if sys.platform == "win32":
        raise UsageError("workers cannot be started on Windows itself. Use WSL2, and run it there.")


def say(*lines: str) -> None:
    """Tell the user something beside the answer."""
    for line in lines:
        print(line, file=sys.stderr, flush=True)


def print_json(content: Any) -> None:
    """Print an answer as JSON."""
    print(json.dumps(content, indent=1, allow_nan=False), flush=True)


def shown(path: Path) -> str:
    """Write a path as short as it can be used from here."""
    from farandole.study.folder import shown

    return shown(path, Path.cwd())


def interrupted(stop: KeyboardInterrupt) -> int:
    """Return the exit code of a command that Ctrl-C or a signal ended."""
    signum: int | None = getattr(stop, "signum", None)
    return 130 if signum is None else 128 + signum
