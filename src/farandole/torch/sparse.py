"""Sparse gradients: everybody's entries one behind the other."""

from __future__ import annotations

import torch

from farandole.engine.engine import Engine
from farandole.errors import UsageError
from farandole.torch.collectives import allgather_operation
from farandole.transport.reduction import Reduction


def reduce_gradient(
    engine: Engine, name: str, parameter: torch.nn.Parameter, how: Reduction
) -> None:
    """Sum or average a parameter's sparse gradient over all ranks."""
    if how.op not in ("sum", "average") or (how.prescale, how.postscale) != (1.0, 1.0):
        raise UsageError(
            f"The gradient of {name!r} is sparse: it can be summed or averaged, not combined by "
            f"{how.op} or scaled."
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
    if how.op == "average":
        values = values / engine.size
    total = torch.sparse_coo_tensor(indices.t(), values, parameter.shape, check_invariants=False)
    parameter.grad = total.coalesce()


def nbytes(gradient: torch.Tensor | None) -> int:
    """Return the size of a sparse gradient's entries and of their places."""
    if gradient is None or not gradient.is_sparse:
        return 0
    return int(gradient._indices().nbytes + gradient._values().nbytes)


def _gather(engine: Engine, name: str, tensor: torch.Tensor) -> torch.Tensor:
    operation, result = allgather_operation(tensor)
    engine.run(name, operation)
    return result()
