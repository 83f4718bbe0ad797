"""Data sets from folders, in every layout, and what is wrong with those that are not whole."""

from __future__ import annotations

import gzip
import json
import pickle
import struct
from collections.abc import Callable, Mapping
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image
from scipy.io import savemat

from farandole.errors import DataError, UsageError
from farandole.labs.data import (
    AGE_GROUPS,
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
from farandole.labs.data.files import find_class_folders, find_faces, in_test
from farandole.labs.data.images import Labelled, Pixels
from farandole.labs.lab import DataFacts
from tests.labs.shared_data import shared_data

SIDE = 32


def write_image(path: Path, number: int) -> Path:
    """Write an image of one colour, which has no loss as a PNG."""
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (SIDE, SIDE), (number % 256, number // 256, 7)).save(path)
    return path


def write_classes(folder: Path, counts: Mapping[str, int], *, first: int = 0) -> int:
    """Write so many images of each class, numbered on from the first; return the next number."""
    for name, count in counts.items():
        for _ in range(count):
            write_image(folder / name / f"{first:04}.png", first)
            first += 1
    return first


def numbers(images: Pixels) -> list[int]:
    """Say which images these are."""
    assert images.dtype == np.uint8
    assert (images[..., 2] == 7).all()
    return [int(image[0, 0, 0]) + 256 * int(image[0, 0, 1]) for image in images]


TRAIN, TEST = 60, 20


def idx(array: NDArray[np.uint8]) -> bytes:
    head = bytes((0, 0, 8, array.ndim)) + struct.pack(f">{array.ndim}I", *array.shape)
    return head + array.tobytes()


def digits(count: int) -> NDArray[np.uint8]:
    return np.random.default_rng(count).integers(256, size=(count, 28, 28), dtype=np.uint8)


def labels(count: int) -> NDArray[np.uint8]:
    return (np.arange(count) % 10).astype(np.uint8)


def contents(**changed: bytes | None) -> dict[str, bytes]:
    """The four files; some changed or left out, by what their names begin with: train_images."""
    files: dict[str, bytes | None] = {
        "train-images-idx3-ubyte": idx(digits(TRAIN)),
        "train-labels-idx1-ubyte": idx(labels(TRAIN)),
        "t10k-images-idx3-ubyte": idx(digits(TEST)),
        "t10k-labels-idx1-ubyte": idx(labels(TEST)),
    }
    for name in files:
        beginning = "_".join(name.split("-")[:2])
        files[name] = changed.get(beginning, files[name])
    return {name: content for name, content in files.items() if content is not None}


def write_mnist(folder: Path, files: dict[str, bytes], *, compressed: bool = False) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        if compressed:
            (folder / f"{name}.gz").write_bytes(gzip.compress(content))
        else:
            (folder / name).write_bytes(content)
    return folder


@pytest.mark.parametrize("below", [".", "raw", "MNIST/raw"])
@pytest.mark.parametrize("compressed", [False, True])
def test_the_files_are_found_plain_and_compressed(
    tmp_path: Path, below: str, compressed: bool
) -> None:
    write_mnist(tmp_path / below, contents(), compressed=compressed)
    data = load_mnist(tmp_path)
    assert data.x_train.shape == (TRAIN, 28, 28, 1)
    assert (data.x_train.dtype, data.y_train.dtype) == (np.uint8, np.int64)
    # The order is another one; the pairs are the same.
    pixels = {
        image.tobytes(): label for image, label in zip(digits(TRAIN), labels(TRAIN), strict=True)
    }
    assert [pixels.pop(image.tobytes()) for image in data.x_train] == data.y_train.tolist()
    assert pixels == {}
    assert data.classes == tuple("0123456789")
    facts = describe_mnist(tmp_path)
    assert (facts.train, facts.test, facts.sample) == (TRAIN, TEST, "28x28 grey")
    assert facts.source == "MNIST from the given folder"


def test_a_subset_is_a_balanced_beginning_and_always_the_same(tmp_path: Path) -> None:
    write_mnist(tmp_path, contents())
    whole = load_mnist(tmp_path)
    part = load_mnist(tmp_path, samples=20, test_samples=10)
    assert np.array_equal(part.x_train, whole.x_train[:20])
    assert np.array_equal(part.y_test, whole.y_test[:10])
    assert np.bincount(part.y_train).tolist() == [2] * 10
    assert np.bincount(part.y_test).tolist() == [1] * 10


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"train_images": idx(digits(TRAIN))[:-1]}, "cut short.*47,040.*47,039"),
        ({"train_images": idx(digits(TRAIN)) + b"x"}, "too long"),
        (
            {"train_images": gzip.compress(idx(digits(TRAIN)))[:999]},
            "is cut short or damaged",
        ),
        ({"t10k_labels": idx(labels(TEST))[:6]}, "begins with 8 bytes.*after 6"),
        ({"t10k_labels": b"PK\x03\x04...."}, "expected an idx.*00 00 08 01.*50 4b 03 04"),
        ({"t10k_labels": None}, "t10k-labels-idx1-ubyte is missing"),
        ({"train_labels": idx(labels(59))}, "60 images, but .* 59 labels"),
        ({"train_labels": idx(labels(TRAIN) + 2)}, r"label 10 of image 8 .*0 to 9\. 12 of 60"),
        ({"t10k_images": idx(np.zeros((TEST, 8, 9), np.uint8))}, "images of 28x28, found 8x9"),
    ],
)
def test_damaged_files_say_what_is_wrong(
    tmp_path: Path, changed: dict[str, bytes | None], message: str
) -> None:
    write_mnist(tmp_path, contents(**changed))
    with pytest.raises(DataError, match=f"(?s){message}"):
        load_mnist(tmp_path)


def test_a_folder_of_another_kind_lists_what_it_holds(tmp_path: Path) -> None:
    for name in "abcdefgh":
        (tmp_path / f"{name}.txt").touch()
    with pytest.raises(DataError, match=r"Expected: train-images.*Found: a\.txt, .* and 2 more"):
        load_mnist(tmp_path)


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"nowhere.*there is nothing.*leave --data away"):
        load_mnist(tmp_path / "nowhere")
    (tmp_path / "file").touch()
    with pytest.raises(DataError, match="it is a file"):
        load_mnist(tmp_path / "file")


def test_more_samples_than_there_are(tmp_path: Path) -> None:
    write_mnist(tmp_path, contents())
    with pytest.raises(UsageError, match=r"61 training samples.*there are 60.*--samples 60"):
        load_mnist(tmp_path, samples=61)
    with pytest.raises(UsageError, match="-1 test samples"):
        load_mnist(tmp_path, test_samples=-1)


NAMES = [f"class {number}" for number in range(10)]


def pictures(count: int, seed: int = 0) -> NDArray[np.uint8]:
    random = np.random.default_rng((count, seed))
    return random.integers(256, size=(count, 32, 32, 3), dtype=np.uint8)


def write_npz(folder: Path) -> Path:
    np.savez(folder / "data_batch_1.npz", x=pictures(40, 1), y=labels(40))
    np.savez(folder / "data_batch_2.npz", x=pictures(40, 2), y=labels(40))
    np.savez_compressed(folder / "test_20.npz", x=pictures(20), y=labels(20))
    (folder / "classes.json").write_text(json.dumps(NAMES))
    return folder


def write_batch(path: Path, x: NDArray[np.uint8], y: Any, *, protocol: int = 2) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    # Planes of colour one after the other, as the original has them.
    batch = {b"data": x.transpose(0, 3, 1, 2).reshape(len(x), -1), b"labels": y}
    path.write_bytes(pickle.dumps(batch, protocol=protocol))


def write_python(folder: Path, *, protocol: int = 2) -> Path:
    write_batch(folder / "data_batch_1", pictures(40, 1), labels(40).tolist(), protocol=protocol)
    write_batch(folder / "data_batch_2", pictures(40, 2), labels(40).tolist(), protocol=protocol)
    write_batch(folder / "test_batch", pictures(20), labels(20).tolist(), protocol=protocol)
    meta = {b"label_names": [name.encode() for name in NAMES]}
    (folder / "batches.meta").write_bytes(pickle.dumps(meta, protocol=protocol))
    return folder


@pytest.mark.parametrize(
    "write",
    [
        write_npz,
        write_python,
        lambda folder: write_python(folder, protocol=5),
        lambda folder: write_python(folder / "cifar-10-batches-py"),
    ],
    ids=["npz", "batches", "batches of Python 3", "batches below"],
)
def test_every_layout_gives_the_same_images(tmp_path: Path, write: Callable[[Path], Path]) -> None:
    write(tmp_path)
    data = load_cifar10(tmp_path)
    assert data.x_train.shape == (80, 32, 32, 3)
    assert (data.x_train.dtype, data.y_train.dtype) == (np.uint8, np.int64)
    wanted = np.concatenate([pictures(40, 1), pictures(40, 2)])
    label_of = dict(zip((image.tobytes() for image in wanted), np.tile(labels(40), 2), strict=True))
    assert [label_of.pop(image.tobytes()) for image in data.x_train] == data.y_train.tolist()
    assert data.x_test.shape == (20, 32, 32, 3)
    assert data.classes == tuple(NAMES)
    assert data.source == "CIFAR-10 from the given folder"


class _Dangerous:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return (Path.touch, (self.path,))


def test_a_batch_cannot_run_code(tmp_path: Path) -> None:
    write_python(tmp_path)
    marker = tmp_path / "ran"
    (tmp_path / "data_batch_1").write_bytes(pickle.dumps({b"data": _Dangerous(marker)}))
    with pytest.raises(DataError, match=r"data_batch_1 asks for .*Nothing of it was run"):
        load_cifar10(tmp_path)
    assert not marker.exists()


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"x": pictures(40), "y": labels(39)}, "40 images, but .*39 labels"),
        ({"x": pictures(40), "labels": labels(40)}, "the arrays x and y, found x, labels"),
        ({"x": pictures(40) / 255, "y": labels(40)}, "uint8 of shape .* found float64"),
        ({"x": pictures(40)[:, :28], "y": labels(40)}, r"found uint8 of shape \(40, 28, 32, 3\)"),
        ({"x": pictures(40), "y": labels(40) + 3}, "label 10 of image 7 is out of range.*0 to 9"),
        ({"x": pictures(40), "y": labels(40) / 2}, "one whole number per image"),
        ({"x": pictures(0), "y": labels(0)}, "holds no image"),
        ({"x": np.array([{}]), "y": labels(1)}, "not an npz file, or is damaged"),
        ({}, "not an npz file, or is damaged"),
    ],
)
def test_npz_files_say_what_is_wrong(tmp_path: Path, arrays: Any, message: str) -> None:
    write_npz(tmp_path)
    path = tmp_path / "data_batch_2.npz"
    if arrays:
        np.savez(path, **arrays)
    else:
        path.write_bytes(path.read_bytes()[:5000])
    with pytest.raises(DataError, match=rf"(?s)data_batch_2\.npz.*{message}"):
        load_cifar10(tmp_path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"not a pickle", "not a python batch of CIFAR-10, or is damaged"),
        (pickle.dumps([1]), "expected a dictionary with data and labels, found a list"),
        (pickle.dumps({"data": 1}), "expected a dictionary with data and labels, found data"),
        (pickle.dumps({"data": pictures(2), "labels": [1, 2]}), "expected rows of 3072 bytes"),
    ],
)
def test_batches_say_what_is_wrong(tmp_path: Path, content: bytes, message: str) -> None:
    write_python(tmp_path)
    (tmp_path / "data_batch_2").write_bytes(content)
    with pytest.raises(DataError, match=f"(?s)data_batch_2.*{message}"):
        load_cifar10(tmp_path)


def test_a_folder_of_another_kind(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"Expected: data_batch_1 to .* Found: an empty folder"):
        load_cifar10(tmp_path)
    write_python(tmp_path)
    (tmp_path / "test_batch").unlink()
    with pytest.raises(DataError, match=r"test_batch is missing.*Found: batches"):
        load_cifar10(tmp_path)


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


def listed(path: Path, faces: list[tuple[int, int, float]]) -> Labelled:
    write_list(path, faces)
    return find_faces(path.parent)


def test_age_classes(tmp_path: Path) -> None:
    path = tmp_path / "labels.csv"
    path.write_text("file,age_group,age_class,split\na.jpg,0-2,0,train\nb.jpg,70+,8,test\n")
    found = find_faces(tmp_path)
    assert found.files == (tmp_path / "a.jpg", tmp_path / "b.jpg")
    assert (found.labels.tolist(), found.is_test.tolist()) == ([0, 8], [False, True])
    assert found.classes == AGE_GROUPS


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("file,age\na.jpg,3\n", r"columns file and age_class.*age_class is missing"),
        ("file,age_class\na.jpg,30s\n", r"line 2: the age_class '30s' is not a whole number of 0"),
        ("file,age_class,split\na.jpg,1,train\nb.jpg,9,test\n", r"label 9 of image 1 is out of ra"),
        ("file,age_class,split\na.jpg,1,train\n", "1 images for training and 0 for testing"),
    ],
)
def test_age_classes_say_what_is_wrong(tmp_path: Path, content: str, message: str) -> None:
    (tmp_path / "labels.csv").write_text(content)
    with pytest.raises(DataError, match=message):
        find_faces(tmp_path)


def test_ages_are_those_of_the_first_of_july(tmp_path: Path) -> None:
    # A birthday on the day itself counts; one on the day after does not.
    birthdays = [(1980, 7, 1, 2000), (1980, 7, 2, 2000), (1997, 12, 31, 2000), (1930, 1, 1, 2000)]
    faces = [(matlab(*day), taken, 1.0) for *day, taken in birthdays] * 10
    found = listed(tmp_path / "wiki.mat", faces)
    groups = ("20-29", "10-19", "0-2", "70 and more") * 10
    assert found.labels.tolist() == [AGE_GROUPS.index(group) for group in groups]
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
    found = listed(tmp_path / "imdb.mat", faces)
    assert found.labels.tolist() == [AGE_GROUPS.index("30-39")] * 20
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
        find_faces(tmp_path)
    write_list(path, [good] * 9, dob=None)
    with pytest.raises(DataError, match=r"is not IMDB-WIKI's list, a MATLAB file with dob, photo_"):
        find_faces(tmp_path)
    write_list(path, [good] * 9, photo_taken=[2000] * 8)
    with pytest.raises(DataError, match=r"expected as many of each, found dob 9, photo_taken 8"):
        find_faces(tmp_path)
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(DataError, match=r"wiki\.mat is not IMDB-WIKI's list.* damaged"):
        find_faces(tmp_path)


COUNT = 30


def steering(index: int) -> float:
    return round(index / COUNT * 2 - 1, 3)


def write_road(path: Path, index: int, *, size: tuple[int, int] = (200, 66)) -> None:
    path.parent.mkdir(exist_ok=True)
    # The brightness of the road tells which image it is; what lies above and below is white.
    pixels = np.full((size[1], size[0], 3), 255, np.uint8)
    top, bottom = (0, size[1]) if size[1] == 66 else (60, 135)
    pixels[top:bottom] = index * 5
    Image.fromarray(pixels).save(path, quality=95)


def write_labels(folder: Path, header: str = "file,steering,split") -> Path:
    lines = [header]
    for index in range(COUNT):
        write_road(folder / "images" / f"{index}.jpg", index)
        split = "val" if index % 3 == 0 else "train"
        values = {"file": f"images/{index}.jpg", "steering": str(steering(index)), "split": split}
        lines.append(",".join(values.get(name, "0") for name in header.split(",")))
    (folder / "labels.csv").write_text("\n".join(lines) + "\n")
    return folder


def write_log(folder: Path, prefix: str, *, header: bool) -> Path:
    lines = ["center,left,right,steering,throttle,brake,speed"] if header else []
    for index in range(COUNT):
        name = f"center_{index}.jpg"
        write_road(folder / "IMG" / name, index, size=(320, 160))
        sides = f" {prefix}left_{index}.jpg, {prefix}right_{index}.jpg"
        lines.append(f"{prefix}{name},{sides}, {steering(index)}, 0.5, 0, 20.1")
    (folder / "driving_log.csv").write_text("\n".join(lines) + "\n")
    return folder


def check_pairs(x: np.ndarray, y: np.ndarray) -> list[int]:
    """Find out which images these are, and that each has its own steering."""
    indices = [round(float(image.mean()) / 5) for image in x]
    assert y.tolist() == pytest.approx([steering(index) for index in indices])
    return indices


def test_labels_with_a_split(tmp_path: Path) -> None:
    data = load_driving(write_labels(tmp_path))
    assert data.x_train.shape == (20, 66, 200, 3)
    assert (data.x_train.dtype, data.y_train.dtype) == (np.uint8, np.float32)
    assert sorted(check_pairs(data.x_test, data.y_test)) == list(range(0, COUNT, 3))
    assert set(check_pairs(data.x_train, data.y_train)).isdisjoint(range(0, COUNT, 3))
    assert (data.classes, data.skipped) == ((), ())
    part = load_driving(tmp_path, samples=8)
    assert np.array_equal(part.x_train, data.x_train[:8])


def test_without_a_split_the_name_decides(tmp_path: Path) -> None:
    data = load_driving(write_labels(tmp_path, "file,steering"))
    expected = [index for index in range(COUNT) if in_test(f"{index}.jpg")]
    assert sorted(check_pairs(data.x_test, data.y_test)) == expected


def test_one_image_of_five_is_for_testing() -> None:
    # A binomial of 10,000 at a fifth has a deviation of 40.
    assert abs(sum(in_test(f"center_{index}.jpg") for index in range(10_000)) - 2000) < 160


@pytest.mark.parametrize("header", [True, False])
@pytest.mark.parametrize(
    "prefix", ["C:\\Users\\me\\sim\\IMG\\", "/home/me/sim run/IMG/", "IMG/"], ids="WLR"
)
def test_the_simulators_log(tmp_path: Path, prefix: str, header: bool) -> None:
    data = load_driving(write_log(tmp_path, prefix, header=header))
    # The part with the road is taken: white would show if more were.
    indices = check_pairs(data.x_train, data.y_train) + check_pairs(data.x_test, data.y_test)
    assert sorted(indices) == list(range(COUNT))
    assert data.x_train.shape[1:] == (66, 200, 3)


def test_damaged_images_are_skipped_and_named(tmp_path: Path) -> None:
    write_labels(tmp_path)
    (tmp_path / "images" / "3.jpg").unlink()
    (tmp_path / "images" / "4.jpg").write_bytes(b"\xff\xd8\xff\xe0 no more")
    data = load_driving(tmp_path)
    assert 3 not in check_pairs(data.x_test, data.y_test)
    assert 4 not in check_pairs(data.x_train, data.y_train)
    facts = describe_driving(tmp_path)
    assert (facts.train, facts.test) == (19, 9)
    assert [text.rpartition("/")[2].partition(":")[0] for text in facts.skipped] == [
        "4.jpg",
        "3.jpg",
    ]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "is empty"),
        ("file,angle\na.jpg,0\n", r"columns file and steering.*found file, angle\. steering is"),
        ("file,steering\na.jpg,left\n", "line 2: the steering 'left' is not a number"),
        ("file,steering\na.jpg,nan\n", "line 2: the steering 'nan' is not a number"),
        ("file,steering\na.jpg,0\nb.jpg,1.5\n", "line 3: the steering 1.5 is out of range: -1"),
        ("file,steering,split\na.jpg,0,dev\n", "line 2: unknown split 'dev'.*train, test, val"),
        ("file,steering,split\na.jpg,0,train\n", "1 images for training and 0 for testing"),
        ("file,steering,split\na.jpg,0\n", "line 2: expected 3 columns, found 2"),
        ("file,steering\n\xff", "is not a table in CSV"),
    ],
)
def test_tables_say_what_is_wrong(tmp_path: Path, content: str, message: str) -> None:
    (tmp_path / "labels.csv").write_bytes(content.encode("latin1"))
    with pytest.raises(DataError, match=rf"labels\.csv.*{message}"):
        load_driving(tmp_path)
    if not content:
        (tmp_path / "labels.csv").unlink()
        (tmp_path / "driving_log.csv").write_text("time,angle\n1,2\n")
        with pytest.raises(DataError, match=r"the simulator's columns, center, .* found time, ang"):
            load_driving(tmp_path)


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
        (load_driving, r"a drive.* Expected: labels\.csv"),
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


@pytest.mark.parametrize(
    ("describe", "folder", "train", "test", "sample"),
    [
        (describe_mnist, "mnist", 60_000, 10_000, "28x28 grey"),
        (describe_cifar10, "cifar10", 10_000, 2_000, "32x32 RGB"),
        (describe_driving, "driving", 1_627, 400, "66x200 RGB"),
        (describe_fruits, "fruits", 1_200, 240, "128x128 RGB"),
        (describe_caltech, "caltech101", 1_200, 300, "128x128 RGB"),
        (describe_faces, "faces", 432, 108, "128x128 RGB"),
    ],
)
def test_the_data_sets_themselves(
    describe: Callable[..., DataFacts], folder: str, train: int, test: int, sample: str
) -> None:
    facts = describe(shared_data(folder))
    assert (facts.train, facts.test, facts.sample, facts.skipped) == (train, test, sample, ())
