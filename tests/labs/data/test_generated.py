"""Generated images: repeatable, balanced, and neither trivial nor hopeless."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from farandole.errors import MissingExtraError, UsageError
from farandole.labs.data import (
    Images,
    describe_caltech,
    describe_cifar10,
    describe_driving,
    describe_faces,
    describe_fruits,
    describe_mnist,
    load_caltech,
    load_cifar10,
    load_driving,
    load_faces,
    load_fruits,
    load_mnist,
)
from farandole.labs.lab import DataFacts


def test_digits_stand_in_for_mnist() -> None:
    data = load_mnist()
    assert data.x_train.shape == (1437, 28, 28, 1)
    assert data.x_test.shape == (360, 28, 28, 1)
    assert data.x_train.max() > 250
    assert np.array_equal(np.unique(data.y_train), np.arange(10))
    assert describe_mnist() == data.facts
    assert np.array_equal(load_mnist(samples=100).x_train, data.x_train[:100])


def test_without_scikit_learn_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sklearn.datasets", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'farandole\[labs\]'"):
        load_mnist()


def test_patterns_stand_in_for_cifar10() -> None:
    few, more = load_cifar10(samples=500, test_samples=10), load_cifar10(samples=1500)
    assert np.array_equal(few.x_train, more.x_train[:500])
    assert few.x_train.shape[1:] == (32, 32, 3)
    assert few.x_train.dtype == np.uint8
    assert np.bincount(few.y_train).tolist() == [50] * 10
    assert not np.array_equal(few.x_train[:10], few.x_test)
    facts = describe_cifar10()
    assert (facts.train, facts.test, facts.sample) == (50_000, 10_000, "32x32 RGB")
    assert (facts.test, facts.source) == (len(more.y_test), more.source)
    with pytest.raises(UsageError, match="there are 50,000"):
        load_cifar10(samples=50_001)


def test_a_drawn_road_stands_in() -> None:
    data = load_driving(samples=300, test_samples=100)
    assert data.x_train.shape == (300, 66, 200, 3)
    assert (data.x_train.dtype, data.y_train.dtype) == (np.uint8, np.float32)
    assert np.abs(data.y_train).max() <= 1
    again = load_driving(samples=150, test_samples=10)
    assert np.array_equal(again.x_train, data.x_train[:150])
    facts = describe_driving()
    assert (facts.train, facts.test, facts.sample) == (1600, 400, "66x200 RGB")
    assert facts.source == data.source


def test_the_road_tells_the_steering() -> None:
    """A linear fit on the brightness of columns explains most of what a constant leaves."""
    data = load_driving(samples=1600, test_samples=400)

    def features(x: np.ndarray) -> np.ndarray:
        coarse = x.mean(axis=3).reshape(len(x), 6, 11, 20, 10).mean(axis=(2, 4)).reshape(len(x), -1)
        relative = coarse - coarse.mean(axis=1, keepdims=True)
        return np.c_[relative, np.ones(len(x))]

    weights, *_ = np.linalg.lstsq(features(data.x_train), data.y_train)
    error = np.mean((features(data.x_test) @ weights - data.y_test) ** 2)
    constant = data.y_test.var()

    # Not trivially, either: the unsteady hand alone leaves 0.0016.
    assert 0.0016 < error < 0.9 * constant


def test_images_too_small_for_the_networks() -> None:
    with pytest.raises(UsageError, match=r"16 pixels a side \(--image-size 16\).*32 at least"):
        load_fruits(size=16)


DRAWN = [
    (load_fruits, describe_fruits, 6, "drawn fruit"),
    (load_caltech, describe_caltech, 25, "generated textures"),
    (load_faces, describe_faces, 9, "drawn faces"),
]


@pytest.mark.parametrize(("load", "describe", "num_classes", "source"), DRAWN)
def test_drawn_images_stand_in(
    load: Callable[..., Images], describe: Callable[..., DataFacts], num_classes: int, source: str
) -> None:
    # More than two blocks of drawing, and not a whole number of them.
    data = load(samples=5 * num_classes, test_samples=60, size=40)
    assert data.x_train.shape == (5 * num_classes, 40, 40, 3)
    assert (data.x_train.dtype, data.y_train.dtype) == (np.uint8, np.int64)
    assert np.bincount(data.y_train).tolist() == [5] * num_classes, "every beginning is balanced"
    assert len(data.classes) == num_classes
    assert not np.array_equal(data.x_train[:9], data.x_test[:9])
    # Something is to be seen, and neither all dark nor all white.
    assert 60 < data.x_train.mean() < 200
    assert data.x_train.std(axis=(1, 2, 3)).min() > 8
    again = load(samples=num_classes, test_samples=7, size=40)
    assert np.array_equal(again.x_train, data.x_train[:num_classes])
    assert np.array_equal(again.y_test, data.y_test[:7])
    facts = describe(size=40)
    assert (facts.source, facts.sample) == (source, "40x40 RGB")
    with pytest.raises(UsageError, match=f"but there are {facts.train:,}"):
        load(samples=facts.train + 1, size=40)


def colours(images: Any) -> Any:
    """Means and deviations of an image's colours: what random weights leave of it, about."""
    return np.concatenate([images.mean(axis=(1, 2)), images.std(axis=(1, 2))], axis=1)


@pytest.mark.parametrize(("load", "samples"), [(load_fruits, 128), (load_caltech, 240)])
def test_colours_alone_tell_most_drawn_images_apart_and_not_all(
    load: Callable[..., Images], samples: int
) -> None:
    data = load(samples=samples, test_samples=120, size=32)
    train, test = colours(data.x_train), colours(data.x_test)
    distances = np.linalg.norm((test[:, np.newaxis] - train) / train.std(axis=0), axis=2)
    nearest = data.y_train[distances.argmin(axis=1)]
    assert 0.6 < (nearest == data.y_test).mean() < 0.97


def test_sets_with_one_size_take_no_other() -> None:
    with pytest.raises(TypeError, match="MNIST have one size"):
        load_mnist(size=32)
