"""Grouped operations: several tensors under one name, all of them or none.

All ranks agree on a group as one, so that nothing is exchanged of it if one tensor does not fit.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from farandole.engine.arguments import Average, check_op, reduction_of
from farandole.engine.context import current, engine_of
from farandole.engine.handle import Handle
from farandole.engine.handles import begin, run_now
from farandole.engine.process_sets import ProcessSet, global_process_set
from farandole.torch import differentiable
from farandole.torch.collectives import compress
from farandole.torch.operations import (
    allgather_operation,
    allreduce_operation,
    group,
    like,
    reducescatter_operation,
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
        run_now("grouped_allreduce", name, operation, engine=engine)
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
    return begin(
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
    return begin("grouped_reducescatter", name, operation, results, engine=engine)


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
    return begin("grouped_allreduce", name, operation, results, engine=engine)


def _nothing() -> int:
    """Return a handle to no tensors, which are there at once."""
    done = Handle()
    done.finish()
    return current().handles.add(done, list)
