"""Generated images, used where the user gives no data: textures to classify, and a road."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from farandole.labs.data.files import AGE_GROUPS
from farandole.labs.data.images import Images, Labels, Pair, num_wanted

Floats = NDArray[np.float32]
Draw = Callable[[np.random.Generator, Labels, tuple[int, int]], tuple[Floats, Labels]]
"""Draws images, RGB of 0 to 255 and beyond, for places in the set, and says their labels."""

_BLOCK = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class Generated:
    """A set of generated images."""

    source: str
    """In words: "a generated road"."""
    train: int
    test: int
    seed: int
    draw: Draw
    classes: tuple[str, ...] = ()

    def read(self, size: tuple[int, int], samples: int = 0, test_samples: int = 0) -> Images:
        """Draw the first images of both sets; 0 for all."""
        train = self._first(num_wanted(samples, self.train, test=False), size, test=False)
        test = self._first(num_wanted(test_samples, self.test, test=True), size, test=True)
        return Images(*train, *test, self.source, classes=self.classes)

    def _first(self, count: int, size: tuple[int, int], *, test: bool) -> Pair:
        # In blocks, each with its own seed: a few images need not wait for all, and a larger set
        # begins with the same ones.
        x, y = np.empty((count, *size, 3), np.uint8), []
        for start in range(0, count, _BLOCK):
            random = np.random.default_rng((self.seed, int(test), start))
            images, labels = self.draw(random, np.arange(start, start + _BLOCK), size)
            x[start : start + _BLOCK] = np.clip(images, 0, 255)[: count - start]
            y.append(labels)
        return x, np.concatenate(y)[:count]


def _each(random: np.random.Generator, low: float, high: float, last: int = 1) -> Floats:
    """Draw a number for every image of a block, shaped to multiply images (last=3: colours)."""
    return random.uniform(low, high, (_BLOCK, 1, 1, last)).astype(np.float32)


# Textures: each class has two colours, a direction and a wavelength. An image shows its own texture
# with a weaker one of another class across it; in one image of sixteen the other one is stronger,
# so that no network gets everything right.

_STRONGER, _WEAKER, _ODD = (0.72, 1.0), (0.2, 0.4), 1 / 16


def _draw_textures(
    seed: int, num: int, random: np.random.Generator, places: Labels, size: tuple[int, int]
) -> tuple[Floats, Labels]:
    # Classes take turns, in a random order each time: every beginning is balanced.
    turns = {turn: np.random.default_rng((seed, turn)).permutation(num) for turn in places // num}
    labels = np.array([turns[place // num][place % num] for place in places])
    others = (labels + random.integers(1, num, _BLOCK)) % num
    odd = random.random((_BLOCK, 1, 1, 1)) < _ODD
    share = np.where(odd, _each(random, *_WEAKER), _each(random, *_STRONGER))
    images = share * _texture(seed, num, random, labels, size)
    images += (1 - share) * _texture(seed, num, random, others, size)
    images *= _each(random, 0.85, 1.15)
    images += random.integers(-16, 16, images.shape, dtype=np.int8)
    return images, labels


def _texture(
    seed: int, num: int, random: np.random.Generator, labels: Labels, size: tuple[int, int]
) -> Floats:
    kinds = np.random.default_rng(seed)
    direction = kinds.uniform(0, np.pi, (num, 1, 1, 1)).astype(np.float32)[labels]
    waves = np.exp(kinds.uniform(np.log(2), np.log(9), (num, 1, 1, 1))).astype(np.float32)[labels]
    first, second = kinds.uniform(30, 225, (2, num, 1, 1, 3)).astype(np.float32)[:, labels]
    down, right = (np.linspace(-1, 1, side, dtype=np.float32) for side in size)
    down, right = down[:, np.newaxis, np.newaxis], right[:, np.newaxis]
    direction += _each(random, -0.2, 0.2)
    waves *= _each(random, 0.85, 1.15)
    bent = np.sin(3 * right + _each(random, 0, 6.3)) * np.sin(3 * down + _each(random, 0, 6.3))
    along = right * np.cos(direction) + down * np.sin(direction) + 0.15 * bent
    share = 0.5 + 0.5 * np.sin(np.pi * waves * along + _each(random, 0, 6.3))
    return np.asarray(first + (second - first) * share, np.float32)


def _textures(train: int, test: int, seed: int, classes: tuple[str, ...]) -> Generated:
    return Generated(
        source="generated textures",
        train=train,
        test=test,
        seed=seed,
        draw=partial(_draw_textures, seed, len(classes)),
        classes=classes,
    )


CIFAR10 = _textures(50_000, 10_000, 20_173, tuple(f"texture {n}" for n in range(10)))
FRUITS = _textures(1_200, 240, 20_175, tuple(f"texture {n}" for n in range(6)))
CALTECH = _textures(1_200, 300, 20_176, tuple(f"texture {n}" for n in range(25)))
FACES = _textures(1_800, 180, 20_177, AGE_GROUPS)


# A road, whose bend and offset give the steering. The driver's hand is unsteady: no network gets
# below the square of that.

_UNSTEADY = 0.04


def _draw_road(
    random: np.random.Generator, places: Labels, size: tuple[int, int]
) -> tuple[Floats, Labels]:
    # Most of a lap is nearly straight, and the car is nearly in the middle.
    bend = np.clip(random.standard_t(3, (_BLOCK, 1, 1)) * 0.25, -1, 1)
    aside = np.clip(random.normal(0, 0.35, (_BLOCK, 1, 1)), -1, 1)
    steering = 0.6 * bend + 0.25 * aside + random.normal(0, _UNSTEADY, (_BLOCK, 1, 1))
    # The horizon is the first row, the bonnet the last one.
    near = np.linspace(0, 1, size[0], dtype=np.float32)[:, np.newaxis]
    middle = 0.5 + 0.225 * aside * near + 0.4 * bend * (1 - near) ** 2
    half = 0.05 + 0.425 * near
    across = np.linspace(0, 1, size[1], dtype=np.float32)
    distance = np.abs((across - middle) / half)[..., np.newaxis]
    near = near[..., np.newaxis]

    asphalt, ground = _each(random, 70, 130), _each(random, 60, 170, last=3)
    # Some of the ground is as grey as the road, so that brightness alone does not separate them.
    images = np.where(distance < 1, asphalt, ground)
    images += 70 * ((distance > 0.93) & (distance < 1))
    dashes = np.sin(14 / (near + 0.12) + _each(random, 0, 6.3)) > 0
    images += 90 * ((distance < 0.035) & dashes)
    # A shadow lies across the way.
    begin = _each(random, 0, 1.3)
    images *= np.where((near > begin) & (near < begin + 0.25), np.float32(0.6), np.float32(1))
    images += random.integers(-24, 24, images.shape, dtype=np.int8)
    return images, np.clip(steering.ravel(), -1, 1).astype(np.float32)


# About one lap of the simulator.
ROAD = Generated(source="a generated road", train=1_600, test=400, seed=20_174, draw=_draw_road)
