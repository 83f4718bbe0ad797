"""Decode image files in background processes; what cannot be read is skipped and named."""

from __future__ import annotations

import contextlib
import json
import math
import os
import queue
import signal
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from farandole.errors import DataError, MissingExtraError
from farandole.labs.data import loader_process
from farandole.labs.data.samples import Pixels
from farandole.world.cores import read_cores
from farandole.world.environment import read_world

# So many files are asked for at once: small ones need less than a millisecond each.
CHUNK = 32
# More would wait for the disk, and there may be other jobs on a host with many cores.
MOST_PROCESSES = 4
_NAMED = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Skipped:
    """A file that could not be read."""

    index: int
    """Its place among the files that were asked for."""
    file: str
    reason: str

    def __str__(self) -> str:
        return f"{self.file}: {self.reason}"


def decode(
    files: Sequence[Path | str],
    size: tuple[int, int],
    *,
    rows: tuple[float, float] = (0.0, 1.0),
    processes: int | None = None,
) -> tuple[Pixels, tuple[Skipped, ...]]:
    """Read image files as RGB of one size.

    Args:
        files: JPEG, PNG or whatever Pillow reads.
        size: height and width to scale to.
        rows: take this part of the height only: (0.5, 1) is the lower half.
        processes: how many decode; None for this worker's share of at most 4 cores.

    Returns:
        The images that could be read, in order, and the files that could not.

    Raises:
        DataError: there is no file, or more than half of them cannot be read.
        MissingExtraError: Pillow is not installed.
    """
    if not files:
        raise DataError("There is no image file to read.")
    if find_spec("PIL") is None:
        raise _missing_pillow()
    count = num_processes(len(files)) if processes is None else processes
    job = _Job(files=[os.fspath(file) for file in files], size=size, rows=rows)
    chunks: queue.SimpleQueue[range] = queue.SimpleQueue()
    for start in range(0, len(files), CHUNK):
        chunks.put(range(start, min(start + CHUNK, len(files))))
    with ThreadPoolExecutor(count, thread_name_prefix="farandole-images") as pool:
        running = [pool.submit(_work, job, chunks) for _ in range(count)]
        try:
            skipped = [skip for future in running for skip in future.result()]
        except BaseException:
            # What is left is of no use; the threads end after their chunk.
            _empty(chunks)
            raise
    skipped.sort(key=lambda skip: skip.index)
    _check_enough(skipped, len(files))
    return np.delete(job.pixels, [skip.index for skip in skipped], axis=0), tuple(skipped)


def num_processes(num_files: int) -> int:
    """Share at most 4 of the host's cores among its workers; few files need few processes."""
    local_size = read_world(os.environ).local_size
    share = min(read_cores().available, MOST_PROCESSES) // local_size
    return max(1, min(share, math.ceil(num_files / CHUNK)))


def _check_enough(skipped: Sequence[Skipped], count: int) -> None:
    if 2 * len(skipped) <= count:
        return
    named = "; ".join(map(str, skipped[:_NAMED]))
    more = f"; and {len(skipped) - _NAMED:,} more" if len(skipped) > _NAMED else ""
    raise DataError(
        f"{len(skipped):,} of {count:,} images cannot be read, which is more than a data set with "
        f"a few damaged files: {named}{more}."
    )


class _Job:
    """What all loader processes work on; each pixel is written once, by whoever reads it."""

    def __init__(
        self, *, files: list[str], size: tuple[int, int], rows: tuple[float, float]
    ) -> None:
        self.files = files
        self.pixels: Pixels = np.empty((len(files), *size, 3), np.uint8)
        decode = {"height": size[0], "width": size[1], "top": rows[0], "bottom": rows[1]}
        self.setup = {"path": sys.path, "decode": decode}


def _work(job: _Job, chunks: queue.SimpleQueue[range]) -> list[Skipped]:
    """Keep one loader process busy until no chunk is left."""
    skipped: list[Skipped] = []
    loader = _Loader(job)
    try:
        while True:
            try:
                chunk = chunks.get_nowait()
            except queue.Empty:
                return skipped
            while chunk:
                done, reasons = loader.read(chunk)
                skipped += [
                    Skipped(index=index, file=job.files[index], reason=reason)
                    for index, reason in reasons.items()
                ]
                chunk = chunk[done:]
                if chunk:
                    # It died of the file before; the others are none the worse for it.
                    loader.end()
                    loader = _Loader(job)
    finally:
        loader.end()


class _Loader:
    """One loader process.

    Not of multiprocessing: spawned or served, its children run the training script once more, and
    forked ones stop in the locks of torch's and TensorFlow's threads.
    """

    def __init__(self, job: _Job) -> None:
        self._job = job
        self._process = subprocess.Popen(
            [sys.executable, "-I", loader_process.__file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            # Image libraries complain there about files that are skipped and named anyway.
            stderr=subprocess.DEVNULL,
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._orders, self._results = self._process.stdin, self._process.stdout
        try:
            self._order(job.setup)
            self._greet()
        except BaseException:
            self.end()
            raise

    def read(self, chunk: range) -> tuple[int, dict[int, str]]:
        """Read a chunk; return how many files are dealt with, and reasons for those not read."""
        reasons: dict[int, str] = {}
        try:
            self._order([self._job.files[index] for index in chunk])
        except BrokenPipeError:
            return 0, reasons  # it ended between two chunks, and no file is to blame
        for index in chunk:
            try:
                success, payload = self._result(memoryview(self._job.pixels[index]).cast("B"))
            except EOFError:
                reasons[index] = f"its decoder {self._ending()}"
                return index + 1 - chunk.start, reasons
            if not success:
                reasons[index] = payload.decode(errors="replace")
        return len(chunk), reasons

    def end(self) -> None:
        """End the process, which may be in the middle of something."""
        self._process.kill()
        self._process.wait()
        self._results.close()
        # An order may be left that nobody will read.
        with contextlib.suppress(BrokenPipeError):
            self._orders.close()

    def _greet(self) -> None:
        try:
            success, payload = self._result(memoryview(bytearray()))
        except EOFError:
            raise DataError(
                f"A process for decoding images {self._ending()} before its first one. Try "
                f"{sys.executable} -c 'import PIL.Image'."
            ) from None
        if not success:
            raise _missing_pillow(payload.decode(errors="replace"))

    def _order(self, order: Any) -> None:
        # Unusual names arrive as they are: JSON escapes what is not ASCII, lone surrogates too.
        self._orders.write(json.dumps(order).encode() + b"\n")
        self._orders.flush()

    def _result(self, pixels: memoryview) -> tuple[bool, bytes]:
        """Receive one record: pixels into their place, or else a reason."""
        head = bytearray(loader_process.HEAD.size)
        self._fill(memoryview(head))
        success, length = loader_process.HEAD.unpack(head)
        if success:
            assert length == len(pixels)
            self._fill(pixels)
            return True, b""
        reason = bytearray(length)
        self._fill(memoryview(reason))
        return False, bytes(reason)

    def _fill(self, place: memoryview) -> None:
        """Read exactly as many bytes as there is room for."""
        while place:
            count = self._results.readinto(place)  # type: ignore[attr-defined]
            if not count:
                raise EOFError
            place = place[count:]

    def _ending(self) -> str:
        code = self._process.wait()
        if code < 0:
            return f"was ended by {signal.Signals(-code).name}"
        return f"ended with code {code}"


def _missing_pillow(detail: str = "") -> MissingExtraError:
    return MissingExtraError(
        f"Images are decoded by Pillow, which is not installed{detail and f' ({detail})'}. "
        "Try: pip install 'farandole[labs]'"
    )


def _empty(chunks: queue.SimpleQueue[range]) -> None:
    try:
        while True:
            chunks.get_nowait()
    except queue.Empty:
        return
