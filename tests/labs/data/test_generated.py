"""Generated images: repeatable, balanced, and neither trivial nor hopeless."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from farandole.errors import MissingExtraError, UsageError
from farandole.labs import data
from farandole.labs.data import Images, load_caltech, load_driving, load_fruits, load_mnist


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
    size = {"size": 40} if shape[0] == 40 else {}
    load: Callable[..., Images] = getattr(data, f"load_{name}")
    # More than two blocks of drawing, and not a whole number of them.
    found = load(samples=250, test_samples=60, **size)
    assert (found.x_train.shape, found.x_test.shape) == ((250, *shape), (60, *shape))
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
    again = load(samples=50, test_samples=7, **size)
    assert np.array_equal(again.x_train, found.x_train[:50])
    assert np.array_equal(again.y_test, found.y_test[:7])
    facts = getattr(data, f"describe_{name}")(**size)
    colour = "grey" if shape[2] == 1 else "RGB"
    assert (facts.train, facts.test, facts.source) == (train, test, found.source)
    assert facts.sample == f"{shape[0]}x{shape[1]} {colour}"
    with pytest.raises(UsageError, match=f"but there are {train:,}"):
        load(samples=train + 1, **size)


def test_without_scikit_learn_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sklearn.datasets", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'farandole\[labs\]'"):
        load_mnist()


def test_the_road_tells_the_steering() -> None:
    """A linear fit on the brightness of columns explains most of what a constant leaves."""
    found = load_driving(samples=1600, test_samples=400)

    def features(x: np.ndarray) -> np.ndarray:
        coarse = x.mean(axis=3).reshape(len(x), 6, 11, 20, 10).mean(axis=(2, 4)).reshape(len(x), -1)
        relative = coarse - coarse.mean(axis=1, keepdims=True)
        return np.c_[relative, np.ones(len(x))]

    weights, *_ = np.linalg.lstsq(features(found.x_train), found.y_train)
    error = np.mean((features(found.x_test) @ weights - found.y_test) ** 2)
    # Not trivially, either: the unsteady hand alone leaves 0.0016.
    assert 0.0016 < error < 0.9 * found.y_test.var()


def colours(images: Any) -> Any:
    """Means and deviations of an image's colours: what random weights leave of it, about."""
    return np.concatenate([images.mean(axis=(1, 2)), images.std(axis=(1, 2))], axis=1)


@pytest.mark.parametrize(("load", "samples"), [(load_fruits, 128), (load_caltech, 240)])
def test_colours_alone_tell_most_drawn_images_apart_and_not_all(
    load: Callable[..., Images], samples: int
) -> None:
    found = load(samples=samples, test_samples=120, size=32)
    train, test = colours(found.x_train), colours(found.x_test)
    distances = np.linalg.norm((test[:, np.newaxis] - train) / train.std(axis=0), axis=2)
    nearest = found.y_train[distances.argmin(axis=1)]
    assert 0.6 < (nearest == found.y_test).mean() < 0.97


def test_sizes_that_cannot_be() -> None:
    with pytest.raises(UsageError, match=r"16 pixels a side \(--image-size 16\).*32 at least"):
        load_fruits(size=16)
    with pytest.raises(TypeError, match="MNIST have one size"):
        load_mnist(size=32)
