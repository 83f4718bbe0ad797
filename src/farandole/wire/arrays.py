"""NumPy's arrays and scalars. Importing this module imports NumPy."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.lib import format as npy_format

from farandole.wire.plain import Form, NotPlainError, Reader, Writer

# An array without elements still lets NumPy allocate one item, whose size a few bytes can name.
_MAX_EMPTY_ITEM_BYTES = 1 << 20
_MAX_FIELD_DEPTH = 20


def form_of(obj: Any) -> Form | None:
    """Return how `obj` travels, None if it is not of one of NumPy's plain types."""
    kind = type(obj)
    if isinstance(obj, np.generic) and kind not in _FORMS:
        return _SCALAR if kind is obj.dtype.type else None
    return _FORMS.get(kind)


def _write_array(w: Writer, obj: np.ndarray[Any, Any]) -> None:
    _write_dtype(w, obj.dtype)
    w.shape(obj.shape)
    # reshape copies what is not contiguous; the view as bytes takes every dtype, dates too.
    flat = np.ascontiguousarray(obj).reshape(-1)
    w.blob(flat.view(np.uint8).data if flat.nbytes else b"")


def _write_scalar(w: Writer, obj: np.generic) -> None:
    _write_dtype(w, obj.dtype)
    w.raw(obj.tobytes())


def _write_dtype(w: Writer, dtype: np.dtype[Any]) -> None:
    refusal = f"is a NumPy array of {dtype}, which is not plain data"
    if dtype.hasobject or dtype.itemsize == 0:
        raise NotPlainError(refusal)
    # The description that .npy files carry; dtypes of other packages (ml_dtypes) do not survive
    # it, and are found out by the way back.
    description: Any = dtype.str if dtype.names is None else npy_format.dtype_to_descr(dtype)
    if not _is_description(description) or npy_format.descr_to_dtype(description) != dtype:
        raise NotPlainError(refusal)
    w.put(description)


def _read_array(r: Reader) -> np.ndarray[Any, Any]:
    dtype = _read_dtype(r)
    shape = r.shape()
    data = r.blob()
    if math.prod(shape) * dtype.itemsize != len(data):
        raise r.damaged(f"an array of {dtype} and shape {shape} in {len(data)} bytes")
    if not data and dtype.itemsize > _MAX_EMPTY_ITEM_BYTES:
        raise r.damaged(f"an empty array of items of {dtype.itemsize} bytes")
    values = np.empty(shape, dtype)
    if data:
        values.reshape(-1).view(np.uint8).data[:] = data
    return values


def _read_scalar(r: Reader) -> Any:
    dtype = _read_dtype(r)
    data = r.raw(dtype.itemsize)
    return np.frombuffer(bytearray(data), dtype, count=1)[0]


def _read_dtype(r: Reader) -> np.dtype[Any]:
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


_SCALAR = Form(0x41, _write_scalar, _read_scalar)
_FORMS: dict[type, Form] = {
    np.ndarray: Form(0x40, _write_array, _read_array, shared=True),
    # Through an array these two would lose the zero bytes at their end, as str(obj) would.
    np.str_: Form(
        0x42,
        lambda w, obj: w.blob(obj.encode("utf-8", "surrogatepass")),
        lambda r: np.str_(r.text()),
    ),
    np.bytes_: Form(0x43, lambda w, obj: w.blob(bytes(obj)), lambda r: np.bytes_(bytes(r.blob()))),
}
FORMS = {form.tag: form for form in (_SCALAR, *_FORMS.values())}
"""By tag."""
