"""Generated views of a road, whose bend tells the steering: what stands in for a car's camera."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from farandole.labs.data.samples import Pixels

TRAIN, TEST = 1_600, 400
"""About as many as one lap of the simulator gives."""

_HEIGHT, _WIDTH = 66, 200
_SEED = 20_174
# Images are made in blocks with a seed each, so that a few need not wait for all.
_BLOCK = 100
# The driver's hand is unsteady: no network gets below the square of this.
_UNSTEADY = 0.04
_NOISE = 24

_Floats = NDArray[np.float32]


def drive(count: int, *, test: bool = False) -> tuple[Pixels, NDArray[np.float32]]:
    """Return the first images of the training or the test drive, and the steering at each."""
    num_blocks = -(-count // _BLOCK)
    blocks = [_block((_SEED, int(test), number)) for number in range(num_blocks)]
    x = np.concatenate([x for x, _ in blocks])[:count]
    y = np.concatenate([y for _, y in blocks])[:count]
    return x, y


def _block(seed: tuple[int, int, int]) -> tuple[Pixels, NDArray[np.float32]]:
    random = np.random.default_rng(seed)
    # Most of a lap is nearly straight, and the car is nearly in the middle.
    bend = np.clip(random.standard_t(3, _BLOCK) * 0.25, -1, 1)
    aside = np.clip(random.normal(0, 0.35, _BLOCK), -1, 1)
    steering = 0.6 * bend + 0.25 * aside + random.normal(0, _UNSTEADY, _BLOCK)
    images = _render(random, bend, aside)
    return images, np.clip(steering, -1, 1).astype(np.float32)


def _render(
    random: np.random.Generator, bend: NDArray[np.float64], aside: NDArray[np.float64]
) -> Pixels:
    """Draw the road from the horizon, the first row, to the bonnet, the last one."""
    near = np.linspace(0, 1, _HEIGHT, dtype=np.float32)[:, np.newaxis]
    bend, aside = bend[:, np.newaxis, np.newaxis], aside[:, np.newaxis, np.newaxis]
    middle = _WIDTH / 2 + 45 * aside * near + 80 * bend * (1 - near) ** 2
    half = 10 + 85 * near
    across = ((np.arange(_WIDTH) - middle) / half).astype(np.float32)
    distance = np.abs(across)

    asphalt, ground = _shades(random, 70, 130), _shades(random, 60, 170)
    # Some of the ground is as grey as the road, so that brightness alone does not tell them apart.
    images = np.where((distance < 1)[..., np.newaxis], asphalt.mean(-1, keepdims=True), ground)
    images[(distance > 0.93) & (distance < 1)] += 70
    dashes = np.sin(14 / (near + 0.12) + _uniform(random, 0, 6.3)) > 0
    images[(distance < 0.035) & dashes] += 90
    # A shadow lies across the way.
    begin = _uniform(random, 0, 1.3)
    shadow = (near > begin) & (near < begin + 0.25)
    images *= np.where(shadow, np.float32(0.6), np.float32(1))[..., np.newaxis]
    images += random.integers(-_NOISE, _NOISE, images.shape, dtype=np.int8)
    return np.clip(images, 0, 255).astype(np.uint8)


def _shades(random: np.random.Generator, low: float, high: float) -> _Floats:
    return random.uniform(low, high, (_BLOCK, 1, 1, 3)).astype(np.float32)


def _uniform(random: np.random.Generator, low: float, high: float) -> _Floats:
    return random.uniform(low, high, (_BLOCK, 1, 1)).astype(np.float32)
