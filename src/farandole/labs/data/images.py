"""Images with their labels: the fixed order of samples, decoding of files, and augmentation."""

from __future__ import annotations

import contextlib
import json
import math
import os
import signal
import struct
import subprocess
import sys
import threading
import zlib
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from farandole.errors import DataError, MissingExtraError, UsageError
from farandole.labs.data import loader_process
from farandole.world.cores import read_cores
from farandole.world.environment import read_world

Pixels = NDArray[np.uint8]
Labels = NDArray[Any]
Pair = tuple[Pixels, Labels]

FILES_PER_PROCESS = 32
"""Fewer are decoded sooner than another loader process is started."""
# More processes would wait for the disk, and a host with many cores may run other jobs.
_MOST_PROCESSES = 4
_NAMED = 3
# Pixels of a side in a picture of samples.
_LEAST_DRAWN = 64
# Arbitrary, but fixed: every rank and every run takes the same subset.
_TRAIN_SEED, _TEST_SEED = 20_171, 20_172


@dataclass(frozen=True, slots=True, eq=False)
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

    def read(self, size: tuple[int, int], samples: int = 0, test_samples: int = 0) -> Images:
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

    def class_counts(self) -> dict[str, tuple[int, int]]:
        """Count by class the samples to train on and to test on; empty for a quantity."""
        num = len(self.classes)
        sides = [
            np.bincount(y, minlength=num).tolist() if num else []
            for y in (self.y_train, self.y_test)
        ]
        return dict(zip(self.classes, zip(*sides, strict=True), strict=True))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ImageFiles:
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

    def read(self, size: tuple[int, int], samples: int = 0, test_samples: int = 0) -> Images:
        """Decode the first images of the fixed order, scaled to height and width; 0 for all.

        Raises:
            DataError: more than half of the images cannot be read.
            UsageError: there are fewer samples.
        """
        skipped = [*self.skipped]

        def side(count: int, *, test: bool) -> Pair:
            members = np.flatnonzero(self.is_test == test)
            chosen = members[pick(self.groups[members], count, test=test)]
            x, bad = decode([self.files[index] for index in chosen], size, rows=self.rows)
            skipped.extend(bad.values())
            return x, np.delete(self.labels[chosen], list(bad))

        train, test = side(samples, test=False), side(test_samples, test=True)
        return Images(*train, *test, self.source, tuple(skipped), self.classes)


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


def decode(
    files: Sequence[Path | str],
    size: tuple[int, int],
    *,
    rows: tuple[float, float] = (0.0, 1.0),
    processes: int | None = None,
) -> tuple[Pixels, dict[int, str]]:
    """Decode image files in loader processes, as RGB of one size.

    Args:
        files: JPEG, PNG or whatever Pillow reads.
        size: height and width to scale to.
        rows: the part of the height to use: (0.5, 1) is the lower half.
        processes: None for this worker's share of at most 4 cores.

    Returns:
        The images that could be read, in order, and by index the files that could not.

    Raises:
        DataError: there is no file, or more than half of them cannot be read.
        MissingExtraError: Pillow is not installed.
    """
    if not files:
        raise DataError("There is no image file to read.")
    if find_spec("PIL") is None:
        raise _missing_pillow()
    count = num_processes(len(files)) if processes is None else processes
    names = [os.fspath(file) for file in files]
    pixels: Pixels = np.empty((len(names), *size, 3), np.uint8)
    box = {"height": size[0], "width": size[1], "top": rows[0], "bottom": rows[1]}
    stop = threading.Event()
    with ThreadPoolExecutor(count, thread_name_prefix="farandole-images") as pool:
        shares = [range(first, len(names), count) for first in range(count)]
        running = [pool.submit(_decode_share, names, share, pixels, box, stop) for share in shares]
        try:
            found = [pair for future in running for pair in future.result().items()]
        except BaseException:
            stop.set()
            raise
    skipped = dict(sorted(found))
    if 2 * len(skipped) > len(names):
        named = "; ".join(list(skipped.values())[:_NAMED])
        more = f"; and {len(skipped) - _NAMED:,} more" if len(skipped) > _NAMED else ""
        raise DataError(
            f"{len(skipped):,} of {len(names):,} images cannot be read, which is more than a data "
            f"set with a few damaged files: {named}{more}."
        )
    return np.delete(pixels, list(skipped), axis=0), skipped


def num_processes(num_files: int) -> int:
    """Share at most 4 of the host's cores among its workers; few files need few processes."""
    local_size = read_world(os.environ).local_size
    share = min(read_cores().available, _MOST_PROCESSES) // local_size
    return max(1, min(share, math.ceil(num_files / FILES_PER_PROCESS)))


def _decode_share(
    files: Sequence[str],
    share: Sequence[int],
    pixels: Pixels,
    box: Mapping[str, float],
    stop: threading.Event,
) -> dict[int, str]:
    """Decode some of the files in a process; one that a file has ended is started again."""
    skipped: dict[int, str] = {}
    while share:
        # Not of multiprocessing: spawned or served, its children run the training script once
        # more, and forked ones stop in the locks of torch's and TensorFlow's threads.
        with subprocess.Popen(
            [sys.executable, "-I", loader_process.__file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            # Image libraries complain there about files that are skipped and named anyway.
            stderr=subprocess.DEVNULL,
        ) as process:
            try:
                _order(process, {"path": sys.path, "box": box, "files": [files[i] for i in share]})
                done = 0
                for index in share:
                    if stop.is_set():
                        return skipped
                    done += 1
                    try:
                        success, payload = _receive(process.stdout)
                    except EOFError:
                        skipped[index] = f"{files[index]}: its decoder {_ending(process)}"
                        break
                    if success:
                        pixels[index] = np.frombuffer(payload, np.uint8).reshape(pixels.shape[1:])
                    else:
                        skipped[index] = f"{files[index]}: {payload.decode(errors='replace')}"
                share = share[done:]
            finally:
                process.kill()
    return skipped


def _order(process: subprocess.Popen[bytes], order: Any) -> None:
    """Say what to decode, and wait until the process is ready."""
    assert process.stdin is not None
    # JSON escapes what is not ASCII, so that names with lone surrogates arrive unchanged.
    with contextlib.suppress(BrokenPipeError):
        process.stdin.write(json.dumps(order).encode())
        process.stdin.close()
    try:
        success, payload = _receive(process.stdout)
    except EOFError:
        raise DataError(
            f"A process for decoding images {_ending(process)} before its first one. Try "
            f"{sys.executable} -c 'import PIL.Image'."
        ) from None
    if not success:
        raise _missing_pillow(payload.decode(errors="replace"))


def _receive(results: IO[bytes] | None) -> tuple[bool, bytes]:
    """Return whether a file could be read, with its pixels or the reason."""
    assert results is not None
    head = results.read(loader_process.HEAD.size)
    if len(head) < loader_process.HEAD.size:
        raise EOFError
    success, length = loader_process.HEAD.unpack(head)
    payload = results.read(length)
    if len(payload) < length:
        raise EOFError
    return bool(success), payload


def _ending(process: subprocess.Popen[bytes]) -> str:
    code = process.wait()
    return f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with code {code}"


def _missing_pillow(detail: str = "") -> MissingExtraError:
    return MissingExtraError(
        f"Images are decoded by Pillow, which is not installed{detail and f' ({detail})'}. "
        "Try: pip install 'farandole[labs]'"
    )


def contact_sheet(images: Pixels, width: int = 800, gap: int = 4) -> bytes:
    """Return images in one or two rows, small ones enlarged, as the content of a PNG file."""
    factor = max(1, _LEAST_DRAWN // images.shape[1])
    large = images.repeat(factor, axis=1).repeat(factor, axis=2)
    padded = np.pad(large, ((0, 0), (0, gap), (0, gap), (0, 0)), constant_values=255)
    columns = min(len(padded), max(1, width // padded.shape[2]))
    rows = min(2, len(padded) // columns)
    height, wide, channels = padded.shape[1:]
    sheet = padded[: rows * columns].reshape(rows, columns, height, wide, channels)
    sheet = sheet.transpose(0, 2, 1, 3, 4).reshape(rows * height, columns * wide, channels)
    lines = np.pad(
        sheet.reshape(len(sheet), -1), ((0, 0), (1, 0))
    )  # each begins with its filter: 0
    header = struct.pack(
        ">IIBBBBB", columns * wide, rows * height, 8, 0 if channels == 1 else 2, 0, 0, 0
    )
    parts = ((b"IHDR", header), (b"IDAT", zlib.compress(lines.tobytes(), 9)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        for kind, data in parts
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
