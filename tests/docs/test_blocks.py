"""Code blocks of README and the site: run, parsed by the real parser, or skipped with a reason.

A comment above a block says how it is checked: `<!-- skip: reason -->`, `<!-- parse -->` for
commands that take minutes or other machines, `<!-- file: NAME -->` for a file that later blocks of
the page use, `<!-- soak -->` for what takes a minute. Blocks without a comment are run,
those of one page in one folder, in order.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from farandole.cli.main import commands, parse

ROOT = Path(__file__).parents[2]
PAGES = [
    ROOT / "README.md",
    *sorted(p for p in (ROOT / "docs").rglob("*.md") if "labs" not in p.parts),
]
_BLOCK = re.compile(r"(?:^<!-- ([^\n]*?) -->\n+)?^```(\w*)[^\n]*\n(.*?)^```", re.M | re.S)


@dataclass(frozen=True)
class Block:
    """One fenced block with the comment above it."""

    check: str
    language: str
    text: str


def blocks(page: Path) -> list[Block]:
    """Return the fenced blocks of a page."""
    return [
        Block(found[1] or "run", found[2], found[3]) for found in _BLOCK.finditer(page.read_text())
    ]


def lines(text: str) -> list[list[str]]:
    """Return the commands of a block as lists of words, without comments and prompts."""
    joined = text.replace("\\\n", " ")
    words = [shlex.split(line, comments=True) for line in joined.splitlines()]
    return [one for one in words if one]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_block_says_how_it_is_checked(page: Path) -> None:
    for block in blocks(page):
        kind, _, reason = block.check.partition(":")
        assert kind in ("run", "soak", "parse", "skip", "file"), block
        assert reason.strip() or kind in ("run", "soak", "parse"), f"{page}: why is it skipped?"
        assert block.language, f"{page}: what language is this? {block.text[:60]}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_commands_parse(page: Path) -> None:
    for block in blocks(page):
        if block.language != "bash" or block.check.startswith("skip"):
            continue
        for words in lines(block.text):
            if words[0] == "farandole" and len(words) > 1:
                assert words[1] in commands(), words
                parse(words[1:])


def pages(*checks: str) -> list[Path]:
    """Return the pages with blocks that are run."""
    return [
        page
        for page in PAGES
        if any(one.check in checks and one.language in ("bash", "python") for one in blocks(page))
    ]


@pytest.mark.ranks
@pytest.mark.parametrize("page", pages("run"), ids=lambda page: str(page.relative_to(ROOT)))
def test_blocks_run(page: Path, tmp_path: Path) -> None:
    run(page, tmp_path, "run")


@pytest.mark.soak
@pytest.mark.timeout(600)
@pytest.mark.parametrize("page", pages("soak"), ids=lambda page: str(page.relative_to(ROOT)))
def test_long_blocks_run(page: Path, tmp_path: Path) -> None:
    run(page, tmp_path, "run", "soak")


def run(page: Path, folder: Path, *checks: str) -> None:
    """Run the blocks of a page in a folder, and write the files that it shows."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    for block in blocks(page):
        if block.check.startswith("file:"):
            (folder / block.check.partition(":")[2].strip()).write_text(block.text)
        if block.check not in checks or block.language not in ("bash", "python"):
            continue
        command = ["bash", "-euc", block.text]
        if block.language == "python":
            (folder / "block.py").write_text(block.text)
            command = [sys.executable, "block.py"]
        environ = os.environ | {"PATH": path}
        done = subprocess.run(command, cwd=folder, env=environ, capture_output=True, text=True)
        assert done.returncode == 0, f"{block.text}\n{done.stdout}\n{done.stderr}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    links = re.findall(r"\]\(([^)\s]+)\)", page.read_text())
    local = [link.partition("#")[0] for link in links if "://" not in link]
    assert [link for link in local if not (page.parent / link).exists()] == []
