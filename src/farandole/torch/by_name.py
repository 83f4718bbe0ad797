"""Gradients reduced one by one, by the names of their parameters.

So it goes in the first step, when nobody knows what the others have, and when that has changed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from farandole.engine import context
from farandole.engine.arguments import Average, Sum
from farandole.engine.context import engine_of
from farandole.engine.engine import Engine
from farandole.engine.gradients import meet
from farandole.engine.handle import Handle
from farandole.engine.process_sets import ProcessSet, global_process_set
from farandole.engine.signature import check_same
from farandole.errors import MismatchError, UnfitError, UsageError
from farandole.recorder.recorder import current
from farandole.torch.collectives import compress
from farandole.torch.compression import SendOptions
from farandole.torch.layout import Faults, in_channels_last, of_another_shape
from farandole.torch.operations import TYPE_NAMES, allgather_operation, allreduce_operation
from farandole.transport.reduction import Reduction

_NAMES_SHOWN = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class RankAnswers:
    """What the ranks have told each other."""

    ranks: list[dict[str, Any]]
    """What each of them said that has not joined."""
    joined: bool
    """Whether there are others."""

    @property
    def unsharded(self) -> str:
        """Return why updates are not sharded any longer; empty if no rank has a reason."""
        return next(filter(None, (said["unsharded"] for said in self.ranks)), "")

    def indices(self, *kinds: str) -> set[int]:
        """Return the parameters that any rank has named under these words."""
        return {index for said in self.ranks for kind in kinds for index in said[kind]}

    def shared(self, kind: str) -> set[int]:
        """Return the parameters that every rank has named under this word."""
        return set.intersection(*(set(said[kind]) for said in self.ranks))


class ByName:
    """Reduces the gradients of one optimizer's parameters, and knows which are sparse."""

    def __init__(
        self,
        engine: Engine,
        names: list[str],
        parameters: list[torch.nn.Parameter],
        how: Reduction,
        sending: SendOptions,
        meeting: str | None,
    ) -> None:
        """Begin; names and parameters are the lists of the caller, which may grow."""
        self._engine, self._how, self._sending = engine, how, sending
        self._names, self._parameters = names, parameters
        # Users see it when a step stalls.
        self.prefix = engine.unique_name(f"gradients of {_some(names)}", "\n".join(names))
        # By number and not by names: models that differ must meet there to find it out.
        self.meeting = meeting or engine.unique_name("optimizer.step", "")
        self.sparse: list[int] = []
        """Parameters whose gradients have been sparse on all ranks that had them."""
        self.dense: set[int] = set()
        """Those that have been dense on some rank; they are sent as dense from then on."""
        self.made_dense: dict[int, int] = {}
        """Gradients that are sent as dense though they are sparse, by their sparse dimensions."""
        self.nbytes = 0
        """What has been sent."""
        self.unsharded = ""
        """Why this rank wants updates not to be sharded."""

    @property
    def holds_sparse(self) -> bool:
        """Whether optimizers get sparse gradients."""
        return bool(self.sparse or self.made_dense)

    def reduce(
        self,
        indices: Sequence[int],
        order: Sequence[int],
        faults: Faults,
        *,
        tries_overlap: bool = False,
    ) -> RankAnswers:
        """Reduce these gradients; those that a rank lacks count as zero.

        Args:
            indices: of the parameters.
            order: in which this rank's backward has produced gradients, for the others to know.
            faults: what is wrong with gradients of this rank.
            tries_overlap: whether this rank tries out overlap.

        Raises:
            UnfitError: on every rank: a gradient of one of them cannot be used.
        """
        told = self._tell_all(indices, order, faults, tries_overlap)
        for said in told.ranks:
            self.made_dense |= dict(said["made_dense"])
        present, dense = sorted(told.indices("dense", "sparse")), told.indices("dense")
        handles: list[tuple[int, Callable[[], torch.Tensor], Handle]] = []
        places: set[int] = set()
        for index in present:
            if index in dense:
                gradient = _contiguous(self._parameters[index])
                if gradient.data_ptr() in places:
                    # A script has let two parameters share one.
                    gradient = gradient.clone()
                places.add(gradient.data_ptr())
                sent, undo = compress(gradient, self._sending.compressor)
                handles.append((index, partial(undo, sent), self._submit(index, sent)))
        for index, result, handle in handles:
            self._engine.wait(handle)
            parameter, gradient = self._parameters[index], result()
            if parameter.grad is None or parameter.grad is not gradient:
                parameter.grad = gradient.view_as(parameter)
        only_sparse = [index for index in present if index not in dense]
        self.reduce_sparse(only_sparse)
        self.dense |= dense | told.indices("were_dense")
        self.sparse = sorted({*told.indices("were_sparse"), *only_sparse} - self.dense)
        return told

    def reduce_sparse(self, indices: Sequence[int]) -> None:
        """Reduce gradients that are sparse on every rank that has them."""
        for index in indices:
            parameter, name = self._parameters[index], f"{self.prefix}.{self._names[index]}"
            self.nbytes += sparse_nbytes(parameter.grad)
            reduce_sparse(self._engine, name, parameter, self._how)

    def meet(self, said: bytes, name: str) -> list[bytes]:
        """Return what each rank says under a name; nothing from those who have joined."""
        recorder = current()
        if recorder is not None:
            recorder.sent("control", len(said))
        return self._engine.exchange(said, name, kind="meeting")

    def _tell_all(
        self, indices: Sequence[int], order: Sequence[int], faults: Faults, tries_overlap: bool
    ) -> RankAnswers:
        """Exchange who has which gradients; refuse models that differ."""
        gradients = [(i, self._parameters[i].grad) for i in indices]
        faults = faults | {
            index: of_another_shape(gradient, self._parameters[index])
            for index, gradient in gradients
            if gradient is not None and gradient.shape != self._parameters[index].shape
        }
        said = {
            "parameters": [
                [name, list(p.shape), TYPE_NAMES.get(p.dtype, str(p.dtype))]
                for name, p in zip(self._names, self._parameters, strict=True)
            ],
            "order": order,
            "trainable": [i for i, p in enumerate(self._parameters) if p.requires_grad],
            "dense": [i for i, g in gradients if g is not None and not g.is_sparse],
            "sparse": [i for i, g in gradients if g is not None and g.is_sparse],
            # Who comes back from join() has missed what the others have learned meanwhile.
            "were_dense": sorted(self.dense),
            "were_sparse": self.sparse,
            "made_dense": list(self.made_dense.items()),
            "channels_last": [i for i, p in enumerate(self._parameters) if in_channels_last(p)],
            "faults": list(faults.items()),
            "tries_overlap": tries_overlap,
            "unsharded": self.unsharded,
            "options": self._sending.options(self._how),
        }
        by_rank = meet(self._engine, self.meeting, said, kind="meeting")
        everyone = list(by_rank.values())
        _compare({rank: answer["parameters"] for rank, answer in by_rank.items()})
        check_same({r: said["options"] for r, said in by_rank.items()}, "DistributedOptimizer's")
        self._refuse(by_rank)
        return RankAnswers(ranks=everyone, joined=len(everyone) < self._engine.size)

    def _refuse(self, by_rank: Mapping[int, dict[str, Any]]) -> None:
        """Raise UnfitError if a rank has gradients that cannot be reduced."""
        for rank, said in by_rank.items():
            for index, fault in said["faults"]:
                raise UnfitError(f"The gradient of {self._names[index]!r} on rank {rank} {fault}")

    def _submit(self, index: int, gradient: torch.Tensor) -> Handle:
        self.nbytes += gradient.nbytes
        operation = allreduce_operation(gradient, gradient, self._how)
        return self._engine.submit(f"{self.prefix}.{self._names[index]}", operation)


def _compare(models: Mapping[int, list[Any]]) -> None:
    """Raise MismatchError unless all ranks have the same parameters."""
    first = min(models)
    for rank, theirs in models.items():
        if theirs != models[first]:
            raise MismatchError(_difference(models[first], first, theirs, rank))


def _difference(mine: list[Any], first: int, theirs: list[Any], rank: int) -> str:
    for one, other in zip(mine, theirs, strict=False):
        if one != other:
            return (
                "The ranks train different models: parameter "
                f"{one[0]!r} is {one[2]}{one[1]} on rank {first}, and rank {rank} has "
                f"{other[0]!r}, {other[2]}{other[1]}, in its place."
            )
    return (
        f"The ranks train different models: rank {first} has {len(mine)} parameters, rank {rank} "
        f"has {len(theirs)}."
    )


def _contiguous(parameter: torch.nn.Parameter) -> torch.Tensor:
    """Return a contiguous gradient to be reduced in place: its own, if that will do."""
    gradient = parameter.grad
    if gradient is None:
        return torch.zeros_like(parameter, memory_format=torch.contiguous_format).detach()
    if gradient.requires_grad:
        gradient = gradient.detach()
    return (gradient.to_dense() if gradient.is_sparse else gradient).contiguous()


def _some(names: Sequence[str]) -> str:
    """Return the first names, and how many more there are."""
    more = f" and {len(names) - _NAMES_SHOWN} more" if len(names) > _NAMES_SHOWN else ""
    return f"{', '.join(names[:_NAMES_SHOWN])}{more}"


# Sparse gradients: everybody's entries one behind the other.


def reduce_sparse(engine: Engine, name: str, parameter: torch.nn.Parameter, how: Reduction) -> None:
    """Sum or average a parameter's sparse gradient over all ranks."""
    if how.op not in ("sum", "average"):
        raise UsageError(
            f"The gradient of {name!r} is sparse: it can be summed or averaged, not combined by "
            f"{how.op}. Use op=hvd.Average, or sparse_as_dense=True."
        )
    gradient = parameter.grad
    dimensions = gradient.sparse_dim() if gradient is not None else 1
    if gradient is None:
        indices = torch.empty((0, dimensions), dtype=torch.int64)
        values = parameter.new_empty((0, *parameter.shape[dimensions:]))
    else:
        gradient = gradient.coalesce()
        indices = gradient.indices().t().contiguous()
        values = gradient.values().contiguous()
    indices = _gather(engine, f"{name}.indices", indices)
    values = _gather(engine, f"{name}.values", values)
    if not len(indices):
        # The same for all, whether a rank had none or one without entries.
        parameter.grad = None
        return
    factor = how.prescale * how.postscale
    if factor != 1.0:
        values = values * factor
    if how.op == "average":
        values = values / engine.size
    total = torch.sparse_coo_tensor(indices.t(), values, parameter.shape, check_invariants=False)
    parameter.grad = total.coalesce()


def sparse_allreduce_async(
    tensor: torch.Tensor,
    name: str,
    op: int,
    process_set: ProcessSet = global_process_set,
) -> Callable[[], torch.Tensor]:
    """Begin to sum or average a sparse tensor over all ranks.

    Args:
        tensor: of the same shape on every rank; its entries may differ.
        name: what ties the ranks' calls together.
        op: Average or Sum.
        process_set: the ranks that take part.

    Returns:
        A function that waits for the result, a sparse tensor, and returns it.
    """
    if op not in (Average, Sum):
        raise UsageError(f"op={op!r}: sparse tensors are averaged or summed. Use hvd.Average.")
    if not tensor.is_sparse:
        raise UsageError("sparse_allreduce_async got a dense tensor. Use allreduce_async for it.")
    engine = engine_of(process_set)
    entries = tensor.coalesce() if not tensor.is_coalesced() else tensor
    pieces = {
        "indices": entries.indices().t().contiguous(),
        "values": entries.values().contiguous(),
    }
    handles = []
    for part, piece in pieces.items():
        operation, result = allgather_operation(piece)
        handles.append(
            context.current().handles.begin(
                "allgather", f"{name}.{part}", operation, result, engine=engine
            )
        )

    def wait() -> torch.Tensor:
        indices, values = map(context.current().handles.synchronize, handles)
        if op == Average:
            values = values / engine.size
        shape = tensor.shape
        total = torch.sparse_coo_tensor(indices.t(), values, shape, check_invariants=False)
        return total.coalesce()

    return wait


def sparse_nbytes(gradient: torch.Tensor | None) -> int:
    """Return the size of a sparse gradient's entries and of their places."""
    if gradient is None or not gradient.is_sparse:
        return 0
    return int(gradient._indices().nbytes + gradient._values().nbytes)


def _gather(engine: Engine, name: str, tensor: torch.Tensor) -> torch.Tensor:
    operation, result = allgather_operation(tensor, "sparse gradient")
    engine.run(name, operation)
    return result()
