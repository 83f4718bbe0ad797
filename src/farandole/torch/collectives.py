"""Collective operations on torch tensors, with Horovod's names and meaning."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from farandole.engine import context
from farandole.engine.arguments import (
    Average,
    Sum,
    check_arithmetic,
    check_root,
    check_rows,
    reduction_of,
    scattered_rows,
    splits_of,
)
from farandole.engine.handles import begin, run_now
from farandole.engine.operations import (
    Allgather,
    Allreduce,
    Alltoall,
    Broadcast,
    Reducescatter,
)
from farandole.engine.signature import Signature
from farandole.errors import UsageError
from farandole.torch.remembered import Remembered
from farandole.torch.tensors import buffer_of, check, device_of
from farandole.transport.protocol import Buffer
from farandole.transport.reduction import Reduction


def allreduce(
    tensor: torch.Tensor,
    average: bool | None = None,
    name: str | None = None,
    compression: Any = None,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> torch.Tensor:
    """Combine a tensor over all ranks and return the result; the input stays as it is.

    Args:
        tensor: of the same shape and type on every rank.
        average: deprecated: True for Average, False for Sum.
        name: what ties the ranks' calls together; by default the order of unnamed calls does.
        compression: a class with `compress` and `decompress`, as Horovod has them.
        op: Average (default), Sum, Min, Max or Product.
        prescale_factor: multiplies every rank's values first.
        postscale_factor: multiplies the result.
    """
    sent, undo = _compress(tensor, compression)
    result = _like(sent)
    run_now(
        "allreduce", name, _allreduce(sent, result, average, op, prescale_factor, postscale_factor)
    )
    return undo(result)


def allreduce_async(
    tensor: torch.Tensor,
    average: bool | None = None,
    name: str | None = None,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> int:
    """Begin an allreduce into a new tensor; `synchronize` the handle to get it."""
    result = _like(tensor)
    operation = _allreduce(tensor, result, average, op, prescale_factor, postscale_factor)
    return begin("allreduce", name, operation, lambda: result)


def allreduce_(
    tensor: torch.Tensor,
    average: bool | None = None,
    name: str | None = None,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> torch.Tensor:
    """Combine a tensor over all ranks in place, and return it."""
    operation = _allreduce_in_place(tensor, average, op, prescale_factor, postscale_factor)
    run_now("allreduce", name, operation)
    return tensor


def allreduce_async_(
    tensor: torch.Tensor,
    average: bool | None = None,
    name: str | None = None,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> int:
    """Begin an allreduce in place; leave the tensor alone until it is synchronised."""
    operation = _allreduce_in_place(tensor, average, op, prescale_factor, postscale_factor)
    return begin("allreduce", name, operation, lambda: tensor)


def broadcast(tensor: torch.Tensor, root_rank: int, name: str | None = None) -> torch.Tensor:
    """Return the root's tensor on every rank; the input stays as it is."""
    result = _like(tensor)
    run_now("broadcast", name, _broadcast(tensor, result, root_rank))
    return result


def broadcast_async(tensor: torch.Tensor, root_rank: int, name: str | None = None) -> int:
    """Begin a broadcast into a new tensor."""
    result = _like(tensor)
    return begin("broadcast", name, _broadcast(tensor, result, root_rank), lambda: result)


def broadcast_(tensor: torch.Tensor, root_rank: int, name: str | None = None) -> torch.Tensor:
    """Overwrite a tensor with the root's, and return it."""
    run_now("broadcast", name, _broadcast(tensor, tensor, root_rank))
    return tensor


def broadcast_async_(tensor: torch.Tensor, root_rank: int, name: str | None = None) -> int:
    """Begin a broadcast in place."""
    return broadcast_kind_async_(tensor, root_rank, name, "other")


def broadcast_kind_async_(tensor: torch.Tensor, root_rank: int, name: str | None, kind: str) -> int:
    """Begin a broadcast in place of something that is recorded as bytes of this kind."""
    operation = _broadcast(tensor, tensor, root_rank)
    return begin("broadcast", name, operation, lambda: tensor, kind)


def allgather(tensor: torch.Tensor, name: str | None = None) -> torch.Tensor:
    """Return all ranks' tensors one behind the other; first dimensions may differ."""
    operation, result = allgather_operation(tensor)
    run_now("allgather", name, operation)
    return result()


def allgather_async(tensor: torch.Tensor, name: str | None = None) -> int:
    """Begin an allgather."""
    operation, result = allgather_operation(tensor)
    return begin("allgather", name, operation, result)


def reducescatter(
    tensor: torch.Tensor,
    name: str | None = None,
    compression: Any = None,
    op: int = Average,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> torch.Tensor:
    """Combine a tensor over all ranks and return this rank's share of its rows.

    If the rows do not divide evenly the first ranks get one more.
    """
    sent, undo = _compress(tensor, compression)
    operation, result = _reducescatter(sent, op, prescale_factor, postscale_factor)
    run_now("reducescatter", name, operation)
    return undo(result)


def reducescatter_async(
    tensor: torch.Tensor,
    name: str | None = None,
    op: int = Average,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> int:
    """Begin a reducescatter."""
    operation, result = _reducescatter(tensor, op, prescale_factor, postscale_factor)
    return begin("reducescatter", name, operation, lambda: result)


def alltoall(
    tensor: torch.Tensor,
    splits: torch.Tensor | Sequence[int] | None = None,
    name: str | None = None,
) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor]:
    """Send some rows of a tensor to every rank; return the rows received.

    Args:
        tensor: its rows go to rank 0 first, then to rank 1, and so on.
        splits: how many rows go to each rank (int32); by default equally many.
        name: what ties the ranks' calls together.

    Returns:
        The rows received; with `splits` also how many came from each rank.
    """
    operation, result = _alltoall(tensor, splits)
    run_now("alltoall", name, operation)
    output, received = result()
    return output if splits is None else (output, received)


def alltoall_async(
    tensor: torch.Tensor,
    splits: torch.Tensor | Sequence[int] | None = None,
    name: str | None = None,
) -> int:
    """Begin an alltoall; `synchronize` returns the rows and how many came from each rank."""
    operation, result = _alltoall(tensor, splits)
    return begin("alltoall", name, operation, result)


def barrier() -> None:
    """Wait until every rank is here."""
    # An all-reduce of one byte is one, and after the first time it takes no message.
    token = torch.zeros(1, dtype=torch.uint8)
    run_now("barrier", None, _allreduce(token, token, None, Sum, 1.0, 1.0), "control")


def allreduce_operation(source: torch.Tensor, target: torch.Tensor, how: Reduction) -> Allreduce:
    """Describe an all-reduce from one tensor into another, or in place."""
    buffer = buffer_of(source)
    check_arithmetic(buffer.dtype, how)
    signature = Signature(
        "allreduce",
        buffer.dtype,
        tuple(source.shape),
        how.op,
        how.prescale,
        how.postscale,
        -1,
        device_of(buffer),
    )
    return Allreduce(signature, buffer, buffer if source is target else buffer_of(target), how)


def allgather_operation(
    tensor: torch.Tensor,
) -> tuple[Allgather, Callable[[], torch.Tensor]]:
    """Describe an all-gather; the second value returns its result once it is done."""
    _check_rows(tensor, "allgather")
    made: list[torch.Tensor] = []

    def allocate(rows: Sequence[int]) -> Buffer:
        made.append(tensor.new_empty((sum(rows), *tensor.shape[1:])))
        return buffer_of(made[0])

    buffer = buffer_of(tensor)
    signature = Signature("allgather", buffer.dtype, tuple(tensor.shape), device=device_of(buffer))
    return Allgather(signature, buffer, allocate), lambda: made[0]


def _allreduce(
    source: torch.Tensor,
    target: torch.Tensor,
    average: bool | None,
    op: int | None,
    prescale: float,
    postscale: float,
) -> Allreduce:
    return allreduce_operation(source, target, reduction_of(average, op, prescale, postscale))


_remembered = Remembered()


def _allreduce_in_place(tensor: torch.Tensor, *arguments: Any) -> Allreduce:
    return _remembered.find(tensor, arguments) or _remembered.keep(
        tensor, arguments, _allreduce(tensor, tensor, *arguments)
    )


def _broadcast(source: torch.Tensor, target: torch.Tensor, root: int) -> Broadcast:
    check_root(root)
    buffer = buffer_of(source)
    signature = Signature(
        "broadcast", buffer.dtype, tuple(source.shape), root=root, device=device_of(buffer)
    )
    return Broadcast(signature, buffer, buffer if source is target else buffer_of(target))


def _reducescatter(
    tensor: torch.Tensor, op: int, prescale: float, postscale: float
) -> tuple[Reducescatter, torch.Tensor]:
    _check_rows(tensor, "reducescatter")
    how = reduction_of(None, op, prescale, postscale)
    rows = scattered_rows(tensor.shape[0])
    result = tensor.new_empty((rows[context.rank()], *tensor.shape[1:]))
    buffer = buffer_of(tensor)
    check_arithmetic(buffer.dtype, how)
    signature = Signature.reducing(
        "reducescatter", buffer.dtype, tuple(tensor.shape), how, device_of(buffer)
    )
    return Reducescatter(signature, buffer, buffer_of(result), rows, how), result


def _alltoall(
    tensor: torch.Tensor, splits: torch.Tensor | Sequence[int] | None
) -> tuple[Alltoall, Callable[[], tuple[torch.Tensor, torch.Tensor]]]:
    _check_rows(tensor, "alltoall")
    made: list[torch.Tensor] = []
    received: list[int] = []

    def allocate(rows: Sequence[int]) -> Buffer:
        received.extend(rows)
        made.append(tensor.new_empty((sum(rows), *tensor.shape[1:])))
        return buffer_of(made[0])

    buffer = buffer_of(tensor)
    signature = Signature("alltoall", buffer.dtype, tuple(tensor.shape), device=device_of(buffer))
    operation = Alltoall(signature, buffer, _splits(tensor.shape[0], splits), allocate)
    return operation, lambda: (made[0], torch.tensor(received, dtype=torch.int32))


def _splits(rows: int, splits: torch.Tensor | Sequence[int] | None) -> list[int]:
    if isinstance(splits, torch.Tensor):
        if splits.dtype != torch.int32:
            raise UsageError(f"splits must be int32, not {splits.dtype}.")
        splits = splits.tolist()
    return splits_of(rows, splits)


def _compress(
    tensor: torch.Tensor, compression: Any
) -> tuple[torch.Tensor, Callable[[torch.Tensor], torch.Tensor]]:
    if compression is None:
        return tensor, lambda result: result
    sent, ctx = compression.compress(tensor)
    return sent, lambda result: compression.decompress(result, ctx)


def _like(tensor: torch.Tensor) -> torch.Tensor:
    check(tensor)
    return torch.empty_like(tensor, requires_grad=False)


def _check_rows(tensor: torch.Tensor, kind: str) -> None:
    check(tensor)
    check_rows(tensor.shape, kind)
