"""Images change as far as they may, and in the same way for any number of workers."""

from __future__ import annotations

import numpy as np
import pytest

from farandole.labs.data.augment import Augmentation, warp

pytest.importorskip("torch")

STILL = np.array([[[1, 0, 0], [0, 1, 0]]], np.float32)
CHOSEN = np.arange(400)


def spot(right: int, down: int) -> np.ndarray:
    """An image of 16 pixels a side with a white one."""
    image = np.zeros((1, 16, 16, 3), np.uint8)
    image[0, down, right] = 255
    return image


def place(images: np.ndarray) -> tuple[int, int]:
    """Where its brightest pixel is: right and down."""
    down, right = np.unravel_index(images[0, :, :, 0].argmax(), images.shape[1:3])
    return int(right), int(down)


def test_a_map_that_changes_nothing() -> None:
    images = np.random.default_rng(0).integers(256, size=(3, 10, 10, 3), dtype=np.uint8)
    changed = warp(images, np.repeat(STILL, 3, axis=0))
    assert (changed.dtype, changed.flags.c_contiguous) == (np.uint8, True)
    assert np.array_equal(changed, images)


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ([[1, 0, 0.25], [0, 1, 0]], (3, 8)),  # comes from 2 pixels further right
        ([[1, 0, 0], [0, 1, -0.25]], (5, 10)),
        ([[-1, 0, 0], [0, 1, 0]], (10, 8)),  # mirrored: 15 - 5
        ([[0, -1, 0], [1, 0, 0]], (8, 10)),  # a quarter of a turn
    ],
)
def test_where_pixels_come_from(rows: list[list[float]], expected: tuple[int, int]) -> None:
    assert place(warp(spot(5, 8), np.array([rows], np.float32))) == expected


def test_what_lies_outside_is_mirrored() -> None:
    bright = np.full((1, 16, 16, 3), 200, np.uint8)
    far = np.array([[[1, 0, 0.9], [0, 1, 0.9]]], np.float32)
    assert np.array_equal(warp(bright, far), bright)


def test_changes_stay_within_what_is_allowed() -> None:
    maps = Augmentation(seed=1, rotation=0.05, zoom=0.2, shift=0.1, flip=True).maps(CHOSEN, 0)
    assert (maps.shape, maps.dtype) == ((400, 2, 3), np.float32)
    sizes = np.abs(np.linalg.det(maps[:, :, :2].astype(float)))
    # Areas: a zoom of 20 % along both sides.
    assert 0.64 <= sizes.min() < 0.68
    assert 1.4 < sizes.max() <= 1.441
    turns = np.arctan2(-maps[:, 0, 1], maps[:, 1, 1]) / (2 * np.pi)
    assert 0.045 < np.abs(turns).max() <= 0.05
    assert 0.19 < np.abs(maps[:, :, 2]).max() <= 0.2
    mirrored = np.linalg.det(maps[:, :, :2].astype(float)) < 0
    assert 160 < mirrored.sum() < 240, "a binomial of 400 at a half has a deviation of 10"


def test_what_is_not_asked_for_does_not_happen() -> None:
    maps = Augmentation(seed=1, zoom=0.01, shift=0.01).maps(CHOSEN, 0)
    assert np.all(maps[:, 0, 1] == 0)
    assert np.all(maps[:, 0, 0] > 0.98)
    assert np.array_equal(Augmentation(seed=1).maps(CHOSEN[:1], 0), STILL)


def test_seed_epoch_and_sample_decide_and_the_batch_does_not() -> None:
    change = Augmentation(seed=1, zoom=0.2, shift=0.2)
    whole = change.maps(CHOSEN, 3)
    assert np.array_equal(change.maps(CHOSEN[7::9], 3), whole[7::9])
    for other in (change.maps(CHOSEN, 4), Augmentation(seed=2, zoom=0.2).maps(CHOSEN, 3)):
        assert not np.any(np.all(other == whole, axis=(1, 2)))
    assert len(np.unique(whole, axis=0)) == len(CHOSEN)


def test_labels_stay_with_their_images() -> None:
    images, labels = np.zeros((2, 8, 8, 3), np.uint8), np.array([3, 4])
    changed, same = Augmentation(seed=1, flip=True)((images, labels), np.arange(2), 0)
    assert same is labels
    assert changed.shape == images.shape
