"""CSV files as people save them, and the numbers and times in their fields; pure.

Whichever separator, byte-order mark, quotes, comments; 1,234.5 and 1.234,5, 95 %, 1:38:30.
"""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

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
    """Return the table in a file; rows without any value and lines with `#` are left out."""
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


Decimal = Literal[".", ","]

_MISSING = {"", "-", "--", "\u2013", "\u2014", "n/a", "na", "none", "null", "?", "not measured"}
_CLOCK = re.compile(r"(?:(\d+):)?(\d+):(\d{2}(?:[.,]\d+)?)")
_SPACES = str.maketrans("", "", " _'\u00a0\u2009\u202f\u2019")
# What can be read in one way only. Three digits after one mark, and not after a lone zero, may
# be either thousands or decimals.
_ONLY_DOT = re.compile(r"[+-]?(?:\d{1,3}(?:,\d{3})+\.\d*|\d{1,3}(?:,\d{3}){2,})")
_ONLY_COMMA = re.compile(r"[+-]?(?:\d{1,3}(?:\.\d{3})+,\d*|\d{1,3}(?:\.\d{3}){2,})")
_EITHER = re.compile(r"[+-]?[1-9]\d{0,2}([.,])\d{3}")
_PLAIN = re.compile(r"[+-]?\d*([.,])\d*(?:[eE][+-]?\d+)?")


class UnreadableError(ValueError):
    """A value that is no number; the importer says where it stands."""


def is_missing(text: str) -> bool:
    """Tell whether somebody left the value out."""
    if text and text[0].isdecimal():
        return False
    return text.strip().lower() in _MISSING


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
        if _ONLY_DOT.fullmatch(bare):
            dot = dot or text
        elif _ONLY_COMMA.fullmatch(bare):
            comma = comma or text
        elif either := _EITHER.fullmatch(bare):
            unclear = unclear or (text if either[1] == "," else None)
        elif plain := _PLAIN.fullmatch(bare):
            if plain[1] == ".":
                dot = dot or text
            else:
                comma = comma or text
    if dot and comma:
        raise UnreadableError(f"{dot!r} and {comma!r} have different decimal marks")
    if comma:
        return ","
    # Where commas part the columns, one inside a number parts thousands. Elsewhere who knows.
    if unclear and not dot and separator != ",":
        raise UnreadableError(
            f"{unclear!r} may have decimals or thousands; write it without the comma"
        )
    return "."


def parse_number(text: str, mark: Decimal) -> float:
    """Return the value; a percentage as a share of 1.

    Raises:
        UnreadableError: It is no number.
    """
    if mark == "." and "," not in text:
        try:
            return float(text)
        except ValueError:
            pass  # spaces within, a percentage, or no number
    bare = _bare(text)
    thousands = "," if mark == "." else "."
    if thousands in bare:
        whole = bare.partition(mark)[0]
        if not re.fullmatch(rf"[+-]?\d{{1,3}}(?:{re.escape(thousands)}\d{{3}})+", whole):
            raise UnreadableError(text)
        bare = bare.replace(thousands, "")
    try:
        value = float(bare.replace(",", "."))
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
    return text.strip().removesuffix("%").translate(_SPACES)
