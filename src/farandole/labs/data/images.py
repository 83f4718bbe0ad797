"""Images with their labels: the fixed order of samples, decoding of files, and augmentation."""

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
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from farandole.errors import DataError, MissingExtraError, UsageError
from farandole.labs.data import loader_process
from farandole.world.cores import read_cores
from farandole.world.environment import read_world

if TYPE_CHECKING:
    from farandole.labs.lab import DataFacts

Pixels = NDArray[np.uint8]
Labels = NDArray[Any]
Pair = tuple[Pixels, Labels]

# Files per request to a loader process: small images need less than a millisecond each.
CHUNK = 32
# More processes would wait for the disk, and a host with many cores may run other jobs.
MOST_PROCESSES = 4
_NAMED = 3
# Arbitrary, but fixed: every rank and every run takes the same subset.
_TRAIN_SEED, _TEST_SEED = 20_171, 20_172


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Images:
    """Images to train on and to test on."""

    x_train: Pixels
    """Images, height, width, channels."""
    y_train: Labels
    """int64 for classes, float32 for a quantity."""
    x_test: Pixels
    y_test: Labels
    source: str
    """In words: "MNIST from the given folder"."""
    skipped: tuple[str, ...] = ()
    """Files that could not be read, with the reason each."""
    classes: tuple[str, ...] = ()
    """Names of the classes by label; empty for a quantity."""

    @classmethod
    def of(
        cls,
        train: Pair,
        test: Pair,
        source: str,
        *,
        skipped: tuple[str, ...] = (),
        classes: tuple[str, ...] = (),
    ) -> Images:
        """Make a data set from its two pairs of images and labels."""
        (x_train, y_train), (x_test, y_test) = train, test
        return cls(
            x_train=x_train,
            y_train=y_train,
            x_test=x_test,
            y_test=y_test,
            source=source,
            skipped=skipped,
            classes=classes,
        )

    @property
    def facts(self) -> DataFacts:
        """Source and sizes, without the data."""
        return facts(
            source=self.source,
            train=len(self.y_train),
            test=len(self.y_test),
            shape=self.x_train.shape[1:],
            skipped=self.skipped,
        )

    def subset(self, *, samples: int, test_samples: int) -> Images:
        """Take the first images of the fixed order; 0 for all of them."""
        train = pick(self.y_train, samples, test=False)
        test = pick(self.y_test, test_samples, test=True)
        return replace(
            self,
            x_train=self.x_train[train],
            y_train=self.y_train[train],
            x_test=self.x_test[test],
            y_test=self.y_test[test],
        )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Labelled:
    """Image files with their labels, before any is opened."""

    files: tuple[Path, ...]
    labels: Labels
    """int64 for classes, float32 for a quantity."""
    groups: Labels
    """What subsets are balanced by: the classes, or steps of a quantity."""
    is_test: NDArray[np.bool_]
    source: str
    skipped: tuple[str, ...] = ()
    """What was left out before any file was opened, with the reason each."""
    classes: tuple[str, ...] = ()
    rows: tuple[float, float] = (0.0, 1.0)
    """The part of the images' height to use."""

    def read(self, size: tuple[int, int], *, samples: int = 0, test_samples: int = 0) -> Images:
        """Decode the first images of the fixed order, scaled to height and width; 0 for all.

        Raises:
            DataError: more than half of the images cannot be read.
            UsageError: there are fewer samples.
        """
        train, bad_train = self._take(size, samples, test=False)
        test, bad_test = self._take(size, test_samples, test=True)
        skipped = (*self.skipped, *map(str, (*bad_train, *bad_test)))
        return Images.of(train, test, self.source, skipped=skipped, classes=self.classes)

    def _take(
        self, size: tuple[int, int], samples: int, *, test: bool
    ) -> tuple[Pair, tuple[Skipped, ...]]:
        members = np.flatnonzero(self.is_test == test)
        chosen = members[pick(self.groups[members], samples, test=test)]
        x, skipped = decode([self.files[index] for index in chosen], size, rows=self.rows)
        return (x, np.delete(self.labels[chosen], [skip.index for skip in skipped])), skipped


def facts(
    *, source: str, train: int, test: int, shape: tuple[int, ...], skipped: tuple[str, ...] = ()
) -> DataFacts:
    """Describe a data set, with one sample in words: "32x32 RGB"."""
    # Imported late: every worker loads data, and needs nothing else of a lab.
    from farandole.labs.lab import DataFacts

    height, width, channels = shape
    sample = f"{height}x{width} {'grey' if channels == 1 else 'RGB'}"
    return DataFacts(source=source, train=train, test=test, sample=sample, skipped=skipped)


def pick(groups: Labels, samples: int, *, test: bool) -> NDArray[np.intp]:
    """Choose samples: the beginning of the fixed order."""
    count = num_wanted(samples, len(groups), test=test)
    return balanced_order(groups, seed=_TEST_SEED if test else _TRAIN_SEED)[:count]


def num_wanted(samples: int, available: int, *, test: bool) -> int:
    """Return how many samples to take; 0 asks for all.

    Raises:
        UsageError: negative, or more than there are.
    """
    what, flag = ("test", "--test-samples") if test else ("training", "--samples")
    if samples < 0:
        raise UsageError(
            f"You asked for {samples} {what} samples ({flag} {samples}). "
            "Give a number of samples, or 0 for all."
        )
    if samples > available:
        raise UsageError(
            f"You asked for {samples:,} {what} samples ({flag} {samples}), but there are "
            f"{available:,}. Use {flag} {available}, or 0 for all."
        )
    return samples or available


def balanced_order(groups: Labels, *, seed: int) -> NDArray[np.intp]:
    """Shuffle so that every beginning holds each group in its share of the whole.

    The n members of a group get one place in each n-th of the order, at random within it.
    """
    random = np.random.default_rng(seed)
    place = np.empty(len(groups))
    for group in np.unique(groups):
        members = np.flatnonzero(groups == group)
        random.shuffle(members)
        place[members] = (np.arange(len(members)) + random.random(len(members))) / len(members)
    return np.argsort(place, kind="stable")


@dataclass(frozen=True, slots=True, kw_only=True)
class Skipped:
    """A file that could not be read."""

    index: int
    """Its place among the files to decode."""
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
    """Decode image files in loader processes, as RGB of one size.

    Args:
        files: JPEG, PNG or whatever Pillow reads.
        size: height and width to scale to.
        rows: the part of the height to use: (0.5, 1) is the lower half.
        processes: None for this worker's share of at most 4 cores.

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
            # Drop the other chunks: the threads end after the one they are at.
            with contextlib.suppress(queue.Empty):
                while True:
                    chunks.get_nowait()
            raise
    skipped.sort(key=lambda skip: skip.index)
    if 2 * len(skipped) > len(files):
        named = "; ".join(map(str, skipped[:_NAMED]))
        more = f"; and {len(skipped) - _NAMED:,} more" if len(skipped) > _NAMED else ""
        raise DataError(
            f"{len(skipped):,} of {len(files):,} images cannot be read, which is more than a data "
            f"set with a few damaged files: {named}{more}."
        )
    return np.delete(job.pixels, [skip.index for skip in skipped], axis=0), tuple(skipped)


def num_processes(num_files: int) -> int:
    """Share at most 4 of the host's cores among its workers; few files need few processes."""
    local_size = read_world(os.environ).local_size
    share = min(read_cores().available, MOST_PROCESSES) // local_size
    return max(1, min(share, math.ceil(num_files / CHUNK)))


class _Job:
    """The files to decode, and their pixels: each is written once, by the thread that reads it."""

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
                    # One file ended the process; the rest of the chunk may be fine.
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
        """Read a chunk; return how many files are done, and why some of them cannot be read."""
        reasons: dict[int, str] = {}
        try:
            self._order([self._job.files[index] for index in chunk])
        except BrokenPipeError:
            return 0, reasons  # it ended between two chunks: no file is to blame
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
        """End the process, whatever it is doing."""
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
        # JSON escapes what is not ASCII, so that names with lone surrogates arrive unchanged.
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Augmentation:
    """Random changes of training images, for `hvd.shard(..., prepare=...)`.

    They depend on seed, epoch and sample only: the same for any number of workers.
    """

    seed: int
    rotation: float = 0.0
    """At most this part of a full turn, either way."""
    zoom: float = 0.0
    """At most this part of the image's size, either way."""
    shift: float = 0.0
    """At most this part of the image's size, along both sides, either way."""
    flip: bool = False
    """Whether every other image is mirrored, left to right."""

    def __call__(self, batch: Any, chosen: NDArray[np.int64], epoch: int) -> Any:
        """Return a batch with its images changed, and the rest as it is."""
        images, *others = batch
        return warp(images, self.maps(chosen, epoch)), *others

    def maps(self, chosen: NDArray[np.int64], epoch: int) -> NDArray[np.float32]:
        """Return for each sample where its pixels come from: 2x3, with -1 to 1 along each side."""
        drawn = np.stack(
            [np.random.default_rng((self.seed, epoch, sample)).random(5) for sample in chosen]
        )
        turn, zoom, right, down = (2 * drawn[:, :4] - 1).T
        turn = turn * self.rotation * 2 * np.pi
        zoom = 1 + zoom * self.zoom
        mirror = np.where(self.flip & (drawn[:, 4] < 0.5), -1.0, 1.0)
        # A side is 2 long.
        right, down = 2 * self.shift * right, 2 * self.shift * down
        across = [mirror * zoom * np.cos(turn), -zoom * np.sin(turn), right]
        along = [mirror * zoom * np.sin(turn), zoom * np.cos(turn), down]
        return np.array([across, along], np.float32).transpose(2, 0, 1)


def warp(images: Pixels, maps: NDArray[np.float32]) -> Pixels:
    """Apply an affine map to each image; what lies outside is mirrored at the edge.

    Raises:
        MissingExtraError: torch is not installed.
    """
    try:
        import torch
        from torch.nn.functional import affine_grid, grid_sample
    except ImportError:
        raise MissingExtraError(
            "Images are turned and shifted by torch, which is not installed. Try: pip install "
            "'farandole[torch]'"
        ) from None
    source = torch.from_numpy(images).permute(0, 3, 1, 2).float()
    places = affine_grid(torch.from_numpy(maps), list(source.shape), align_corners=False)
    moved = grid_sample(
        source, places, mode="bilinear", padding_mode="reflection", align_corners=False
    )
    last = moved.round_().to(torch.uint8).permute(0, 2, 3, 1)
    changed: Pixels = last.contiguous().numpy()
    return changed
