"""Sparse gradients: everybody's entries one behind the other."""

from __future__ import annotations

from collections.abc import Callable

import torch

from farandole.engine.arguments import Average, Sum
from farandole.engine.context import engine_of
from farandole.engine.engine import Engine
from farandole.engine.handles import begin, synchronize
from farandole.engine.process_sets import ProcessSet, global_process_set
from farandole.errors import UsageError
from farandole.torch.operations import allgather_operation
from farandole.transport.reduction import Reduction


def reduce_gradient(
    engine: Engine, name: str, parameter: torch.nn.Parameter, how: Reduction
) -> None:
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
        handles.append(begin("allgather", f"{name}.{part}", operation, result, engine=engine))

    def wait() -> torch.Tensor:
        indices, values = (synchronize(handle) for handle in handles)
        if op == Average:
            values = values / engine.size
        shape = tensor.shape
        total = torch.sparse_coo_tensor(indices.t(), values, shape, check_invariants=False)
        return total.coalesce()

    return wait


def nbytes(gradient: torch.Tensor | None) -> int:
    """Return the size of a sparse gradient's entries and of their places."""
    if gradient is None or not gradient.is_sparse:
        return 0
    return int(gradient._indices().nbytes + gradient._values().nbytes)


def _gather(engine: Engine, name: str, tensor: torch.Tensor) -> torch.Tensor:
    operation, result = allgather_operation(tensor, "sparse gradient")
    engine.run(name, operation)
    return result()
