"""Broadcasting models and optimizers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from farandole.engine import context, names
from farandole.engine.arguments import check_root
from farandole.engine.objects import allgather_object, broadcast_object
from farandole.engine.process_sets import ProcessSet, global_process_set
from farandole.errors import UsageError
from farandole.torch.collectives import broadcast_kind_async_, synchronize
from farandole.torch.reducer import GradientReducer, reducers_of

__all__ = [
    "allgather_object",
    "broadcast_object",
    "broadcast_optimizer_state",
    "broadcast_parameters",
]

# A state_dict does not say which of its tensors are trained; batch norm's are known by name.
_BUFFERS = ("running_mean", "running_var", "num_batches_tracked")


def broadcast_parameters(
    params: Mapping[str, Any] | Iterable[tuple[str, torch.Tensor]],
    root_rank: int,
    process_set: ProcessSet = global_process_set,
) -> None:
    """Give every rank the root's parameters, in place.

    Args:
        params: `model.state_dict()`, or pairs such as `model.named_parameters()` gives.
        root_rank: whose values count, by its rank among all workers.
        process_set: the ranks that take part.
    """
    if isinstance(params, Mapping):
        pairs = sorted(params.items())
    elif isinstance(params, torch.Tensor | str) or not isinstance(params, Iterable):
        raise UsageError(
            f"params is a {type(params).__name__}. Give model.state_dict() or "
            "model.named_parameters()."
        )
    else:
        pairs = [_named(number, item) for number, item in enumerate(params)]
    # Where one of them says that it is a parameter, the others say that they are none.
    told = any(isinstance(tensor, torch.nn.Parameter) for _, tensor in pairs)
    sent: list[tuple[torch.Tensor, torch.Tensor, int]] = []
    for name, tensor in pairs:
        if isinstance(tensor, torch.Tensor):
            kind = _kind(name, tensor, told=told)
            tensor = tensor.detach()
            whole = tensor.contiguous()
            full = f"parameter.{name}"
            handle = broadcast_kind_async_(whole, root_rank, full, kind, process_set)
            sent.append((tensor, whole, handle))
    for tensor, whole, handle in sent:
        synchronize(handle)
        if whole is not tensor and whole.data_ptr() != tensor.data_ptr():
            tensor.copy_(whole)


def broadcast_optimizer_state(
    optimizer: torch.optim.Optimizer,
    root_rank: int,
    model: torch.nn.Module | None = None,
    process_set: ProcessSet = global_process_set,
) -> None:
    """Give every rank the root's optimizer state: momenta, step counters, rates.

    Where there is no state yet gradients begin as zeros, as Horovod leaves them.

    Args:
        optimizer: wrapped or not.
        root_rank: whose state counts.
        model: not needed; Horovod has it.
        process_set: the ranks that take part.
    """
    check_root(root_rank, context.engine_of(process_set))
    if isinstance(optimizer, torch.optim.LBFGS):
        raise UsageError("cannot broadcast torch.optim.LBFGS state")
    state = broadcast_object(
        optimizer.state_dict() if context.rank() == root_rank else None,
        root_rank,
        name="optimizer.state",
        process_set=process_set,
    )
    new = not optimizer.state and not _has_shards(optimizer)
    if context.rank() != root_rank:
        optimizer.load_state_dict(state)
    # Of sparse ones there are none to begin with: adding to zeros would make them dense.
    if new and not isinstance(optimizer, torch.optim.SparseAdam):
        for parameter in (p for group in optimizer.param_groups for p in group["params"]):
            if parameter.requires_grad and parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)


def _has_shards(optimizer: torch.optim.Optimizer) -> bool:
    """Say whether the ranks keep an optimizer's state in parts, and have some."""
    sharding = optimizer._hvd.sharding if hasattr(optimizer, "_hvd") else None
    return sharding is not None and sharding.layout is not None


def _kind(name: str, tensor: torch.Tensor, *, told: bool) -> str:
    if isinstance(tensor, torch.nn.Parameter):
        return "parameters"
    return "buffers" if told or name.endswith(_BUFFERS) else "parameters"


def _named(number: int, item: Any) -> tuple[str, Any]:
    if isinstance(item, torch.Tensor):
        return str(number), item
    if isinstance(item, tuple) and len(item) == 2:
        return item
    raise UsageError(
        f"params has a {type(item).__name__} where a tensor or a pair of name and tensor should "
        "be. Give model.state_dict() or model.named_parameters()."
    )


def join(device: int = -1) -> int:
    """Wait until every rank has called this, taking part in the others' steps meanwhile.

    Their all-reduces, and the gradients of their steps, go on with zeros from this rank; averages
    are still divided by the number of all ranks. Their other operations raise an error. Call
    `broadcast_parameters` afterwards from the rank that it returns: it has seen all steps.

    Args:
        device: Horovod's, the GPU that zeros would lie on; any number will do.

    Returns:
        The rank that joined last, the same on every rank.
    """
    del device
    engine = context.current().engine
    reducers = reducers_of(engine)
    if any(reducer.sharding is not None for reducer in reducers):
        raise UsageError(
            "hvd.join() does not go together with sharded=True: a rank that has joined cannot "
            "update its part of the weights. Give every rank equally many batches, or use "
            "sharded=False."
        )
    for reducer in reducers:
        _leave(reducer)
    return names.join(engine, [_JoinedReducer(reducer) for reducer in reducers])


def _leave(reducer: GradientReducer) -> None:
    """Prepare to sit out steps."""
    reducer.overlap.stop()
    reducer.expect_anew()
    for parameter in reducer.parameters:
        # They lie in the buckets, which are the others' now.
        parameter.grad = None


@dataclass(frozen=True, slots=True)
class _JoinedReducer:
    """A reducer while this rank has joined (an engine.names.JoinedBuckets)."""

    reducer: GradientReducer

    def sit_out(self) -> bool:
        """Take part in the others' steps with zeros; return whether one is on."""
        layout = self.reducer.layout
        if layout is None:
            return False
        replanned = layout.sit_out()
        if replanned is not None:
            context.current().count_step()
        if replanned:
            # The others have given these up, and make new ones when all are back.
            self.reducer.give_up()
        return layout.step.sitting_out

    def come_back(self) -> None:
        """Leave out a step's number: all ranks have joined."""
        if self.reducer.layout is not None:
            self.reducer.layout.come_back()
