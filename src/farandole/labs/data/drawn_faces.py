"""Drawn faces, whose features tell the age: what stands in for photos of people.

Eyes shrink, hair turns grey, and lines deepen from the first age group to the last. How old a face
looks differs from how old it is, so that no network gets everything right.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from farandole.labs.data.ages import GROUPS
from farandole.labs.data.drawn import Drawn, Floats, each, grid, noise

# Ages of a group lie around its middle, and how old a face looks differs from that: about one of
# twenty-five looks as those of the next group.
_MIDDLE = (0.25, 0.75)
_LOOKS = 0.2
_SKINS = np.array([(245, 210, 180), (115, 75, 55)], np.float32)
_HAIR = np.array([(75, 45, 25), (225, 225, 225)], np.float32)
_LINES = 4


def _render(random: np.random.Generator, labels: NDArray[np.int64], side: int) -> Floats:
    count = len(labels)
    groups = labels + random.uniform(*_MIDDLE, count) + random.normal(0, _LOOKS, count)
    age = (np.clip(groups, 0, len(GROUPS)) / len(GROUPS)).astype(np.float32)
    age = age[:, np.newaxis, np.newaxis]
    right, down = grid(side)
    right = right - each(random, count, -0.08, 0.08)
    down = down - each(random, count, -0.08, 0.08) - 0.1

    ground = each(random, count, 40, 230, last=3)
    images = np.broadcast_to(ground, (count, side, side, 3))
    light = each(random, count, 0, 1, last=3)[..., :1]
    skin = _SKINS[0] * light + _SKINS[1] * (1 - light)
    grey = np.clip(age * 1.1, 0, 1)[..., np.newaxis]
    hair = _HAIR[0] * (1 - grey) + _HAIR[1] * grey + each(random, count, -8, 8, last=3)
    # A child's face is as wide as it is high; an old one is long.
    width, height = 0.62 - 0.1 * age, 0.66 + 0.16 * age
    images = _paint(images, np.hypot(right / (width + 0.1), (down + 0.16) / (height + 0.02)), hair)
    images = _paint(images, np.hypot(right / width, down / height), skin)
    eyes = np.hypot((np.abs(right) - 0.25) / (0.15 - 0.08 * age), (down + 0.02) / 0.08)
    images = _paint(images, eyes, np.full(3, 245, np.float32))
    images = _paint(images, eyes * 1.9, np.full(3, 30, np.float32))
    mouth = np.hypot(right / 0.22, (down - 0.38 + 0.3 * right**2) / 0.05)
    images = _paint(images, mouth, np.array((165, 60, 65), np.float32))
    wrinkled = _wrinkles(random, right, down, age) * (np.hypot(right / width, down / height) < 0.95)
    images = images * (1 - 0.45 * wrinkled)[..., np.newaxis]
    images = images * each(random, count, 0.88, 1.1)[..., np.newaxis]
    return np.asarray(images + noise(random, images.shape, 14), np.float32)


def _paint(images: Floats, distance: Floats, colour: Floats) -> Floats:
    """Lay a colour over what is nearer than 1."""
    over = 1 / (1 + np.exp(np.clip((distance - 1) * 14, -20, 20)))[..., np.newaxis]
    return np.asarray(images + (colour - images) * over, np.float32)


def _wrinkles(random: np.random.Generator, right: Floats, down: Floats, age: Floats) -> Floats:
    """Return how dark the lines of the forehead are, one after the other with the years."""
    dark = np.zeros_like(right + down)
    for line in range(_LINES):
        there = np.clip(age * (_LINES + 1) - line - 0.8, 0, 1)
        place = -0.2 - 0.1 * line + each(random, len(age), -0.02, 0.02)
        dark = dark + there * np.exp(-(((down - place + 0.1 * right**2) / 0.022) ** 2))
    return np.asarray(np.clip(dark, 0, 1), np.float32)


FACES = Drawn(
    source="drawn faces", classes=GROUPS, train=1800, test=180, seed=20_177, render=_render
)
