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
from farandole.labs import data
from farandole.labs.data import (
    AGE_GROUPS,
    Images,
    load_caltech,
    load_cifar10,
    load_driving,
    load_faces,
    load_fruits,
    load_mnist,
)
from farandole.labs.data.files import LAYOUTS, in_test
from farandole.labs.data.images import ImageFiles
from tests.labs.shared_data import shared_data

SIDE, COUNT = 32, 30
NAMES = [f"class {number}" for number in range(10)]
CAMERA = "center,left,right,steering,throttle,brake,speed"


def random_bytes(*shape: int, seed: int = 0) -> NDArray[np.uint8]:
    return np.random.default_rng((*shape, seed)).integers(256, size=shape, dtype=np.uint8)


def labels(count: int) -> NDArray[np.uint8]:
    return (np.arange(count) % 10).astype(np.uint8)


def check_pairs(found: Images, x: NDArray[np.uint8], y: NDArray[np.uint8]) -> None:
    """Check that the images are there, in another order, with their own labels."""
    label_of = dict(zip((image.tobytes() for image in x), y, strict=True))
    assert [label_of.pop(image.tobytes()) for image in found.x_train] == found.y_train.tolist()
    assert (found.x_train.dtype, found.y_train.dtype, label_of) == (np.uint8, np.int64, {})


# MNIST.

IMAGES, LABELS = "train-images-idx3-ubyte", "t10k-labels-idx1-ubyte"


def idx(array: NDArray[np.uint8]) -> bytes:
    head = bytes((0, 0, 8, array.ndim)) + struct.pack(f">{array.ndim}I", *array.shape)
    return head + array.tobytes()


def write_mnist(folder: Path, changed: Mapping[str, bytes | None], *, compressed: bool) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    files: dict[str, bytes | None] = {
        "train-images-idx3-ubyte": idx(random_bytes(60, 28, 28)),
        "train-labels-idx1-ubyte": idx(labels(60)),
        "t10k-images-idx3-ubyte": idx(random_bytes(20, 28, 28)),
        "t10k-labels-idx1-ubyte": idx(labels(20)),
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
    found = load_mnist(tmp_path)
    check_pairs(found, random_bytes(60, 28, 28), labels(60))
    facts = data.describe_mnist(tmp_path)
    assert (facts.train, facts.test, facts.sample) == (60, 20, "28x28 grey")
    assert facts.class_counts["7"] == (6, 2)
    part = load_mnist(tmp_path, samples=20, test_samples=10)
    assert np.array_equal(part.x_train, found.x_train[:20])
    assert np.bincount(part.y_train).tolist() == [2] * 10
    for samples in (61, -1):
        with pytest.raises(UsageError, match=rf"{samples} training samples.*there are 60"):
            load_mnist(tmp_path, samples=samples)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        (IMAGES, idx(random_bytes(60, 28, 28))[:-1], "cut short.*47,040.*47,039"),
        (IMAGES, gzip.compress(idx(random_bytes(60, 28, 28)))[:999], "not a gzip file, or is dam"),
        (IMAGES, idx(random_bytes(59, 28, 28)), r"each of 59 images, found uint8 of shape \(60,"),
        (IMAGES, idx(random_bytes(60, 8, 9)), r"\(N, 28, 28\), found uint8 of .* 8, 9"),
        (LABELS, b"PK\x03\x04....", "expected an idx.*00 00 08 01.*50 4b 03 04"),
        (LABELS, None, "is not all of MNIST. Expected: .* Found: t10k-images-idx3-ubyte, train"),
        (LABELS, idx(labels(20) + 2), r"label 10 of image 8 .*0 to 9\. 4 of 20"),
    ],
)
def test_damaged_mnist_says_what_is_wrong(
    tmp_path: Path, name: str, content: bytes | None, message: str
) -> None:
    write_mnist(tmp_path, {name: content}, compressed=False)
    with pytest.raises(DataError, match=f"(?s){message}"):
        load_mnist(tmp_path)


# CIFAR-10.


def write_npz(folder: Path) -> None:
    for number in (1, 2):
        x = random_bytes(40, 32, 32, 3, seed=number)
        np.savez(folder / f"data_batch_{number}.npz", x=x, y=labels(40))
    np.savez_compressed(folder / "test_20.npz", x=random_bytes(20, 32, 32, 3), y=labels(20))
    (folder / "classes.json").write_text(json.dumps(NAMES))


def write_batches(folder: Path, *, protocol: int = 2) -> None:
    folder.mkdir(exist_ok=True)
    for name, count, seed in (
        ("data_batch_1", 40, 1),
        ("data_batch_2", 40, 2),
        ("test_batch", 20, 0),
    ):
        # Planes of colour one after the other, as the original has them.
        flat = random_bytes(count, 32, 32, 3, seed=seed).transpose(0, 3, 1, 2).reshape(count, -1)
        batch = {b"data": flat, b"labels": labels(count).tolist()}
        (folder / name).write_bytes(pickle.dumps(batch, protocol=protocol))
    meta = {b"label_names": [name.encode() for name in NAMES]}
    (folder / "batches.meta").write_bytes(pickle.dumps(meta, protocol=protocol))


@pytest.mark.parametrize(
    "write",
    [
        write_npz,
        write_batches,
        lambda folder: write_batches(folder, protocol=5),
        lambda folder: write_batches(folder / "cifar-10-batches-py"),
    ],
    ids=["npz", "batches", "batches of Python 3", "batches below"],
)
def test_every_layout_of_cifar10_gives_the_same(
    tmp_path: Path, write: Callable[[Path], None]
) -> None:
    write(tmp_path)
    found = load_cifar10(tmp_path)
    wanted = [random_bytes(40, 32, 32, 3, seed=seed) for seed in (1, 2)]
    check_pairs(found, np.concatenate(wanted), np.tile(labels(40), 2))
    assert (found.x_test.shape, found.classes) == ((20, 32, 32, 3), tuple(NAMES))


class Dangerous:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return (Path.touch, (self.path,))


def test_a_batch_cannot_run_code(tmp_path: Path) -> None:
    write_batches(tmp_path)
    marker = tmp_path / "ran"
    (tmp_path / "data_batch_1").write_bytes(pickle.dumps({b"data": Dangerous(marker)}))
    with pytest.raises(DataError, match=r"data_batch_1 asks for .*Nothing of it was run"):
        load_cifar10(tmp_path)
    assert not marker.exists()


PICTURES = random_bytes(40, 32, 32, 3)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"x": PICTURES, "y": labels(39)}, r"each of 40 images, found uint8 of shape \(39,"),
        ({"x": PICTURES, "labels": labels(40)}, "the arrays x and y, found x, labels"),
        ({"x": PICTURES / 255, "y": labels(40)}, "uint8 of shape .* found float64"),
        ({"x": PICTURES[:0], "y": labels(0)}, r"found uint8 of shape \(0, 32, 32, 3\)"),
        ({"x": PICTURES, "y": labels(40) / 2}, "a whole number for each"),
        ({"x": np.array([{}]), "y": labels(1)}, "not an npz file, or is damaged"),
        (b"not a pickle", "not a python batch of CIFAR-10, or is damaged"),
        (pickle.dumps([1]), "expected a dictionary with data and labels, found a list"),
        (pickle.dumps({"data": 1}), "expected a dictionary with data and labels, found data"),
        (pickle.dumps({"data": PICTURES, "labels": [1, 2]}), "expected rows of 3072 bytes"),
    ],
)
def test_batches_of_cifar10_say_what_is_wrong(tmp_path: Path, content: Any, message: str) -> None:
    if isinstance(content, bytes):
        write_batches(tmp_path)
        (tmp_path / "data_batch_2").write_bytes(content)
    else:
        write_npz(tmp_path)
        np.savez(tmp_path / "data_batch_2.npz", **content)
    with pytest.raises(DataError, match=f"(?s)data_batch_2.*{message}"):
        load_cifar10(tmp_path)


# Class folders.


def write_image(path: Path, number: int) -> None:
    """Write an image of one colour, which has no loss as a PNG."""
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (SIDE, 2 * SIDE), (number % 256, number // 256, 7)).save(path)


def write_classes(folder: Path, counts: Mapping[str, int], *, first: int = 0) -> int:
    """Write so many images of each class, numbered on from the first; return the next number."""
    for name, count in counts.items():
        (folder / name).mkdir(parents=True)
        for number in range(first, first + count):
            write_image(folder / name / f"{number:04}.png", number)
        first += count
    return first


def numbers(images: NDArray[np.uint8]) -> list[int]:
    """Say which images these are."""
    assert (images[..., 2] == 7).all()
    return [int(image[0, 0, 0]) + 256 * int(image[0, 0, 1]) for image in images]


def test_fruits_as_kaggle_has_them(tmp_path: Path) -> None:
    fruits = ("freshapples", "freshbanana", "rottenapples")
    after = write_classes(tmp_path / "dataset" / "dataset" / "train", dict.fromkeys(fruits, 8))
    write_classes(tmp_path / "dataset" / "dataset" / "test", dict.fromkeys(fruits, 2), first=after)
    found = load_fruits(tmp_path, size=SIDE)
    assert (found.x_train.shape, found.x_test.shape) == ((24, 32, 32, 3), (6, 32, 32, 3))
    assert found.classes == fruits
    assert [number // 8 for number in numbers(found.x_train)] == found.y_train.tolist()
    assert [(number - after) // 2 for number in numbers(found.x_test)] == found.y_test.tolist()
    part = load_fruits(tmp_path, samples=6, test_samples=3, size=SIDE)
    assert np.array_equal(part.x_train, found.x_train[:6])
    assert sorted(part.y_train) == [0, 0, 1, 1, 2, 2]
    assert data.describe_fruits(tmp_path).sides == (32, 48, 64)


def test_a_fifth_of_each_category_is_for_testing(tmp_path: Path) -> None:
    folder = tmp_path / "256_ObjectCategories"
    write_classes(folder, {"001.ak47": 98, "002.flag": 10, "003.bag": 2, "004.one": 1})
    # Caltech-256 has a folder and a nameless file among its images.
    write_image(folder / "002.flag" / "greg" / "a.png", 1)
    (folder / "003.bag" / "RENAME2").write_text("")
    (folder / ".git").mkdir()
    facts = data.describe_caltech(tmp_path)
    assert facts.class_counts == {
        "001.ak47": (78, 20),
        "002.flag": (8, 2),
        "003.bag": (1, 1),
        "004.one": (1, 0),
    }
    assert facts.source.endswith("; without an image to test on: 004.one")
    # Not the first ones: Caltech's files are in the order in which they were found.
    tested = [number for number in numbers(load_caltech(tmp_path, size=SIDE).x_test) if number < 98]
    assert sorted(tested) != list(range(20))
    # The same ones where other folders are added.
    write_classes(folder, {"005.more": 5}, first=200)
    more = [number for number in numbers(load_caltech(tmp_path, size=SIDE).x_test) if number < 98]
    assert sorted(more) == sorted(tested)


@pytest.mark.parametrize(
    ("folders", "message"),
    [
        ({}, r"is not a folder with fruit\. Expected: train/<class>/.* Found: an empty folder"),
        ({"train/a": 2, "train/b": 2}, r"is not a folder with fruit.* Found: train/"),
        ({"train/a": 3, "test/a": 3}, r"train: expected a folder for each of the classes"),
        ({"train/a": 1, "train/b": 0, "test/a": 1}, r"train/b: expected images .*an empty folder"),
        ({"a": 2, "b": 2, "c": 0}, r"c: expected images \(\.jpg"),
        (
            {"train/a": 1, "train/b": 1, "test/a": 1, "test/x": 1},
            r"the class x to test on, and none to learn it from.*: a, b",
        ),
    ],
)
def test_what_is_wrong_with_a_folder(tmp_path: Path, folders: dict[str, int], message: str) -> None:
    write_classes(tmp_path, folders)
    with pytest.raises(DataError, match=message):
        load_fruits(tmp_path)


# A drive.


def steering(index: int) -> float:
    return round(index / COUNT * 2 - 1, 3)


def write_drive(folder: Path, header: str, camera: str = "", *, headless: bool = False) -> None:
    """Write images whose brightness tells which they are, and the table of their steering."""
    log, lines = header == CAMERA, [] if headless else [header]
    (folder / "IMG").mkdir(parents=True)
    for index in range(COUNT):
        pixels = np.full((160, 320, 3), 255, np.uint8)
        # What lies above and below the road is white in the simulator's log.
        pixels[60 : 135 if log else 160] = index * 5
        pixels[: 0 if log else 60] = index * 5
        Image.fromarray(pixels).save(folder / "IMG" / f"{index}.jpg", quality=95)
        split = "val" if index % 3 == 0 else "train"
        values = {"file": f"IMG/{index}.jpg", "split": split, "center": f"{camera}{index}.jpg"}
        values |= {"steering": f" {steering(index)}"}
        lines.append(",".join(values.get(name, "0") for name in header.split(",")))
    name = "driving_log.csv" if log else "labels.csv"
    (folder / name).write_text("\n".join(lines) + "\n")


def seen(x: NDArray[np.uint8], y: NDArray[Any]) -> set[int]:
    """Find out which images these are, and that each has its own steering."""
    indices = [round(float(image.mean()) / 5) for image in x]
    assert y.tolist() == pytest.approx([steering(index) for index in indices])
    return set(indices)


@pytest.mark.parametrize("header", ["file,steering,split", "file,steering"])
def test_a_drive_with_labels(tmp_path: Path, header: str) -> None:
    write_drive(tmp_path, header)
    (tmp_path / "IMG" / "3.jpg").unlink()
    (tmp_path / "IMG" / "4.jpg").write_bytes(b"\xff\xd8\xff\xe0 no more")
    found = load_driving(tmp_path)
    assert (found.x_train.shape[1:], found.y_train.dtype) == ((66, 200, 3), np.float32)
    # Without a split, a hash of the name decides.
    by_name = [index for index in range(COUNT) if in_test(f"{index}.jpg")]
    test = set(range(0, COUNT, 3) if "split" in header else by_name) - {3, 4}
    assert seen(found.x_test, found.y_test) == test
    assert seen(found.x_train, found.y_train) == {*range(COUNT)} - test - {3, 4}
    facts = data.describe_driving(tmp_path)
    assert (facts.train + facts.test, facts.test) == (COUNT - 2, len(test))
    assert sorted(Path(text.partition(":")[0]).name for text in facts.skipped) == ["3.jpg", "4.jpg"]


@pytest.mark.parametrize(
    ("camera", "headless"), [("C:\\Users\\me\\sim\\IMG\\", False), ("/home/me/sim run/IMG/", True)]
)
def test_the_simulators_log(tmp_path: Path, camera: str, headless: bool) -> None:
    write_drive(tmp_path / "data", CAMERA, camera, headless=headless)
    found = load_driving(tmp_path)
    # The part with the road is taken: white would show if more were.
    both = seen(found.x_train, found.y_train) | seen(found.x_test, found.y_test)
    assert both == set(range(COUNT))


@pytest.mark.parametrize(
    ("load", "content", "message"),
    [
        (load_driving, "", "expected the columns file and steering, found nothing"),
        (load_driving, "file,angle\na.jpg,1\n", "expected the columns file and steering, found"),
        (load_driving, "file,steering\na.jpg\n", r"line 2: expected 2 columns, found 1"),
        (load_driving, "file,steering\na.jpg,left\n", r"line 2: the steering 'left' is not a numb"),
        (
            load_driving,
            "file,steering\na.jpg,0\nb.jpg,1.5\n",
            r"line 3: the steering '1\.5' is not",
        ),
        (
            load_driving,
            "file,steering,split\na.jpg,0,both\n",
            r"unknown split 'both'\. Choose from",
        ),
        (load_driving, "file,steering,split\na.jpg,0,train\n", "1 images for training and 0 for"),
        (load_driving, "file,steering\n", "0 images for training and 0 for testing"),
        (load_faces, "file,age_class\na.jpg,x\n", "line 2: the age_class 'x' is not a whole"),
        (load_faces, "file,age_class\na.jpg,9\n", "label 9 of image 0 is out of range"),
    ],
)
def test_tables_say_what_is_wrong(
    tmp_path: Path, load: Callable[..., Images], content: str, message: str
) -> None:
    (tmp_path / "labels.csv").write_text(content)
    with pytest.raises(DataError, match=rf"labels\.csv.*{message}"):
        load(tmp_path)


# Faces.


def matlab(year: int, month: int = 1, day: int = 1) -> int:
    """Days as MATLAB counts them: datenum(2000, 1, 1) is 730486."""
    return date(year, month, day).toordinal() - date(2000, 1, 1).toordinal() + 730_486


def write_list(path: Path, faces: list[tuple[int, float]], **other: Any) -> None:
    """Write a list of faces photographed in 2000: day of birth, score of the face."""
    born, scores = zip(*faces, strict=True)
    names = np.array([f"{n:02}/{n}_a b.jpg" for n in range(len(faces))], object)
    taken = [2000] * len(faces)
    table = {"dob": born, "photo_taken": taken, "full_path": names, "face_score": scores, **other}
    savemat(path, {path.stem: {name: value for name, value in table.items() if value is not None}})


def test_ages_are_those_of_the_first_of_july(tmp_path: Path) -> None:
    # A birthday on the day itself counts; one on the day after does not.
    days = [(1980, 7, 1), (1980, 7, 2), (1997, 12, 31), (1930, 1, 1)]
    good = [(matlab(*day), 1.0) for day in days] * 10
    unusable = [(matlab(2001), 1.0), (matlab(1870), 1.0), (0, 1.0), (matlab(1970), -np.inf)]
    path = tmp_path / "imdb.mat"
    write_list(path, good + unusable)
    found = LAYOUTS["faces"].find(tmp_path)
    assert isinstance(found, ImageFiles)
    groups = ("20-29", "10-19", "0-2", "70 and more") * 10
    assert found.labels.tolist() == [AGE_GROUPS.index(group) for group in groups]
    assert found.files[1] == tmp_path / "01/1_a b.jpg"
    assert found.is_test.tolist() == [in_test(f"{n:02}/{n}_a b.jpg") for n in range(40)]
    assert found.skipped == (
        f"{path}: 3 of 44 entries have no usable age (0 to 100); first 40/40_a b.jpg",
        f"{path}: 1 of 44 entries have no face that was found; first 43/43_a b.jpg",
    )


@pytest.mark.parametrize(
    ("faces", "other", "message"),
    [
        ([(matlab(1970), 1.0), (0, 1.0), (0, 1.0)], {}, "2 of 3 entries have no usable age"),
        ([(matlab(1970), 1.0)] * 9, {"dob": None}, "is not IMDB-WIKI's list, a MATLAB file"),
        ([(matlab(1970), 1.0)] * 9, {"photo_taken": [2000] * 8}, "with as many of each: dob"),
    ],
)
def test_lists_say_what_is_wrong(
    tmp_path: Path, faces: list[tuple[int, float]], other: Any, message: str
) -> None:
    (tmp_path / "wiki_crop").mkdir()
    write_list(tmp_path / "wiki_crop" / "wiki.mat", faces, **other)
    with pytest.raises(DataError, match=rf"wiki\.mat.*{message}"):
        load_faces(tmp_path)


# All of them.


@pytest.mark.parametrize(
    ("lab", "folder", "train", "test", "sample"),
    [
        ("mnist", "mnist", 60_000, 10_000, "28x28 grey"),
        ("cifar10", "cifar10", 10_000, 2_000, "32x32 RGB"),
        ("driving", "driving", 1_627, 400, "66x200 RGB"),
        ("fruits", "fruits", 1_200, 240, "128x128 RGB"),
        ("caltech", "caltech101", 1_200, 300, "128x128 RGB"),
        ("faces", "faces", 432, 108, "128x128 RGB"),
    ],
)
def test_the_data_sets_themselves(
    lab: str, folder: str, train: int, test: int, sample: str
) -> None:
    facts = getattr(data, f"describe_{lab}")(shared_data(folder))
    assert (facts.train, facts.test, facts.sample, facts.skipped) == (train, test, sample, ())


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
    with pytest.raises(DataError, match=rf"a folder with {expected}.* Found: a\.txt.* and 2 more"):
        load(tmp_path)
    with pytest.raises(DataError, match="it is a file"):
        load(tmp_path / "a.txt")
    with pytest.raises(DataError, match=r"there is nothing.*leave --data away"):
        load(tmp_path / "missing")
