"""A report as data: sections of blocks, laid out by the template of each output."""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

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


class Block:
    """Part of a section; the templates lay out each kind."""

    __slots__ = ()

    @property
    def kind(self) -> str:
        """What it is called in templates: "prose"."""
        return type(self).__name__.lower()


@dataclass(frozen=True, slots=True)
class Prose(Block):
    """Paragraphs."""

    sentences: tuple[str, ...]
    strong: bool = False


@dataclass(frozen=True, slots=True)
class Bullets(Block):
    """A list; `folded` gives it a title that opens it."""

    items: tuple[str, ...]
    folded: str = ""


@dataclass(frozen=True, slots=True)
class Finding:
    """One verdict as a reader sees it."""

    severity: Literal["void", "warn", "note", "good"]
    study: str
    sentence: str
    evidence: str
    others: tuple[str, ...] = ()
    """What is found in the same way of other cells."""


@dataclass(frozen=True, slots=True)
class Findings(Block):
    """Verdicts, each with its severity, sentence and evidence."""

    items: tuple[Finding, ...]


@dataclass(frozen=True, slots=True)
class Tables(Block):
    """Tables that stand without a figure."""

    tables: tuple[Table, ...]
    titled: bool = False
    """Whether Markdown has their titles above them."""
    wordy: bool = False
    """Whether their cells are sentences."""


@dataclass(frozen=True, slots=True)
class Figures(Block):
    """Charts side by side, each with its table."""

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
class Facts(Block):
    """Pairs of words: what a machine or a data set is."""

    pairs: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Commands(Block):
    """Command lines to copy."""

    lines: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Heading(Block):
    """A heading within a section."""

    text: str
    href: str = ""
    """Where it leads: another page beside this one."""


@dataclass(frozen=True, slots=True)
class Picture(Block):
    """A picture that is no chart: samples of a data set."""

    name: str
    """File name without ending."""
    caption: str
    alt: str
    png: bytes

    @property
    def base64(self) -> str:
        """The content for a page that loads nothing."""
        return b64encode(self.png).decode()


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
        self._taken: dict[tuple[str, str], Any] = {("table", name): None for name in taken}

    def figure(self, figure: Figure) -> Figure:
        """Return the figure and its table under names of their own."""
        # No two figures are the same one.
        name = self._name("figure", figure.name, object())
        return replace(figure, name=name, table=self.table(figure.table))

    def table(self, table: Table) -> Table:
        """Return the table under a name of its own; the same table keeps its name."""
        return replace(table, name=self._name("table", table.name, table))

    def _name(self, kind: str, wanted: str, owner: Any) -> str:
        name = re.sub(r"[^A-Za-z0-9_-]+", "-", wanted).strip("-")[:80] or "unnamed"
        while self._taken.setdefault((kind, name), owner) != owner:
            found = re.fullmatch(r"(.*)-(\d+)", name)
            name = f"{found[1]}-{int(found[2]) + 1}" if found else f"{name}-2"
        return name
