"""One table, five ways: CSV with full figures, Markdown, LaTeX, HTML and aligned lines."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from farandole.model.statistics import Estimate
from farandole.report import escape
from farandole.report.text import (
    NOT_MEASURED,
    between,
    decimals_for,
    factor_decimals,
    number,
    times,
)

Show = Callable[[Any], str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """What one column holds: a name with its unit for files, a title for people."""

    key: str
    title: str
    show: Show = number
    text: bool = False
    """Words, left-aligned, in place of figures."""
    interval: bool = False
    """Its cells are `Estimate`s: three columns in CSV, "1.83 (1.79 to 1.87)" elsewhere. One whose
    value is NaN has bounds only: "1.79 to 1.87"."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Rows under columns; a cell is a figure, a text, an Estimate or None."""

    name: str
    """File name without ending."""
    title: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[Any, ...], ...]
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for row in self.rows:
            assert len(row) == len(self.columns), (self.name, row)


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
    if column.show is number:
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
    table = _cut(table, limit)
    lines = [
        _piped([column.title for column in table.columns]),
        "|" + "|".join("---" if column.text else "--:" for column in table.columns) + "|",
        *(_piped(cells) for cells in _texts(table)),
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
        *(_ampersands(cells) for cells in _texts(table)),
        "\\hline",
        "\\end{tabular}",
        *(f"% {escape.visible(note)}" for note in table.notes),
    ]
    return "\n".join(lines) + "\n"


def to_html(table: Table, *, limit: int | None = None) -> str:
    """Return the table as HTML that scrolls by itself when it is wide."""
    table = _cut(table, limit)
    head = "".join(
        f"<th scope=col{_class(column)}>{escape.html(column.title)}</th>"
        for column in table.columns
    )
    body = "\n".join(
        "<tr>"
        + "".join(
            _html_cell(column, text) for column, text in zip(table.columns, cells, strict=True)
        )
        + "</tr>"
        for cells in _texts(table)
    )
    notes = "".join(f"<p class=missing>{escape.html(note)}</p>" for note in table.notes)
    return (
        f"<div class=scroll tabindex=0><table><caption>{escape.html(table.title)}</caption>\n"
        f"<thead><tr>{head}</tr></thead>\n<tbody>\n{body}\n</tbody></table></div>{notes}"
    )


def to_lines(table: Table, *, indent: str = "  ") -> list[str]:
    """Return the table as aligned text for a terminal or a file."""
    rows = [[column.title for column in table.columns], *_texts(table)]
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


def _cut(table: Table, limit: int | None) -> Table:
    if limit is None or len(table.rows) <= limit:
        return table
    note = f"{limit} of {len(table.rows):,} rows; tables/{table.name}.csv has all."
    return replace(table, rows=table.rows[:limit], notes=(*table.notes, note))


def _texts(table: Table) -> list[list[str]]:
    return [
        [shown(column, cell) for column, cell in zip(table.columns, row, strict=True)]
        for row in table.rows
    ]


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


def _class(column: Column) -> str:
    return " class=text" if column.text else ""


def _html_cell(column: Column, text: str) -> str:
    if text == NOT_MEASURED:
        return f'<td class="none{" text" if column.text else ""}">{text}</td>'
    if column.text:
        # bdi: a name in a script from right to left must not turn its neighbours.
        return f"<td class=text><bdi>{escape.html(text)}</bdi></td>"
    return f"<td>{escape.html(text)}</td>"
