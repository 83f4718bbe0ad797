"""What the site generates: the page of commands from the parsers, and those of the doctor."""

from __future__ import annotations

import contextlib
import io
from pathlib import Path
from typing import Any

_COMMANDS = "<!-- commands -->"
_CHECKS = "<!-- checks -->"
_ZOO = Path(__file__).parents[1] / "tests" / "doctor" / "zoo"


def on_config(config: Any, **_: Any) -> Any:
    """List the pages of the doctor's ids behind the table of them."""
    for part in config["nav"]:
        if isinstance(part, dict) and "Doctor" in part:
            part["Doctor"] += [{page.partition("/")[2][:-3]: page} for page in check_pages()]
    return config


def on_files(files: Any, config: Any, **_: Any) -> Any:
    """Add a page for each of the doctor's ids."""
    from mkdocs.structure.files import File

    for page, text in check_pages().items():
        files.append(File.generated(config, page, content=text))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Put the help of every command, or the table of checks, into the page that asks for it."""
    if _CHECKS in markdown:
        markdown = markdown.replace(_CHECKS, check_table())
    if _COMMANDS not in markdown:
        return markdown
    from farandole.cli.main import commands

    names = commands()
    names.insert(names.index("study") + 1, "study import")
    parts = [f"## farandole {name}\n\n```text\n{help_of(name)}\n```\n" for name in names]
    return markdown.replace(_COMMANDS, "\n".join(parts))


def help_of(command: str) -> str:
    """Return what `farandole COMMAND --help-all` prints."""
    from farandole.cli.main import main

    text = io.StringIO()
    with contextlib.redirect_stdout(text), contextlib.suppress(SystemExit):
        main([*command.split(), "--help-all"])
    return text.getvalue().strip()


def check_pages() -> dict[str, str]:
    """Return the page of each id: what `--explain` prints, and a script that has the mistake."""
    from farandole.doctor.check import checks
    from farandole.doctor.text import page

    pages = {}
    for one in checks().values():
        text = page(one)
        for folder in sorted(_ZOO.glob(f"{one.id.lower()}_*")):
            script = min(folder.glob("wrong*.py"), key=lambda file: len(file.name))
            text += f"\n## A script with this mistake\n\n```python\n{script.read_text()}```\n"
        pages[f"doctor/{one.id}.md"] = text
    return pages


def check_table() -> str:
    """Return all ids with the frameworks in which they are seen, by theme."""
    from farandole.doctor.check import FRAMEWORKS, THEMES, checks

    short = ("Horovod API", "DDP", "Accelerate", "Lightning", "Keras", "TensorFlow")
    head = ["id", "", "mistake", *short, "is seen from"]
    lines = []
    for number, (_, theme) in THEMES.items():
        lines += [f"### {theme}", "", f"| {' | '.join(head)} |", "|" + "---|" * len(head)]
        for one in checks().values():
            if one.id[2] == number:
                kind = "advice" if one.advice else one.severity
                covers = ["yes" if name in one.covers else "" for name in FRAMEWORKS]
                cells = [f"[{one.id}](../doctor/{one.id}.md)", kind, one.title, *covers, one.needs]
                lines.append(f"| {' | '.join(cells)} |")
        lines.append("")
    return "\n".join(lines)
