"""CIFAR-10 from npz files and python batches, and patterns in its place."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from farandole.errors import DataError, UsageError
from farandole.labs.data import describe_cifar10, load_cifar10
from tests.labs.shared_data import shared_data

NAMES = [f"class {number}" for number in range(10)]


def images(count: int, seed: int = 0) -> NDArray[np.uint8]:
    random = np.random.default_rng((count, seed))
    return random.integers(256, size=(count, 32, 32, 3), dtype=np.uint8)


def labels(count: int) -> NDArray[np.uint8]:
    return (np.arange(count) % 10).astype(np.uint8)


def write_npz(folder: Path) -> Path:
    np.savez(folder / "data_batch_1.npz", x=images(40, 1), y=labels(40))
    np.savez(folder / "data_batch_2.npz", x=images(40, 2), y=labels(40))
    np.savez_compressed(folder / "test_20.npz", x=images(20), y=labels(20))
    (folder / "classes.json").write_text(json.dumps(NAMES))
    return folder


def write_batch(path: Path, x: NDArray[np.uint8], y: Any, *, protocol: int = 2) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    # Planes of colour one after the other, as the original has them.
    batch = {b"data": x.transpose(0, 3, 1, 2).reshape(len(x), -1), b"labels": y}
    path.write_bytes(pickle.dumps(batch, protocol=protocol))


def write_python(folder: Path, *, protocol: int = 2) -> Path:
    write_batch(folder / "data_batch_1", images(40, 1), labels(40).tolist(), protocol=protocol)
    write_batch(folder / "data_batch_2", images(40, 2), labels(40).tolist(), protocol=protocol)
    write_batch(folder / "test_batch", images(20), labels(20).tolist(), protocol=protocol)
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
    wanted = np.concatenate([images(40, 1), images(40, 2)])
    label_of = dict(zip((image.tobytes() for image in wanted), np.tile(labels(40), 2), strict=True))
    assert [label_of.pop(image.tobytes()) for image in data.x_train] == data.y_train.tolist()
    assert data.x_test.shape == (20, 32, 32, 3)
    assert data.classes == tuple(NAMES)
    assert data.source == "CIFAR-10 from the given folder"


def test_a_subset_is_a_balanced_beginning(tmp_path: Path) -> None:
    write_npz(tmp_path)
    whole, part = load_cifar10(tmp_path), load_cifar10(tmp_path, samples=30, test_samples=10)
    assert np.array_equal(part.x_train, whole.x_train[:30])
    counts = np.bincount(part.y_train, minlength=10)
    # 8 of each class fall on 80 places, one into each eighth: 30 hold 3 or 4 of them.
    assert set(counts.tolist()) <= {3, 4, 2}
    assert np.bincount(part.y_test).tolist() == [1] * 10


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


def spoil_npz(folder: Path, **arrays: Any) -> None:
    np.savez(folder / "data_batch_2.npz", **arrays)


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"x": images(40), "y": labels(39)}, "40 images, but .*39 labels"),
        ({"x": images(40), "labels": labels(40)}, "the arrays x and y, found x, labels"),
        ({"x": images(40) / 255, "y": labels(40)}, "uint8 of shape .* found float64"),
        ({"x": images(40)[:, :28], "y": labels(40)}, r"found uint8 of shape \(40, 28, 32, 3\)"),
        ({"x": images(40), "y": labels(40) + 3}, "label 10 of image 7 is out of range.*0 to 9"),
        ({"x": images(40), "y": labels(40) / 2}, "one whole number per image"),
        ({"x": images(0), "y": labels(0)}, "holds no image"),
        ({"x": np.array([{}]), "y": labels(1)}, "not an npz file, or is damaged"),
    ],
)
def test_npz_files_say_what_is_wrong(tmp_path: Path, arrays: Any, message: str) -> None:
    write_npz(tmp_path)
    spoil_npz(tmp_path, **arrays)
    with pytest.raises(DataError, match=rf"(?s)data_batch_2\.npz.*{message}"):
        load_cifar10(tmp_path)


def test_a_damaged_npz_file(tmp_path: Path) -> None:
    write_npz(tmp_path)
    path = tmp_path / "data_batch_2.npz"
    path.write_bytes(path.read_bytes()[:5000])
    with pytest.raises(DataError, match=r"data_batch_2\.npz is not an npz file, or is damaged"):
        load_cifar10(tmp_path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"not a pickle", "not a python batch of CIFAR-10, or is damaged"),
        (pickle.dumps([1]), "expected a dictionary with data and labels, found a list"),
        (pickle.dumps({"data": 1}), "expected a dictionary with data and labels, found data"),
        (pickle.dumps({"data": images(2), "labels": [1, 2]}), "expected rows of 3072 bytes"),
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


def test_cifar10_itself() -> None:
    facts = describe_cifar10(shared_data("cifar10"))
    assert (facts.train, facts.test, facts.sample) == (10_000, 2_000, "32x32 RGB")
