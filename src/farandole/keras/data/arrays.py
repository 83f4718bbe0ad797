"""Structures of arrays, as Keras takes them: how long they are, and taking samples out of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import keras
import numpy as np

from farandole.errors import UsageError
from farandole.keras.data.batches import Taker
from farandole.keras.data.split import Indices

_Array = np.ndarray[Any, Any]


def is_arrays(data: Any) -> bool:
    """Say whether this is an array, or tuples, lists and dicts of arrays."""
    if isinstance(data, dict):
        return bool(data) and all(map(is_arrays, data.values()))
    if isinstance(data, tuple | list):
        members = [member for member in data if member is not None]
        return bool(members) and all(map(is_arrays, members))
    # Sparse matrices and ragged tensors have no plain array inside.
    return hasattr(data, "__array__") and hasattr(data, "shape")


def to_numpy(data: Any) -> Any:
    """Return the same structure with NumPy arrays in it; copies nothing that is one already."""
    if isinstance(data, dict):
        return {name: to_numpy(member) for name, member in data.items()}
    if isinstance(data, tuple | list):
        # Keras reads a list of arrays in a dataset as the tuple (x, y).
        return tuple(map(to_numpy, data))
    if data is None or isinstance(data, np.ndarray):
        return data
    if hasattr(data, "detach"):
        data = data.detach().cpu()
    return np.asarray(data)


def common_length(data: Any) -> int:
    """Return the number of samples of all arrays of a structure.

    Raises:
        UsageError: it differs between them, or the structure is not one that Keras can use.
    """
    if isinstance(data, tuple) and len(data) > 3:
        raise UsageError(
            f"A tuple of {len(data)} arrays was given; Keras knows (x,), (x, y) and "
            "(x, y, sample_weight). Put several inputs into a tuple or dict of their own: "
            "((a, b), y)."
        )
    arrays = dict(_named(data, ""))
    scalars = [name for name, array in arrays.items() if not array.ndim]
    if scalars:
        raise UsageError(
            f"data{scalars[0]} is a single value; arrays need a first dimension of samples."
        )
    lengths = {name: len(array) for name, array in arrays.items()}
    if len(set(lengths.values())) > 1:
        each = ", ".join(f"data{name} {length}" for name, length in lengths.items())
        raise UsageError(
            f"The arrays have different numbers of samples: {each}. Give each sample one row in "
            "every array."
        )
    return next(iter(lengths.values()))


def taker_of(data: Any) -> Taker:
    """Return a function that takes chosen samples out of all arrays of a structure."""
    if data is None:
        return lambda chosen: None
    if isinstance(data, dict):
        named = {name: taker_of(member) for name, member in data.items()}
        return lambda chosen: {name: take(chosen) for name, take in named.items()}
    if isinstance(data, tuple):
        takers = tuple(map(taker_of, data))
        return lambda chosen: tuple([take(chosen) for take in takers])
    wanted = _batch_type(data)
    # The faster way, but it would first make a straight copy of all that is not in C's order.
    straight = data.flags.c_contiguous and data.flags.aligned

    def take(chosen: Indices) -> _Array:
        batch: _Array = data.take(chosen, axis=0) if straight else data[chosen]
        return batch if wanted is None else batch.astype(wanted)

    return take


def _batch_type(array: _Array) -> str | None:
    """Return what a batch is to be cast to: floats become Keras's float type, as in `fit(x, y)`."""
    floatx: str = keras.config.floatx()
    # By name: bfloat16 is no float for NumPy, and texts are no types for Keras.
    is_float = array.dtype.name.startswith(("float", "bfloat"))
    return floatx if is_float and array.dtype.name != floatx else None


def _named(data: Any, name: str) -> Iterator[tuple[str, _Array]]:
    if isinstance(data, dict):
        for key, member in data.items():
            yield from _named(member, f"{name}[{key!r}]")
    elif isinstance(data, tuple):
        for place, member in enumerate(data):
            yield from _named(member, f"{name}[{place}]")
    elif data is not None:
        yield name, data
