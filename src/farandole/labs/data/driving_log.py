"""Read which image was steered how: labels.csv, or the log of Udacity's simulator."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from pathlib import Path, PureWindowsPath

import numpy as np

from farandole.errors import DataError
from farandole.labs.data import table
from farandole.labs.data.labelled import Labelled
from farandole.labs.data.table import Row, check_both, read_table

LOG = "driving_log.csv"
_LOG_COLUMNS = ("center", "left", "right", "steering", "throttle", "brake", "speed")
# The steering is balanced in so many steps from straight ahead to fully aside.
_STEPS = 4


def read_labels(path: Path) -> Labelled:
    """Read labels.csv: file, steering, and split where there is one.

    Raises:
        DataError: a column is missing, or a value is not what its column needs.
    """
    rows = table.read_labels(path, ("file", "steering"))
    return _drive(path, rows, "file", lambda name: path.parent / name)


def read_log(path: Path) -> Labelled:
    """Read the simulator's log, with or without a header; images lie in IMG/ beside it.

    Raises:
        DataError: it has not the simulator's columns, or a value is not what its column needs.
    """
    lines = read_table(path)
    first = [name.strip() for name in lines[0][1]]
    if "center" in first and "steering" in first:
        header, lines = first, lines[1:]
    elif len(first) >= 4 and _number(first[3]) is not None:
        header = list(_LOG_COLUMNS[: len(first)])
    else:
        raise DataError(
            f"{path}: expected the simulator's columns, {', '.join(_LOG_COLUMNS)}, with or without "
            f"a header; found {', '.join(first)}."
        )
    # The log has the paths of the machine where the car was driven, often a Windows one.
    folder = path.parent / "IMG"
    rows = table.rows(path, header, lines)
    return _drive(path, rows, "center", lambda name: folder / PureWindowsPath(name).name)


def _drive(
    path: Path, rows: Iterable[Row], file_column: str, locate: Callable[[str], Path]
) -> Labelled:
    files, steering, is_test = [], [], []
    for row in rows:
        file = locate(row.values[file_column])
        files.append(file)
        steering.append(_steering(row.values["steering"], row.where))
        is_test.append(row.is_test(file.name))
    check_both(path, is_test)
    labels = np.array(steering, np.float32)
    return Labelled(
        files=tuple(files),
        labels=labels,
        groups=np.round(labels * _STEPS),
        is_test=np.array(is_test, np.bool_),
        source="a drive from the given folder",
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


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None
