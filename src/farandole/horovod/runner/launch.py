"""`horovodrun` for programs that call it: `farandole horovodrun` with their command line."""

from __future__ import annotations

import sys


def run_commandline() -> None:
    """Do what `farandole horovodrun` does with this program's arguments, and exit as it does."""
    from farandole.cli.main import main

    raise SystemExit(main(["horovodrun", *sys.argv[1:]]))
