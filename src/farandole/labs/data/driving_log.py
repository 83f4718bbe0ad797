"""Read which image was steered how: labels.csv, or the log of Udacity's simulator."""

from __future__ import annotations

import csv
import math
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PureWindowsPath

import numpy as np
from numpy.typing import NDArray

from farandole.errors import DataError

LABELS = "labels.csv"
LOG = "driving_log.csv"
_LOG_COLUMNS = ("center", "left", "right", "steering", "throttle", "brake", "speed")
_SPLITS = {"train": False, "test": True, "val": True, "valid": True, "validation": True}
# One image of five is for testing, where the file does not say which.
_TEST_EVERY = 5


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Drive:
    """Images of a drive, with the steering at each."""

    files: tuple[Path, ...]
    steering: NDArray[np.float32]
    is_test: NDArray[np.bool_]


def read_labels(path: Path) -> Drive:
    """Read labels.csv: file, steering, and split where there is one.

    Raises:
        DataError: a column is missing, or a value is not what its column needs.
    """
    rows = _read_rows(path)
    header = [name.strip() for name in rows[0][1]]
    missing = [name for name in ("file", "steering") if name not in header]
    if missing:
        raise DataError(
            f"{path}: expected the columns file and steering, and split where there is one; found "
            f"{', '.join(header)}. {' and '.join(missing)} is missing."
        )
    return _drive(path, rows[1:], header, "file", lambda name: path.parent / name)


def read_log(path: Path) -> Drive:
    """Read the simulator's log, with or without a header; images lie in IMG/ beside it.

    Raises:
        DataError: it has not the simulator's columns, or a value is not what its column needs.
    """
    rows = _read_rows(path)
    first = [name.strip() for name in rows[0][1]]
    if "center" in first and "steering" in first:
        header, rows = first, rows[1:]
    elif len(first) >= 4 and _number(first[3]) is not None:
        header = list(_LOG_COLUMNS[: len(first)])
    else:
        raise DataError(
            f"{path}: expected the simulator's columns, {', '.join(_LOG_COLUMNS)}, with or without "
            f"a header; found {', '.join(first)}."
        )
    # The log has the paths of the machine where the car was driven, often a Windows one.
    folder = path.parent / "IMG"
    return _drive(path, rows, header, "center", lambda name: folder / PureWindowsPath(name).name)


def in_test(name: str) -> bool:
    """Say whether an image is for testing, by its name alone: the same on every machine."""
    return zlib.crc32(name.encode(errors="surrogateescape")) % _TEST_EVERY == 0


def _read_rows(path: Path) -> list[tuple[int, list[str]]]:
    """Return the lines that are not empty, with their numbers."""
    try:
        # utf-8-sig: spreadsheets put a mark before the first column's name.
        with path.open(newline="", encoding="utf-8-sig") as file:
            rows = list(_numbered(file))
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}.") from None
    except (csv.Error, UnicodeDecodeError) as error:
        raise DataError(f"{path} is not a table in CSV: {error}.") from None
    if not rows:
        raise DataError(f"{path} is empty.")
    return rows


def _numbered(file: Iterator[str]) -> Iterator[tuple[int, list[str]]]:
    reader = csv.reader(file)
    for row in reader:
        if any(value.strip() for value in row):
            yield reader.line_num, row


def _drive(
    path: Path,
    rows: Sequence[tuple[int, list[str]]],
    header: Sequence[str],
    file_column: str,
    locate: Callable[[str], Path],
) -> Drive:
    files, steering, is_test = [], [], []
    for line, row in rows:
        if len(row) < len(header):
            raise DataError(
                f"{path}, line {line}: expected {len(header)} columns, found {len(row)}."
            )
        values = dict(zip(header, (value.strip() for value in row), strict=False))
        file = locate(values[file_column])
        files.append(file)
        steering.append(_steering(values["steering"], f"{path}, line {line}"))
        is_test.append(_is_test(values.get("split"), file.name, f"{path}, line {line}"))
    _check_both(path, is_test)
    return Drive(
        files=tuple(files),
        steering=np.array(steering, np.float32),
        is_test=np.array(is_test, np.bool_),
    )


def _steering(text: str, where: str) -> float:
    value = _number(text)
    if value is None:
        raise DataError(f"{where}: the steering {text!r} is not a number.")
    if not -1 <= value <= 1:
        raise DataError(
            f"{where}: the steering {text} is out of range: -1 is fully left, 1 fully right."
        )
    return value


def _is_test(split: str | None, name: str, where: str) -> bool:
    if split is None:
        return in_test(name)
    if split.lower() not in _SPLITS:
        raise DataError(f"{where}: unknown split {split!r}. Choose from {', '.join(_SPLITS)}.")
    return _SPLITS[split.lower()]


def _check_both(path: Path, is_test: Sequence[bool]) -> None:
    test = sum(is_test)
    if not test or test == len(is_test):
        raise DataError(
            f"{path} has {len(is_test) - test} images for training and {test} for testing: both "
            "are needed."
        )


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None
