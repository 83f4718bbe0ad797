"""A table in CSV that says what is on which image, and which images are for testing."""

from __future__ import annotations

import csv
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from farandole.errors import DataError

LABELS = "labels.csv"
_SPLITS = {"train": False, "test": True, "val": True, "valid": True, "validation": True}
# One image of five is for testing, where nothing says which.
TEST_EVERY = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One line of a table."""

    where: str
    """For errors: "labels.csv, line 7"."""
    values: Mapping[str, str]
    """By column."""

    def is_test(self, name: str) -> bool:
        """Say whether this is for testing: by the column split, or else by the image's name.

        Raises:
            DataError: the split is not known.
        """
        split = self.values.get("split")
        if split is None:
            return in_test(name)
        if split.lower() not in _SPLITS:
            raise DataError(
                f"{self.where}: unknown split {split!r}. Choose from {', '.join(_SPLITS)}."
            )
        return _SPLITS[split.lower()]


def read_table(path: Path) -> list[tuple[int, list[str]]]:
    """Return the lines that are not empty, with their numbers.

    Raises:
        DataError: it is not a table, or there is no line.
    """
    try:
        # utf-8-sig: spreadsheets put a mark before the first column's name.
        with path.open(newline="", encoding="utf-8-sig") as file:
            lines = list(_numbered(file))
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}.") from None
    except (csv.Error, UnicodeDecodeError) as error:
        raise DataError(f"{path} is not a table in CSV: {error}.") from None
    if not lines:
        raise DataError(f"{path} is empty.")
    return lines


def read_labels(path: Path, needed: Sequence[str]) -> Iterator[Row]:
    """Read labels.csv: the needed columns, and split where there is one.

    Raises:
        DataError: a column is missing.
    """
    (_, first), *lines = read_table(path)
    header = [name.strip() for name in first]
    missing = [name for name in needed if name not in header]
    if missing:
        raise DataError(
            f"{path}: expected the columns {' and '.join(needed)}, and split where there is one; "
            f"found {', '.join(header)}. {' and '.join(missing)} is missing."
        )
    return rows(path, header, lines)


def rows(
    path: Path, header: Sequence[str], lines: Sequence[tuple[int, list[str]]]
) -> Iterator[Row]:
    """Give each line's values their columns' names.

    Raises:
        DataError: a line is too short.
    """
    for number, line in lines:
        where = f"{path}, line {number}"
        if len(line) < len(header):
            raise DataError(f"{where}: expected {len(header)} columns, found {len(line)}.")
        values = dict(zip(header, (value.strip() for value in line), strict=False))
        yield Row(where=where, values=values)


def in_test(name: str) -> bool:
    """Say whether an image is for testing, by its name alone: the same on every machine."""
    return name_hash(name) % TEST_EVERY == 0


def name_hash(name: str) -> int:
    """Return a number for a file's name, the same on every machine."""
    return zlib.crc32(name.encode(errors="surrogateescape"))


def check_both(where: object, is_test: Sequence[bool]) -> None:
    """Refuse data that leave nothing to train on, or nothing to test on.

    Raises:
        DataError: says how many there are of each.
    """
    test = sum(is_test)
    if not test or test == len(is_test):
        raise DataError(
            f"{where} has {len(is_test) - test} images for training and {test} for testing: both "
            "are needed."
        )


def _numbered(file: Iterator[str]) -> Iterator[tuple[int, list[str]]]:
    reader = csv.reader(file)
    for row in reader:
        if any(value.strip() for value in row):
            yield reader.line_num, row
