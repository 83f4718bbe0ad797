"""Collective operations on torch tensors, with Horovod's names and meaning."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from farandole.engine.adasum import AdasumReduce
from farandole.engine.arguments import Average, check_op, reduction_of
from farandole.engine.context import engine_of
from farandole.engine.handles import begin, run_now
from farandole.engine.operations import Allreduce
from farandole.engine.process_sets import ProcessSet, global_process_set
from farandole.torch import differentiable
from farandole.torch.operations import (
    Splits,
    allgather_operation,
    allreduce_operation,
    alltoall_operation,
    barrier_operation,
    broadcast_operation,
    like,
    reducescatter_operation,
)
from farandole.torch.remembered import Remembered


def allreduce(
    tensor: torch.Tensor,
    average: bool | None = None,
    name: str | None = None,
    compression: Any = None,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> torch.Tensor:
    """Combine a tensor over all ranks and return the result; the input stays as it is.

    Gradients flow back through it.

    Args:
        tensor: of the same shape and type on every rank.
        average: deprecated: True for Average, False for Sum.
        name: what ties the ranks' calls together; by default the order of unnamed calls does.
        compression: a class with `compress` and `decompress`, as Horovod has them.
        op: Average (default), Sum, Adasum, Min, Max or Product.
        prescale_factor: multiplies every rank's values first.
        postscale_factor: multiplies the result.
        process_set: the ranks that take part.
    """
    sent, undo = compress(tensor, compression)
    engine = engine_of(process_set)
    if torch.is_grad_enabled() and isinstance(sent, torch.Tensor) and sent.requires_grad:
        how = (check_op(average, op), prescale_factor, postscale_factor)
        return undo(differentiable.allreduce(sent, name, how, engine))
    result = like(sent)
    operation = _allreduce(sent, result, average, op, prescale_factor, postscale_factor)
    run_now("allreduce", name, operation, engine=engine)
    return undo(result)


def allreduce_async(
    tensor: torch.Tensor,
    average: bool | None = None,
    name: str | None = None,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> int:
    """Begin an allreduce into a new tensor; `synchronize` the handle to get it."""
    result = like(tensor)
    operation = _allreduce(tensor, result, average, op, prescale_factor, postscale_factor)
    return begin("allreduce", name, operation, result, engine=engine_of(process_set))


def allreduce_(
    tensor: torch.Tensor,
    average: bool | None = None,
    name: str | None = None,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> torch.Tensor:
    """Combine a tensor over all ranks in place, and return it."""
    operation = _allreduce_in_place(tensor, (average, op, prescale_factor, postscale_factor))
    run_now("allreduce", name, operation, engine=engine_of(process_set))
    return tensor


def allreduce_async_(
    tensor: torch.Tensor,
    average: bool | None = None,
    name: str | None = None,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> int:
    """Begin an allreduce in place; leave the tensor alone until it is synchronised."""
    operation = _allreduce_in_place(tensor, (average, op, prescale_factor, postscale_factor))
    return begin("allreduce", name, operation, tensor, engine=engine_of(process_set))


def broadcast(
    tensor: torch.Tensor,
    root_rank: int,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> torch.Tensor:
    """Return the root's tensor on every rank; the input stays as it is.

    Args:
        tensor: of the same shape and type on every rank.
        root_rank: whose values count, by its rank among all workers.
        name: what ties the ranks' calls together.
        process_set: the ranks that take part.
    """
    return differentiable.broadcast(tensor, root_rank, name, engine_of(process_set))


def broadcast_async(
    tensor: torch.Tensor,
    root_rank: int,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> int:
    """Begin a broadcast into a new tensor."""
    result, engine = like(tensor), engine_of(process_set)
    operation = broadcast_operation(tensor, result, root_rank, engine)
    return begin("broadcast", name, operation, result, engine=engine)


def broadcast_(
    tensor: torch.Tensor,
    root_rank: int,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> torch.Tensor:
    """Overwrite a tensor with the root's, and return it."""
    engine = engine_of(process_set)
    operation = broadcast_operation(tensor, tensor, root_rank, engine)
    run_now("broadcast", name, operation, engine=engine)
    return tensor


def broadcast_async_(
    tensor: torch.Tensor,
    root_rank: int,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> int:
    """Begin a broadcast in place."""
    return broadcast_kind_async_(tensor, root_rank, name, "other", process_set)


def broadcast_kind_async_(
    tensor: torch.Tensor,
    root_rank: int,
    name: str | None,
    kind: str,
    process_set: ProcessSet = global_process_set,
) -> int:
    """Begin a broadcast in place of something that is recorded as bytes of this kind."""
    engine = engine_of(process_set)
    operation = broadcast_operation(tensor, tensor, root_rank, engine)
    return begin("broadcast", name, operation, tensor, kind, engine)


def allgather(
    tensor: torch.Tensor,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> torch.Tensor:
    """Return all ranks' tensors one behind the other; first dimensions may differ."""
    return differentiable.allgather(tensor, name, engine_of(process_set))


def allgather_async(
    tensor: torch.Tensor,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> int:
    """Begin an allgather."""
    engine = engine_of(process_set)
    operation, result = allgather_operation(tensor)
    return begin("allgather", name, operation, result, engine=engine)


def reducescatter(
    tensor: torch.Tensor,
    name: str | None = None,
    compression: Any = None,
    op: int = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> torch.Tensor:
    """Combine a tensor over all ranks and return this rank's share of its rows.

    If the rows do not divide evenly the first ranks get one more.
    """
    sent, undo = compress(tensor, compression)
    how, engine = (op, prescale_factor, postscale_factor), engine_of(process_set)
    (result,) = differentiable.reducescatter_all([sent], name, how, engine, "reducescatter")
    return undo(result)


def reducescatter_async(
    tensor: torch.Tensor,
    name: str | None = None,
    op: int = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> int:
    """Begin a reducescatter."""
    engine = engine_of(process_set)
    operation, result = reducescatter_operation(
        tensor, op, prescale_factor, postscale_factor, engine
    )
    return begin("reducescatter", name, operation, result, engine=engine)


def alltoall(
    tensor: torch.Tensor,
    splits: Splits = None,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor]:
    """Send some rows of a tensor to every rank; return the rows received.

    Args:
        tensor: its rows go to the first rank first, then to the second, and so on.
        splits: how many rows go to each rank (int32); by default equally many.
        name: what ties the ranks' calls together.
        process_set: the ranks that take part.

    Returns:
        The rows received; with `splits` also how many came from each rank.
    """
    output, received = differentiable.alltoall(tensor, splits, name, engine_of(process_set))
    return output if splits is None else (output, received)


def alltoall_async(
    tensor: torch.Tensor,
    splits: Splits = None,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> int:
    """Begin an alltoall; `synchronize` returns the rows and how many came from each rank."""
    engine = engine_of(process_set)
    operation, result = alltoall_operation(tensor, splits, engine)
    return begin("alltoall", name, operation, result, engine=engine)


def barrier(process_set: ProcessSet = global_process_set) -> None:
    """Wait until every rank is here."""
    run_now("barrier", None, barrier_operation(), "control", engine_of(process_set))


def compress(
    tensor: torch.Tensor, compression: Any
) -> tuple[torch.Tensor, Callable[[torch.Tensor], torch.Tensor]]:
    """Return what is sent of a tensor, and what turns a result into its old precision."""
    if compression is None:
        return tensor, lambda result: result
    sent, ctx = compression.compress(tensor)
    return sent, lambda result: compression.decompress(result, ctx)


def _allreduce(
    source: torch.Tensor,
    target: torch.Tensor,
    average: bool | None,
    op: int | None,
    prescale: float,
    postscale: float,
) -> Allreduce | AdasumReduce:
    return allreduce_operation(source, target, reduction_of(average, op, prescale, postscale))


_remembered = Remembered()


def _allreduce_in_place(
    tensor: torch.Tensor, arguments: tuple[Any, Any, float, float]
) -> Allreduce | AdasumReduce:
    return _remembered.find(tensor, arguments) or _remembered.keep(
        tensor, arguments, _allreduce(tensor, tensor, *arguments)
    )
