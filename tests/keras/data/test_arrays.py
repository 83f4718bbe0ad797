"""Structures of arrays."""

from __future__ import annotations

import tracemalloc
from typing import Any

import numpy as np
import pytest
import torch

from farandole.errors import UsageError
from farandole.keras.data import common_length, is_arrays, taker_of, to_numpy

X, Y = np.arange(12.0).reshape(6, 2), np.arange(6)


@pytest.mark.parametrize(
    "data",
    [X, (X,), (X, Y), [X, Y], {"a": X}, ({"a": X, "b": Y}, Y), (X, None, Y), torch.ones(3, 2)],
)
def test_what_counts_as_arrays(data: Any) -> None:
    assert is_arrays(data)
    assert common_length(to_numpy(data)) == (3 if isinstance(data, torch.Tensor) else 6)


@pytest.mark.parametrize("data", [None, (), {}, [1, 2, 3], "text", (X, "y"), iter(X), (X, [1])])
def test_what_does_not(data: Any) -> None:
    assert not is_arrays(data)


def test_numpy_arrays_are_not_copied() -> None:
    converted = to_numpy({"a": X, "b": (Y, None)})
    assert converted["a"] is X
    assert converted["b"][0] is Y
    assert converted["b"][1] is None


def test_a_tensor_with_gradients_is_taken_as_values() -> None:
    tensor = torch.ones(3, requires_grad=True)
    assert np.array_equal(to_numpy(tensor), np.ones(3))


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ((X, Y[:5]), ["data[0] 6", "data[1] 5"]),
        (({"a": X[:3]}, Y), ["data[0]['a'] 3", "data[1] 6"]),
        ((X, np.float32(3.0)), ["data[1]", "first dimension"]),
        ((X, X, X, Y), ["4 arrays", "(x, y, sample_weight)", "((a, b), y)"]),
    ],
)
def test_what_cannot_be_used(data: Any, words: list[str]) -> None:
    with pytest.raises(UsageError) as error:
        common_length(to_numpy(data))
    assert all(word in str(error.value) for word in words), error.value


def test_samples_are_taken_out_of_all_arrays_alike() -> None:
    batch = taker_of(({"a": X, "b": Y}, None, Y))(np.array([4, 1]))
    assert batch[0]["a"].tolist() == [[8.0, 9.0], [2.0, 3.0]]
    assert batch[0]["b"].tolist() == batch[2].tolist() == [4, 1]
    assert batch[1] is None


@pytest.mark.parametrize(
    ("dtype", "expected"),
    [("float64", "float32"), ("float16", "float32"), ("float32", "float32"), ("int64", "int64")],
)
def test_floats_become_keras_floats_as_in_fit(dtype: str, expected: str) -> None:
    assert taker_of(X.astype(dtype))(np.array([0])).dtype == expected


@pytest.mark.parametrize(
    "array",
    [
        np.array(["a", "b"]),
        np.array([True, False]),
        np.array([b"x", None]),
        np.array([1, 2], ">i4"),
    ],
)
def test_other_types_stay_as_they_are(array: np.ndarray) -> None:
    batch = taker_of(array)(np.array([1]))
    assert batch.dtype == array.dtype
    assert batch[0] == array[1]


def test_arrays_that_are_not_straight_are_not_copied_for_each_batch() -> None:
    wide = np.zeros((3000, 2000), "float32").T
    wide[7] = 5.0
    take = taker_of(wide)
    tracemalloc.start()
    batch = take(np.array([7, 8]))
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert batch[:, 0].tolist() == [5.0, 0.0]
    assert most < wide.nbytes / 10


def test_a_file_on_disk_is_read_by_the_batch(tmp_path: Any) -> None:
    path = tmp_path / "x.npy"
    np.save(path, X.astype("float32"))
    mapped = np.load(path, mmap_mode="r")
    assert to_numpy(mapped) is mapped
    assert taker_of(mapped)(np.array([5])).tolist() == [[10.0, 11.0]]
