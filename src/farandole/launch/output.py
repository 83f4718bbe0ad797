"""Output of workers: split into lines, tagged with the rank, never torn, kept in files."""

from __future__ import annotations

import codecs
import contextlib
import os
import select
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import BinaryIO, Literal

from farandole.errors import OutputError, UsageError

Stream = Literal["stdout", "stderr"]
Show = Callable[[Stream, str], None]
"""Shows one whole line, with its end, in one write."""
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
        self._show = show
        self._tag = tag
        self._splitter = LineSplitter()
        self._file = file
        self.last_lines: deque[str] = deque(maxlen=LAST_LINES)

    def feed(self, data: bytes) -> None:
        """Take in what the worker wrote."""
        if self._file is not None:
            self._keep(self._file, data)
        self._emit(self._splitter.feed(data))

    def end(self) -> None:
        """Show the last line, which may have no end, and close the file."""
        self._emit(self._splitter.end())
        if self._file is not None:
            self._file.close()
            self._file = None

    def _keep(self, file: BinaryIO, data: bytes) -> None:
        try:
            file.write(data)
            file.flush()
        except OSError as error:
            # A full disk shall not end a training that does not need it.
            self._file = None
            self._show(
                "stderr",
                f"farandole: {file.name} is kept no further ({error.strerror}).\n",
            )
            with contextlib.suppress(OSError):
                file.close()

    def _emit(self, lines: list[str]) -> None:
        prefix = f"[{self.rank}]<{self._stream}>:" if self._tag else ""
        for line in lines:
            self.last_lines.append(line)
            self._show(self._stream, f"{prefix}{line}\n")


class Outputs:
    """Both streams of all workers of one launch."""

    def __init__(
        self,
        size: int,
        *,
        show: Show,
        tag: bool,
        shown: frozenset[int] | None = None,
        files: Sequence[Mapping[Stream, BinaryIO]] | None = None,
    ) -> None:
        """Prepare.

        Args:
            size: How many workers.
            show: Shows one line.
            tag: Whether lines begin with the rank.
            shown: Ranks whose lines are shown; all when None.
            files: By rank, where output is kept too.
        """
        self._show_line = show
        self.heard: set[int] = set()
        """Ranks that have written something; whoever looks at it clears it."""
        self.broken_pipe = False
        """Whether our own output has no reader any more, or no room."""
        self.error: OutputError | None = None
        """Why it cannot be written to, where that is not its reader's choice."""
        self._outputs: list[dict[Stream, WorkerOutput]] = []
        self._tag, self._shown = tag, shown
        for rank in range(size):
            self.add(rank, files[rank] if files is not None else {})

    def add(self, rank: int, files: Mapping[Stream, BinaryIO] | None = None) -> None:
        """Prepare for one more worker, of this rank."""
        shows = self._show if self._shown is None or rank in self._shown else _show_nothing
        streams: tuple[Stream, Stream] = ("stdout", "stderr")
        self._outputs.append(
            {
                stream: WorkerOutput(
                    rank=rank,
                    stream=stream,
                    show=shows,
                    tag=self._tag,
                    file=(files or {}).get(stream),
                )
                for stream in streams
            }
        )

    def rename(self, worker: int, rank: int) -> None:
        """Tag a worker's lines with another rank from now on."""
        for output in self._outputs[worker].values():
            output.rank = rank

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


def open_files(folder: Path, num_workers: int) -> list[dict[Stream, BinaryIO]]:
    """Open DIR/rank.<rank>/stdout and stderr for every rank, before anything starts.

    Raises:
        UsageError: The folder cannot be written to.
    """
    width = len(str(num_workers - 1))
    files: list[dict[Stream, BinaryIO]] = []
    try:
        for rank in range(num_workers):
            place = folder / f"rank.{rank:0{width}d}"
            place.mkdir(parents=True, exist_ok=True)
            files.append({})
            files[rank]["stdout"] = (place / "stdout").open("wb")
            files[rank]["stderr"] = (place / "stderr").open("wb")
    except OSError as error:
        for opened in files:
            for file in opened.values():
                file.close()
        raise UsageError(
            f"--output-dir {folder} cannot be written to ({error.strerror}). "
            "Choose a folder that you may write to."
        ) from error
    return files
