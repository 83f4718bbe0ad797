"""The labs' photos from folders, of any size; and what is drawn in their place."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from farandole.errors import DataError, UsageError
from farandole.labs.data import (
    Images,
    describe_caltech,
    describe_faces,
    describe_fruits,
    load_caltech,
    load_faces,
    load_fruits,
)
from farandole.labs.lab import DataFacts
from tests.labs.data.folders import SIDE, numbers, write_classes, write_image
from tests.labs.data.test_ages import matlab, write_list
from tests.labs.shared_data import shared_data

FRUITS = ("freshapples", "freshbanana", "rottenapples")


def test_fruits_as_kaggle_has_them(tmp_path: Path) -> None:
    after = write_classes(tmp_path / "dataset" / "dataset" / "train", dict.fromkeys(FRUITS, 8))
    write_classes(tmp_path / "dataset" / "dataset" / "test", dict.fromkeys(FRUITS, 2), first=after)
    data = load_fruits(tmp_path, size=SIDE)
    assert (data.x_train.shape, data.x_test.shape) == ((24, 32, 32, 3), (6, 32, 32, 3))
    assert data.classes == FRUITS
    assert [number // 8 for number in numbers(data.x_train)] == data.y_train.tolist()
    assert [(number - after) // 2 for number in numbers(data.x_test)] == data.y_test.tolist()
    part = load_fruits(tmp_path, samples=6, test_samples=3, size=SIDE)
    assert np.array_equal(part.x_train, data.x_train[:6])
    assert sorted(part.y_train) == [0, 0, 1, 1, 2, 2]


def test_categories_as_caltech_has_them(tmp_path: Path) -> None:
    write_classes(tmp_path / "256_ObjectCategories", {"001.ak47": 10, "002.american-flag": 10})
    data = load_caltech(tmp_path, size=48)
    assert (data.x_train.shape, data.x_test.shape) == ((16, 48, 48, 3), (4, 48, 48, 3))
    assert [number // 10 for number in numbers(data.x_train)] == data.y_train.tolist()
    facts = describe_caltech(tmp_path)
    assert (facts.train, facts.test, facts.sample) == (16, 4, "128x128 RGB")
    assert facts.source == "photos by category from the given folder"


def test_faces_as_imdb_wiki_has_them(tmp_path: Path) -> None:
    faces = [(matlab(2000 - age, 1, 1), 2000, 1.0) for age in range(40)]
    (tmp_path / "wiki_crop").mkdir()
    write_list(tmp_path / "wiki_crop" / "wiki.mat", [*faces, (0, 0, 1.0)])
    for number in range(40):
        write_image(tmp_path / "wiki_crop" / f"{number:02}" / f"{number}_a b.jpg", number)
    (tmp_path / "wiki_crop" / "07" / "7_a b.jpg").write_bytes(b"\xff\xd8\xff no more")
    facts = describe_faces(tmp_path, size=64)
    assert (facts.train + facts.test, facts.sample) == (39, "64x64 RGB")
    assert [text.rpartition("/")[2] for text in facts.skipped] == [
        "40_a b.jpg",
        "7_a b.jpg: not an image that Pillow knows",
    ]


@pytest.mark.parametrize(
    ("load", "expected"),
    [
        (load_fruits, r"fruit.* Expected: train/<class>/ and test/<class>/"),
        (load_caltech, r"categories.* Expected: 256_ObjectCategories/"),
        (load_faces, r"faces.* Expected: labels\.csv .* or IMDB-WIKI's wiki_crop/ with wiki\.mat"),
    ],
)
def test_folders_of_another_kind(
    tmp_path: Path, load: Callable[..., Images], expected: str
) -> None:
    (tmp_path / "IMG").mkdir()
    with pytest.raises(DataError, match=rf"is not a folder with {expected}.* Found: IMG/"):
        load(tmp_path)
    with pytest.raises(DataError, match="there is nothing"):
        load(tmp_path / "missing")


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


@pytest.mark.parametrize(
    ("describe", "folder", "train", "test"),
    [
        (describe_fruits, "fruits", 1_200, 240),
        (describe_caltech, "caltech101", 1_200, 300),
        (describe_faces, "faces", 432, 108),
    ],
)
def test_the_photos_themselves(
    describe: Callable[..., DataFacts], folder: str, train: int, test: int
) -> None:
    facts = describe(shared_data(folder))
    assert (facts.train, facts.test, facts.skipped) == (train, test, ())


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
