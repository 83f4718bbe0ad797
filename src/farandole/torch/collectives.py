"""Collective operations on torch tensors, with Horovod's names and meaning."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import torch

from farandole.engine import context
from farandole.engine.operations import (
    Allgather,
    Allreduce,
    Alltoall,
    Broadcast,
    Operation,
    Reducescatter,
)
from farandole.engine.signature import Signature
from farandole.errors import UsageError
from farandole.recorder.recorder import current
from farandole.torch.handles import table
from farandole.torch.remembered import Remembered
from farandole.torch.tensors import buffer_of, check, device_of
from farandole.transport.protocol import Buffer
from farandole.transport.reduction import STORAGE, Reduction

# Horovod's numbers; programs store and compare them.
Average, Sum, Adasum, Min, Max, Product = range(6)
_SPECIAL = frozenset({"bool", "complex64", "complex128"})
"""Types on which not every reduction can be done."""
_OPS = {Average: "average", Sum: "sum", Min: "min", Max: "max", Product: "product"}


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
    _blocking(
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
    return _async("allreduce", name, operation, lambda: result)


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
    _blocking("allreduce", name, operation)
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
    return _async("allreduce", name, operation, lambda: tensor)


def broadcast(tensor: torch.Tensor, root_rank: int, name: str | None = None) -> torch.Tensor:
    """Return the root's tensor on every rank; the input stays as it is."""
    result = _like(tensor)
    _blocking("broadcast", name, _broadcast(tensor, result, root_rank))
    return result


def broadcast_async(tensor: torch.Tensor, root_rank: int, name: str | None = None) -> int:
    """Begin a broadcast into a new tensor."""
    result = _like(tensor)
    return _async("broadcast", name, _broadcast(tensor, result, root_rank), lambda: result)


def broadcast_(tensor: torch.Tensor, root_rank: int, name: str | None = None) -> torch.Tensor:
    """Overwrite a tensor with the root's, and return it."""
    _blocking("broadcast", name, _broadcast(tensor, tensor, root_rank))
    return tensor


def broadcast_async_(tensor: torch.Tensor, root_rank: int, name: str | None = None) -> int:
    """Begin a broadcast in place."""
    return broadcast_kind_async_(tensor, root_rank, name, "other")


def broadcast_kind_async_(tensor: torch.Tensor, root_rank: int, name: str | None, kind: str) -> int:
    """Begin a broadcast in place of something that is recorded as bytes of this kind."""
    operation = _broadcast(tensor, tensor, root_rank)
    return _async("broadcast", name, operation, lambda: tensor, kind)


def allgather(tensor: torch.Tensor, name: str | None = None) -> torch.Tensor:
    """Return all ranks' tensors one behind the other; first dimensions may differ."""
    operation, result = allgather_operation(tensor)
    _blocking("allgather", name, operation)
    return result()


def allgather_async(tensor: torch.Tensor, name: str | None = None) -> int:
    """Begin an allgather."""
    operation, result = allgather_operation(tensor)
    return _async("allgather", name, operation, result)


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
    _blocking("reducescatter", name, operation)
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
    return _async("reducescatter", name, operation, lambda: result)


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
    _blocking("alltoall", name, operation)
    output, received = result()
    return output if splits is None else (output, received)


def alltoall_async(
    tensor: torch.Tensor,
    splits: torch.Tensor | Sequence[int] | None = None,
    name: str | None = None,
) -> int:
    """Begin an alltoall; `synchronize` returns the rows and how many came from each rank."""
    operation, result = _alltoall(tensor, splits)
    return _async("alltoall", name, operation, result)


def barrier() -> None:
    """Wait until every rank is here."""
    # An all-reduce of one byte is one, and after the first time it takes no message.
    token = torch.zeros(1, dtype=torch.uint8)
    _blocking("barrier", None, _allreduce(token, token, None, Sum, 1.0, 1.0), "control")


@lru_cache(maxsize=256)
def reduction_of(
    average: bool | None, op: int | None, prescale: float = 1.0, postscale: float = 1.0
) -> Reduction:
    """Return the reduction that Horovod's arguments ask for."""
    if average is not None:
        if op is not None:
            raise UsageError("Give either average= (deprecated) or op=, not both.")
        op = Average if average else Sum
    op = Average if op is None else op
    if op not in _OPS:
        raise UsageError(
            f"op={op!r} is not a reduction here. Use hvd.Average, Sum, Min, Max or Product."
        )
    return Reduction(op=_OPS[op], prescale=float(prescale), postscale=float(postscale))


def check_root(root: int) -> None:
    """Raise UsageError unless `root` is a rank."""
    size = context.size()
    if not 0 <= root < size:
        raise UsageError(f"root_rank={root} is not a rank: there are {size}, from 0 to {size - 1}.")


def allreduce_operation(source: torch.Tensor, target: torch.Tensor, how: Reduction) -> Allreduce:
    """Describe an all-reduce from one tensor into another, or in place."""
    buffer = buffer_of(source)
    if buffer.dtype in _SPECIAL:
        _check_arithmetic(buffer, how)
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
    size, rank = context.size(), context.rank()
    each, more = divmod(tensor.shape[0], size)
    rows = [each + (r < more) for r in range(size)]
    result = tensor.new_empty((rows[rank], *tensor.shape[1:]))
    buffer = buffer_of(tensor)
    if buffer.dtype in _SPECIAL:
        _check_arithmetic(buffer, how)
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
    size = context.size()
    if splits is None:
        if rows % size:
            raise UsageError(
                f"alltoall of {rows} rows does not divide over {size} ranks. Give splits=."
            )
        return [rows // size] * size
    if isinstance(splits, torch.Tensor):
        if splits.dtype != torch.int32:
            raise UsageError(f"splits must be int32, not {splits.dtype}.")
        splits = splits.tolist()
    counts = [int(count) for count in splits]
    if len(counts) != size or sum(counts) != rows or min(counts) < 0:
        raise UsageError(
            f"splits={counts} does not fit: {size} numbers from 0 that add up to {rows} rows."
        )
    return counts


def _blocking(kind: str, name: str | None, operation: Operation, payload: str = "other") -> None:
    full, unnamed = table.name(kind, name)
    _record(operation, payload)
    try:
        context.current().engine.run(full, operation)
    finally:
        table.free(unnamed)


def _async(
    kind: str,
    name: str | None,
    operation: Operation,
    result: Callable[[], Any],
    payload: str = "other",
) -> int:
    full, unnamed = table.name(kind, name)
    _record(operation, payload)
    try:
        handle = context.current().engine.submit(full, operation)
    except Exception:
        table.free(unnamed)
        raise
    return table.add(handle, result, unnamed)


def _record(operation: Operation, payload: str) -> None:
    recorder = current()
    if recorder is not None:
        signature = operation.signature
        recorder.sent(payload, math.prod(signature.shape) * STORAGE[signature.dtype].itemsize)


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
    if tensor.dim() == 0:
        raise UsageError(f"{kind} needs a tensor with at least one dimension; this has none.")


def _check_arithmetic(buffer: Buffer, how: Reduction) -> None:
    if buffer.dtype == "bool" and (
        how.op == "average" or (how.prescale, how.postscale) != (1.0, 1.0)
    ):
        raise UsageError("A bool tensor cannot be averaged or scaled. Convert it first.")
    if buffer.dtype.startswith("complex") and how.op in ("min", "max"):
        raise UsageError("Complex numbers have no order: op Min and Max cannot be used on them.")
