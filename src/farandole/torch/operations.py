"""Collective operations of torch tensors, described for the engine."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from farandole.engine.adasum import AdasumReduce
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
from farandole.torch.tensors import buffer_of, check, device_of
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
