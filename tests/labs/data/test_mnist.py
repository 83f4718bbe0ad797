"""MNIST's files in all places where they lie, and what is wrong with those that are not whole."""

from __future__ import annotations

import gzip
import struct
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from farandole.errors import DataError, MissingExtraError, UsageError
from farandole.labs.data import describe_mnist, load_mnist
from tests.labs.shared_data import shared_data

TRAIN, TEST = 60, 20


def idx(array: NDArray[np.uint8]) -> bytes:
    head = bytes((0, 0, 8, array.ndim)) + struct.pack(f">{array.ndim}I", *array.shape)
    return head + array.tobytes()


def images(count: int) -> NDArray[np.uint8]:
    return np.random.default_rng(count).integers(256, size=(count, 28, 28), dtype=np.uint8)


def labels(count: int) -> NDArray[np.uint8]:
    return (np.arange(count) % 10).astype(np.uint8)


def contents() -> dict[str, bytes]:
    return {
        "train-images-idx3-ubyte": idx(images(TRAIN)),
        "train-labels-idx1-ubyte": idx(labels(TRAIN)),
        "t10k-images-idx3-ubyte": idx(images(TEST)),
        "t10k-labels-idx1-ubyte": idx(labels(TEST)),
    }


def write(folder: Path, files: dict[str, bytes], *, compressed: bool = False) -> Path:
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
    write(tmp_path / below, contents(), compressed=compressed)
    data = load_mnist(tmp_path)
    assert data.x_train.shape == (TRAIN, 28, 28, 1)
    assert (data.x_train.dtype, data.y_train.dtype) == (np.uint8, np.int64)
    # The order is another one; the pairs are the same.
    pixels = {
        image.tobytes(): label for image, label in zip(images(TRAIN), labels(TRAIN), strict=True)
    }
    assert [pixels.pop(image.tobytes()) for image in data.x_train] == data.y_train.tolist()
    assert pixels == {}
    assert data.classes == tuple("0123456789")


def test_a_subset_is_a_balanced_beginning_and_always_the_same(tmp_path: Path) -> None:
    write(tmp_path, contents())
    whole = load_mnist(tmp_path)
    part = load_mnist(tmp_path, samples=20, test_samples=10)
    assert np.array_equal(part.x_train, whole.x_train[:20])
    assert np.array_equal(part.y_test, whole.y_test[:10])
    assert np.bincount(part.y_train).tolist() == [2] * 10
    assert np.bincount(part.y_test).tolist() == [1] * 10


def test_what_the_data_are(tmp_path: Path) -> None:
    facts = describe_mnist(write(tmp_path, contents()))
    assert (facts.train, facts.test, facts.sample) == (TRAIN, TEST, "28x28 grey")
    assert facts.source == "MNIST from the given folder"


def damage(name: str, change: Callable[[bytes], bytes]) -> dict[str, bytes]:
    files = contents()
    files[name] = change(files[name])
    return files


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("train-images-idx3-ubyte", lambda content: content[:-1], "cut short.*47,040.*47,039"),
        ("train-images-idx3-ubyte", lambda content: content + b"x", "too long"),
        ("t10k-labels-idx1-ubyte", lambda content: content[:6], "begins with 8 bytes.*after 6"),
        ("t10k-labels-idx1-ubyte", lambda _: b"PK\x03\x04....", "expected an idx.*50 4b 03 04"),
        ("train-labels-idx1-ubyte", lambda _: idx(labels(59)), "60 images, but .* 59 labels"),
        (
            "train-labels-idx1-ubyte",
            lambda content: content[:-3] + b"\x0b" + content[-2:],
            r"label 11 of image 57 is out of range.*0 to 9\. 1 of 60",
        ),
        (
            "t10k-images-idx3-ubyte",
            lambda _: idx(np.zeros((TEST, 8, 9), np.uint8)),
            "images of 28x28, found 8x9",
        ),
    ],
)
def test_damaged_files_say_what_is_wrong(
    tmp_path: Path, name: str, change: Callable[[bytes], bytes], message: str
) -> None:
    write(tmp_path, damage(name, change))
    with pytest.raises(DataError, match=f"(?s){message}"):
        load_mnist(tmp_path)


def test_a_compressed_file_that_was_not_finished(tmp_path: Path) -> None:
    write(tmp_path, contents(), compressed=True)
    path = tmp_path / "train-images-idx3-ubyte.gz"
    path.write_bytes(path.read_bytes()[:1000])
    with pytest.raises(DataError, match=r"train-images-idx3-ubyte\.gz is cut short or damaged"):
        load_mnist(tmp_path)


def test_a_folder_of_another_kind_lists_what_it_holds(tmp_path: Path) -> None:
    for name in "abcdefgh":
        (tmp_path / f"{name}.txt").touch()
    with pytest.raises(DataError, match=r"Expected: train-images.*Found: a\.txt, .* and 2 more"):
        load_mnist(tmp_path)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    files = contents()
    del files["t10k-labels-idx1-ubyte"]
    write(tmp_path, files)
    with pytest.raises(DataError, match="t10k-labels-idx1-ubyte is missing"):
        load_mnist(tmp_path)


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"nowhere.*there is nothing.*leave --data away"):
        load_mnist(tmp_path / "nowhere")
    (tmp_path / "file").touch()
    with pytest.raises(DataError, match="it is a file"):
        load_mnist(tmp_path / "file")


def test_more_samples_than_there_are(tmp_path: Path) -> None:
    write(tmp_path, contents())
    with pytest.raises(UsageError, match=r"61 training samples.*there are 60.*--samples 60"):
        load_mnist(tmp_path, samples=61)
    with pytest.raises(UsageError, match="-1 test samples"):
        load_mnist(tmp_path, test_samples=-1)


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


def test_mnist_itself() -> None:
    facts = describe_mnist(shared_data("mnist"))
    assert (facts.train, facts.test, facts.sample) == (60_000, 10_000, "28x28 grey")
