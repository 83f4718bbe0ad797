"""What the site generates: the page of commands, from the parsers themselves."""

from __future__ import annotations

import contextlib
import io
from typing import Any

_PLACE = "<!-- commands -->"


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Put the help of every command into the page that asks for it."""
    if _PLACE not in markdown:
        return markdown
    from farandole.cli.main import commands

    names = commands()
    names.insert(names.index("study") + 1, "study import")
    parts = [f"## farandole {name}\n\n```text\n{help_of(name)}\n```\n" for name in names]
    return markdown.replace(_PLACE, "\n".join(parts))


def help_of(command: str) -> str:
    """Return what `farandole COMMAND --help-all` prints."""
    from farandole.cli.main import main

    text = io.StringIO()
    with contextlib.redirect_stdout(text), contextlib.suppress(SystemExit):
        main([*command.split(), "--help-all"])
    return text.getvalue().strip()
