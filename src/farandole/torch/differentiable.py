"""Collective operations that gradients flow back through.

Where Horovod's way back is an average over ranks and not their sum (all-gather, broadcast) it is so
here: its users' losses are averages, too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch

from farandole.engine import context
from farandole.engine.arguments import Average, Max, Min, Product, Sum, reduction_of
from farandole.engine.engine import Engine
from farandole.engine.operations import Operation
from farandole.torch import operations as described
from farandole.torch.operations import Splits

Tensors = Sequence[torch.Tensor]
Scaled = tuple[int | None, float, float]
"""A reduction: operation, factor before it, factor after it."""

_PLAIN_SUM: Scaled = (Sum, 1.0, 1.0)
_PLAIN_AVERAGE: Scaled = (Average, 1.0, 1.0)
_SELECTIVE: dict[int | None, Callable[..., torch.Tensor]] = {
    Min: torch.amin,
    Max: torch.amax,
    Product: torch.prod,
}
"""Reductions whose gradients depend on what all ranks brought."""


def allreduce(tensor: torch.Tensor, name: str | None, how: Scaled, engine: Engine) -> torch.Tensor:
    """Combine a tensor over the ranks of an engine."""
    (result,) = allreduce_all([tensor], name, how, engine, "allreduce")
    return result


def allreduce_all(
    tensors: Tensors,
    name: str | None,
    how: Scaled,
    engine: Engine,
    kind: str = "grouped_allreduce",
) -> list[torch.Tensor]:
    """Combine tensors over the ranks of an engine: all of them, or none."""
    return _go(_Allreduce(kind, name, engine, how), tensors)


def allgather(tensor: torch.Tensor, name: str | None, engine: Engine) -> torch.Tensor:
    """Return the tensors of an engine's ranks one behind the other."""
    (result,) = allgather_all([tensor], name, engine, "allgather")
    return result


def allgather_all(
    tensors: Tensors, name: str | None, engine: Engine, kind: str = "grouped_allgather"
) -> list[torch.Tensor]:
    """Gather tensors over the ranks of an engine: all of them, or none."""
    return _go(_Allgather(kind, name, engine), tensors)


def broadcast(tensor: torch.Tensor, root: int, name: str | None, engine: Engine) -> torch.Tensor:
    """Return the root's tensor."""
    (result,) = _go(_Broadcast("broadcast", name, engine, root), [tensor])
    return result


def reducescatter_all(
    tensors: Tensors,
    name: str | None,
    how: Scaled,
    engine: Engine,
    kind: str = "grouped_reducescatter",
) -> list[torch.Tensor]:
    """Combine tensors and return this rank's share of their rows: of all of them, or none."""
    return _go(_Reducescatter(kind, name, engine, how), tensors)


def alltoall(
    tensor: torch.Tensor, splits: Splits, name: str | None, engine: Engine
) -> tuple[torch.Tensor, torch.Tensor]:
    """Send rows to every rank; return those received, and how many came from each."""
    output, received = _go(_Alltoall("alltoall", name, engine, splits), [tensor])
    return output, received


class _Way(Protocol):
    """What becomes of tensors, and of their gradients."""

    def there(self, tensors: Tensors) -> Tensors:
        """Run the operation."""

    def back(self, gradients: Tensors, inputs: Tensors) -> Tensors:
        """Return the gradients of the inputs, given those of the results."""

    @property
    def keeps_inputs(self) -> bool:
        """Whether the way back needs them."""


def _go(way: _Way, tensors: Tensors) -> list[torch.Tensor]:
    wanted = torch.is_grad_enabled() and any(
        isinstance(tensor, torch.Tensor) and tensor.requires_grad for tensor in tensors
    )
    if not wanted:
        return list(way.there(tensors))
    return list(_ThereAndBack.apply(way, *tensors))  # type: ignore[no-untyped-call]


class _ThereAndBack(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, way: _Way, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        ctx.way = way
        if way.keeps_inputs:
            ctx.save_for_backward(*tensors)
        return tuple(way.there(tensors))

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[Any, ...]:
        whole = [gradient.contiguous() for gradient in gradients]
        # Once freed they may not be asked for; a group's results may go back one by one.
        inputs = ctx.saved_tensors if ctx.way.keeps_inputs else ()
        return (None, *ctx.way.back(whole, inputs))


@dataclass(slots=True)
class _Named:
    kind: str
    """The beginning of the full name, as Horovod has it: a group, or one operation by itself."""
    name: str | None
    engine: Engine

    @property
    def keeps_inputs(self) -> bool:
        return False

    @property
    def back_name(self) -> str | None:
        """The name of the way back."""
        return None if self.name is None else f"{self.name}.gradient"

    def run(self, members: Sequence[Operation]) -> None:
        """Run operations as one; one by itself is no group, nor are none."""
        if not self.kind.startswith("grouped"):
            context.current().handles.run(self.kind, self.name, members[0], engine=self.engine)
        elif members:
            group = described.group(self.kind, members)
            context.current().handles.run(self.kind, self.name, group, engine=self.engine)


@dataclass(slots=True)
class _Reducing(_Named):
    how: Scaled

    @property
    def keeps_inputs(self) -> bool:
        return self.how[0] in _SELECTIVE

    def selective(self, inputs: Tensors, gradients: Tensors) -> list[torch.Tensor]:
        """Return what torch has for this rank's part of a tensor that holds all ranks' ones."""
        op, before, after = self.how
        mine = [tensor.detach()[None].contiguous() for tensor in inputs]
        found = []
        for everyone, gradient in zip(
            allgather_all(mine, self.back_name, self.engine), gradients, strict=True
        ):
            with torch.enable_grad():
                everyone.requires_grad_()
                combined = _SELECTIVE[op](everyone * before, 0) * after
                (each,) = torch.autograd.grad(combined, everyone, gradient)
            found.append(each[self.engine.rank])
        return found


class _Allreduce(_Reducing):
    """Sums and averages go back the way they came."""

    def there(self, tensors: Tensors) -> Tensors:
        results = [described.like(tensor) for tensor in tensors]
        reduction = reduction_of(None, *self.how)
        pairs = zip(tensors, results, strict=True)
        self.run([described.allreduce_operation(*pair, reduction) for pair in pairs])
        return results

    def back(self, gradients: Tensors, inputs: Tensors) -> Tensors:
        how = _PLAIN_SUM if self.keeps_inputs else self.how
        totals = allreduce_all(gradients, self.back_name, how, self.engine, self.kind)
        return self.selective(inputs, totals) if self.keeps_inputs else totals


@dataclass(slots=True)
class _Allgather(_Named):
    """To each rank the average of what all found for its rows."""

    mine: list[tuple[int, int]] = field(default_factory=list)
    """Of each result, at which row this rank's own begin, and how many they are."""

    def there(self, tensors: Tensors) -> Tensors:
        found = [described.allgather_operation(tensor) for tensor in tensors]
        self.run([operation for operation, _ in found])
        rank = self.engine.rank
        self.mine = [(sum(each.rows[:rank]), each.rows[rank]) for each, _ in found]
        return [result() for _, result in found]

    def back(self, gradients: Tensors, inputs: Tensors) -> Tensors:
        kind = self.kind.replace("allgather", "allreduce")
        averages = allreduce_all(gradients, self.back_name, _PLAIN_AVERAGE, self.engine, kind)
        return [
            average.narrow(0, *place) for average, place in zip(averages, self.mine, strict=True)
        ]


@dataclass(slots=True)
class _Broadcast(_Named):
    """To the root the average of what all found, to the others nothing."""

    root: int

    def there(self, tensors: Tensors) -> Tensors:
        (tensor,) = tensors
        result = described.like(tensor)
        self.run([described.broadcast_operation(tensor, result, self.root, self.engine)])
        return [result]

    def back(self, gradients: Tensors, inputs: Tensors) -> Tensors:
        (gradient,) = gradients
        average = allreduce(gradient, self.back_name, _PLAIN_AVERAGE, self.engine)
        at_root = self.engine.ranks[self.engine.rank] == self.root
        return [average if at_root else average * 0]


class _Reducescatter(_Reducing):
    """All ranks' gradients one behind the other; of a sum, times their number."""

    def there(self, tensors: Tensors) -> Tensors:
        op, before, after = self.how
        found = [
            described.reducescatter_operation(tensor, op or Average, before, after, self.engine)
            for tensor in tensors
        ]
        self.run([operation for operation, _ in found])
        return [result for _, result in found]

    def back(self, gradients: Tensors, inputs: Tensors) -> Tensors:
        op, before, after = self.how
        if not self.keeps_inputs:
            factor = before * after * (self.engine.size if op == Sum else 1)
            gradients = [gradient * factor for gradient in gradients]
        kind = self.kind.replace("reducescatter", "allgather")
        gathered = allgather_all(gradients, self.back_name, self.engine, kind)
        return self.selective(inputs, gathered) if self.keeps_inputs else gathered


@dataclass(slots=True)
class _Alltoall(_Named):
    """Every row back to where it came from; of those that went nowhere, zeros."""

    splits: Splits
    received: Splits = None
    rows: int = 0

    def there(self, tensors: Tensors) -> Tensors:
        (tensor,) = tensors
        operation, result = described.alltoall_operation(tensor, self.splits, self.engine)
        self.run([operation])
        output, self.received = result()
        self.rows = len(tensor)
        return [output, self.received]

    def back(self, gradients: Tensors, inputs: Tensors) -> Tensors:
        found, _ = alltoall(gradients[0], self.received, self.back_name, self.engine)
        kept = found.new_zeros(self.rows - len(found), *found.shape[1:])
        return [torch.cat([found, kept]) if len(kept) else found]
