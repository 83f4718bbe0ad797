"""What one worker writes: the step that is under way, figures that a device knows later, lines.

A step's own code is out of the processor's caches when training comes back to it, and costs ten
times what it does in a loop. So a step only keeps what it was told; figures are made of that when a
block is written. The lines of rank-N.jsonl are as docs/reference/study-folder.md has them.
"""

from __future__ import annotations

import json
import math
import os
import sys
import time
from collections.abc import Callable, Sequence
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


Later = Callable[[], "float | None"]
"""A figure that a device knows a little later; None as long as it does not."""
_Moved = tuple[float, float, float, float]
"""Gradients on their way: ready, done, began, exposed."""
RawRow = list[Any]
"""End, data, optimizer, what moved (a list, or the four figures of it), passes, samples."""


class OpenStep:
    """Adds up; None stands for what nobody has told anything of, in this step or before."""

    def __init__(self, *, alone: bool) -> None:
        """Begin; `alone`: with one worker there is nothing to communicate, and that is known."""
        self.data_s: float | None = None
        self.samples: float | None = None
        """Of batches that were seen."""
        self.said_samples: float | None = None
        """By the script's own word, which counts more."""
        self.batches = 0
        """That were seen to be given to training."""
        self.passes = 0
        """Backward passes."""
        self.calls: list[int] = []
        """Samples that the model was called with, by backward pass, where that is followed."""
        self.moved: list[_Moved] = []
        """May be added to in threads of autograd's."""
        self._optimizer_s: float | Later | None = None
        self._communicated: float | None = 0.0 if alone else None

    def data_waited(self, seconds: float, samples: int | None) -> None:
        """Add a batch."""
        self.data_s = (self.data_s or 0.0) + seconds
        if samples is not None:
            self.trained_on(samples)

    def trained_on(self, samples: float) -> None:
        """Add a batch of which nobody knows how long training waited for it."""
        self.batches += 1
        self.samples = (self.samples or 0.0) + samples

    def optimizer(self, seconds: float) -> None:
        """Add an update."""
        before = self._optimizer_s
        self._optimizer_s = (before if isinstance(before, float) else 0.0) + seconds

    def optimizer_later(self, seconds: Later) -> None:
        """Take an update whose time a device will know."""
        self._optimizer_s = seconds

    def end(self, end_s: float | Later) -> RawRow:
        """Return what the step was told, and begin the next."""
        moved = self.moved
        if moved:
            self.moved = []
        samples, passes = self.samples, self.passes
        if self.batches:
            # A GAN has more passes than batches, a step with two loaders more batches.
            passes = min(self.batches, passes or self.batches)
        elif self.calls:
            samples, passes = float(sum(self.calls)), len(self.calls)
        if self.said_samples is not None:
            samples = self.said_samples
        row = [end_s, self.data_s, self._optimizer_s, moved, passes or None, samples]
        self.batches = self.passes = 0
        self.calls = []
        # What was measured once is 0 in a step where nothing came.
        if self.data_s is not None:
            self.data_s = 0.0
        if self.samples is not None:
            self.samples = 0.0
        if self._optimizer_s is not None:
            self._optimizer_s = 0.0
        self.said_samples = None
        return row

    def end_several(self, ends_s: Sequence[float], samples: Sequence[float | None]) -> list[RawRow]:
        """Return what steps were told that ran in one piece, each with its own gradients.

        Where gradients cannot be told apart, each step has an even share, and nobody knows when
        they were ready.
        """
        count, said = len(ends_s), self.said_samples
        _, data_s, optimizer_s, moved, passes, seen = self.end(ends_s[-1])
        several, rest = divmod(len(moved), count)
        each: list[Any]
        if not rest:
            each = [moved[several * n : several * (n + 1)] for n in range(count)]
        else:
            covered_s, exposed_s, _, _ = self._moved_figures(moved)
            each = [(covered_s / count, exposed_s / count, None, None)] * count
        if data_s is not None:
            data_s /= count
        if isinstance(optimizer_s, float):
            optimizer_s /= count
        if passes is not None:
            passes /= count
        counts = [seen if known is None else float(known) for known in samples]
        if said is not None:
            counts = [said / count] * count
        return [
            [end_s, data_s, optimizer_s, own, passes, number]
            for end_s, own, number in zip(ends_s, each, counts, strict=True)
        ]

    def figures(self, row: RawRow) -> list[float | None]:
        """Return a row in the order of COLUMNS; to be asked for one row after the other."""
        end_s, data_s, optimizer_s, moved, passes, samples = row
        return [end_s, data_s, optimizer_s, *self._moved_figures(moved), passes, samples]

    def _moved_figures(self, moved: Any) -> tuple[Any, Any, Any, Any]:
        """Return communication, exposed, ready and done."""
        if isinstance(moved, tuple):
            return moved
        if not moved:
            return (self._communicated, self._communicated, None, None)
        self._communicated = 0.0
        return (
            union_s([(began_s, done_s) for _, done_s, began_s, _ in moved]),
            sum(exposed_s for _, _, _, exposed_s in moved),
            max(ready_s for ready_s, _, _, _ in moved),
            max(done_s for _, done_s, _, _ in moved),
        )


def take_settled(rows: list[RawRow], count: int, *, final: bool) -> list[RawRow]:
    """Take away the first of `count` rows, as far as devices know their figures by now.

    In the end, what a device does not know yet is not measured; a row without its end is dropped.
    """
    settled: list[RawRow] = []
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


class Metrics:
    """What `record` was told and is not on disk yet."""

    def __init__(self, begin_s: float) -> None:
        """Begin; `begin_s`: when the process started, from which their times count."""
        self._begin_s = begin_s
        self._kept: list[tuple[str, float | Later, int, float | None, float]] = []

    def add(
        self, name: str, value: float | Later, step: int, epoch: float | None, now_s: float
    ) -> None:
        """Keep a figure; one that a device will know is asked for later."""
        self._kept.append((name, value, step, epoch, now_s))

    def take_settled(self, *, final: bool) -> list[str]:
        """Return the lines of all figures that are known by now, and keep the others.

        In the end, what a device does not know yet is dropped.
        """
        lines, waiting = [], []
        for metric in self._kept:
            name, value, step, epoch, now_s = metric
            figure = value() if callable(value) else value
            if figure is not None:
                figure, time_s = float(figure), round(now_s - self._begin_s, 6)
                lines.append(
                    line("metric", name=name, value=figure, step=step, epoch=epoch, time_s=time_s)
                )
            elif not final:
                waiting.append(metric)
        self._kept = waiting
        return lines


class StreamClock:
    """Tells when the current stream reached a place in the program."""

    def __init__(self) -> None:
        self._first = self.mark()
        # The stream may be behind the program here; that is one constant for all times of a rank.
        self._first_s = time.monotonic()

    @staticmethod
    def mark() -> Any:
        """Mark this place in the stream."""
        event = _cuda().Event(enable_timing=True)
        event.record()
        return event

    def reached(self, mark: Any) -> Later:
        """Return what will say when the stream came to a mark."""
        return lambda: (
            self._first_s + self._first.elapsed_time(mark) / 1000 if mark.query() else None
        )

    def between(self, begin: Any, end: Any) -> Later:
        """Return what will say how long the stream took between two marks."""
        return lambda: begin.elapsed_time(end) / 1000 if end.query() else None


def number_later(tensor: Any) -> Later:
    """Begin to fetch a number from a GPU, and return what will say it."""
    import torch

    host = torch.empty((), dtype=tensor.dtype, pin_memory=True)
    host.copy_(tensor.detach().reshape(()), non_blocking=True)
    event = _cuda().Event()
    event.record()
    return lambda: float(host) if event.query() else None


def numbers_later(values: Sequence[Any]) -> Callable[[], list[float] | None]:
    """Begin to fetch numbers, some of them from a GPU, and return what will say them."""
    import torch

    device = next(value.device for value in values if isinstance(value, torch.Tensor))
    parts = [torch.as_tensor(value, dtype=torch.float32, device=device) for value in values]
    host = torch.empty(len(parts), pin_memory=True)
    host.copy_(torch.stack([part.reshape(()) for part in parts]), non_blocking=True)
    event = _cuda().Event()
    event.record()
    return lambda: host.tolist() if event.query() else None


def peak_bytes() -> int | None:
    """Return the most memory that torch has held on this worker's GPU; None without one."""
    cuda = _cuda()
    return int(cuda.max_memory_allocated()) if cuda.is_initialized() else None


def _cuda() -> Any:
    import torch

    return torch.cuda
