"""Collective operations that gradients flow back through.

Where Horovod's way back is an average over ranks and not their sum (all-gather, broadcast) it is so
here: its users' losses are averages, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from farandole.engine.arguments import Average, Max, Min, Product, Sum, reduction_of
from farandole.engine.engine import Engine
from farandole.engine.handles import run_now
from farandole.engine.operations import Operation
from farandole.torch import operations as described
from farandole.torch.operations import Splits

Scaled = tuple[int | None, float, float]
"""A reduction: operation, factor before it, factor after it."""


def allreduce(tensor: torch.Tensor, name: str | None, how: Scaled, engine: Engine) -> torch.Tensor:
    """Combine a tensor over the ranks of an engine."""
    (result,) = allreduce_all([tensor], name, how, engine, "allreduce")
    return result


def allreduce_all(
    tensors: Sequence[torch.Tensor],
    name: str | None,
    how: Scaled,
    engine: Engine,
    kind: str = "grouped_allreduce",
) -> list[torch.Tensor]:
    """Combine tensors over the ranks of an engine: all of them, or none."""
    if not _wanted(tensors):
        return _allreduce_all(tensors, name, how, engine, kind)
    return list(_Allreduce.apply(name, how, engine, kind, *tensors))  # type: ignore[no-untyped-call]


def allgather(tensor: torch.Tensor, name: str | None, engine: Engine) -> torch.Tensor:
    """Return the tensors of an engine's ranks one behind the other."""
    (result,) = allgather_all([tensor], name, engine, "allgather")
    return result


def allgather_all(
    tensors: Sequence[torch.Tensor],
    name: str | None,
    engine: Engine,
    kind: str = "grouped_allgather",
) -> list[torch.Tensor]:
    """Gather tensors over the ranks of an engine: all of them, or none."""
    if not _wanted(tensors):
        return _allgather_all(tensors, name, engine, kind)[0]
    return list(_Allgather.apply(name, engine, kind, *tensors))  # type: ignore[no-untyped-call]


def broadcast(tensor: torch.Tensor, root: int, name: str | None, engine: Engine) -> torch.Tensor:
    """Return the root's tensor."""
    if not _wanted([tensor]):
        return _broadcast(tensor, root, name, engine)
    result: torch.Tensor = _Broadcast.apply(tensor, root, name, engine)  # type: ignore[no-untyped-call]
    return result


def reducescatter_all(
    tensors: Sequence[torch.Tensor],
    name: str | None,
    how: Scaled,
    engine: Engine,
    kind: str = "grouped_reducescatter",
) -> list[torch.Tensor]:
    """Combine tensors and return this rank's share of their rows: of all of them, or none."""
    if not _wanted(tensors):
        return _reducescatter_all(tensors, name, how, engine, kind)
    return list(_Reducescatter.apply(name, how, engine, kind, *tensors))  # type: ignore[no-untyped-call]


def alltoall(
    tensor: torch.Tensor, splits: Splits, name: str | None, engine: Engine
) -> tuple[torch.Tensor, torch.Tensor]:
    """Send rows to every rank; return those received, and how many came from each."""
    if not _wanted([tensor]):
        return _alltoall(tensor, splits, name, engine)
    found: tuple[torch.Tensor, torch.Tensor] = _Alltoall.apply(  # type: ignore[no-untyped-call]
        tensor, splits, name, engine
    )
    return found


def _wanted(tensors: Sequence[torch.Tensor]) -> bool:
    return torch.is_grad_enabled() and any(
        isinstance(tensor, torch.Tensor) and tensor.requires_grad for tensor in tensors
    )


def _back(name: str | None) -> str | None:
    """Return the name of the way back of an operation."""
    return None if name is None else f"{name}.gradient"


class _Allreduce(torch.autograd.Function):
    """Sums and averages go back the way they came."""

    @staticmethod
    def forward(
        ctx: Any,
        name: str | None,
        how: Scaled,
        engine: Engine,
        kind: str,
        *tensors: torch.Tensor,
    ) -> tuple[torch.Tensor, ...]:
        ctx.name, ctx.how, ctx.engine, ctx.kind = name, how, engine, kind
        if how[0] in (Min, Max, Product):
            ctx.save_for_backward(*tensors)
        return tuple(_allreduce_all(tensors, name, how, engine, kind))

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[Any, ...]:
        name, how, engine = _back(ctx.name), ctx.how, ctx.engine
        wanted = [gradient.contiguous() for gradient in gradients]
        if how[0] not in (Min, Max, Product):
            found = allreduce_all(wanted, name, how, engine, ctx.kind)
        else:
            totals = allreduce_all(wanted, name, (Sum, 1.0, 1.0), engine, ctx.kind)
            mine = [tensor.detach()[None].contiguous() for tensor in ctx.saved_tensors]
            everyone = allgather_all(mine, name, engine)
            found = [
                _selective_gradient(how, each, total)[engine.rank]
                for each, total in zip(everyone, totals, strict=True)
            ]
        return (None, None, None, None, *found)


def _selective_gradient(
    how: Scaled, everyone: torch.Tensor, gradient: torch.Tensor
) -> torch.Tensor:
    """Return the gradients of all ranks' tensors, as torch has them for one that holds all."""
    op, before, after = how
    with torch.enable_grad():
        inputs = everyone.requires_grad_()
        scaled = inputs * before
        combined = {Min: torch.amin, Max: torch.amax}.get(op or 0, torch.prod)(scaled, 0)
        (found,) = torch.autograd.grad(combined * after, inputs, gradient)
    return found


class _Allgather(torch.autograd.Function):
    """To each rank the average of what all found for its rows."""

    @staticmethod
    def forward(
        ctx: Any, name: str | None, engine: Engine, kind: str, *tensors: torch.Tensor
    ) -> tuple[torch.Tensor, ...]:
        ctx.name, ctx.engine, ctx.kind = name, engine, kind
        results, starts = _allgather_all(tensors, name, engine, kind)
        ctx.mine = [(start, len(tensor)) for start, tensor in zip(starts, tensors, strict=True)]
        return tuple(results)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[Any, ...]:
        name, engine = _back(ctx.name), ctx.engine
        wanted = [gradient.contiguous() for gradient in gradients]
        kind = ctx.kind.replace("allgather", "allreduce")
        averages = allreduce_all(wanted, name, (Average, 1.0, 1.0), engine, kind)
        found = [
            average.narrow(0, start, count)
            for average, (start, count) in zip(averages, ctx.mine, strict=True)
        ]
        return (None, None, None, *found)


class _Broadcast(torch.autograd.Function):
    """To the root the average of what all found, to the others nothing."""

    @staticmethod
    def forward(
        ctx: Any, tensor: torch.Tensor, root: int, name: str | None, engine: Engine
    ) -> torch.Tensor:
        ctx.root, ctx.name, ctx.engine = root, name, engine
        return _broadcast(tensor, root, name, engine)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[Any, ...]:
        engine = ctx.engine
        how = (Average, 1.0, 1.0)
        average = allreduce(gradient.contiguous(), _back(ctx.name), how, engine)
        at_root = engine.ranks[engine.rank] == ctx.root
        return (average if at_root else average * 0, None, None, None)


class _Reducescatter(torch.autograd.Function):
    """All ranks' gradients one behind the other; of a sum, times their number."""

    @staticmethod
    def forward(
        ctx: Any,
        name: str | None,
        how: Scaled,
        engine: Engine,
        kind: str,
        *tensors: torch.Tensor,
    ) -> tuple[torch.Tensor, ...]:
        ctx.name, ctx.how, ctx.engine, ctx.kind = name, how, engine, kind
        return tuple(_reducescatter_all(tensors, name, how, engine, kind))

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[Any, ...]:
        (op, before, after), engine = ctx.how, ctx.engine
        factor = before * after * (engine.size if op == Sum else 1)
        wanted = [(gradient * factor).contiguous() for gradient in gradients]
        kind = ctx.kind.replace("reducescatter", "allgather")
        found = allgather_all(wanted, _back(ctx.name), engine, kind)
        return (None, None, None, None, *found)


class _Alltoall(torch.autograd.Function):
    """Every row back to where it came from."""

    @staticmethod
    def forward(
        ctx: Any, tensor: torch.Tensor, splits: Splits, name: str | None, engine: Engine
    ) -> tuple[torch.Tensor, torch.Tensor]:
        output, received = _alltoall(tensor, splits, name, engine)
        ctx.received, ctx.name, ctx.engine = received, name, engine
        ctx.mark_non_differentiable(received)
        return output, received

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor, _: Any) -> tuple[Any, ...]:
        back, _ = alltoall(gradient.contiguous(), ctx.received, _back(ctx.name), ctx.engine)
        return back, None, None, None


def _allreduce_all(
    tensors: Sequence[torch.Tensor], name: str | None, how: Scaled, engine: Engine, kind: str
) -> list[torch.Tensor]:
    results = [described.like(tensor) for tensor in tensors]
    reduction = reduction_of(None, *how)
    members = [
        described.allreduce_operation(tensor, result, reduction)
        for tensor, result in zip(tensors, results, strict=True)
    ]
    _run(kind, name, members, engine)
    return results


def _allgather_all(
    tensors: Sequence[torch.Tensor], name: str | None, engine: Engine, kind: str
) -> tuple[list[torch.Tensor], list[int]]:
    """Return the results, and at which row of each this rank's own begin."""
    found = [described.allgather_operation(tensor) for tensor in tensors]
    _run(kind, name, [operation for operation, _ in found], engine)
    starts = [sum(operation.rows[: engine.rank]) for operation, _ in found]
    return [result() for _, result in found], starts


def _reducescatter_all(
    tensors: Sequence[torch.Tensor], name: str | None, how: Scaled, engine: Engine, kind: str
) -> list[torch.Tensor]:
    op, before, after = how
    found = [
        described.reducescatter_operation(tensor, op or Average, before, after, engine)
        for tensor in tensors
    ]
    _run(kind, name, [operation for operation, _ in found], engine)
    return [result for _, result in found]


def _broadcast(tensor: torch.Tensor, root: int, name: str | None, engine: Engine) -> torch.Tensor:
    result = described.like(tensor)
    operation = described.broadcast_operation(tensor, result, root, engine)
    run_now("broadcast", name, operation, engine=engine)
    return result


def _alltoall(
    tensor: torch.Tensor, splits: Splits, name: str | None, engine: Engine
) -> tuple[torch.Tensor, torch.Tensor]:
    operation, result = described.alltoall_operation(tensor, splits, engine)
    run_now("alltoall", name, operation, engine=engine)
    return result()


def _run(kind: str, name: str | None, members: Sequence[Operation], engine: Engine) -> None:
    """Run operations as one; one by itself is no group, nor are none."""
    if not kind.startswith("grouped"):
        run_now(kind, name, members[0], engine=engine)
    elif members:
        run_now(kind, name, described.group(kind, members), engine=engine)
