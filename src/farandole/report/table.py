"""One table for every output: CSV with full figures, Markdown, LaTeX and aligned lines."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Any

from farandole.format import (
    NOT_MEASURED,
    TOO_WIDE,
    between,
    decimals_for,
    factor_decimals,
    number,
    times,
    too_wide,
)
from farandole.model.statistics import Estimate
from farandole.report import escape

Show = Callable[[Any], str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """One column: a key with its unit for files, a title for people."""

    key: str
    title: str
    show: Show = number
    text: bool = False
    """Words, left-aligned, in place of figures."""
    interval: bool = False
    """Cells are `Estimate`s: three columns in CSV, "1.83 (1.79 to 1.87)" elsewhere. An estimate
    whose value is NaN has bounds only: "1.79 to 1.87"."""
    get: str | Callable[[Any], Any] | None = None
    """Where `tabulate` finds the cell in a row: an attribute's path, or a function of the row;
    None: the attribute that is called like the key."""

    def cell(self, row: Any) -> Any:
        """Return this column's cell of a row."""
        if callable(self.get):
            return self.get(row)
        return attrgetter(self.get or self.key)(row)


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Rows under columns; a cell is a figure, a text, an Estimate or None."""

    name: str
    """File name without ending."""
    title: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[Any, ...], ...]
    notes: tuple[str, ...] = ()
    absent: tuple[tuple[str, ...], ...] = ()
    """What to show for a cell that has nothing, by row and column; empty: "not measured"."""

    def __post_init__(self) -> None:
        for row in self.rows:
            assert len(row) == len(self.columns), (self.name, row)

    def index(self, key: str) -> int:
        """Return the place of a column."""
        keys = [column.key for column in self.columns]
        assert key in keys, f"table {self.name} has {keys}, not {key!r}"
        return keys.index(key)

    def column(self, key: str) -> Column:
        """Return the column of this key."""
        return self.columns[self.index(key)]

    def records(self) -> list[dict[str, Any]]:
        """Return the rows as cells by key."""
        keys = [column.key for column in self.columns]
        return [dict(zip(keys, row, strict=True)) for row in self.rows]

    def only(self, keys: Collection[str]) -> Table:
        """Return the table with these columns only."""
        kept = [place for place, column in enumerate(self.columns) if column.key in keys]
        return replace(
            self,
            columns=tuple(self.columns[place] for place in kept),
            rows=tuple(tuple(row[place] for place in kept) for row in self.rows),
            absent=tuple(tuple(row[place] for place in kept) for row in self.absent),
        )

    def without(self, keys: Collection[str]) -> Table:
        """Return the table without these columns."""
        return self.only({column.key for column in self.columns} - set(keys))

    def without_empty(self) -> Table:
        """Return the table without the columns that have no cell filled in."""
        filled = [
            column.key
            for place, column in enumerate(self.columns)
            if any(row[place] not in (None, "") for row in self.rows)
        ]
        return self.only(filled)

    def texts(self) -> list[list[str]]:
        """Return all cells for people, not yet escaped."""
        absent = self.absent or ((NOT_MEASURED,) * len(self.columns),) * len(self.rows)
        return [
            [
                word if cell is None else shown(column, cell)
                for column, cell, word in zip(self.columns, row, words, strict=True)
            ]
            for row, words in zip(self.rows, absent, strict=False)
        ]

    def first(self, limit: int | None) -> Table:
        """Return the table cut to so many rows, with a note that says so."""
        if limit is None or len(self.rows) <= limit:
            return self
        note = f"{limit} of {len(self.rows):,} rows; tables/{self.name}.csv has all."
        return replace(self, rows=self.rows[:limit], notes=(*self.notes, note))


def tabulate(
    name: str,
    title: str,
    rows: Iterable[Any],
    columns: Iterable[Column],
    notes: Iterable[str] = (),
    absent: Callable[[Any, Column], str] | None = None,
) -> Table:
    """Make a table of records: each column says where its cell is in a record.

    `absent` says what is shown where a record has nothing.
    """
    columns, rows = tuple(columns), list(rows)
    return Table(
        name=name,
        title=title,
        columns=columns,
        rows=tuple(tuple(column.cell(row) for column in columns) for row in rows),
        notes=tuple(notes),
        absent=tuple(tuple(absent(row, column) for column in columns) for row in rows)
        if absent
        else (),
    )


def shown(column: Column, cell: Any) -> str:
    """Return one cell for people, not yet escaped."""
    if column.text:
        return NOT_MEASURED if cell is None else str(cell)
    if not isinstance(cell, Estimate):
        return column.show(cell)
    low, high = cell.low, cell.high
    if math.isnan(cell.value) and low is not None and high is not None:
        return f"{column.show(low)} to {column.show(high)}"
    value = column.show(cell.value)
    # The baseline's own ratio is one by definition, not by measurement.
    if low is None or high is None or math.isnan(cell.value) or low == high:
        return value
    if too_wide(low, high):
        bounds = TOO_WIDE
    elif column.show is number:
        bounds = between(low, high, decimals=decimals_for(cell.value))
    elif column.show is times:
        bounds = between(low, high, decimals=factor_decimals(cell.value))
    else:
        bounds = f"{column.show(low)} to {column.show(high)}"
    return f"{value} ({bounds})"


def to_csv(table: Table) -> str:
    """Return the table for programs: full figures, empty where there is none."""
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    header: list[str] = []
    for column in table.columns:
        header.append(escape.csv_text(column.key))
        if column.interval:
            header += [escape.csv_text(f"{column.key}_{end}") for end in ("low", "high")]
    writer.writerow(header)
    for row in table.rows:
        cells: list[str] = []
        for column, cell in zip(table.columns, row, strict=True):
            if column.interval:
                parts = (cell.value, cell.low, cell.high) if cell is not None else (None,) * 3
                cells += [_exact(part) for part in parts]
            else:
                cells.append(_exact(cell))
        writer.writerow(cells)
    return stream.getvalue()


def to_markdown(table: Table, *, limit: int | None = None) -> str:
    """Return the table in GitHub's Markdown, with its notes below."""
    table = table.first(limit)
    lines = [
        _piped([column.title for column in table.columns]),
        "|" + "|".join("---" if column.text else "--:" for column in table.columns) + "|",
        *(_piped(cells) for cells in table.texts()),
    ]
    if table.notes:
        lines += ["", *(escape.markdown(note) for note in table.notes)]
    return "\n".join(lines) + "\n"


def to_latex(table: Table) -> str:
    """Return a `tabular` that needs no package."""
    layout = "".join("l" if column.text else "r" for column in table.columns)
    lines = [
        f"% {escape.visible(table.title)}",
        f"\\begin{{tabular}}{{{layout}}}",
        "\\hline",
        _ampersands([column.title for column in table.columns]),
        "\\hline",
        *(_ampersands(cells) for cells in table.texts()),
        "\\hline",
        "\\end{tabular}",
        *(f"% {escape.visible(note)}" for note in table.notes),
    ]
    return "\n".join(lines) + "\n"


def to_lines(table: Table, *, indent: str = "  ") -> list[str]:
    """Return the table as aligned text for a terminal."""
    rows = [[column.title for column in table.columns], *table.texts()]
    rows = [[escape.visible(cell) for cell in row] for row in rows]
    widths = [max(len(row[index]) for row in rows) for index in range(len(table.columns))]
    lines = []
    for row in rows:
        cells = [
            cell.ljust(width) if column.text else cell.rjust(width)
            for cell, width, column in zip(row, widths, table.columns, strict=True)
        ]
        lines.append((indent + "  ".join(cells)).rstrip())
    return lines


def _exact(cell: Any) -> str:
    if cell is None or (isinstance(cell, float) and math.isnan(cell)):
        return ""
    if isinstance(cell, bool):
        return "yes" if cell else "no"
    if isinstance(cell, float | int):
        return repr(cell)
    return escape.csv_text(cell)


def _piped(cells: Sequence[str]) -> str:
    return "| " + " | ".join(escape.markdown(cell) for cell in cells) + " |"


def _ampersands(cells: Sequence[str]) -> str:
    return " & ".join(escape.latex(cell) for cell in cells) + r" \\"
