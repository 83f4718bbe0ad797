"""Flags of the command line, in all their spellings."""

from __future__ import annotations

import argparse
from typing import Any


def add_flag(parser: Any, *names: str, aliases: tuple[str, ...] = (), **options: Any) -> None:
    """Add a flag; its spellings with underscores and its aliases work too, without being shown."""
    shown = parser.add_argument(*names, **options)
    spellings = [*names, *aliases]
    hidden = [
        *aliases,
        *(f"--{name[2:].replace('-', '_')}" for name in spellings if "-" in name[2:]),
    ]
    if hidden:
        options |= {"dest": shown.dest, "help": argparse.SUPPRESS, "default": argparse.SUPPRESS}
        parser.add_argument(*hidden, **options)
