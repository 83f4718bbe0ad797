"""Drawn apples, bananas and oranges, fresh and rotten: what stands in for photos of them.

Spots and a brown skin tell the rotten from the fresh. Some fresh fruit look rotten and some rotten
fruit look fresh, so that no network gets everything right; one that has seen nothing before learns
the colours first.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from farandole.labs.data.drawn import Drawn, Floats, each, grid, noise

# Kaggle's folders, in the order of their names.
_CLASSES = (
    *("freshapples", "freshbanana", "freshoranges"),
    *("rottenapples", "rottenbanana", "rottenoranges"),
)
_KINDS = 3
# Red, green, blue at both ends of what a fruit of the kind may have.
_SKINS = np.array(
    [
        [(215, 40, 45), (185, 70, 50)],
        [(240, 220, 70), (215, 205, 85)],
        [(245, 150, 20), (230, 130, 35)],
    ],
    np.float32,
)
_ROT = np.array((75, 50, 30), np.float32)
_SPOTS = 6
# How much of a fruit is spotted that looks fresh and that looks rotten: mean and deviation. One
# fruit of sixteen looks as it is not.
_SPOTTED, _ODD = ((0.1, 0.08), (0.75, 0.15)), 1 / 16
# How brown the skin of a fruit is that is spotted all over.
_BROWNED = 0.5


def _render(random: np.random.Generator, labels: NDArray[np.int64], side: int) -> Floats:
    count = len(labels)
    kinds, rotten = labels % _KINDS, labels // _KINDS
    right, down = grid(side)
    size = each(random, count, 0.6, 0.85)
    p = (right - each(random, count, -0.15, 0.15)) / size
    q = (down - each(random, count, -0.15, 0.15)) / size
    turn = each(random, count, -np.pi, np.pi)
    p, q = p * np.cos(turn) + q * np.sin(turn), q * np.cos(turn) - p * np.sin(turn)

    distance = np.hypot(p, q)
    # Apples have a dent where the stalk is.
    apple = (kinds == 0)[:, np.newaxis, np.newaxis]
    dented = distance + np.float32(0.35) * np.exp(-((p / 0.22) ** 2)) * (q < 0)
    distance = np.where(apple, dented, distance)
    banana = (kinds == 1)[:, np.newaxis, np.newaxis]
    bent = np.hypot(p / 1.1, (q + 0.25 - 0.55 * p**2) / 0.38)
    distance = np.where(banana, bent, distance)
    inside = 1 / (1 + np.exp(np.clip((distance - 1) * 18, -20, 20)))

    ripe = each(random, count, 0, 1, last=3)[..., :1]
    skins = _SKINS[kinds][:, :, np.newaxis, np.newaxis, :]
    fruit = skins[:, 0] * (1 - ripe) + skins[:, 1] * ripe
    fruit = fruit + each(random, count, -12, 12, last=3)
    means, deviations = np.array(_SPOTTED).T
    looks = np.where(random.random(count) < _ODD, 1 - rotten, rotten)
    spotted = np.clip(random.normal(means[looks], deviations[looks]), 0.02, 1)
    brown = (_BROWNED * spotted.astype(np.float32))[:, np.newaxis, np.newaxis, np.newaxis]
    fruit = fruit * (1 - brown) + _ROT * brown
    spots = _spots(random, p, q, spotted, banana)[..., np.newaxis]
    fruit = fruit * (1 - spots) + _ROT * spots
    fruit = fruit * (1 - 0.3 * np.minimum(distance, 1.2) ** 2)[..., np.newaxis]

    ground = each(random, count, 120, 220, last=3)[..., :1] + each(random, count, -15, 15, last=3)
    slope = each(random, count, -25, 25) * right + each(random, count, -25, 25) * down
    images = ground + slope[..., np.newaxis]
    images = images + (fruit - images) * inside[..., np.newaxis]
    images = images * each(random, count, 0.85, 1.1)[..., np.newaxis]
    return np.asarray(images + noise(random, images.shape, 12), np.float32)


def _spots(
    random: np.random.Generator,
    p: Floats,
    q: Floats,
    spotted: NDArray[np.float64],
    banana: NDArray[np.bool_],
) -> Floats:
    """Return how spotted each place of a fruit is, 0 to 1."""
    count = len(spotted)
    clear = np.ones_like(p)
    for _ in range(_SPOTS):
        across, along = each(random, count, -0.65, 0.65), each(random, count, -0.65, 0.65)
        # Those of a banana lie along it.
        along = np.where(banana, along * 0.3 - 0.15 + 0.55 * across**2, along)
        radius = (0.42 * spotted * random.uniform(0.7, 1.3, count))[:, np.newaxis, np.newaxis]
        reach = ((p - across) ** 2 + (q - along) ** 2) / radius.astype(np.float32) ** 2
        clear *= 1 - 0.85 * np.exp(-(reach**2))
    return 1 - clear


FRUIT = Drawn(
    source="drawn fruit", classes=_CLASSES, train=1_200, test=240, seed=20_175, render=_render
)
