"""NumPy's arrays and scalars. Importing this module imports NumPy."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.lib import format as npy_format

from farandole.wire.tags import MAX_EMPTY_ITEM_BYTES, Tag
from farandole.wire.writer import NotPlainError

if TYPE_CHECKING:
    from farandole.wire.reader import Reader
    from farandole.wire.writer import Writer

_MAX_FIELD_DEPTH = 20


def put_function(obj: Any) -> Callable[[Writer, Any], None] | None:
    """Return the function that writes `obj`, None if it is not one of NumPy's plain types."""
    kind = type(obj)
    if kind is np.ndarray:
        return _put_array
    # Through an array these two would lose the zero bytes at their end.
    if kind is np.str_:
        return _put_str
    if kind is np.bytes_:
        return _put_bytes
    if isinstance(obj, np.generic) and kind is obj.dtype.type:
        return _put_scalar
    return None


def _put_array(w: Writer, obj: np.ndarray[Any, Any]) -> None:
    if w.seen(obj):
        return
    w.tag(Tag.ARRAY)
    _put_dtype(w, obj.dtype)
    w.size(obj.ndim)
    for length in obj.shape:
        w.size(length)
    # reshape copies what is not contiguous; the view as bytes takes every dtype, dates too.
    flat = np.ascontiguousarray(obj).reshape(-1)
    w.blob(flat.view(np.uint8).data if flat.nbytes else b"")


def _put_scalar(w: Writer, obj: np.generic) -> None:
    w.tag(Tag.NUMPY_SCALAR)
    _put_dtype(w, obj.dtype)
    w.raw(obj.tobytes())


def _put_str(w: Writer, obj: np.str_) -> None:
    w.tag(Tag.NUMPY_STR)
    w.blob(obj.encode("utf-8", "surrogatepass"))  # str(obj) would drop zeros at the end


def _put_bytes(w: Writer, obj: np.bytes_) -> None:
    w.tag(Tag.NUMPY_BYTES)
    w.blob(bytes(obj))


def _put_dtype(w: Writer, dtype: np.dtype[Any]) -> None:
    refusal = f"is a NumPy array of {dtype}, which is not plain data"
    if dtype.hasobject or dtype.itemsize == 0:
        raise NotPlainError(refusal)
    # The description that .npy files carry; dtypes of other packages (ml_dtypes) do not survive
    # it, and are found out by the way back.
    description: Any = dtype.str if dtype.names is None else npy_format.dtype_to_descr(dtype)
    if not _is_description(description) or npy_format.descr_to_dtype(description) != dtype:
        raise NotPlainError(refusal)
    w.put(description)


def get_array(r: Reader) -> np.ndarray[Any, Any]:
    dtype = _get_dtype(r)
    shape = r.shape()
    data = r.blob()
    if math.prod(shape) * dtype.itemsize != len(data):
        raise r.damaged(f"an array of {dtype} and shape {shape} in {len(data)} bytes")
    if not data and dtype.itemsize > MAX_EMPTY_ITEM_BYTES:
        raise r.damaged(f"an empty array of items of {dtype.itemsize} bytes")
    values = np.empty(shape, dtype)
    if data:
        values.reshape(-1).view(np.uint8).data[:] = data
    return values


def get_scalar(r: Reader) -> Any:
    dtype = _get_dtype(r)
    data = r.raw(dtype.itemsize)
    return np.frombuffer(bytearray(data), dtype, count=1)[0]


def get_str(r: Reader) -> np.str_:
    return np.str_(r.text())


def get_bytes(r: Reader) -> np.bytes_:
    return np.bytes_(bytes(r.blob()))


def _get_dtype(r: Reader) -> np.dtype[Any]:
    description = r.get()
    if not _is_description(description):
        raise r.damaged("a dtype that nobody wrote")
    dtype = npy_format.descr_to_dtype(description)
    if dtype.hasobject or not dtype.itemsize:
        raise r.damaged(f"an array of {dtype}")
    return dtype


def _is_description(found: Any, depth: int = 0) -> bool:
    """Tell whether this is what a dtype writes: NumPy itself takes much more, and lists that hold
    themselves."""
    if type(found) is str:
        return "," not in found  # with commas it would be Python source to be parsed
    return (
        type(found) is list
        and depth < _MAX_FIELD_DEPTH
        and all(_is_field(field, depth) for field in found)
    )


def _is_field(found: Any, depth: int) -> bool:
    """Tell whether this is a name (or a title and a name), a type, and perhaps a shape."""
    if type(found) is not tuple or len(found) not in (2, 3):
        return False
    name, kind, *shape = found
    return (
        (type(name) is str or (type(name) is tuple and all(type(part) is str for part in name)))
        and _is_description(kind, depth + 1)
        and all(type(s) is tuple and all(type(n) is int for n in s) for s in shape)
    )
