"""Output of workers: split into lines, tagged with the rank, never torn, kept in files."""

from __future__ import annotations

import codecs
import contextlib
import os
import select
from collections import deque
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import BinaryIO, Literal, cast

from farandole.errors import OutputError, UsageError

Stream = Literal["stdout", "stderr"]
Show = Callable[[Stream, str], None]
"""Shows one whole line, with its end, in one write."""
_STREAMS: tuple[Stream, Stream] = ("stdout", "stderr")
Feed = Callable[[int, Stream, bytes], None]
"""Takes what a rank wrote."""

# Enough for a traceback of a deep model, little enough to read.
LAST_LINES = 12
# Somebody who prints without ever ending a line shall not fill the memory of the launcher.
_LONGEST_LINE = 1 << 20


class LineSplitter:
    """Bytes in, whole lines out: at newlines and carriage returns, across any cut of the input."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._rest = ""
        self._after_return = False

    def feed(self, data: bytes) -> list[str]:
        """Take in bytes and return the lines that are complete, without their ends."""
        return self._split(self._decoder.decode(data))

    def end(self) -> list[str]:
        """Return what came after the last end of line."""
        lines = self._split(self._decoder.decode(b"", final=True))
        if self._rest:
            lines.append(self._rest)
            self._rest = ""
        return lines

    def _split(self, text: str) -> list[str]:
        if self._after_return and text:
            # Carriage return and newline are one end of line, also when a read came between.
            text = text.removeprefix("\n")
            self._after_return = False
        self._after_return = self._after_return or text.endswith("\r")
        lines = []
        # Not splitlines(): form feeds and the like are text.
        *whole, self._rest = (self._rest + text).replace("\r\n", "\n").split("\n")
        for line in whole:
            lines += _returns(line)
        if "\r" in self._rest:
            before, _, self._rest = self._rest.rpartition("\r")
            lines += [part for part in before.split("\r") if part]
        if len(self._rest) > _LONGEST_LINE:
            lines.append(self._rest)
            self._rest = ""
        return lines


def _returns(line: str) -> list[str]:
    """Split a line at carriage returns; a progress bar's empty beginnings are no lines."""
    if "\r" not in line:
        return [line]
    return [part for part in line.split("\r") if part]


class WorkerOutput:
    """One stream of one worker: tagged to the screen, as it is into its file."""

    def __init__(
        self, *, rank: int, stream: Stream, show: Show, tag: bool, file: BinaryIO | None
    ) -> None:
        self.rank = rank
        self._stream: Stream = stream
        self.show = show
        self._tag = tag
        self._splitter = LineSplitter()
        self.file = file
        self.last_lines: deque[str] = deque(maxlen=LAST_LINES)

    def feed(self, data: bytes) -> None:
        """Take in what the worker wrote."""
        if self.file is not None:
            self._keep(self.file, data)
        self._emit(self._splitter.feed(data))

    def end(self) -> None:
        """Show the last line, which may have no end."""
        self._emit(self._splitter.end())

    def _keep(self, file: BinaryIO, data: bytes) -> None:
        try:
            file.write(data)
            file.flush()
        except OSError as error:
            # A full disk shall not end a training that does not need it.
            self.file = None
            self.show(
                "stderr",
                f"farandole: {file.name} is kept no further ({error.strerror}).\n",
            )
            with contextlib.suppress(OSError):
                file.close()

    def _emit(self, lines: list[str]) -> None:
        prefix = f"[{self.rank}]<{self._stream}>:" if self._tag else ""
        for line in lines:
            self.last_lines.append(line)
            self.show(self._stream, f"{prefix}{line}\n")


class Outputs:
    """Both streams of all workers of one launch."""

    def __init__(
        self,
        size: int,
        *,
        show: Show,
        tag: bool,
        shown: frozenset[int] | None = None,
        files: OutputFiles | None = None,
    ) -> None:
        """Prepare.

        Args:
            size: How many workers.
            show: Shows one line.
            tag: Whether lines begin with the rank.
            shown: Ranks whose lines are shown; all when None.
            files: Where output is kept too; `end` closes them.
        """
        self._show_line = show
        self.heard: set[int] = set()
        """Ranks that have written something; whoever looks at it clears it."""
        self.broken_pipe = False
        """Whether our own output has no reader any more, or no room."""
        self.error: OutputError | None = None
        """Why it cannot be written to, where that is not its reader's choice."""
        self._outputs: list[dict[Stream, WorkerOutput]] = []
        self._tag, self._shown, self._files = tag, shown, files
        for rank in range(size):
            self.add(rank)

    def add(self, rank: int) -> None:
        """Prepare for one more worker, of this rank."""
        self._outputs.append(
            {
                stream: WorkerOutput(
                    rank=rank, stream=stream, show=_show_nothing, tag=self._tag, file=None
                )
                for stream in _STREAMS
            }
        )
        self.rename(len(self._outputs) - 1, rank)

    def rename(self, worker: int, rank: int) -> None:
        """Take a worker's lines for those of another rank from now on."""
        shows = self._show if self._shown is None or rank in self._shown else _show_nothing
        for stream, output in self._outputs[worker].items():
            output.rank, output.show = rank, shows
            file = None if self._files is None else self._files.of(rank).get(stream)
            output.file = None if file is None or file.closed else file

    def feed(self, rank: int, stream: Stream, data: bytes) -> None:
        """Take in what a worker wrote."""
        self.heard.add(rank)
        self._outputs[rank][stream].feed(data)

    def remark(self, text: str) -> None:
        """Show a sentence of our own."""
        self._show("stderr", f"farandole: {text}\n")

    def last_lines(self, rank: int) -> tuple[str, ...]:
        """Return the end of a worker's error output; of its other output when there is none."""
        outputs = self._outputs[rank]
        return tuple(outputs["stderr"].last_lines or outputs["stdout"].last_lines)

    def end(self) -> None:
        """Show lines that have no end, and close the files."""
        for outputs in self._outputs:
            for output in outputs.values():
                output.end()
        if self._files is not None:
            self._files.close()

    def _show(self, stream: Stream, line: str) -> None:
        try:
            self._show_line(stream, line)
        except BrokenPipeError:
            # Whoever read our output has gone (`| head`): end as a single program would.
            self.broken_pipe = True
            self._show_line = _show_nothing
        except OutputError as error:
            self.broken_pipe, self.error = True, error
            self._show_line = _show_nothing


def _show_nothing(stream: Stream, line: str) -> None:
    """Show nothing: nobody looks, or this rank is not asked for."""


def write_out(stream: Stream, data: bytes) -> None:
    """Write to our own output, past Python's buffers, by one call if it takes all at once.

    Raises:
        BrokenPipeError: Its reader has gone.
        OutputError: It cannot be written to.
    """
    fd, rest = 1 if stream == "stdout" else 2, memoryview(data)
    while rest:
        try:
            rest = rest[os.write(fd, rest) :]
        except BlockingIOError:  # another program made our terminal non-blocking
            select.select([], [fd], [])
        except BrokenPipeError:
            raise
        except OSError as error:
            raise OutputError(f"{stream} cannot be written to: {error.strerror}.") from error


class OutputFiles:
    """DIR/rank.<rank>/stdout and stderr of every rank."""

    def __init__(self, folder: Path, num_workers: int, *, most: int = 0, append: bool = False):
        """Open those of the first workers, before anything starts.

        Args:
            folder: Where they go.
            num_workers: How many workers there are to begin with.
            most: How many there may be later.
            append: Whether to go on after what is there, of earlier rounds of this launch.

        Raises:
            UsageError: The folder cannot be written to.
        """
        self._folder, self._mode = folder, "ab" if append else "wb"
        self._width = len(str(max(num_workers, most) - 1))
        self._files: list[dict[Stream, BinaryIO]] = []
        try:
            self._open(num_workers)
        except OSError as error:
            self.close()
            raise UsageError(
                f"--output-dir {folder} cannot be written to ({error.strerror}). "
                "Choose a folder that you may write to."
            ) from error

    def of(self, rank: int) -> Mapping[Stream, BinaryIO]:
        """Return the files of a rank; none where they cannot be opened."""
        try:
            self._open(rank + 1)
        except OSError:
            return {}
        return self._files[rank]

    def close(self) -> None:
        """Close all files."""
        for files in self._files:
            for file in files.values():
                with contextlib.suppress(OSError):
                    file.close()

    def _open(self, number: int) -> None:
        while len(self._files) < number:
            place = self._folder / f"rank.{len(self._files):0{self._width}d}"
            place.mkdir(parents=True, exist_ok=True)
            files: dict[Stream, BinaryIO] = {}
            self._files.append(files)
            for stream in _STREAMS:
                files[stream] = cast("BinaryIO", (place / stream).open(self._mode))
