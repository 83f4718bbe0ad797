"""Read CIFAR-10's python batches without running what a pickle may ask for.

A pickle can name any function and call it. Here it may name those that build NumPy arrays, and
nothing else.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy._core import multiarray, numeric

from farandole.errors import DataError


def read_batch(path: Path) -> dict[bytes, Any]:
    """Read one batch as a dictionary with keys in bytes.

    Raises:
        DataError: it is not a pickle of plain data, or asks for more than plain data need.
    """
    try:
        with path.open("rb") as file:
            found = _PlainUnpickler(file, encoding="bytes").load()
    except _RefusedError as refused:
        raise DataError(
            f"{path} asks for {refused} while it is read. A batch of CIFAR-10 needs NumPy arrays "
            "and plain values only, so this file is something else, or was tampered with. Nothing "
            "of it was run."
        ) from None
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}.") from None
    except Exception as error:
        # Damaged bytes make the unpickler fail in any way: KeyError, ValueError, MemoryError.
        raise DataError(
            f"{path} is not a python batch of CIFAR-10, or is damaged: {type(error).__name__}: "
            f"{error}. Get it again."
        ) from None
    if not isinstance(found, dict):
        raise DataError(
            f"{path}: expected a dictionary with data and labels, found a {type(found).__name__}."
        )
    # Python 3 writes the same batches with keys in text.
    return {key.encode() if isinstance(key, str) else key: value for key, value in found.items()}


class _RefusedError(Exception):
    """A pickle named something that plain data do not need."""


class _PlainUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        try:
            return _ADMITTED[module.replace("numpy.core.", "numpy._core."), name]
        except KeyError:
            raise _RefusedError(f"{module}.{name}") from None


def _latin1(text: str, encoding: str = "latin1") -> bytes:
    """Encode as old protocols do for bytes; other encodings have no place in a batch."""
    if encoding != "latin1":
        raise _RefusedError(f"the encoding {encoding!r}")
    return text.encode("latin1")


_ADMITTED: dict[tuple[str, str], Callable[..., Any] | type] = {
    ("numpy", "ndarray"): np.ndarray,
    ("numpy", "dtype"): np.dtype,
    ("numpy._core.multiarray", "_reconstruct"): multiarray._reconstruct,
    ("numpy._core.multiarray", "scalar"): multiarray.scalar,
    ("numpy._core.numeric", "_frombuffer"): numeric._frombuffer,  # type: ignore[attr-defined]
    ("_codecs", "encode"): _latin1,
}
