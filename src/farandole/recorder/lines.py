"""The lines of rank-N.jsonl, as docs/reference/study-folder.md has them; pure."""

from __future__ import annotations

import json
import math
import os
import sys
from collections.abc import Sequence
from typing import Any

COLUMNS = (
    "end_s",
    "data_s",
    "optimizer_s",
    "communication_s",
    "exposed_s",
    "ready_s",
    "done_s",
    "passes",
    "samples",
)

Row = Sequence[float | None]
Interval = tuple[float, float]


def line(kind: str, **fields: Any) -> str:
    """Write one line of strict JSON: NaN is a word by itself, and null within a list."""
    plain = {
        name: str(value) if isinstance(value, float) and not math.isfinite(value) else _plain(value)
        for name, value in fields.items()
    }
    return json.dumps({"kind": kind, **plain}, allow_nan=False)


def steps_line(rows: Sequence[Row]) -> str:
    """Write a block of steps, column by column; null is "not measured"."""
    columns = zip(COLUMNS, zip(*rows, strict=True), strict=True)
    # Formatted by hand: a tenth of what the json module takes, and a microsecond is exact enough.
    texts = [f'"{name}": [{", ".join(map(_figure, values))}]' for name, values in columns]
    return f'{{"kind": "steps", "columns": {{{", ".join(texts)}}}}}'


def union_s(intervals: Sequence[Interval]) -> float:
    """Return the seconds that these intervals cover together."""
    total, reached = 0.0, -math.inf
    for begin, end in sorted(intervals):
        if end > reached:
            total += end - max(begin, reached)
            reached = end
    return total


def _figure(value: float | None) -> str:
    return "null" if value is None or not math.isfinite(value) else f"{value:.6f}"


def _plain(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {name: _plain(item) for name, item in value.items()}
    return value


class Writer:
    """Appends blocks of lines; a disk that is full ends the recording, never the training."""

    def __init__(self, path: str, *, exclusive: bool = False) -> None:
        """Create the file.

        Raises:
            FileExistsError: `exclusive`, and it is there already.
            OSError: the folder cannot be written to.
        """
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        self._path = path
        self._fd: int | None = os.open(path, flags | (os.O_EXCL if exclusive else 0), 0o644)

    @property
    def open(self) -> bool:
        """Whether lines still arrive."""
        return self._fd is not None

    def write(self, lines: list[str]) -> None:
        """Append these lines."""
        if self._fd is None or not lines:
            return
        block = ("\n".join(lines) + "\n").encode()
        try:
            written = os.write(self._fd, block)
            if written < len(block):
                # A disk that fills up takes a part; the next call says why.
                os.write(self._fd, block[written:])
        except OSError as error:
            sys.stderr.write(
                f"farandole: {self._path} cannot be written ({error.strerror}): recording ends "
                "here, training goes on.\n"
            )
            self.close()

    def close(self) -> None:
        """Let go of the file."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None
