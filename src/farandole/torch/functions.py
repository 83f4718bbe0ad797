"""Broadcasting models and optimizers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import torch

from farandole.engine import context
from farandole.engine.arguments import check_root
from farandole.engine.handles import synchronize
from farandole.engine.objects.exchange import allgather_object, broadcast_object
from farandole.engine.process_sets import ProcessSet, global_process_set
from farandole.errors import UsageError
from farandole.torch.collectives import broadcast_kind_async_

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
    new = not optimizer.state
    if context.rank() != root_rank:
        optimizer.load_state_dict(state)
    # Of sparse ones there are none to begin with: adding to zeros would make them dense.
    if new and not isinstance(optimizer, torch.optim.SparseAdam):
        for parameter in (p for group in optimizer.param_groups for p in group["params"]):
            if parameter.requires_grad and parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)


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
