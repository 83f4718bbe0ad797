"""Collective operations on torch tensors, with Horovod's names and meaning."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import Any

import torch

from farandole.engine.arguments import Average, check_op, reduction_of
from farandole.engine.context import current, engine_of
from farandole.engine.handle import Handle
from farandole.engine.operations import AdasumReduce, Allreduce
from farandole.engine.process_sets import ProcessSet, global_process_set
from farandole.torch import differentiable
from farandole.torch.operations import (
    Splits,
    allgather_operation,
    allreduce_operation,
    alltoall_operation,
    barrier_operation,
    broadcast_operation,
    buffer_of,
    group,
    like,
    reducescatter_operation,
)
from farandole.transport.shm.eager import LARGEST_BYTES


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
    current().handles.run("allreduce", name, operation, engine=engine)
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
    return current().handles.begin(
        "allreduce", name, operation, result, engine=engine_of(process_set)
    )


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
    current().handles.run("allreduce", name, operation, engine=engine_of(process_set))
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
    return current().handles.begin(
        "allreduce", name, operation, tensor, engine=engine_of(process_set)
    )


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
    return current().handles.begin("broadcast", name, operation, result, engine=engine)


def broadcast_(
    tensor: torch.Tensor,
    root_rank: int,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> torch.Tensor:
    """Overwrite a tensor with the root's, and return it."""
    engine = engine_of(process_set)
    operation = broadcast_operation(tensor, tensor, root_rank, engine)
    current().handles.run("broadcast", name, operation, engine=engine)
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
    return current().handles.begin("broadcast", name, operation, tensor, kind, engine)


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
    return current().handles.begin("allgather", name, operation, result, engine=engine)


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
    return current().handles.begin("reducescatter", name, operation, result, engine=engine)


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
    return current().handles.begin("alltoall", name, operation, result, engine=engine)


def barrier(process_set: ProcessSet = global_process_set) -> None:
    """Wait until every rank is here."""
    current().handles.run("barrier", None, barrier_operation(), "control", engine_of(process_set))


def poll(handle: int) -> bool:
    """Say whether an asynchronous operation is done, so that `synchronize` would not wait."""
    return current().handles.poll(handle)


def synchronize(handle: int) -> Any:
    """Wait for an asynchronous operation and return its result.

    Args:
        handle: what an `..._async` function returned.

    Returns:
        The operation's output; None for a handle that is not known any more.

    Raises:
        CollectiveError: the operation failed, on every rank alike.
    """
    return current().handles.synchronize(handle)


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


def _allreduce_in_place(
    tensor: torch.Tensor, arguments: tuple[Any, Any, float, float]
) -> Allreduce | AdasumReduce:
    return _operations.find(tensor, arguments) or _operations.keep(
        tensor, arguments, _allreduce(tensor, tensor, *arguments)
    )


Tensors = Sequence[torch.Tensor]


def grouped_allreduce(
    tensors: Tensors,
    average: bool | None = None,
    name: str | None = None,
    compression: Any = None,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> list[torch.Tensor]:
    """Combine tensors over all ranks and return the results; see `allreduce` for the arguments.

    Gradients flow back through it. Types and shapes may differ from tensor to tensor.
    """
    pairs = [compress(tensor, compression) for tensor in tensors]
    how = (check_op(average, op), prescale_factor, postscale_factor)
    sent = [each for each, _ in pairs]
    results = differentiable.allreduce_all(sent, name, how, engine_of(process_set))
    return [undo(result) for (_, undo), result in zip(pairs, results, strict=True)]


def grouped_allreduce_async(
    tensors: Tensors,
    average: bool | None = None,
    name: str | None = None,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> int:
    """Begin a grouped allreduce into new tensors; `synchronize` the handle to get their list."""
    results = [like(tensor) for tensor in tensors]
    how = (check_op(average, op), prescale_factor, postscale_factor)
    return _begin_allreduce(tensors, results, name, how, process_set)


def grouped_allreduce_(
    tensors: Tensors,
    average: bool | None = None,
    name: str | None = None,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> list[torch.Tensor]:
    """Combine tensors over all ranks in place, and return them."""
    how = reduction_of(average, op, prescale_factor, postscale_factor)
    engine = engine_of(process_set)
    members = [allreduce_operation(tensor, tensor, how) for tensor in tensors]
    if members:
        operation = group("grouped_allreduce", members)
        current().handles.run("grouped_allreduce", name, operation, engine=engine)
    return list(tensors)


def grouped_allreduce_async_(
    tensors: Tensors,
    average: bool | None = None,
    name: str | None = None,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> int:
    """Begin a grouped allreduce in place; leave the tensors alone until it is synchronised."""
    how = (check_op(average, op), prescale_factor, postscale_factor)
    return _begin_allreduce(tensors, list(tensors), name, how, process_set)


def grouped_allgather(
    tensors: Tensors, name: str | None = None, process_set: ProcessSet = global_process_set
) -> list[torch.Tensor]:
    """Return for each tensor all ranks' ones behind each other; first dimensions may differ."""
    return differentiable.allgather_all(tensors, name, engine_of(process_set))


def grouped_allgather_async(
    tensors: Tensors, name: str | None = None, process_set: ProcessSet = global_process_set
) -> int:
    """Begin a grouped allgather."""
    engine = engine_of(process_set)
    found = [allgather_operation(tensor) for tensor in tensors]
    if not found:
        return _nothing()
    operation = group("grouped_allgather", [each for each, _ in found])
    results = [result for _, result in found]
    return current().handles.begin(
        "grouped_allgather",
        name,
        operation,
        lambda: [result() for result in results],
        engine=engine,
    )


def grouped_reducescatter(
    tensors: Tensors,
    name: str | None = None,
    compression: Any = None,
    op: int = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> list[torch.Tensor]:
    """Combine tensors over all ranks and return this rank's share of the rows of each."""
    pairs = [compress(tensor, compression) for tensor in tensors]
    how, sent = (op, prescale_factor, postscale_factor), [each for each, _ in pairs]
    results = differentiable.reducescatter_all(sent, name, how, engine_of(process_set))
    return [undo(result) for (_, undo), result in zip(pairs, results, strict=True)]


def grouped_reducescatter_async(
    tensors: Tensors,
    name: str | None = None,
    op: int = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> int:
    """Begin a grouped reducescatter."""
    engine = engine_of(process_set)
    found = [
        reducescatter_operation(tensor, op, prescale_factor, postscale_factor, engine)
        for tensor in tensors
    ]
    if not found:
        return _nothing()
    operation = group("grouped_reducescatter", [each for each, _ in found])
    results = [result for _, result in found]
    return current().handles.begin("grouped_reducescatter", name, operation, results, engine=engine)


def _begin_allreduce(
    tensors: Tensors,
    results: list[torch.Tensor],
    name: str | None,
    how: differentiable.Scaled,
    process_set: ProcessSet,
) -> int:
    engine, reduction = engine_of(process_set), reduction_of(None, *how)
    members = [
        allreduce_operation(tensor, result, reduction)
        for tensor, result in zip(tensors, results, strict=True)
    ]
    if not members:
        return _nothing()
    operation = group("grouped_allreduce", members)
    return current().handles.begin("grouped_allreduce", name, operation, results, engine=engine)


def _nothing() -> int:
    """Return a handle to no tensors, which are there at once."""
    done = Handle()
    done.finish()
    return current().handles.add(done, list)


_MOST = 1024
"""Each keeps some kilobytes; a program that loops over more tensors than this gains little."""

_Entry = tuple[weakref.ref[torch.Tensor], int, torch.Size, tuple[Any, ...], Allreduce]
"""A tensor with its memory and shape, the arguments, and what was made for them."""


class OperationCache:
    """In-place all-reduces by tensor; an entry goes with its tensor."""

    def __init__(self) -> None:
        self._entries: dict[int, _Entry] = {}

    def find(self, tensor: torch.Tensor, arguments: tuple[Any, ...]) -> Allreduce | None:
        """Return what was made for this tensor and these arguments, if it still fits.

        A tensor can be given other memory or another shape in place (`x.data = y`, `resize_`,
        `t_`); its type and its device it keeps for life.
        """
        entry = self._entries.get(id(tensor))
        if entry is None:
            return None
        made_for, at, shape, made_with, operation = entry
        if (
            made_for() is tensor
            and at == tensor.data_ptr()
            and shape == tensor.shape
            and made_with == arguments
            and tensor.is_contiguous()
        ):
            return operation
        return None

    def keep(
        self, tensor: torch.Tensor, arguments: tuple[Any, ...], operation: Allreduce | AdasumReduce
    ) -> Allreduce | AdasumReduce:
        """Remember an operation for the next time if it is small; return it."""
        if isinstance(operation, AdasumReduce):
            return operation
        small = 0 < operation.source.nbytes <= LARGEST_BYTES and not tensor.is_cuda
        if small and (len(self._entries) < _MOST or id(tensor) in self._entries):
            key = id(tensor)
            # An array of the tensor itself would keep it alive, and the entry with it.
            buffer = buffer_of(tensor.detach())
            operation = Allreduce(operation.signature, buffer, buffer, operation.how)
            forget = weakref.ref(tensor, lambda _: self._entries.pop(key, None))
            at, shape = tensor.data_ptr(), tensor.shape
            self._entries[key] = (forget, at, shape, arguments, operation)
        return operation


_operations = OperationCache()
