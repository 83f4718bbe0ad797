"""Images that are drawn: what stands in for photos when there are none."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from farandole.labs.data.samples import Pixels

Floats = NDArray[np.float32]
Render = Callable[[np.random.Generator, NDArray[np.int64], int], Floats]
"""Draws an image for each label: images, side, side, RGB of 0 to 255, and beyond."""

# Images are made in blocks with a seed each, so that a few need not wait for all.
_BLOCK = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawn:
    """A set of drawn images."""

    source: str
    """In words: "drawn fruit"."""
    classes: tuple[str, ...]
    train: int
    test: int
    seed: int
    render: Render

    def draw(
        self, count: int, side: int, *, test: bool = False
    ) -> tuple[Pixels, NDArray[np.int64]]:
        """Return the first images and labels of the training or the test set."""
        x = np.empty((count, side, side, 3), np.uint8)
        y = np.empty(count, np.int64)
        for number, start in enumerate(range(0, count, _BLOCK)):
            random = np.random.default_rng((self.seed, int(test), number))
            labels = self._labels(number)[: count - start]
            place = slice(start, start + len(labels))
            # All of the block, so that a longer beginning has the same images.
            images = self.render(random, self._labels(number), side)[: len(labels)]
            x[place], y[place] = np.clip(images, 0, 255), labels
        return x, y

    def _labels(self, block: int) -> NDArray[np.int64]:
        """Deal the classes out in turn, so that every beginning is balanced, in a mixed order."""
        count = len(self.classes)
        places = np.arange(block * _BLOCK, (block + 1) * _BLOCK)
        turns = {
            int(turn): np.random.default_rng((self.seed, int(turn))).permutation(count)
            for turn in np.unique(places // count)
        }
        return np.array([turns[place // count][place % count] for place in places.tolist()])


def grid(side: int) -> tuple[Floats, Floats]:
    """Return how far right and how far down each pixel is, -1 to 1."""
    ends = (np.arange(side, dtype=np.float32) + 0.5) * (2 / side) - 1
    return ends[np.newaxis, np.newaxis, :], ends[np.newaxis, :, np.newaxis]


def each(
    random: np.random.Generator, count: int, low: float, high: float, *, last: int = 1
) -> Floats:
    """Draw a number for every image, shaped to be multiplied with images (last=3: with colours)."""
    shape = (count, 1, 1) if last == 1 else (count, 1, 1, last)
    return random.uniform(low, high, shape).astype(np.float32)


def noise(random: np.random.Generator, shape: tuple[int, ...], most: int) -> NDArray[np.int8]:
    """Draw what a camera adds."""
    return random.integers(-most, most, shape, dtype=np.int8)
