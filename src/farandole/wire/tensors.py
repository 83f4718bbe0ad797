"""Tensors and the small types around them. Importing this module imports torch."""

from __future__ import annotations

import ctypes
import math
from typing import Any

from farandole.errors import MissingExtraError
from farandole.wire.plain import MAX_DIMS, Form, NotPlainError, Reader, Writer

try:
    import torch
except ImportError as exc:
    raise MissingExtraError(
        "A peer sent a tensor, but torch is not installed here. Install it with: "
        "pip install 'farandole[torch]'"
    ) from exc

_DTYPE_NAMES: dict[torch.dtype, str] = {
    dtype: str(dtype).removeprefix("torch.")
    for dtype in vars(torch).values()
    if isinstance(dtype, torch.dtype)
}
_DTYPES = {name: dtype for dtype, name in _DTYPE_NAMES.items()}

# A quantized tensor also has a scale and a zero point, which the plain format has no place for.
_QUANTIZED = frozenset(name for name in _DTYPES if name.startswith(("qint", "quint")))


def form_of(obj: Any) -> Form | None:
    """Return how `obj` travels, None if it is not of one of torch's plain types."""
    return _FORMS.get(type(obj))


def _write_tensor(w: Writer, obj: torch.Tensor) -> None:
    _check_plain(obj)
    w.text(_DTYPE_NAMES[obj.dtype])
    w.shape(obj.shape)
    values = obj.detach().resolve_conj().resolve_neg().cpu().contiguous()
    # By address: NumPy has no bfloat16, and its view would make the user's own tensor one that
    # cannot be resized any more.
    view = (
        (ctypes.c_ubyte * values.nbytes).from_address(values.data_ptr()) if values.nbytes else b""
    )
    w.blob(memoryview(view).cast("B"), owner=values)


def _write_parameter(w: Writer, obj: torch.nn.Parameter) -> None:
    w.put(obj.requires_grad)
    _write_tensor(w, obj.data)


def _check_plain(obj: torch.Tensor) -> None:
    reason = ""
    if obj.layout != torch.strided:
        reason = f"layout {obj.layout}"
    elif obj.is_meta:
        reason = "no data (device meta)"
    elif _DTYPE_NAMES[obj.dtype] in _QUANTIZED:
        reason = f"dtype {obj.dtype}"
    elif obj.dim() > MAX_DIMS:
        reason = f"{obj.dim()} dimensions"
    elif vars(obj):
        reason = f"attributes of its own ({', '.join(sorted(vars(obj)))})"
    if reason:
        raise NotPlainError(f"is a tensor with {reason}, which is not plain data")


def _read_tensor(r: Reader) -> torch.Tensor:
    dtype = _read_dtype(r)
    if _DTYPE_NAMES[dtype] in _QUANTIZED:
        raise r.damaged(f"a tensor of {dtype}")
    shape = r.shape()
    data = r.blob()
    if math.prod(shape) * dtype.itemsize != len(data):
        raise r.damaged(f"a tensor of {dtype} and shape {shape} in {len(data)} bytes")
    values = torch.empty(len(data), dtype=torch.uint8)
    if data:
        view = (ctypes.c_ubyte * len(data)).from_address(values.data_ptr())
        memoryview(view).cast("B")[:] = data
    return values.view(dtype).reshape(shape)


def _read_parameter(r: Reader) -> torch.nn.Parameter:
    requires_grad = r.get()
    if type(requires_grad) is not bool:
        raise r.damaged("a parameter whose requires_grad is not a bool")
    return torch.nn.Parameter(_read_tensor(r), requires_grad=requires_grad)


def _read_dtype(r: Reader) -> torch.dtype:
    name = r.text()
    dtype = _DTYPES.get(name)
    if dtype is None:
        raise r.damaged(f"torch {torch.__version__} on this rank has no dtype {name[:40]!r}")
    return dtype


_FORMS: dict[type, Form] = {
    torch.Tensor: Form(0x30, _write_tensor, _read_tensor, shared=True),
    torch.nn.Parameter: Form(0x31, _write_parameter, _read_parameter, shared=True),
    torch.Size: Form(
        0x32, Writer.shape, lambda r: torch.Size([r.size() for _ in range(r.count(1))])
    ),
    torch.dtype: Form(0x33, lambda w, obj: w.text(_DTYPE_NAMES[obj]), _read_dtype),
    torch.device: Form(0x34, lambda w, obj: w.text(str(obj)), lambda r: torch.device(r.text())),
}
FORMS = {form.tag: form for form in _FORMS.values()}
"""By tag."""
