"""Images with their labels: the fixed order of samples, decoding of files, and augmentation."""

from __future__ import annotations

import io
import os
import warnings
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from farandole.errors import DataError, MissingExtraError, UsageError
from farandole.world.cores import read_cores
from farandole.world.environment import read_world

Pixels = NDArray[np.uint8]
Labels = NDArray[Any]
Pair = tuple[Pixels, Labels]

# More threads would wait for the disk, and a host with many cores may run other jobs.
_MOST_THREADS = 4
_NAMED = 3
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
    sides: tuple[int, ...] = ()
    """Smallest, mean and largest side of the image files, in pixels."""

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

        def side(count: int, *, test: bool) -> tuple[Decoded, Labels]:
            members = np.flatnonzero(self.is_test == test)
            chosen = members[pick(self.groups[members], count, test=test)]
            decoded = decode([self.files[index] for index in chosen], size, rows=self.rows)
            return decoded, np.delete(self.labels[chosen], list(decoded.skipped))

        (train, y_train), (test, y_test) = side(samples, test=False), side(test_samples, test=True)
        skipped = (*self.skipped, *train.skipped.values(), *test.skipped.values())
        sides = np.concatenate([train.sides, test.sides])
        span = (int(sides.min()), round(float(sides.mean())), int(sides.max()))
        return Images(
            *(train.pixels, y_train, test.pixels, y_test), self.source, skipped, self.classes, span
        )


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
    if not 0 <= samples <= available:
        raise UsageError(
            f"You asked for {samples:,} {what} samples ({flag} {samples}), but there are "
            f"{available:,}. Use {flag} {available} or less, or 0 for all."
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


@dataclass(frozen=True, slots=True)
class Decoded:
    """Images of files, in order."""

    pixels: Pixels
    """Of those that could be read."""
    sides: NDArray[np.int64]
    """Width and height of their files."""
    skipped: dict[int, str]
    """By index: the files that could not be read, with the reason each."""


def decode(
    files: Sequence[Path | str], size: tuple[int, int], *, rows: tuple[float, float] = (0.0, 1.0)
) -> Decoded:
    """Decode image files as RGB of one size, on this worker's share of the host's cores.

    Args:
        files: JPEG, PNG or whatever Pillow reads.
        size: height and width to scale to.
        rows: the part of the height to use: (0.5, 1) is the lower half.

    Raises:
        DataError: more than half of the files cannot be read.
        MissingExtraError: Pillow is not installed.
    """
    if find_spec("PIL") is None:
        raise MissingExtraError(
            "Images are decoded by Pillow, which is not installed. Try: pip install "
            "'farandole[labs]'"
        )
    from PIL import Image

    # Pillow lets other threads run while it decodes and scales.
    threads = min(read_cores().available, _MOST_THREADS) // read_world(os.environ).local_size
    pixels = np.empty((len(files), *size, 3), np.uint8)

    def read(index: int) -> tuple[int, int] | str:
        try:
            sides, pixels[index] = _read_pixels(files[index], size, rows)
        except Exception as error:
            # Damaged files fail in many ways: OSError, SyntaxError, ValueError, struct.error.
            return _reason(error)
        return sides

    with warnings.catch_warnings(), ThreadPoolExecutor(max(1, threads)) as pool:
        # Image libraries complain of files that are skipped and named anyway.
        warnings.simplefilter("ignore")
        # A picture of a hundred megapixels among training data is a mistake or an attack.
        warnings.simplefilter("error", Image.DecompressionBombWarning)
        answers = list(pool.map(read, range(len(files))))
    skipped = {
        index: f"{os.fspath(files[index])}: {answer}"
        for index, answer in enumerate(answers)
        if isinstance(answer, str)
    }
    if 2 * len(skipped) > len(files):
        named = "; ".join(list(skipped.values())[:_NAMED])
        more = f"; and {len(skipped) - _NAMED:,} more" if len(skipped) > _NAMED else ""
        raise DataError(
            f"{len(skipped):,} of {len(files):,} images cannot be read, which is more than a data "
            f"set with a few damaged files: {named}{more}."
        )
    sides = np.array([answer for answer in answers if not isinstance(answer, str)])
    return Decoded(np.delete(pixels, list(skipped), axis=0), sides, skipped)


def _read_pixels(
    file: Path | str, size: tuple[int, int], rows: tuple[float, float]
) -> tuple[tuple[int, int], Pixels]:
    """Return an image's width and height, and the pixels of these rows, scaled to a size."""
    from PIL import Image

    (height, width), (top, bottom) = size, rows
    with Image.open(file) as image:
        sides = image.size
        # Lets a JPEG be decoded at half its size and less, as long as it stays large enough.
        image.draft("RGB", (width, round(height / (bottom - top))))
        whole = image.convert("RGB")
    box = (0, top * whole.height, whole.width, bottom * whole.height)
    if (whole.size, top, bottom) != ((width, height), 0.0, 1.0):
        whole = whole.resize((width, height), Image.Resampling.BILINEAR, box=box)
    return sides, np.asarray(whole)


def _reason(error: Exception) -> str:
    """Say in a line why a file cannot be read, without its name."""
    if type(error).__name__ == "UnidentifiedImageError":
        return "not an image that Pillow knows"
    if isinstance(error, OSError) and error.strerror:
        return str(error.strerror)
    return " ".join(str(error).split()) or type(error).__name__


_LEAST_DRAWN = 64
"""Pixels of a side in a picture of samples."""


def contact_sheet(images: Pixels, width: int = 800, gap: int = 4) -> bytes:
    """Return images in one or two rows, small ones enlarged, as PNG; nothing without Pillow."""
    if find_spec("PIL") is None:
        return b""
    from PIL import Image

    factor = max(1, _LEAST_DRAWN // images.shape[1])
    large = images.repeat(factor, axis=1).repeat(factor, axis=2)
    padded = np.pad(large, ((0, 0), (0, gap), (0, gap), (0, 0)), constant_values=255)
    columns = min(len(padded), max(1, width // padded.shape[2]))
    rows = [np.hstack(list(padded[at : at + columns])) for at in range(0, len(padded), columns)]
    whole = [row for row in rows[:2] if row.shape == rows[0].shape]
    picture = io.BytesIO()
    Image.fromarray(np.vstack(whole).squeeze()).save(picture, "PNG", optimize=True)
    return picture.getvalue()


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
    """Apply an affine map to each image, by torch; what lies outside is mirrored at the edge."""
    import torch
    from torch.nn.functional import affine_grid, grid_sample

    source = torch.from_numpy(images).permute(0, 3, 1, 2).float()
    places = affine_grid(torch.from_numpy(maps), list(source.shape), align_corners=False)
    moved = grid_sample(
        source, places, mode="bilinear", padding_mode="reflection", align_corners=False
    )
    changed: Pixels = moved.round_().to(torch.uint8).permute(0, 2, 3, 1).contiguous().numpy()
    return changed
