"""Images by class: folders divided already, and such that are divided here."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from farandole.errors import DataError
from farandole.labs.data.class_folders import find_class_folders
from farandole.labs.data.labelled import Labelled
from tests.labs.data.folders import write_classes, write_image


def find(folder: Path, *below: str) -> Labelled:
    return find_class_folders(
        folder, below, what="a folder with fruit", expected="class folders", source="fruit"
    )


def names(found: Labelled, *, test: bool) -> dict[str, list[str]]:
    """Names of the files of each class, on one side."""
    sides: dict[str, list[str]] = {}
    for file, label, testing in zip(found.files, found.labels, found.is_test, strict=True):
        assert file.parent.name == found.classes[label]
        if testing == test:
            sides.setdefault(file.parent.name, []).append(file.name)
    return sides


def test_the_folders_division_is_taken(tmp_path: Path) -> None:
    after = write_classes(tmp_path / "train", {"b": 3, "a": 2})
    write_classes(tmp_path / "test", {"a": 1, "b": 1}, first=after)
    found = find(tmp_path)
    assert found.classes == ("a", "b")
    assert found.labels.dtype == np.int64
    assert {name: len(files) for name, files in names(found, test=False).items()} == {
        "a": 2,
        "b": 3,
    }
    assert names(found, test=True) == {"a": ["0005.png"], "b": ["0006.png"]}
    assert found.source == "fruit"


@pytest.mark.parametrize("name", ["val", "valid", "validation", "test"])
def test_one_folder_down_and_by_other_names(tmp_path: Path, name: str) -> None:
    write_classes(tmp_path / "dataset" / "train", {"a": 1, "b": 1})
    write_classes(tmp_path / "dataset" / name, {"a": 1, "b": 1})
    assert find(tmp_path, "dataset").is_test.tolist() == [False, False, True, True]


def test_a_fifth_of_each_class_is_for_testing(tmp_path: Path) -> None:
    write_classes(tmp_path / "256_ObjectCategories", {"001.ak47": 98, "002.flag": 10, "003.bag": 2})
    found = find(tmp_path, "256_ObjectCategories")
    sizes = {name: len(files) for name, files in names(found, test=True).items()}
    assert sizes == {"001.ak47": 20, "002.flag": 2, "003.bag": 1}
    assert len(found.files) == 110
    # Not the first ones: Caltech's files are in the order in which they were found.
    assert names(found, test=True)["001.ak47"] != [f"{n:04}.png" for n in range(20)]


def test_the_division_stays_where_the_folder_is_moved_or_grows_elsewhere(tmp_path: Path) -> None:
    write_classes(tmp_path / "one", {"a": 30, "b": 30})
    write_classes(tmp_path / "two", {"a": 30, "b": 30})
    write_classes(tmp_path / "two", {"c": 5})
    first, second = (names(find(tmp_path / name), test=True) for name in ("one", "two"))
    assert second.pop("c")
    assert first == second


def test_one_image_cannot_be_on_both_sides(tmp_path: Path) -> None:
    write_classes(tmp_path, {"a": 5, "b": 1, "c": 5})
    found = find(tmp_path)
    assert "b" not in names(found, test=True)
    assert names(found, test=False)["b"] == ["0005.png"]
    assert found.source == "fruit; not tested, because there is one image of it: b"


def test_a_class_without_a_test_image_is_said(tmp_path: Path) -> None:
    write_classes(tmp_path / "train", dict.fromkeys("abcdef", 1))
    write_classes(tmp_path / "test", {"a": 1, "b": 1})
    assert find(tmp_path).source == (
        "fruit; not tested, because test/ has no image of it: c, d, e and 1 more"
    )


def test_other_files_among_the_images(tmp_path: Path) -> None:
    # Caltech-256 has a folder and a nameless file among its dogs and spiders.
    write_classes(tmp_path, {"056.dog": 2, "198.spider": 2})
    write_image(tmp_path / "056.dog" / "greg" / "a.png", 1)
    (tmp_path / "198.spider" / "RENAME2").write_text("")
    (tmp_path / "198.spider" / ".hidden.png").write_text("")
    (tmp_path / "index.csv").write_text("")
    (tmp_path / ".git").mkdir()
    write_image(tmp_path / "056.dog" / "LOUD.JPG", 3)
    found = find(tmp_path)
    assert found.classes == ("056.dog", "198.spider")
    assert len(found.files) == 5


@pytest.mark.parametrize(
    ("folders", "message"),
    [
        ({}, r"is not a folder with fruit\. Expected: class folders\. Found: an empty folder"),
        ({"train/a": 2, "train/b": 2}, r"train/ is there, and test/ is missing.* Found: train/"),
        ({"test/a": 2}, r"test/ is there, and train/ is missing"),
        ({"a": 3}, r"is not a folder with fruit.*Found: a/"),
        ({"train/a": 3, "test/a": 3}, r"train: expected a folder for each of at least two classes"),
        ({"train/a": 1, "train/b": 0, "test/a": 1}, r"train/b is taken for a class, and holds no"),
        ({"a": 2, "b": 2, "c": 0}, r"c is taken for a class, and holds no image \(\.jpg"),
        (
            {"train/a": 1, "train/b": 1, "test/a": 1, "test/x": 1},
            r"test has the class x, of which .*train has no image to learn it from.*: a, b",
        ),
    ],
)
def test_what_is_wrong_with_a_folder(tmp_path: Path, folders: dict[str, int], message: str) -> None:
    for name, count in folders.items():
        (tmp_path / name).mkdir(parents=True)
        write_classes(tmp_path, {name: count})
    with pytest.raises(DataError, match=message):
        find(tmp_path)
