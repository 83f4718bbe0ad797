"""Collective operations of torch tensors, described for the engine."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch

from farandole.engine.arguments import (
    check_arithmetic,
    check_root,
    check_rows,
    reduction_of,
    scattered_rows,
    splits_of,
)
from farandole.engine.engine import Engine
from farandole.engine.operations import (
    AdasumReduce,
    Allgather,
    Allreduce,
    Alltoall,
    Broadcast,
    Grouped,
    Operation,
    Reducescatter,
    reducing,
)
from farandole.engine.signature import Signature
from farandole.errors import UnfitError, UsageError
from farandole.transport.protocol import Buffer
from farandole.transport.reduction import Reduction

Splits = torch.Tensor | Sequence[int] | None


def like(tensor: torch.Tensor) -> torch.Tensor:
    """Return new memory for the result of an operation on a tensor."""
    check(tensor)
    return torch.empty_like(tensor, requires_grad=False)


def allreduce_operation(
    source: torch.Tensor, target: torch.Tensor, how: Reduction
) -> Allreduce | AdasumReduce:
    """Describe an all-reduce from one tensor into another, or in place."""
    buffer = buffer_of(source)
    check_arithmetic(buffer.dtype, how)
    result = buffer if source is target else buffer_of(target)
    return reducing(buffer.dtype, source.shape, buffer, result, how, device_of(buffer))


def broadcast_operation(
    source: torch.Tensor, target: torch.Tensor, root: int, engine: Engine
) -> Broadcast:
    """Describe a broadcast from one tensor into another, or in place."""
    place = check_root(root, engine)
    buffer = buffer_of(source)
    signature = Signature(
        "broadcast", buffer.dtype, tuple(source.shape), root=place, device=device_of(buffer)
    )
    return Broadcast(signature, buffer, buffer if source is target else buffer_of(target))


def allgather_operation(
    tensor: torch.Tensor, kind: str = "allgather"
) -> tuple[Allgather, Callable[[], torch.Tensor]]:
    """Describe an all-gather; the second value returns its result once it is done."""
    _check_rows(tensor, "allgather")
    made: list[torch.Tensor] = []

    def allocate(rows: Sequence[int]) -> Buffer:
        made.append(tensor.new_empty((sum(rows), *tensor.shape[1:])))
        return buffer_of(made[0])

    buffer = buffer_of(tensor)
    signature = Signature(kind, buffer.dtype, tuple(tensor.shape), device=device_of(buffer))
    return Allgather(signature, buffer, allocate), lambda: made[0]


def reducescatter_operation(
    tensor: torch.Tensor, op: int, prescale: float, postscale: float, engine: Engine
) -> tuple[Reducescatter, torch.Tensor]:
    """Describe a reduce-scatter; the second value is where its result will be."""
    _check_rows(tensor, "reducescatter")
    how = reduction_of(None, op, prescale, postscale)
    rows = scattered_rows(tensor.shape[0], engine)
    result = tensor.new_empty((rows[engine.rank], *tensor.shape[1:]))
    buffer = buffer_of(tensor)
    check_arithmetic(buffer.dtype, how)
    signature = Signature.reducing(
        "reducescatter", buffer.dtype, tuple(tensor.shape), how, device_of(buffer)
    )
    return Reducescatter(signature, buffer, buffer_of(result), rows, how), result


def alltoall_operation(
    tensor: torch.Tensor, splits: Splits, engine: Engine
) -> tuple[Alltoall, Callable[[], tuple[torch.Tensor, torch.Tensor]]]:
    """Describe an all-to-all; the second value returns rows, and how many came from each."""
    _check_rows(tensor, "alltoall")
    counts = _splits(tensor.shape[0], splits, engine)
    tensor = tensor[: sum(counts)]
    made: list[torch.Tensor] = []
    received: list[int] = []

    def allocate(rows: Sequence[int]) -> Buffer:
        received.extend(rows)
        made.append(tensor.new_empty((sum(rows), *tensor.shape[1:])))
        return buffer_of(made[0])

    buffer = buffer_of(tensor)
    signature = Signature("alltoall", buffer.dtype, tuple(tensor.shape), device=device_of(buffer))
    where = splits.device if isinstance(splits, torch.Tensor) else "cpu"
    return Alltoall(signature, buffer, counts, allocate), lambda: (
        made[0],
        torch.tensor(received, dtype=torch.int32, device=where),
    )


def group(kind: str, members: Sequence[Operation]) -> Grouped:
    """Describe several operations as one, named as Horovod names it, such as grouped_allreduce."""
    devices = sorted({member.signature.device for member in members})
    if len(devices) > 1:
        raise UnfitError(
            f"{kind} got tensors on {' and '.join(devices)}. Make a group of each kind."
        )
    return Grouped.of(kind.replace("_", " "), members)


def barrier_operation() -> Allreduce:
    """Describe a barrier."""
    # An all-reduce of one byte is one, and after the first time it takes no message.
    token = buffer_of(torch.zeros(1, dtype=torch.uint8))
    how = Reduction()
    return Allreduce(Signature.reducing("barrier", "uint8", (1,), how), token, token, how)


def _splits(rows: int, splits: Splits, engine: Engine) -> list[int]:
    if isinstance(splits, torch.Tensor):
        if splits.dtype != torch.int32:
            raise UsageError(f"splits must be int32, not {splits.dtype}.")
        splits = splits.tolist()
    return splits_of(rows, splits, engine)


def _check_rows(tensor: torch.Tensor, kind: str) -> None:
    check(tensor)
    check_rows(tensor.shape, kind)


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
