"""Images: generated ones, the fixed order, decoding of files, and augmentation."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from farandole.errors import DataError, MissingExtraError, UsageError
from farandole.labs import data
from farandole.labs.data import Augmentation, Images, images, load_driving, load_mnist
from farandole.labs.data.images import balanced_order, decode, warp

pytest.importorskip("torch")


@pytest.mark.parametrize(
    ("name", "train", "test", "shape", "num_classes"),
    [
        ("mnist", 1_437, 360, (28, 28, 1), 10),
        ("cifar10", 50_000, 10_000, (32, 32, 3), 10),
        ("driving", 1_600, 400, (66, 200, 3), 0),
        ("fruits", 1_200, 240, (40, 40, 3), 6),
        ("caltech", 1_200, 300, (40, 40, 3), 25),
        ("faces", 1_800, 180, (40, 40, 3), 9),
    ],
)
def test_what_stands_in_without_data(
    name: str, train: int, test: int, shape: tuple[int, int, int], num_classes: int
) -> None:
    load: Callable[..., Images] = getattr(data, f"load_{name}")
    # More than two blocks of drawing, and not a whole number of them.
    found = load(samples=230, test_samples=60, size=40)
    assert (found.x_train.shape, found.x_test.shape) == ((230, *shape), (60, *shape))
    assert (found.x_train.dtype, len(found.classes)) == (np.uint8, num_classes)
    if num_classes:
        counts = np.bincount(found.y_train, minlength=num_classes)
        assert counts.max() - counts.min() <= 2, "every beginning is balanced"
        assert found.y_train.dtype == np.int64
    else:
        assert (found.y_train.dtype, np.abs(found.y_train).max() <= 1) == (np.float32, True)
    assert not np.array_equal(found.x_train[:9], found.x_test[:9])
    # Something is to be seen, and neither all dark nor all white.
    assert 30 < found.x_train.mean() < 200
    assert found.x_train.std(axis=(1, 2, 3)).min() > 8
    again = load(samples=50, test_samples=7, size=40)
    assert np.array_equal(again.x_train, found.x_train[:50])
    assert np.array_equal(again.y_test, found.y_test[:7])
    facts = getattr(data, f"describe_{name}")()
    assert (facts.train, facts.test, facts.source) == (train, test, found.source)
    side = "128x128" if shape[0] == 40 else f"{shape[0]}x{shape[1]}"
    assert facts.sample == f"{side} {'grey' if shape[2] == 1 else 'RGB'}"
    assert data.draw_samples(name, None).startswith(b"\x89PNG")
    with pytest.raises(UsageError, match=f"but there are {train:,}"):
        load(samples=train + 1, size=40)
    with pytest.raises(UsageError, match=r"16 pixels a side \(--image-size 16\).*32 at least"):
        load(size=16)


@pytest.mark.parametrize(("name", "samples"), [("fruits", 128), ("caltech", 240), ("faces", 240)])
def test_colours_alone_tell_most_textures_apart_and_not_all(name: str, samples: int) -> None:
    found = getattr(data, f"load_{name}")(samples=samples, test_samples=120, size=32)
    train, test = (
        np.concatenate([x.mean(axis=(1, 2)), x.std(axis=(1, 2))], axis=1)
        for x in (found.x_train, found.x_test)
    )
    distances = np.linalg.norm((test[:, np.newaxis] - train) / train.std(axis=0), axis=2)
    nearest = found.y_train[distances.argmin(axis=1)]
    assert 0.6 < (nearest == found.y_test).mean() < 0.97


def test_the_road_tells_the_steering() -> None:
    """A linear fit on the brightness of columns explains most of what a constant leaves."""
    found = load_driving()

    def features(x: np.ndarray) -> np.ndarray:
        coarse = x.mean(axis=3).reshape(len(x), 6, 11, 20, 10).mean(axis=(2, 4)).reshape(len(x), -1)
        return np.c_[coarse - coarse.mean(axis=1, keepdims=True), np.ones(len(x))]

    weights, *_ = np.linalg.lstsq(features(found.x_train), found.y_train)
    error = np.mean((features(found.x_test) @ weights - found.y_test) ** 2)
    # Not trivially, either: the unsteady hand alone leaves 0.0016.
    assert 0.0016 < error < 0.9 * found.y_test.var()


def test_without_scikit_learn_or_pillow_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sklearn.datasets", None)
    monkeypatch.setattr(images, "find_spec", lambda name: None)
    for load in (load_mnist, lambda: decode(["a.png"], (4, 4))):
        with pytest.raises(MissingExtraError, match=r"pip install 'farandole\[labs\]'"):
            load()


@pytest.mark.parametrize("sizes", [(50, 50), (10, 90), (1, 7, 30)])
def test_every_beginning_has_each_group_in_its_share(sizes: tuple[int, ...]) -> None:
    groups = np.repeat(np.arange(len(sizes)), sizes)
    order = balanced_order(groups, seed=1)
    assert sorted(order.tolist()) == list(range(len(groups)))
    for count in range(1, len(groups) + 1):
        found = np.bincount(groups[order[:count]], minlength=len(sizes))
        expected = count * np.array(sizes) / len(groups)
        # One of a group in each of its parts: it is ahead or behind by less than one of its own,
        # and by what the others are.
        assert np.abs(found - expected).max() <= len(sizes)


def write(path: Path, colour: tuple[int, int, int], size: tuple[int, int] = (20, 10)) -> Path:
    Image.new("RGB", size, colour).save(path)
    return path


def test_images_come_in_order_scaled_and_as_rgb(tmp_path: Path) -> None:
    wanted = [(index, 0, 7) for index in range(40)]
    files = [write(tmp_path / f"{i} \u00e9'\n.png", colour) for i, colour in enumerate(wanted)]
    Image.new("L", (8, 8), 90).save(tmp_path / "grey.png")
    Image.new("RGBA", (8, 8), (10, 20, 30, 255)).save(tmp_path / "alpha.png")
    found = decode([*files, tmp_path / "grey.png", tmp_path / "alpha.png"], (6, 8))
    assert found.pixels.shape == (len(files) + 2, 6, 8, 3)
    assert found.pixels[:, 3, 4].tolist() == [*map(list, wanted), [90] * 3, [10, 20, 30]]
    assert found.skipped == {}
    assert (found.sides.min(), found.sides.max()) == (8, 20)


def test_damaged_files_are_left_out_and_named(tmp_path: Path) -> None:
    good = [write(tmp_path / f"{i}.jpg", (8 * i, 0, 0), size=(64, 64)) for i in range(4)]
    cut, text = tmp_path / "cut.jpg", tmp_path / "text.jpg"
    cut.write_bytes(good[0].read_bytes()[:-40])
    text.write_text("not an image")
    files = [good[0], cut, good[1], text, tmp_path / "missing.jpg", *good[2:]]
    found = decode(files, (8, 8))
    assert np.abs(found.pixels[:, 0, 0, 0] - [0.0, 8, 16, 24]).max() < 2
    assert found.skipped.pop(1).startswith(f"{cut}: image file is truncated")
    assert found.skipped == {
        3: f"{text}: not an image that Pillow knows",
        4: f"{files[4]}: No such file or directory",
    }
    with pytest.raises(DataError, match=r"4 of 5 images cannot be read.*text\.jpg: .*; and 1 more"):
        decode([good[0], *[text] * 4], (8, 8))


def test_a_picture_of_a_hundred_megapixels_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 150)
    files = [write(tmp_path / f"{side}.png", (1, 2, 3), (side, side)) for side in (12, 14)]
    assert list(decode(files, (4, 4)).skipped) == [1]


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
    image = np.zeros((1, 16, 16, 3), np.uint8)
    image[0, 8, 5] = 255
    moved = warp(image, np.array([rows], np.float32))[0, :, :, 0]
    down, right = np.unravel_index(moved.argmax(), moved.shape)
    assert (right, down) == expected


CHOSEN = np.arange(400)


def test_changes_stay_within_what_is_allowed() -> None:
    maps = Augmentation(seed=1, rotation=0.05, zoom=0.2, shift=0.1, flip=True).maps(CHOSEN, 0)
    areas = np.linalg.det(maps[:, :, :2].astype(float))
    # A zoom of 20 % along both sides.
    assert 0.64 <= np.abs(areas).min() < 0.68
    assert 1.4 < np.abs(areas).max() <= 1.441
    turns = np.arctan2(-maps[:, 0, 1], maps[:, 1, 1]) / (2 * np.pi)
    assert 0.045 < np.abs(turns).max() <= 0.05
    assert 0.19 < np.abs(maps[:, :, 2]).max() <= 0.2
    assert 160 < (areas < 0).sum() < 240, "a binomial of 400 at a half has a deviation of 10"


def test_seed_epoch_and_sample_decide_and_the_batch_does_not() -> None:
    change = Augmentation(seed=1, zoom=0.2, shift=0.2)
    whole = change.maps(CHOSEN, 3)
    assert np.array_equal(change.maps(CHOSEN[7::9], 3), whole[7::9])
    for other in (change.maps(CHOSEN, 4), Augmentation(seed=2, zoom=0.2).maps(CHOSEN, 3)):
        assert not np.any(np.all(other == whole, axis=(1, 2)))
    assert np.array_equal(Augmentation(seed=1).maps(CHOSEN[:1], 0), [[[1, 0, 0], [0, 1, 0]]])
