"""Generated images, used where the user gives no data: patterns, a road, fruit, textures, faces.

In each set some images look like another class, so that no network gets everything right.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

from farandole.labs.data.files import AGE_GROUPS
from farandole.labs.data.images import Images, Labels, Pair, num_wanted

Floats = NDArray[np.float32]
Classes = NDArray[np.int64]
Block = Callable[[np.random.Generator, int, int], tuple[Floats, Labels]]
"""Draws a block of images, RGB of 0 to 255 and beyond, by its number and the pixels of a side."""
Render = Callable[[np.random.Generator, Classes, int], Floats]
"""Draws an image for each label."""

_PER_BLOCK = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class Generated:
    """A set of generated images."""

    source: str
    """In words: "drawn fruit"."""
    train: int
    test: int
    seed: int
    block: Block
    per_block: int = _PER_BLOCK
    """Each block has its own seed: a few images need not wait for all."""
    classes: tuple[str, ...] = ()

    def read(self, size: tuple[int, int], samples: int = 0, test_samples: int = 0) -> Images:
        """Draw the first images of both sets; 0 for all."""
        train = self._draw(num_wanted(samples, self.train, test=False), size[0], test=False)
        test = self._draw(num_wanted(test_samples, self.test, test=True), size[0], test=True)
        return Images(*train, *test, self.source, classes=self.classes)

    def _draw(self, count: int, side: int, *, test: bool) -> Pair:
        for number, start in enumerate(range(0, count, self.per_block)):
            random = np.random.default_rng((self.seed, int(test), number))
            # Always the whole block, so that a larger set begins with the same images.
            images, labels = self.block(random, number, side)
            if number == 0:
                x = np.empty((count, *images.shape[1:]), np.uint8)
                y = np.empty(count, labels.dtype)
            end = min(start + self.per_block, count)
            x[start:end] = np.clip(images[: end - start], 0, 255)
            y[start:end] = labels[: end - start]
        return x, y


def _by_class(seed: int, num_classes: int, render: Render) -> Block:
    """Deal the classes out in turn, in a random order each time: every beginning is balanced."""

    def block(random: np.random.Generator, number: int, side: int) -> tuple[Floats, Labels]:
        places = np.arange(number * _PER_BLOCK, (number + 1) * _PER_BLOCK)
        turns = {
            int(turn): np.random.default_rng((seed, int(turn))).permutation(num_classes)
            for turn in np.unique(places // num_classes)
        }
        labels = np.array([turns[at // num_classes][at % num_classes] for at in places.tolist()])
        return render(random, labels, side), labels

    return block


def _grid(side: int) -> tuple[Floats, Floats]:
    """Return how far right and how far down each pixel is, -1 to 1."""
    ends = (np.arange(side, dtype=np.float32) + 0.5) * (2 / side) - 1
    return ends[np.newaxis, np.newaxis, :], ends[np.newaxis, :, np.newaxis]


def _each(
    random: np.random.Generator, count: int, low: float, high: float, *, last: int = 1
) -> Floats:
    """Draw a number for every image, shaped to multiply images (last=3: colours)."""
    shape = (count, 1, 1) if last == 1 else (count, 1, 1, last)
    return random.uniform(low, high, shape).astype(np.float32)


def _noise(random: np.random.Generator, shape: tuple[int, ...], most: int) -> NDArray[np.int8]:
    """Draw camera noise."""
    return random.integers(-most, most, shape, dtype=np.int8)


# Patterns in CIFAR-10's shape: an image blends a random piece of one of its class's smooth coloured
# patterns with a piece of another class's, usually weaker, and noise.

_NUM_PATTERNS, _PER_CLASS = 10, 3
_PATTERN_SIDE = 32
# A piece may begin at so many places of each side.
_PLACES = 16
_PATTERN_SEED, _PATTERN_BLOCK = 20_173, 1_000
# Share of the class's own pattern: below a half in about one image of twelve.
_SHARE = (0.47, 0.83)
_CONTRAST = 44.0


def _pattern_block(random: np.random.Generator, number: int, side: int) -> tuple[Floats, Labels]:
    pieces, count = _pieces(), _PATTERN_BLOCK
    # Every ten images hold each class once, so that every beginning is balanced.
    tens = np.tile(np.arange(_NUM_PATTERNS), (count // _NUM_PATTERNS, 1))
    labels = random.permuted(tens, axis=1).reshape(-1)
    others = (labels + random.integers(1, _NUM_PATTERNS, count)) % _NUM_PATTERNS
    share = random.uniform(*_SHARE, (count, 1, 1, 1)).astype(np.float32)
    light = random.uniform(96, 160, (count, 1, 1, 1)).astype(np.float32)
    top, left, other_top, other_left = random.integers(_PLACES, size=(4, count))
    which, other_which = random.integers(_PER_CLASS, size=(2, count))
    images = share * pieces[labels, which, top, left]
    images += (1 - share) * pieces[others, other_which, other_top, other_left]
    images += light
    images += _noise(random, images.shape, 32)
    return images, labels


@cache
def _pieces() -> Floats:
    """Return a view of all pieces: class, pattern, top, left, height, width, channel."""
    side = _PATTERN_SIDE + _PLACES
    random = np.random.default_rng(_PATTERN_SEED)
    # Patterns vary over some six pixels: finer than an image, coarser than the noise.
    wave = np.fft.fftfreq(side)
    envelope = np.exp(-((np.hypot(*np.meshgrid(wave, wave)) / 0.09) ** 2))
    noise = random.standard_normal((_NUM_PATTERNS, _PER_CLASS, 3, side, side))
    smooth = np.fft.ifft2(np.fft.fft2(noise) * envelope).real
    smooth /= smooth.std(axis=(2, 3, 4), keepdims=True)
    # Channels last in memory, too: pieces are copied by their rows.
    patterns = np.ascontiguousarray(np.moveaxis(_CONTRAST * smooth, 2, -1), dtype=np.float32)
    window = (_PATTERN_SIDE, _PATTERN_SIDE)
    windows = np.lib.stride_tricks.sliding_window_view(patterns, window, axis=(2, 3))
    return np.moveaxis(windows[:, :, :_PLACES, :_PLACES], 4, -1)


PATTERNS = Generated(
    source="generated patterns in CIFAR-10's shape",
    classes=tuple(f"pattern {number}" for number in range(_NUM_PATTERNS)),
    train=50_000,
    test=10_000,
    seed=_PATTERN_SEED,
    per_block=_PATTERN_BLOCK,
    block=_pattern_block,
)


# A road, whose bend and offset give the steering.

_ROAD_BLOCK = 100
_ROAD_HEIGHT, _ROAD_WIDTH = 66, 200
# The driver's hand is unsteady: no network gets below the square of this.
_UNSTEADY = 0.04


def _road_block(random: np.random.Generator, number: int, side: int) -> tuple[Floats, Labels]:
    # Most of a lap is nearly straight, and the car is nearly in the middle.
    bend = np.clip(random.standard_t(3, _ROAD_BLOCK) * 0.25, -1, 1)
    aside = np.clip(random.normal(0, 0.35, _ROAD_BLOCK), -1, 1)
    steering = 0.6 * bend + 0.25 * aside + random.normal(0, _UNSTEADY, _ROAD_BLOCK)
    # The horizon is the first row, the bonnet the last one.
    near = np.linspace(0, 1, _ROAD_HEIGHT, dtype=np.float32)[:, np.newaxis]
    bend, aside = bend[:, np.newaxis, np.newaxis], aside[:, np.newaxis, np.newaxis]
    middle = _ROAD_WIDTH / 2 + 45 * aside * near + 80 * bend * (1 - near) ** 2
    half = 10 + 85 * near
    distance = np.abs(((np.arange(_ROAD_WIDTH) - middle) / half).astype(np.float32))

    asphalt = _each(random, _ROAD_BLOCK, 70, 130, last=3)
    ground = _each(random, _ROAD_BLOCK, 60, 170, last=3)
    # Some of the ground is as grey as the road, so that brightness alone does not separate them.
    images = np.where((distance < 1)[..., np.newaxis], asphalt.mean(-1, keepdims=True), ground)
    images[(distance > 0.93) & (distance < 1)] += 70
    dashes = np.sin(14 / (near + 0.12) + _each(random, _ROAD_BLOCK, 0, 6.3)) > 0
    images[(distance < 0.035) & dashes] += 90
    # A shadow lies across the way.
    begin = _each(random, _ROAD_BLOCK, 0, 1.3)
    shadow = (near > begin) & (near < begin + 0.25)
    images *= np.where(shadow, np.float32(0.6), np.float32(1))[..., np.newaxis]
    images += _noise(random, images.shape, 24)
    return images, np.clip(steering, -1, 1).astype(np.float32)


ROAD = Generated(
    source="a generated road",
    # About one lap of the simulator.
    train=1_600,
    test=400,
    seed=20_174,
    per_block=_ROAD_BLOCK,
    block=_road_block,
)


# Apples, bananas and oranges, fresh and rotten: spots and a brown skin mark the rotten ones.

# Kaggle's folders, in the order of their names.
_FRUIT_CLASSES = (
    *("freshapples", "freshbanana", "freshoranges"),
    *("rottenapples", "rottenbanana", "rottenoranges"),
)
_NUM_FRUIT = 3
_FRUIT_SEED = 20_175
# Red, green, blue at both ends of what a fruit of the kind may have.
_FRUIT_SKINS = np.array(
    [
        [(215, 40, 45), (185, 70, 50)],
        [(240, 220, 70), (215, 205, 85)],
        [(245, 150, 20), (230, 130, 35)],
    ],
    np.float32,
)
_ROT = np.array((75, 50, 30), np.float32)
_SPOTS = 6
# How spotted a fruit is that looks fresh or rotten: mean and deviation. One of sixteen looks like
# the opposite.
_SPOTTED, _ODD = ((0.1, 0.08), (0.75, 0.15)), 1 / 16
# How brown the skin of a fruit is that is spotted all over.
_BROWNED = 0.5


def _render_fruit(random: np.random.Generator, labels: Classes, side: int) -> Floats:
    count = len(labels)
    kinds, rotten = labels % _NUM_FRUIT, labels // _NUM_FRUIT
    right, down = _grid(side)
    size = _each(random, count, 0.6, 0.85)
    p = (right - _each(random, count, -0.15, 0.15)) / size
    q = (down - _each(random, count, -0.15, 0.15)) / size
    turn = _each(random, count, -np.pi, np.pi)
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

    ripe = _each(random, count, 0, 1, last=3)[..., :1]
    skins = _FRUIT_SKINS[kinds][:, :, np.newaxis, np.newaxis, :]
    fruit = skins[:, 0] * (1 - ripe) + skins[:, 1] * ripe
    fruit = fruit + _each(random, count, -12, 12, last=3)
    means, deviations = np.array(_SPOTTED).T
    looks = np.where(random.random(count) < _ODD, 1 - rotten, rotten)
    spotted = np.clip(random.normal(means[looks], deviations[looks]), 0.02, 1)
    brown = (_BROWNED * spotted.astype(np.float32))[:, np.newaxis, np.newaxis, np.newaxis]
    fruit = fruit * (1 - brown) + _ROT * brown
    clear = np.ones_like(p)
    for _ in range(_SPOTS):
        across, along = _each(random, count, -0.65, 0.65), _each(random, count, -0.65, 0.65)
        # Those of a banana lie along it.
        along = np.where(banana, along * 0.3 - 0.15 + 0.55 * across**2, along)
        radius = (0.42 * spotted * random.uniform(0.7, 1.3, count))[:, np.newaxis, np.newaxis]
        reach = ((p - across) ** 2 + (q - along) ** 2) / radius.astype(np.float32) ** 2
        clear *= 1 - 0.85 * np.exp(-(reach**2))
    spots = (1 - clear)[..., np.newaxis]
    fruit = fruit * (1 - spots) + _ROT * spots
    fruit = fruit * (1 - 0.3 * np.minimum(distance, 1.2) ** 2)[..., np.newaxis]

    ground = _each(random, count, 120, 220, last=3)[..., :1] + _each(random, count, -15, 15, last=3)
    slope = _each(random, count, -25, 25) * right + _each(random, count, -25, 25) * down
    images = ground + slope[..., np.newaxis]
    images = images + (fruit - images) * inside[..., np.newaxis]
    images = images * _each(random, count, 0.85, 1.1)[..., np.newaxis]
    return np.asarray(images + _noise(random, images.shape, 12), np.float32)


FRUIT = Generated(
    source="drawn fruit",
    classes=_FRUIT_CLASSES,
    train=1_200,
    test=240,
    seed=_FRUIT_SEED,
    block=_by_class(_FRUIT_SEED, len(_FRUIT_CLASSES), _render_fruit),
)


# Textures: each kind has two colours, a direction and a wavelength; an image shows one of them with
# another, weaker one across it.

_NUM_TEXTURES = 25
_TEXTURE_SEED = 20_176
# Share of an image's own texture: usually, and in one image of sixteen.
_STRONGER, _WEAKER = (0.72, 1.0), (0.2, 0.4)


def _render_textures(random: np.random.Generator, labels: Classes, side: int) -> Floats:
    count = len(labels)
    others = (labels + random.integers(1, _NUM_TEXTURES, count)) % _NUM_TEXTURES
    odd = (random.random(count) < _ODD)[:, np.newaxis, np.newaxis, np.newaxis]
    share = np.where(
        odd,
        _each(random, count, *_WEAKER, last=3)[..., :1],
        _each(random, count, *_STRONGER, last=3)[..., :1],
    )
    images = share * _texture(random, labels, side) + (1 - share) * _texture(random, others, side)
    images = images * _each(random, count, 0.85, 1.15)[..., np.newaxis]
    return np.asarray(images + _noise(random, images.shape, 16), np.float32)


def _texture(random: np.random.Generator, labels: Classes, side: int) -> Floats:
    kinds = np.random.default_rng(_TEXTURE_SEED)
    direction = kinds.uniform(0, np.pi, _NUM_TEXTURES).astype(np.float32)
    waves = np.exp(kinds.uniform(np.log(2), np.log(9), _NUM_TEXTURES)).astype(np.float32)
    colours = kinds.uniform(30, 225, (_NUM_TEXTURES, 2, 3)).astype(np.float32)
    count = len(labels)
    right, down = _grid(side)
    turned = direction[labels, np.newaxis, np.newaxis] + _each(random, count, -0.2, 0.2)
    length = waves[labels, np.newaxis, np.newaxis] * _each(random, count, 0.85, 1.15)
    bent = (
        0.15
        * np.sin(3 * right + _each(random, count, 0, 6.3))
        * np.sin(3 * down + _each(random, count, 0, 6.3))
    )
    along = right * np.cos(turned) + down * np.sin(turned) + bent
    wave = 0.5 + 0.5 * np.sin(np.pi * length * along + _each(random, count, 0, 6.3))
    first, second = (colours[labels, n, np.newaxis, np.newaxis] for n in (0, 1))
    return np.asarray(first + (second - first) * wave[..., np.newaxis], np.float32)


TEXTURES = Generated(
    source="generated textures",
    classes=tuple(f"texture {number}" for number in range(_NUM_TEXTURES)),
    train=1_200,
    test=300,
    seed=_TEXTURE_SEED,
    block=_by_class(_TEXTURE_SEED, _NUM_TEXTURES, _render_textures),
)


# Faces: eyes shrink, hair turns grey, and lines deepen from the first age group to the last.

_FACE_SEED = 20_177
# Ages of a group lie around its middle, and how old a face looks differs from that: about one of
# twenty-five looks like the next group.
_MIDDLE, _LOOKS = (0.25, 0.75), 0.2
_FACE_SKINS = np.array([(245, 210, 180), (115, 75, 55)], np.float32)
_HAIR = np.array([(75, 45, 25), (225, 225, 225)], np.float32)
_LINES = 4


def _render_faces(random: np.random.Generator, labels: Classes, side: int) -> Floats:
    count, num_groups = len(labels), len(AGE_GROUPS)
    groups = labels + random.uniform(*_MIDDLE, count) + random.normal(0, _LOOKS, count)
    age = (np.clip(groups, 0, num_groups) / num_groups).astype(np.float32)
    age = age[:, np.newaxis, np.newaxis]
    right, down = _grid(side)
    right = right - _each(random, count, -0.08, 0.08)
    down = down - _each(random, count, -0.08, 0.08) - 0.1

    ground = _each(random, count, 40, 230, last=3)
    images = np.broadcast_to(ground, (count, side, side, 3))
    light = _each(random, count, 0, 1, last=3)[..., :1]
    skin = _FACE_SKINS[0] * light + _FACE_SKINS[1] * (1 - light)
    grey = np.clip(age * 1.1, 0, 1)[..., np.newaxis]
    hair = _HAIR[0] * (1 - grey) + _HAIR[1] * grey + _each(random, count, -8, 8, last=3)
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
    images = images * _each(random, count, 0.88, 1.1)[..., np.newaxis]
    return np.asarray(images + _noise(random, images.shape, 14), np.float32)


def _paint(images: Floats, distance: Floats, colour: Floats) -> Floats:
    """Lay a colour over what is nearer than 1."""
    over = 1 / (1 + np.exp(np.clip((distance - 1) * 14, -20, 20)))[..., np.newaxis]
    return np.asarray(images + (colour - images) * over, np.float32)


def _wrinkles(random: np.random.Generator, right: Floats, down: Floats, age: Floats) -> Floats:
    """Return how dark the lines of the forehead are; more of them appear with age."""
    dark = np.zeros_like(right + down)
    for line in range(_LINES):
        there = np.clip(age * (_LINES + 1) - line - 0.8, 0, 1)
        place = -0.2 - 0.1 * line + _each(random, len(age), -0.02, 0.02)
        dark = dark + there * np.exp(-(((down - place + 0.1 * right**2) / 0.022) ** 2))
    return np.asarray(np.clip(dark, 0, 1), np.float32)


FACES = Generated(
    source="drawn faces",
    classes=AGE_GROUPS,
    train=1_800,
    test=180,
    seed=_FACE_SEED,
    block=_by_class(_FACE_SEED, len(AGE_GROUPS), _render_faces),
)
