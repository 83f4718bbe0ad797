"""Tensors and the small types around them. Importing this module imports torch."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from farandole.errors import MissingExtraError
from farandole.wire.tags import MAX_DIMS, Tag
from farandole.wire.writer import NotPlainError

try:
    import torch
except ImportError as exc:
    raise MissingExtraError(
        "A peer sent a tensor, but torch is not installed here. Install it with: "
        "pip install 'farandole[torch]'"
    ) from exc

if TYPE_CHECKING:
    from farandole.wire.reader import Reader
    from farandole.wire.writer import Writer

_DTYPE_NAMES: dict[torch.dtype, str] = {
    dtype: str(dtype).removeprefix("torch.")
    for dtype in vars(torch).values()
    if isinstance(dtype, torch.dtype)
}
_DTYPES = {name: dtype for dtype, name in _DTYPE_NAMES.items()}

# A quantized tensor also has a scale and a zero point, which the plain format has no place for.
_QUANTIZED = frozenset(name for name in _DTYPES if name.startswith(("qint", "quint")))


def put_function(obj: Any) -> Callable[[Writer, Any], None] | None:
    """Return the function that writes `obj`, None if it is not one of torch's plain types."""
    return _PUT.get(type(obj))


def _put_tensor(w: Writer, obj: torch.Tensor) -> None:
    if w.seen(obj):
        return
    w.tag(Tag.TENSOR)
    _put_values(w, obj)


def _put_parameter(w: Writer, obj: torch.nn.Parameter) -> None:
    if w.seen(obj):
        return
    w.tag(Tag.PARAMETER)
    w.put(obj.requires_grad)
    _put_values(w, obj.data)


def _put_values(w: Writer, obj: torch.Tensor) -> None:
    _check_plain(obj)
    w.text(_DTYPE_NAMES[obj.dtype])
    w.size(obj.dim())
    for length in obj.shape:
        w.size(length)
    values = obj.detach().resolve_conj().resolve_neg().cpu().contiguous()
    # By address: NumPy has no bfloat16, and its view would make the user's own tensor one that
    # cannot be resized any more.
    view = (
        (ctypes.c_ubyte * values.nbytes).from_address(values.data_ptr()) if values.nbytes else b""
    )
    w.blob(memoryview(view).cast("B"), owner=values)


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


def _put_size(w: Writer, obj: torch.Size) -> None:
    w.tag(Tag.TORCH_SIZE)
    w.size(len(obj))
    for length in obj:
        w.size(length)


def _put_dtype(w: Writer, obj: torch.dtype) -> None:
    w.tag(Tag.TORCH_DTYPE)
    w.text(_DTYPE_NAMES[obj])


def _put_device(w: Writer, obj: torch.device) -> None:
    w.tag(Tag.TORCH_DEVICE)
    w.text(str(obj))


_PUT: dict[type, Callable[[Any, Any], None]] = {
    torch.Tensor: _put_tensor,
    torch.nn.Parameter: _put_parameter,
    torch.Size: _put_size,
    torch.dtype: _put_dtype,
    torch.device: _put_device,
}


def get_tensor(r: Reader) -> torch.Tensor:
    dtype = get_dtype(r)
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


def get_parameter(r: Reader) -> torch.nn.Parameter:
    requires_grad = r.get()
    if type(requires_grad) is not bool:
        raise r.damaged("a parameter whose requires_grad is not a bool")
    return torch.nn.Parameter(get_tensor(r), requires_grad=requires_grad)


def get_size(r: Reader) -> torch.Size:
    return torch.Size([r.size() for _ in range(r.count(1))])


def get_dtype(r: Reader) -> torch.dtype:
    name = r.text()
    dtype = _DTYPES.get(name)
    if dtype is None:
        raise r.damaged(f"torch {torch.__version__} on this rank has no dtype {name[:40]!r}")
    return dtype


def get_device(r: Reader) -> torch.device:
    return torch.device(r.text())
