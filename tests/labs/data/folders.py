"""Folders of small images for the tests of loaders: each image tells by its colour which it is."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
from PIL import Image

from farandole.labs.data.samples import Pixels

SIDE = 32


def write_image(path: Path, number: int) -> Path:
    """Write an image of one colour, which has no loss as a PNG."""
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (SIDE, SIDE), (number % 256, number // 256, 7)).save(path)
    return path


def write_classes(folder: Path, counts: Mapping[str, int], *, first: int = 0) -> int:
    """Write so many images of each class, numbered on from the first; return the next number."""
    for name, count in counts.items():
        for _ in range(count):
            write_image(folder / name / f"{first:04}.png", first)
            first += 1
    return first


def numbers(images: Pixels) -> list[int]:
    """Say which images these are."""
    assert images.dtype == np.uint8
    assert (images[..., 2] == 7).all()
    return [int(image[0, 0, 0]) + 256 * int(image[0, 0, 1]) for image in images]
