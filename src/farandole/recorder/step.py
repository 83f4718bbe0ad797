"""The step that is under way: what has been told of it so far, until it becomes a row."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from farandole.recorder.lines import Interval, union_s

Later = Callable[[], "float | None"]
"""A figure that a device knows a little later; None as long as it does not."""


class OpenStep:
    """Adds up; None stands for what nobody has told anything of, in this step or before."""

    def __init__(self, *, alone: bool) -> None:
        """Begin; `alone`: with one worker there is nothing to communicate, and that is known."""
        self.data_s: float | None = None
        self._samples: float | None = None
        self._said_samples: float | None = None
        self._optimizer_s: float | Later | None = None
        self._communicated: float | None = 0.0 if alone else None
        self._intervals: list[Interval] = []
        self._ready_s: float | None = None
        self._done_s: float | None = None
        self._exposed_s = 0.0
        # Buckets may end in threads of autograd's.
        self._lock = threading.Lock()

    def data_waited(self, seconds: float, samples: int | None) -> None:
        """Add a batch."""
        self.data_s = (self.data_s or 0.0) + seconds
        if samples is not None:
            self._samples = (self._samples or 0.0) + samples

    def say_samples(self, count: float) -> None:
        """Add samples by the script's own word, which counts more than what was seen."""
        self._said_samples = (self._said_samples or 0.0) + count

    def gradients(self, ready_s: float, done_s: float, began_s: float, exposed_s: float) -> None:
        """Add gradients that were on their way."""
        with self._lock:
            self._intervals.append((began_s, done_s))
            if self._ready_s is None or ready_s > self._ready_s:
                self._ready_s = ready_s
            if self._done_s is None or done_s > self._done_s:
                self._done_s = done_s
            self._exposed_s += exposed_s

    def optimizer(self, seconds: float) -> None:
        """Add an update."""
        before = self._optimizer_s
        self._optimizer_s = (before if isinstance(before, float) else 0.0) + seconds

    def optimizer_later(self, seconds: Later) -> None:
        """Take an update whose time a device will know."""
        self._optimizer_s = seconds

    def end(self, end_s: float | Later) -> list[Any]:
        """Return the step's row, in the order of COLUMNS, and begin the next."""
        with self._lock:
            intervals = self._intervals
            if intervals:
                self._communicated = 0.0
                exposed_s: float | None = self._exposed_s
                covered_s: float | None = union_s(intervals)
            else:
                exposed_s = covered_s = self._communicated
            row = [
                end_s,
                self.data_s,
                self._optimizer_s,
                covered_s,
                exposed_s,
                self._ready_s,
                self._done_s,
                self._samples if self._said_samples is None else self._said_samples,
            ]
            if intervals:
                self._intervals = []
                self._ready_s = self._done_s = None
                self._exposed_s = 0.0
        # What was measured once is 0 in a step where nothing came.
        if self.data_s is not None:
            self.data_s = 0.0
        if self._samples is not None:
            self._samples = 0.0
        if self._optimizer_s is not None:
            self._optimizer_s = 0.0
        self._said_samples = None
        return row


def take_settled(rows: list[list[Any]], count: int, *, final: bool) -> list[list[float | None]]:
    """Take away the first of `count` rows, as far as devices know their figures by now.

    In the end, what a device does not know yet is not measured; a row without its end is dropped.
    """
    settled: list[list[float | None]] = []
    for row in rows[:count]:
        for at, value in enumerate(row):
            if callable(value):
                figure = value()
                if figure is not None or final:
                    row[at] = figure
        if any(map(callable, row)):
            break
        settled.append(row)
    del rows[: len(settled)]
    return [row for row in settled if row[0] is not None]
