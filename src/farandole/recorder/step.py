"""The step that is under way: what has been told of it so far, until it becomes a row."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

from farandole.recorder.lines import union_s

Later = Callable[[], "float | None"]
"""A figure that a device knows a little later; None as long as it does not."""
_Moved = tuple[float, float, float, float]
"""Gradients on their way: ready, done, began, exposed."""


class OpenStep:
    """Adds up; None stands for what nobody has told anything of, in this step or before."""

    def __init__(self, *, alone: bool) -> None:
        """Begin; `alone`: with one worker there is nothing to communicate, and that is known."""
        self.data_s: float | None = None
        self._samples: float | None = None
        self._said_samples: float | None = None
        self._optimizer_s: float | Later | None = None
        self._communicated: float | None = 0.0 if alone else None
        self._moved: list[_Moved] = []
        # Buckets may end in threads of autograd's.
        self._lock = threading.Lock()

    def data_waited(self, seconds: float, samples: int | None) -> None:
        """Add a batch."""
        self.data_s = (self.data_s or 0.0) + seconds
        if samples is not None:
            self.seen_samples(samples)

    def seen_samples(self, count: float) -> None:
        """Add samples of a batch, of which nobody knows how long training waited for it."""
        self._samples = (self._samples or 0.0) + count

    def say_samples(self, count: float) -> None:
        """Add samples by the script's own word, which counts more than what was seen."""
        self._said_samples = (self._said_samples or 0.0) + count

    def gradients(self, ready_s: float, done_s: float, began_s: float, exposed_s: float) -> None:
        """Add gradients that were on their way."""
        with self._lock:
            self._moved.append((ready_s, done_s, began_s, exposed_s))

    def optimizer(self, seconds: float) -> None:
        """Add an update."""
        before = self._optimizer_s
        self._optimizer_s = (before if isinstance(before, float) else 0.0) + seconds

    def optimizer_later(self, seconds: Later) -> None:
        """Take an update whose time a device will know."""
        self._optimizer_s = seconds

    def end(self, end_s: float | Later) -> list[Any]:
        """Return the step's row, in the order of COLUMNS, and begin the next."""
        (row,) = self._end([end_s], [self._take_moved()])
        self._begin()
        return row

    def end_several(
        self, ends_s: Sequence[float], samples: Sequence[float | None]
    ) -> list[list[Any]]:
        """Return the rows of steps that ran in one piece, each with its own gradients.

        Where gradients cannot be told apart, each step has an even share, and nobody knows when
        they were ready.
        """
        moved, count = self._take_moved(), len(ends_s)
        several, rest = divmod(len(moved), count)
        if not rest:
            groups = [moved[several * n : several * (n + 1)] for n in range(count)]
            rows = self._end(ends_s, groups)
        else:
            rows = self._end(ends_s, [moved] * count)
            for row in rows:
                row[3:7] = [row[3] / count, row[4] / count, None, None]
        for row, known in zip(rows, samples, strict=True):
            if row[1] is not None:
                row[1] /= count
            if isinstance(row[2], float):
                row[2] /= count
            if self._said_samples is not None:
                row[7] /= count
            elif known is not None:
                row[7] = float(known)
        self._begin()
        return rows

    def _take_moved(self) -> list[_Moved]:
        with self._lock:
            moved, self._moved = self._moved, []
        return moved

    def _end(
        self, ends_s: Sequence[float | Later], groups: Sequence[Sequence[_Moved]]
    ) -> list[list[Any]]:
        rows = []
        samples = self._samples if self._said_samples is None else self._said_samples
        for end_s, moved in zip(ends_s, groups, strict=True):
            covered_s = exposed_s = self._communicated
            ready_s: float | None = None
            done_s: float | None = None
            if moved:
                self._communicated = 0.0
                covered_s = union_s([(began_s, done) for _, done, began_s, _ in moved])
                exposed_s = sum(exposed for _, _, _, exposed in moved)
                ready_s = max(ready for ready, _, _, _ in moved)
                done_s = max(done for _, done, _, _ in moved)
            figures = (self.data_s, self._optimizer_s, covered_s, exposed_s, ready_s, done_s)
            rows.append([end_s, *figures, samples])
        return rows

    def _begin(self) -> None:
        # What was measured once is 0 in a step where nothing came.
        if self.data_s is not None:
            self.data_s = 0.0
        if self._samples is not None:
            self._samples = 0.0
        if self._optimizer_s is not None:
            self._optimizer_s = 0.0
        self._said_samples = None


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
