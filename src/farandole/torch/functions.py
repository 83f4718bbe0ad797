"""Broadcasting models, optimizers and objects."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import torch

from farandole.engine import context, objects
from farandole.errors import CollectiveError, UsageError
from farandole.recorder.recorder import current
from farandole.torch.collectives import broadcast_kind_async_, check_root
from farandole.torch.handles import synchronize

# A state_dict does not say which of its tensors are trained; batch norm's are known by name.
_BUFFERS = ("running_mean", "running_var", "num_batches_tracked")
# Stands in the place of an object that could not be sent; no encoded object begins with it.
_REFUSED = b"\x00"


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
        pairs = [_named(number, item) for number, item in enumerate(params)]
    sent: list[tuple[torch.Tensor, torch.Tensor, int]] = []
    for name, tensor in pairs:
        if isinstance(tensor, torch.Tensor):
            tensor = tensor.detach()
            whole = tensor.contiguous()
            kind = "buffers" if name.endswith(_BUFFERS) else "parameters"
            handle = broadcast_kind_async_(whole, root_rank, f"parameter.{name}", kind)
            sent.append((tensor, whole, handle))
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
    check_root(root_rank)
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
    check_root(root_rank)
    is_root = context.rank() == root_rank
    answers = _exchange(obj, f"broadcast_object.{name or 'noname'}", send=is_root)
    return obj if is_root else _decoded(root_rank, answers[root_rank])


def allgather_object(obj: Any, name: str | None = None) -> list[Any]:
    """Return every rank's object, in rank order; see broadcast_object for what may travel."""
    answers = _exchange(obj, f"allgather_object.{name or 'noname'}", send=True)
    return [_decoded(rank, answer) for rank, answer in enumerate(answers)]


def _exchange(obj: Any, name: str, *, send: bool) -> list[bytes]:
    """Return what each rank has sent, encoded.

    An object that cannot travel is an error here and, so that nobody waits for it, on every rank
    that would have received it.
    """
    now = context.current()
    message, error = b"", None
    if send:
        try:
            message = objects.encode(obj, allow_pickle=now.world.allow_pickle)
        except Exception as reason:
            message, error = _REFUSED + str(reason).encode(), reason
    answers = now.engine.exchange(message, name=name)
    recorder = current()
    if recorder is not None:
        # Who only receives counts what the root has sent.
        recorder.sent("objects", len(message) if send else sum(map(len, answers)))
    if error is not None:
        raise error
    return answers


def _decoded(rank: int, answer: bytes) -> Any:
    if answer.startswith(_REFUSED):
        reason = answer.removeprefix(_REFUSED).decode()
        raise CollectiveError(f"Rank {rank} could not send its object: {reason}")
    return objects.decode(answer, allow_pickle=context.current().world.allow_pickle)


def _named(number: int, item: Any) -> tuple[str, Any]:
    if isinstance(item, torch.Tensor):
        return str(number), item
    if isinstance(item, tuple) and len(item) == 2:
        return item
    raise UsageError(
        f"params has a {type(item).__name__} where a tensor or a pair of name and tensor should "
        "be. Give model.state_dict() or model.named_parameters()."
    )
