"""A report as data: sections of blocks, laid out by the template of each output."""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal

from farandole.model.verdicts import Check
from farandole.report.table import Table

Spec = dict[str, Any]

# Longer tables under a figure are folded.
_SHORT = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One chart, drawn from one specification on the page and on paper."""

    name: str
    """File name without ending; also the chart's id on the page."""
    title: str
    caption: str
    spec: Spec
    """Vega-Lite without configuration: the theme is added where it is drawn. Empty where there was
    nothing to draw."""
    table: Table
    alt: str
    """Description for a reader who cannot see the chart."""
    wide: bool = False
    """Whether it needs the page's whole width."""


@dataclass(frozen=True, slots=True)
class Prose:
    """Paragraphs."""

    kind: ClassVar[str] = "prose"
    sentences: tuple[str, ...]
    strong: bool = False


@dataclass(frozen=True, slots=True)
class Bullets:
    """A list; `folded` gives it a title that opens it."""

    kind: ClassVar[str] = "bullets"
    items: tuple[str, ...]
    folded: str = ""


@dataclass(frozen=True, slots=True)
class Findings:
    """Verdicts, each with its severity, sentence and evidence."""

    kind: ClassVar[str] = "findings"
    items: tuple[Finding, ...]


@dataclass(frozen=True, slots=True)
class Finding:
    """One verdict as a reader sees it."""

    severity: Literal["void", "warn", "note", "good"]
    study: str
    sentence: str
    evidence: str


@dataclass(frozen=True, slots=True)
class Tables:
    """Tables that stand without a figure."""

    kind: ClassVar[str] = "tables"
    tables: tuple[Table, ...]
    titled: bool = False
    """Whether Markdown has their titles above them."""
    wordy: bool = False
    """Whether their cells are sentences."""


@dataclass(frozen=True, slots=True)
class Figures:
    """Charts side by side, each with its table."""

    kind: ClassVar[str] = "figures"
    figures: tuple[Figure, ...]
    table: Literal["folded", "auto", "elsewhere"] = "folded"
    alone: bool = False
    """Whether a figure that has a row for itself has its table at its side."""

    def place(self, figure: Figure) -> str:
        """Say where a figure's table is: "open" or "folded" under it, or "elsewhere"."""
        if self.table != "auto":
            return self.table
        if sum(other.table.name == figure.table.name for other in self.figures) > 1:
            return "elsewhere"
        return "open" if len(figure.table.rows) <= _SHORT else "folded"


@dataclass(frozen=True, slots=True)
class Facts:
    """Pairs of words: what a machine or a data set is."""

    kind: ClassVar[str] = "facts"
    pairs: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Commands:
    """Command lines to copy."""

    kind: ClassVar[str] = "commands"
    lines: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Heading:
    """A heading within a section."""

    kind: ClassVar[str] = "heading"
    text: str
    href: str = ""
    """Where it leads: another page beside this one."""


@dataclass(frozen=True, slots=True)
class Picture:
    """A picture that is no chart: samples of a data set."""

    kind: ClassVar[str] = "picture"
    name: str
    """File name without ending."""
    caption: str
    alt: str
    png: bytes

    @property
    def base64(self) -> str:
        """The content for a page that loads nothing."""
        return b64encode(self.png).decode()


Block = Prose | Bullets | Findings | Tables | Figures | Facts | Commands | Heading | Picture


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """A titled part of the report."""

    key: str
    """Its anchor on the page."""
    title: str
    blocks: tuple[Block, ...]
    link: str = ""
    """Its name in the page's contents; empty leaves it out of them."""
    appendix: bool = False
    """Whether it belongs to the appendix, which stands at the end and is folded on a page."""
    folded: bool = False
    """Whether a page shows its title only, until a reader opens it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tile:
    """One figure of the first screen, with its change."""

    title: str
    value: str
    change: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Opening:
    """What stands above everything else: one per study."""

    label: str
    note: str
    """Beside the label: when, where, whether it may be quoted."""
    headline: str
    sentences: tuple[str, ...]
    next: str = ""
    void: bool = False
    tiles: tuple[Tile, ...] = ()
    figures: Figures | None = None
    """The charts of the first screen."""
    checks: tuple[Check, ...] = ()
    commands: tuple[str, ...] = ()
    """What to do next, as commands to copy; at most three."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """Everything that a report shows and writes."""

    title: str
    openings: tuple[Opening, ...]
    sections: tuple[Section, ...]
    extra_figures: tuple[Figure, ...] = ()
    """Written as pictures, not shown on the page."""
    extra_tables: tuple[Table, ...] = ()
    """Written as files, not shown on the page."""
    csv_only: tuple[Table, ...] = ()
    """Long tables, written as CSV only."""
    extra_files: Mapping[str, str] = field(default_factory=dict)
    """Text files by name."""

    def blocks(self) -> Iterator[Block]:
        """Return the blocks of all sections."""
        for section in self.sections:
            yield from section.blocks

    def figures(self) -> list[Figure]:
        """Return the figures of the page."""
        first = [one.figures for one in self.openings if one.figures is not None]
        later = [block for block in self.blocks() if isinstance(block, Figures)]
        return [one for block in (*first, *later) for one in block.figures]

    def tables(self) -> list[Table]:
        """Return all tables to be written, each name once."""
        found: dict[str, Table] = {figure.table.name: figure.table for figure in self.extra_figures}
        shown = [figure.table for figure in self.figures()]
        for block in self.blocks():
            shown += block.tables if isinstance(block, Tables) else ()
        for table in shown:
            found.setdefault(table.name, table)
        return list((found | {table.name: table for table in self.extra_tables}).values())


class Names:
    """Names of files and ids: safe ones, and no two figures or unlike tables under one."""

    def __init__(self, *taken: str) -> None:
        self._figures: set[str] = set()
        self._tables: dict[str, Table | None] = dict.fromkeys(taken)

    def figure(self, figure: Figure) -> Figure:
        """Return the figure and its table under names of their own."""
        name = _safe(figure.name)
        while name in self._figures:
            name = _next(name)
        self._figures.add(name)
        return replace(figure, name=name, table=self.table(figure.table))

    def table(self, table: Table) -> Table:
        """Return the table under a name of its own; the same table keeps its name."""
        name = _safe(table.name)
        while name in self._tables and self._tables[name] != table:
            name = _next(name)
        self._tables[name] = table
        return replace(table, name=name)


def unlike(names: Iterable[str]) -> list[str]:
    """Return the names with a number behind each one that was there before."""
    seen: set[str] = set()
    result = []
    for name in names:
        number, candidate = 1, name
        while candidate in seen:
            number += 1
            candidate = f"{name} ({number})"
        seen.add(candidate)
        result.append(candidate)
    return result


def _safe(name: str) -> str:
    """Return a name that is a file's and an id's on every system."""
    return re.sub(r"[^A-Za-z0-9_-]+", "-", name).strip("-")[:80] or "unnamed"


def _next(name: str) -> str:
    found = re.fullmatch(r"(.*)-(\d+)", name)
    return f"{found[1]}-{int(found[2]) + 1}" if found else f"{name}-2"
