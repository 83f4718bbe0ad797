"""CSV files as people save them, and the numbers and times in their fields; pure.

Whichever separator, byte-order mark, quotes, comments; 1,234.5 and 1.234,5, 95 %, 1:38:30.
"""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from farandole.errors import UsageError

Decimal = Literal[".", ","]

_MISSING = {"", "-", "--", "\u2013", "\u2014", "n/a", "na", "none", "null", "?", "not measured"}
_CLOCK = re.compile(r"(?:(\d+):)?(\d+):(\d{2}(?:[.,]\d+)?)")
_SPACES = str.maketrans("", "", " _'\u00a0\u2009\u202f\u2019")
# By decimal mark; the other mark parts thousands, which no lone zero comes before.
_NUMBERS = {
    mark: re.compile(rf"[+-]?(?:[1-9]\d{{0,2}}(?:{other}\d{{3}})+|\d*)(?:{mark}\d*)?(?:e[+-]?\d+)?")
    for mark, other in ((r"\.", ","), (",", r"\."))
}


class UnreadableError(ValueError):
    """A value that is no number; the importer says where it stands."""


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
    """Return the table in a file; rows without any value and lines with `#` are left out."""
    if content.startswith((b"\xff\xfe", b"\xfe\xff")) or b"\0" in content:
        raise UsageError(f"{name} is not a CSV file in UTF-8. Save it as CSV (UTF-8).")
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        raise UsageError(f"{name}, line {line}: not UTF-8. Save it as CSV (UTF-8).") from error
    # Lines keep their numbers: a comment becomes an empty row.
    lines = ["" if line.startswith("#") else f"{line}\n" for line in re.split(r"\r\n?|\n", text)]
    header = next((line.strip() for line in lines if line.strip()), None)
    if header is None:
        raise UsageError(f"{name} is empty. Its first line must name the columns.")
    outside_quotes = "".join(header.split('"')[::2])
    separator = max((",", ";", "\t"), key=outside_quotes.count)
    reader = csv.reader(lines, delimiter=separator, strict=True)
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
            f"{name} has no header: its first line, {header!r}, has no letters. Name the "
            "columns there, without # before them, which makes a line a comment."
        )
    if not rest:
        raise UsageError(f"{name} has a header and no rows. Add one row per run.")
    width, rows = len(columns), []
    for line, values in rest:
        if any(values[width:]):
            raise UsageError(
                f"{name}, line {line}: {len(values)} values for {width} columns. Put values with "
                f"{separator!r} in them into quotes."
            )
        rows.append(Row(line=line, values=tuple((values + [""] * width)[:width])))
    return Sheet(columns=tuple(columns), rows=tuple(rows), separator=separator)


def is_missing(text: str) -> bool:
    """Tell whether somebody left the value out."""
    return not text[:1].isdecimal() and text.strip().lower() in _MISSING


def decimal_mark(texts: Iterable[str], *, separator: str) -> Decimal:
    """Find which mark a file's numbers have, from those that can be read in one way only.

    Raises:
        UnreadableError: They contradict each other, or only ambiguous ones are there.
    """
    dot = comma = unclear = None
    for text in texts:
        # What says nothing, or nothing new, is most of a large table.
        if text.isdecimal() or (dot and "," not in text and text.count(".") == 1):
            continue
        bare = _bare(text)
        with_dot, with_comma = (pattern.fullmatch(bare) for pattern in _NUMBERS.values())
        if with_dot and not with_comma:
            dot = dot or text
        elif with_comma and not with_dot:
            comma = comma or text
        elif with_dot and "," in bare:
            unclear = unclear or text
    if dot and comma:
        raise UnreadableError(f"{dot!r} and {comma!r} have different decimal marks")
    # Where commas part the columns, one inside a number parts thousands. Elsewhere who knows.
    if unclear and not (dot or comma) and separator != ",":
        raise UnreadableError(
            f"{unclear!r} may have decimals or thousands; write it without the comma"
        )
    return "," if comma else "."


def parse_number(text: str, mark: Decimal) -> float:
    """Return the value; a percentage as a share of 1.

    Raises:
        UnreadableError: It is no number.
    """
    try:
        if mark == "." and text.replace(".", "", 1).isdecimal():
            return float(text)  # most of a large table
        bare, thousands = _bare(text), "," if mark == "." else "."
        if thousands in bare and not _NUMBERS[r"\." if mark == "." else ","].fullmatch(bare):
            raise UnreadableError(text)
        value = float(bare.replace(thousands, "").replace(",", "."))
    except ValueError as error:
        raise UnreadableError(text) from error
    return value / 100 if text.rstrip().endswith("%") else value


def is_number(text: str, mark: Decimal) -> bool:
    """Tell whether `parse_number` reads it."""
    try:
        parse_number(text, mark)
    except UnreadableError:
        return False
    return True


def parse_clock(text: str) -> float | None:
    """Return the seconds of h:mm:ss or m:ss; None when it is written otherwise.

    Raises:
        UnreadableError: 61 seconds, or 61 minutes after hours.
    """
    match = _CLOCK.fullmatch(text.strip())
    if match is None:
        return None
    hours, minutes, seconds = match[1], int(match[2]), float(match[3].replace(",", "."))
    if seconds >= 60 or (hours is not None and minutes >= 60):
        raise UnreadableError(text)
    return int(hours or 0) * 3600 + minutes * 60 + seconds


def whole(value: float) -> int | None:
    """Return a count; None when it is none."""
    return int(value) if math.isfinite(value) and value == int(value) else None


def _bare(text: str) -> str:
    return text.strip().lower().removesuffix("%").translate(_SPACES)
