"""Broadcasting models, optimizers and objects."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import torch

from farandole.engine import context, objects
from farandole.errors import UsageError
from farandole.torch.collectives import broadcast_async_
from farandole.torch.handles import synchronize


def broadcast_parameters(
    params: Mapping[str, Any] | Iterable[tuple[str, torch.Tensor]], root_rank: int
) -> None:
    """Give every rank the root's parameters, in place.

    Args:
        params: `model.state_dict()`, or pairs such as `model.named_parameters()` gives.
        root_rank: whose values count.
    """
    if isinstance(params, Mapping):
        pairs = sorted(params.items())
    elif isinstance(params, torch.Tensor | str) or not isinstance(params, Iterable):
        raise UsageError(
            f"params is a {type(params).__name__}. Give model.state_dict() or "
            "model.named_parameters()."
        )
    else:
        pairs = [
            pair if isinstance(pair, tuple) else (str(i), pair) for i, pair in enumerate(params)
        ]
    sent: list[tuple[torch.Tensor, torch.Tensor, int]] = []
    for name, tensor in pairs:
        if isinstance(tensor, torch.Tensor):
            tensor = tensor.detach()
            whole = tensor.contiguous()
            sent.append((tensor, whole, broadcast_async_(whole, root_rank, f"parameter.{name}")))
    for tensor, whole, handle in sent:
        synchronize(handle)
        if whole is not tensor and whole.data_ptr() != tensor.data_ptr():
            tensor.copy_(whole)


def broadcast_optimizer_state(
    optimizer: torch.optim.Optimizer, root_rank: int, model: torch.nn.Module | None = None
) -> None:
    """Give every rank the root's optimizer state: momenta, step counters, rates.

    Args:
        optimizer: wrapped or not.
        root_rank: whose state counts.
        model: not needed; Horovod has it.
    """
    if isinstance(optimizer, torch.optim.LBFGS):
        raise UsageError("cannot broadcast torch.optim.LBFGS state")
    state = broadcast_object(
        optimizer.state_dict() if context.rank() == root_rank else None,
        root_rank,
        name="optimizer.state",
    )
    if context.rank() != root_rank:
        optimizer.load_state_dict(state)


def broadcast_object(obj: Any, root_rank: int = 0, name: str | None = None) -> Any:
    """Return the root's object on every rank.

    Plain data travels without pickle. Anything else is pickled between processes of one host, and
    across hosts only with FARANDOLE_ALLOW_PICKLE=1.
    """
    now = context.current()
    trusted = now.world.allow_pickle
    mine = b""
    if now.world.rank == root_rank:
        mine = objects.encode(obj, allow_pickle=trusted)
    answers = now.engine.exchange(mine, name=f"broadcast_object.{name or 'noname'}")
    if now.world.rank == root_rank:
        return obj
    return objects.decode(answers[root_rank], allow_pickle=trusted)


def allgather_object(obj: Any, name: str | None = None) -> list[Any]:
    """Return every rank's object, in rank order; see broadcast_object for what may travel."""
    now = context.current()
    trusted = now.world.allow_pickle
    mine = objects.encode(obj, allow_pickle=trusted)
    answers = now.engine.exchange(mine, name=f"allgather_object.{name or 'noname'}")
    return [objects.decode(answer, allow_pickle=trusted) for answer in answers]
