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
from farandole.labs.data.images import ImageFiles, Pixels
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


def find(folder: Path, *below: str) -> ImageFiles:
    return find_class_folders(
        folder, below, what="a folder with fruit", expected="class folders", source="fruit"
    )


def names(found: ImageFiles, *, test: bool) -> dict[str, list[str]]:
    """Names of the files of each class, on one side."""
    sides: dict[str, list[str]] = {}
    for file, label, testing in zip(found.files, found.labels, found.is_test, strict=True):
        assert file.parent.name == found.classes[label]
        if testing == test:
            sides.setdefault(file.parent.name, []).append(file.name)
    return sides


def test_a_fifth_of_each_class_is_for_testing(tmp_path: Path) -> None:
    write_classes(tmp_path / "256_ObjectCategories", {"001.ak47": 98, "002.flag": 10, "003.bag": 2})
    found = find(tmp_path, "256_ObjectCategories")
    sizes = {name: len(files) for name, files in names(found, test=True).items()}
    assert sizes == {"001.ak47": 20, "002.flag": 2, "003.bag": 1}
    assert len(found.files) == 110
    # Not the first ones: Caltech's files are in the order in which they were found.
    assert names(found, test=True)["001.ak47"] != [f"{n:04}.png" for n in range(20)]


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


def test_ages_are_those_of_the_first_of_july(tmp_path: Path) -> None:
    # A birthday on the day itself counts; one on the day after does not.
    birthdays = [(1980, 7, 1, 2000), (1980, 7, 2, 2000), (1997, 12, 31, 2000), (1930, 1, 1, 2000)]
    faces = [(matlab(*day), taken, 1.0) for *day, taken in birthdays] * 10
    write_list(tmp_path / "wiki.mat", faces)
    found = find_faces(tmp_path)
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
    write_list(tmp_path / "imdb.mat", faces)
    found = find_faces(tmp_path)
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


def write_mnist(folder: Path, changed: Mapping[str, bytes | None], *, compressed: bool) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    files: dict[str, bytes | None] = {
        "train-images-idx3-ubyte": idx(digits(TRAIN)),
        "train-labels-idx1-ubyte": idx(labels(TRAIN)),
        "t10k-images-idx3-ubyte": idx(digits(TEST)),
        "t10k-labels-idx1-ubyte": idx(labels(TEST)),
        **changed,
    }
    for name, content in files.items():
        if content is not None:
            path = folder / (f"{name}.gz" if compressed else name)
            path.write_bytes(gzip.compress(content) if compressed else content)


@pytest.mark.parametrize(
    ("below", "compressed"), [(".", False), ("raw", True), ("MNIST/raw", True)]
)
def test_mnist_is_found_plain_and_compressed(tmp_path: Path, below: str, compressed: bool) -> None:
    write_mnist(tmp_path / below, {}, compressed=compressed)
    data = load_mnist(tmp_path)
    assert data.x_train.shape == (TRAIN, 28, 28, 1)
    assert (data.x_train.dtype, data.y_train.dtype) == (np.uint8, np.int64)
    # The order is another one; the pairs are the same.
    pairs = zip((one.tobytes() for one in digits(TRAIN)), labels(TRAIN), strict=True)
    label_of = dict(pairs)
    assert [label_of.pop(image.tobytes()) for image in data.x_train] == data.y_train.tolist()
    assert data.classes == tuple("0123456789")
    facts = describe_mnist(tmp_path)
    assert (facts.train, facts.test, facts.sample) == (TRAIN, TEST, "28x28 grey")
    part = load_mnist(tmp_path, samples=20, test_samples=10)
    assert np.array_equal(part.x_train, data.x_train[:20])
    assert np.bincount(part.y_train).tolist() == [2] * 10
    with pytest.raises(UsageError, match=r"61 training samples.*there are 60.*--samples 60"):
        load_mnist(tmp_path, samples=61)
    with pytest.raises(UsageError, match="-1 test samples"):
        load_mnist(tmp_path, test_samples=-1)


IMAGES, LABELS = "train-images-idx3-ubyte", "t10k-labels-idx1-ubyte"


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        (IMAGES, idx(digits(TRAIN))[:-1], "cut short.*47,040.*47,039"),
        (IMAGES, idx(digits(TRAIN)) + b"x", "too long"),
        (IMAGES, gzip.compress(idx(digits(TRAIN)))[:999], "is not a gzip file, or is damaged"),
        (IMAGES, idx(digits(59)), "59 images, but .* 60 labels"),
        (IMAGES, idx(np.zeros((TRAIN, 8, 9), np.uint8)), r"\(N, 28, 28\), found uint8 of .* 8, 9"),
        (LABELS, idx(labels(TEST))[:6], "begins with 8 bytes.*after 6"),
        (LABELS, b"PK\x03\x04....", "expected an idx.*00 00 08 01.*50 4b 03 04"),
        (LABELS, None, "t10k-labels-idx1-ubyte is missing"),
        (LABELS, idx(labels(TEST) + 2), r"label 10 of image 8 .*0 to 9\. 4 of 20"),
    ],
)
def test_damaged_mnist_says_what_is_wrong(
    tmp_path: Path, name: str, content: bytes | None, message: str
) -> None:
    write_mnist(tmp_path, {name: content}, compressed=False)
    with pytest.raises(DataError, match=f"(?s){message}"):
        load_mnist(tmp_path)


def test_a_division_by_names_stays_where_other_folders_are_added(tmp_path: Path) -> None:
    write_classes(tmp_path / "one", {"a": 30, "b": 1})
    write_classes(tmp_path / "two", {"a": 30, "b": 1, "c": 5})
    found, more = find(tmp_path / "one"), find(tmp_path / "two")
    assert names(found, test=True)["a"] == names(more, test=True)["a"]
    # One image cannot be on both sides.
    assert names(found, test=False)["b"] == ["0030.png"]
    assert found.source == "fruit; not tested, because there is one image of it: b"


def write_labels(folder: Path, header: str) -> None:
    lines = [header]
    for index in range(COUNT):
        write_road(folder / "images" / f"{index}.jpg", index)
        split = "val" if index % 3 == 0 else "train"
        values = {"file": f"images/{index}.jpg", "steering": str(steering(index)), "split": split}
        lines.append(",".join(values[name] for name in header.split(",")))
    (folder / "labels.csv").write_text("\n".join(lines) + "\n")


@pytest.mark.parametrize("header", ["file,steering,split", "file,steering"])
def test_a_drive_with_labels(tmp_path: Path, header: str) -> None:
    write_labels(tmp_path, header)
    (tmp_path / "images" / "3.jpg").unlink()
    (tmp_path / "images" / "4.jpg").write_bytes(b"\xff\xd8\xff\xe0 no more")
    data = load_driving(tmp_path)
    assert data.x_train.shape[1:] == (66, 200, 3)
    assert (data.x_train.dtype, data.y_train.dtype) == (np.uint8, np.float32)
    # Without a split, a hash of the name decides.
    by_name = [index for index in range(COUNT) if in_test(f"{index}.jpg")]
    test = set(range(0, COUNT, 3) if "split" in header else by_name) - {3, 4}
    assert set(check_pairs(data.x_test, data.y_test)) == test
    assert set(check_pairs(data.x_train, data.y_train)) == {*range(COUNT)} - test - {3, 4}
    facts = describe_driving(tmp_path)
    assert (facts.train + facts.test, facts.test) == (COUNT - 2, len(test))
    assert sorted(text.rpartition("/")[2].partition(":")[0] for text in facts.skipped) == [
        "3.jpg",
        "4.jpg",
    ]


@pytest.mark.parametrize(
    ("prefix", "header"), [("C:\\Users\\me\\sim\\IMG\\", True), ("/home/me/sim run/IMG/", False)]
)
def test_the_simulators_log(tmp_path: Path, prefix: str, header: bool) -> None:
    data = load_driving(write_log(tmp_path, prefix, header=header))
    # The part with the road is taken: white would show if more were.
    indices = check_pairs(data.x_train, data.y_train) + check_pairs(data.x_test, data.y_test)
    assert sorted(indices) == list(range(COUNT))
    assert data.x_train.shape[1:] == (66, 200, 3)


@pytest.mark.parametrize(
    ("load", "content", "message"),
    [
        (load_driving, "", "is empty"),
        (load_driving, "file,angle\na.jpg,0\n", r"columns file and steering.*steering is missing"),
        (load_driving, "file,steering\na.jpg,nan\n", "line 2: the steering 'nan' is not a number"),
        (load_driving, "file,steering\na.jpg,0\nb.jpg,1.5\n", "line 3: the steering 1.5 is out of"),
        (load_driving, "file,steering,split\na.jpg,0,dev\n", "line 2: unknown split 'dev'.*train,"),
        (load_driving, "file,steering,split\na.jpg,0,val\n", "0 images for training and 1 for"),
        (load_driving, "file,steering,split\na.jpg,0\n", "line 2: expected 3 columns, found 2"),
        (load_driving, "file,steering\n\xff", "is not a table in CSV"),
        (load_faces, "file,age\na.jpg,3\n", r"columns file and age_class.*age_class is missing"),
        (load_faces, "file,age_class\na.jpg,30s\n", r"line 2: the age_class '30s' is not a whole"),
        (load_faces, "file,age_class\na.jpg,9\n", r"label 9 of image 0 is out of range"),
    ],
)
def test_tables_say_what_is_wrong(
    tmp_path: Path, load: Callable[..., Images], content: str, message: str
) -> None:
    (tmp_path / "labels.csv").write_bytes(content.encode("latin1"))
    with pytest.raises(DataError, match=rf"labels\.csv.*{message}"):
        load(tmp_path)


@pytest.mark.parametrize(
    ("load", "expected"),
    [
        (load_mnist, "MNIST.* Expected: train-images"),
        (load_cifar10, "CIFAR-10.* Expected: data_batch_1"),
        (load_driving, r"a drive.* Expected: labels\.csv"),
        (load_fruits, r"fruit.* Expected: train/<class>/ and test/<class>/"),
        (load_caltech, r"categories.* Expected: 256_ObjectCategories/"),
        (load_faces, r"faces.* Expected: labels\.csv .* or IMDB-WIKI's wiki_crop/ with wiki\.mat"),
    ],
)
def test_folders_of_another_kind(
    tmp_path: Path, load: Callable[..., Images], expected: str
) -> None:
    for name in "abcdefgh":
        (tmp_path / f"{name}.txt").touch()
    with pytest.raises(
        DataError, match=rf"a folder with {expected}.* Found: a\.txt, .* and 2 more"
    ):
        load(tmp_path)
    with pytest.raises(DataError, match="it is a file"):
        load(tmp_path / "a.txt")
    with pytest.raises(DataError, match=r"there is nothing.*leave --data away"):
        load(tmp_path / "missing")
