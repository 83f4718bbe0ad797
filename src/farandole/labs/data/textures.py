"""Generated textures in as many kinds as the small set of photos has: two blended, and which is
the stronger?

Each kind has two colours, a direction and a wavelength. An image shows one of them with another,
weaker one across it. Because the other is sometimes the stronger, no network gets everything right;
because it is weak otherwise, one that has seen nothing before learns by the colours.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from farandole.labs.data.drawn import Drawn, Floats, each, grid, noise

_COUNT = 25
_SEED = 20_176
# Share of an image's own texture, as a rule, and in one image of sixteen.
_STRONGER, _WEAKER, _ODD = (0.72, 1.0), (0.2, 0.4), 1 / 16


def _kinds() -> tuple[Floats, Floats, Floats]:
    """Return direction, waves across an image, and both colours of each kind."""
    random = np.random.default_rng(_SEED)
    direction = random.uniform(0, np.pi, _COUNT).astype(np.float32)
    waves = np.exp(random.uniform(np.log(2), np.log(9), _COUNT)).astype(np.float32)
    colours = random.uniform(30, 225, (_COUNT, 2, 3)).astype(np.float32)
    return direction, waves, colours


def _render(random: np.random.Generator, labels: NDArray[np.int64], side: int) -> Floats:
    count = len(labels)
    others = (labels + random.integers(1, _COUNT, count)) % _COUNT
    odd = (random.random(count) < _ODD)[:, np.newaxis, np.newaxis, np.newaxis]
    share = np.where(
        odd,
        each(random, count, *_WEAKER, last=3)[..., :1],
        each(random, count, *_STRONGER, last=3)[..., :1],
    )
    images = share * _texture(random, labels, side) + (1 - share) * _texture(random, others, side)
    images = images * each(random, count, 0.85, 1.15)[..., np.newaxis]
    return np.asarray(images + noise(random, images.shape, 16), np.float32)


def _texture(random: np.random.Generator, labels: NDArray[np.int64], side: int) -> Floats:
    count = len(labels)
    direction, waves, colours = _kinds()
    right, down = grid(side)
    turned = direction[labels, np.newaxis, np.newaxis] + each(random, count, -0.2, 0.2)
    length = waves[labels, np.newaxis, np.newaxis] * each(random, count, 0.85, 1.15)
    bent = (
        0.15
        * np.sin(3 * right + each(random, count, 0, 6.3))
        * np.sin(3 * down + each(random, count, 0, 6.3))
    )
    along = right * np.cos(turned) + down * np.sin(turned) + bent
    wave = 0.5 + 0.5 * np.sin(np.pi * length * along + each(random, count, 0, 6.3))
    first, second = (colours[labels, n, np.newaxis, np.newaxis] for n in (0, 1))
    return np.asarray(first + (second - first) * wave[..., np.newaxis], np.float32)


TEXTURES = Drawn(
    source="generated textures",
    classes=tuple(f"texture {number}" for number in range(_COUNT)),
    train=1_200,
    test=300,
    seed=_SEED,
    render=_render,
)
