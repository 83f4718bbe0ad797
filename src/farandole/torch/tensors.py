"""Torch tensors as the engine sees them."""

from __future__ import annotations

import numpy as np
import torch

from farandole.errors import UsageError
from farandole.transport.protocol import Buffer

TYPE_NAMES = {
    torch.float16: "float16",
    torch.bfloat16: "bfloat16",
    torch.float32: "float32",
    torch.float64: "float64",
    torch.uint8: "uint8",
    torch.int8: "int8",
    torch.int16: "int16",
    torch.int32: "int32",
    torch.int64: "int64",
    torch.bool: "bool",
    torch.complex64: "complex64",
    torch.complex128: "complex128",
}
_TYPES = {name: dtype for dtype, name in TYPE_NAMES.items()}
_HALF = (torch.float16, torch.bfloat16)
_PLAIN_NAMES = {np.dtype(name): name for name in _TYPES if _TYPES[name] not in _HALF}


def buffer_of(tensor: torch.Tensor) -> Buffer:
    """Return a contiguous tensor's memory, without a copy.

    Raises:
        UsageError: a ValueError that says what about the tensor cannot be used.
    """
    try:
        # Torch answers for most tensors in one call, and refuses all that need a closer look.
        array = tensor.numpy()
        if array.flags.c_contiguous and (plain_name := _PLAIN_NAMES.get(array.dtype)):
            return Buffer(array.reshape(-1), plain_name)
    except (AttributeError, RuntimeError, TypeError):
        pass
    check(tensor)
    plain = tensor.detach()
    name = TYPE_NAMES[tensor.dtype]
    if tensor.is_cuda:
        return Buffer(plain.reshape(-1), name)
    if tensor.dtype in _HALF:
        return Buffer(plain.view(torch.int16).numpy().view(np.uint16).reshape(-1), name)
    return Buffer(plain.numpy().reshape(-1), name)


def view_of(array: object, dtype: str) -> torch.Tensor:
    """Return a bucket's memory as a flat tensor of the named type."""
    if isinstance(array, torch.Tensor):
        return array
    assert isinstance(array, np.ndarray)
    if _TYPES[dtype] in _HALF:
        return torch.from_numpy(array.view(np.int16)).view(_TYPES[dtype])
    return torch.from_numpy(array)


def device_of(buffer: Buffer) -> str:
    """Return the kind of memory a buffer lies in, as signatures have it."""
    return "cpu" if isinstance(buffer.data, np.ndarray) else str(buffer.data.device.type)


def check(tensor: torch.Tensor) -> None:
    """Raise UsageError if a tensor cannot be sent."""
    if not isinstance(tensor, torch.Tensor):
        raise UsageError(f"A torch.Tensor is required, not {type(tensor).__name__}.")
    if tensor.device.type not in ("cpu", "cuda"):
        raise UsageError(
            f"A tensor on device {str(tensor.device)!r} cannot be sent: only cpu and cuda can. "
            "Move it with .cpu() first."
        )
    if tensor.layout is not torch.strided:
        raise UsageError(
            f"A tensor of layout {tensor.layout} cannot be sent as it is. Use .to_dense() first."
        )
    if tensor.dtype not in TYPE_NAMES:
        raise UsageError(
            f"A tensor of type {tensor.dtype} cannot be sent. Types that can: "
            f"{', '.join(TYPE_NAMES.values())}."
        )
    if not tensor.is_contiguous():
        raise UsageError("Tensor is required to be contiguous. Call .contiguous() on it first.")
