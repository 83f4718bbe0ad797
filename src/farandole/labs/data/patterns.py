"""Generated images in CIFAR-10's shape: two patterns blended, and which is the stronger?

Each class has a few smooth coloured patterns. An image shows a random piece of one of them, a piece
of another class's, usually weaker, and noise. A network has to learn all patterns, wherever they
lie; and because the other one is sometimes the stronger, no network gets everything right.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from farandole.labs.data.samples import Pixels

TRAIN, TEST = 50_000, 10_000
"""As many as CIFAR-10 has."""

_SIDE = 32
_NUM_CLASSES = 10
_PER_CLASS = 3
# A piece may begin at so many places of each side.
_PLACES = 16
_SEED = 20_173
# Images are made in blocks with a seed each, so that a few need not wait for all.
_BLOCK = 1_000
# Share of the class's own pattern: below a half in about one image of twelve.
_SHARE = (0.47, 0.83)
_CONTRAST = 44.0
_NOISE = 32


def draw(count: int, *, test: bool = False) -> tuple[Pixels, NDArray[np.int64]]:
    """Return the first images and labels of the training or the test set."""
    pieces = _pieces()
    num_blocks = -(-count // _BLOCK)
    blocks = [_block(pieces, (_SEED, int(test), number)) for number in range(num_blocks)]
    x = np.concatenate([x for x, _ in blocks])[:count]
    y = np.concatenate([y for _, y in blocks])[:count]
    return x, y


def _block(
    pieces: NDArray[np.float32], seed: tuple[int, int, int]
) -> tuple[Pixels, NDArray[np.int64]]:
    random = np.random.default_rng(seed)
    # Every ten images hold each class once, so that every beginning is balanced.
    tens = np.tile(np.arange(_NUM_CLASSES), (_BLOCK // _NUM_CLASSES, 1))
    labels = random.permuted(tens, axis=1).reshape(-1)
    others = (labels + random.integers(1, _NUM_CLASSES, _BLOCK)) % _NUM_CLASSES
    share = random.uniform(*_SHARE, (_BLOCK, 1, 1, 1)).astype(np.float32)
    light = random.uniform(96, 160, (_BLOCK, 1, 1, 1)).astype(np.float32)
    top, left, other_top, other_left = random.integers(_PLACES, size=(4, _BLOCK))
    which, other_which = random.integers(_PER_CLASS, size=(2, _BLOCK))
    images = share * pieces[labels, which, top, left]
    images += (1 - share) * pieces[others, other_which, other_top, other_left]
    images += light
    images += random.integers(-_NOISE, _NOISE, images.shape, dtype=np.int8)
    return np.clip(images, 0, 255).astype(np.uint8), labels


def _pieces() -> NDArray[np.float32]:
    """Return a view of all pieces: class, pattern, top, left, height, width, channel."""
    side = _SIDE + _PLACES
    random = np.random.default_rng(_SEED)
    # Patterns vary over some six pixels: finer than an image, coarser than the noise.
    wave = np.fft.fftfreq(side)
    envelope = np.exp(-((np.hypot(*np.meshgrid(wave, wave)) / 0.09) ** 2))
    noise = random.standard_normal((_NUM_CLASSES, _PER_CLASS, 3, side, side))
    smooth = np.fft.ifft2(np.fft.fft2(noise) * envelope).real
    smooth /= smooth.std(axis=(2, 3, 4), keepdims=True)
    # Channels last in memory, too: pieces are copied by their rows.
    patterns = np.ascontiguousarray(np.moveaxis(_CONTRAST * smooth, 2, -1), dtype=np.float32)
    windows = np.lib.stride_tricks.sliding_window_view(patterns, (_SIDE, _SIDE), axis=(2, 3))
    return np.moveaxis(windows[:, :, :_PLACES, :_PLACES], 4, -1)
