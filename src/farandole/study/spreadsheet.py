"""A CSV file as people save it: whichever separator, byte-order mark, quotes, comments; pure."""

from __future__ import annotations

import csv
import io
import re
from dataclasses import dataclass

from farandole.errors import UsageError

_SEPARATORS = (",", ";", "\t")
_UTF16 = (b"\xff\xfe", b"\xfe\xff")


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One row of values, as many as there are columns."""

    line: int
    """Its number in the file, for messages."""
    values: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sheet:
    """The cells of a table as text."""

    columns: tuple[str, ...]
    rows: tuple[Row, ...]
    separator: str

    def column(self, index: int) -> list[str]:
        """Return the values of one column."""
        return [row.values[index] for row in self.rows]


def parse_sheet(content: bytes, *, name: str) -> Sheet:
    """Return the table in a file; rows without any value and lines with `#` are left out.

    Raises:
        UsageError: It is empty, has only a header, or is no table.
    """
    text = _decode(content, name)
    # Lines keep their numbers: a comment becomes an empty row.
    lines = ["" if line.startswith("#") else line for line in re.split(r"\r\n|\r|\n", text)]
    header = next((line for line in lines if line.strip()), None)
    if header is None:
        raise UsageError(f"{name} is empty. Its first line must name the columns.")
    separator = max(_SEPARATORS, key=_outside_quotes(header).count)
    reader = csv.reader(io.StringIO("\n".join(lines)), delimiter=separator, strict=True)
    found: list[tuple[int, list[str]]] = []
    try:
        for values in reader:
            stripped = [value.strip() for value in values]
            if any(stripped):
                found.append((reader.line_num, stripped))
    except csv.Error as error:
        raise UsageError(f"{name}, line {reader.line_num}: not a table ({error}).") from error
    (_, columns), *rest = found
    if not any(re.search(r"[^\W\d_]", column) for column in columns):
        raise UsageError(
            f"{name} has no header: its first line, {header.strip()!r}, has no letters. Name the "
            "columns there, without # before them, which makes a line a comment."
        )
    if not rest:
        raise UsageError(f"{name} has a header and no rows. Add one row per run.")
    rows = tuple(_row(name, line, values, columns, separator) for line, values in rest)
    return Sheet(columns=tuple(columns), rows=rows, separator=separator)


def _decode(content: bytes, name: str) -> str:
    if content.startswith(_UTF16) or b"\0" in content:
        raise UsageError(f"{name} is not a CSV file in UTF-8. Save it as CSV (UTF-8).")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        raise UsageError(f"{name}, line {line}: not UTF-8. Save it as CSV (UTF-8).") from error


def _row(name: str, line: int, values: list[str], columns: list[str], separator: str) -> Row:
    extra = [value for value in values[len(columns) :] if value]
    if extra:
        raise UsageError(
            f"{name}, line {line}: {len(values)} values for {len(columns)} columns. Put values "
            f"with {separator!r} in them into quotes."
        )
    missing = [""] * (len(columns) - len(values))
    return Row(line=line, values=tuple(values[: len(columns)] + missing))


def _outside_quotes(line: str) -> str:
    return "".join(line.split('"')[::2])
