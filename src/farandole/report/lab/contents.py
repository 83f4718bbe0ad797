"""What the report of a lab contains, in its order, before anything is drawn."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

from farandole.labs.lab import Answered, Choice, Correction
from farandole.report.figure import Figure
from farandole.report.lab.published import Beside, beside
from farandole.report.lab.record import LabReport
from farandole.report.table import Column, Table


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """One question with its answer."""

    key: str
    question: str
    sentences: tuple[str, ...]
    figures: tuple[Figure, ...]
    """Each with its table."""
    tables: tuple[Table, ...]
    """All of the question's, its own first."""

    def under(self, figure: Figure) -> bool:
        """Say whether a figure's table stands under it: not where several figures share it."""
        return sum(other.table.name == figure.table.name for other in self.figures) == 1

    @property
    def further(self) -> tuple[Table, ...]:
        """The tables that stand under no figure."""
        below = {figure.table.name for figure in self.figures if self.under(figure)}
        shared = [figure.table for figure in self.figures if not self.under(figure)]
        by_name = {table.name: table for table in (*self.tables, *shared)}
        return tuple(table for name, table in by_name.items() if name not in below)


@dataclass(frozen=True, slots=True, kw_only=True)
class LabContents:
    """Everything that the page, the Markdown and the files show."""

    report: LabReport
    sections: tuple[Section, ...]
    corrections: Table | None
    choices: Table | None
    published: tuple[Beside, ...]
    undrawn: tuple[str, ...]
    """Titles of figures that had nothing to draw."""

    def figures(self) -> Iterator[Figure]:
        """Return all figures, each under a name of its own."""
        for section in self.sections:
            yield from section.figures
        for one in self.published:
            if one.figure is not None:
                yield one.figure

    def tables(self) -> Iterator[Table]:
        """Return all tables, each name once."""
        seen: set[str] = set()
        everything = [
            *(table for section in self.sections for table in section.tables),
            *(figure.table for figure in self.figures()),
            *(table for table in (self.corrections, self.choices) if table is not None),
            *(one.table for one in self.published),
        ]
        for table in everything:
            if table.name not in seen:
                seen.add(table.name)
                yield table


def contents(report: LabReport) -> LabContents:
    """Return what the report of a lab contains."""
    names = _Names()
    undrawn = [figure.title for one in report.answered for figure in one.figures if not figure.spec]
    sections = tuple(_section(one, names) for one in report.answered)
    return LabContents(
        report=report,
        sections=sections,
        corrections=_corrections(report.corrections),
        choices=_choices(report.plan.choices),
        published=tuple(
            replace(
                one,
                table=replace(one.table, name=names.table(one.table)),
                figure=None if one.figure is None else names.figure(one.figure),
            )
            for one in beside(report)
        ),
        undrawn=tuple(dict.fromkeys(undrawn)),
    )


class _Names:
    """Names of files and ids: safe ones, and no two figures or unlike tables under one."""

    def __init__(self) -> None:
        self._figures: set[str] = set()
        self._tables: dict[str, Table] = dict.fromkeys(("corrections", "choices"), _NONE)

    def figure(self, figure: Figure) -> Figure:
        name = _safe(figure.name)
        while name in self._figures:
            name = _next(name)
        self._figures.add(name)
        table = replace(figure.table, name=self.table(figure.table))
        return replace(figure, name=name, table=table)

    def table(self, table: Table) -> str:
        name = _safe(table.name)
        while name in self._tables and self._tables[name] != table:
            name = _next(name)
        self._tables[name] = table
        return name


_NONE = Table(name="", title="", columns=(), rows=())


def _safe(name: str) -> str:
    """Return a name that is a file's and an id's on every system."""
    return re.sub(r"[^A-Za-z0-9_-]+", "-", name).strip("-")[:80] or "unnamed"


def _next(name: str) -> str:
    found = re.fullmatch(r"(.*)-(\d+)", name)
    return f"{found[1]}-{int(found[2]) + 1}" if found else f"{name}-2"


def _section(one: Answered, names: _Names) -> Section:
    tables = tuple(replace(table, name=names.table(table)) for table in one.tables)
    return Section(
        key=one.question.key,
        question=one.question.text,
        sentences=one.sentences,
        figures=tuple(names.figure(figure) for figure in one.figures if figure.spec),
        tables=tables,
    )


def _corrections(corrections: tuple[Correction, ...]) -> Table | None:
    if not corrections:
        return None
    return Table(
        name="corrections",
        title="What was said, what is right, and what shows it",
        columns=(
            Column(key="said", title="the lab said", text=True),
            Column(key="right", title="right is", text=True),
            Column(key="shown_by", title="shown by", text=True),
        ),
        rows=tuple((one.said, one.right, one.shown_by) for one in corrections),
    )


def _choices(choices: tuple[Choice, ...]) -> Table | None:
    if not choices:
        return None
    return Table(
        name="choices",
        title="Where this run differs from the lab",
        columns=(
            Column(key="what", title="", text=True),
            Column(key="lab", title="lab", text=True),
            Column(key="here", title="here", text=True),
            Column(key="why", title="why", text=True),
        ),
        rows=tuple((one.what, one.lab, one.here, one.why) for one in choices),
    )
