"""Ages in nine groups, from labels.csv and from IMDB-WIKI's lists."""

from __future__ import annotations

from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.io import savemat

from farandole.errors import DataError
from farandole.labs.data.ages import GROUPS, read_age_labels, read_list
from farandole.labs.data.table import in_test


def matlab(year: int, month: int, day: int) -> int:
    """Days as MATLAB counts them: datenum(2000, 1, 1) is 730486."""
    return date(year, month, day).toordinal() - date(2000, 1, 1).toordinal() + 730_486


def write_list(path: Path, faces: list[tuple[int, int, float]], **other: Any) -> Path:
    """Write a list of faces: day of birth, year of the photo, score of the face."""
    born, taken, scores = zip(*faces, strict=True)
    names = np.array([f"{n % 100:02}/{n}_a b.jpg" for n in range(len(faces))], object)
    table = {"dob": born, "photo_taken": taken, "full_path": names, "face_score": scores, **other}
    kept = {name: value for name, value in table.items() if value is not None}
    savemat(path, {path.stem: kept})
    return path


def test_labels(tmp_path: Path) -> None:
    path = tmp_path / "labels.csv"
    path.write_text("file,age_group,age_class,split\na.jpg,0-2,0,train\nb.jpg,70+,8,test\n")
    found = read_age_labels(path)
    assert found.files == (tmp_path / "a.jpg", tmp_path / "b.jpg")
    assert (found.labels.tolist(), found.is_test.tolist()) == ([0, 8], [False, True])
    assert found.classes == GROUPS


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("file,age\na.jpg,3\n", r"columns file and age_class.*age_class is missing"),
        ("file,age_class\na.jpg,30s\n", r"line 2: the age_class '30s' is not a whole number of 0"),
        ("file,age_class,split\na.jpg,1,train\nb.jpg,9,test\n", r"label 9 of image 1 is out of ra"),
        ("file,age_class,split\na.jpg,1,train\n", "1 images for training and 0 for testing"),
    ],
)
def test_labels_say_what_is_wrong(tmp_path: Path, content: str, message: str) -> None:
    (tmp_path / "labels.csv").write_text(content)
    with pytest.raises(DataError, match=message):
        read_age_labels(tmp_path / "labels.csv")


def test_ages_are_those_of_the_first_of_july(tmp_path: Path) -> None:
    # A birthday on the day itself counts; one on the day after does not.
    birthdays = [(1980, 7, 1, 2000), (1980, 7, 2, 2000), (1997, 12, 31, 2000), (1930, 1, 1, 2000)]
    faces = [(matlab(*day), taken, 1.0) for *day, taken in birthdays] * 10
    found = read_list(write_list(tmp_path / "wiki.mat", faces))
    groups = ("20-29", "10-19", "0-2", "70 and more") * 10
    assert found.labels.tolist() == [GROUPS.index(group) for group in groups]
    assert found.files[1] == tmp_path / "01/1_a b.jpg"
    assert found.is_test.tolist() == [in_test(f"{n % 100:02}/{n}_a b.jpg") for n in range(40)]
    assert (found.skipped, found.source) == ((), "IMDB-WIKI's wiki_crop from the given folder")


def test_unusable_entries_are_left_out_and_counted(tmp_path: Path) -> None:
    good = (matlab(1970, 1, 1), 2000, 2.5)
    unborn = (matlab(2001, 1, 1), 2000, 2.5)
    ancient = (matlab(1870, 1, 1), 2000, 2.5)
    undated = (0, 2000, 2.5)
    faceless = (matlab(1970, 1, 1), 2000, -np.inf)
    faces = [good] * 20 + [unborn, ancient, undated, faceless]
    found = read_list(write_list(tmp_path / "imdb.mat", faces))
    assert found.labels.tolist() == [GROUPS.index("30-39")] * 20
    path = tmp_path / "imdb.mat"
    assert found.skipped == (
        f"{path}: 3 of 24 entries have no usable age (0 to 100); first 20/20_a b.jpg",
        f"{path}: 1 of 24 entries have no face that was found; first 23/23_a b.jpg",
    )


def test_lists_say_what_is_wrong(tmp_path: Path) -> None:
    good, bad = (matlab(1970, 1, 1), 2000, 1.0), (0, 0, 1.0)
    path = tmp_path / "wiki.mat"
    write_list(path, [good, bad, bad])
    with pytest.raises(DataError, match=r"2 of 3 entries have no usable age .* IMDB-WIKI's list\?"):
        read_list(path)
    write_list(path, [good] * 9, dob=None)
    with pytest.raises(DataError, match=r"is not IMDB-WIKI's list, a MATLAB file with dob, photo_"):
        read_list(path)
    write_list(path, [good] * 9, photo_taken=[2000] * 8)
    with pytest.raises(DataError, match=r"expected as many of each, found dob 9, photo_taken 8"):
        read_list(path)
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(DataError, match=r"wiki\.mat is not IMDB-WIKI's list.* damaged"):
        read_list(path)
    path.unlink()
    path.mkdir()
    with pytest.raises(DataError, match=r"wiki\.mat cannot be read: Is a directory"):
        read_list(path)
