"""Keras on torch: gradients go into buckets by hooks while backward runs, as in farandole.torch.

Where hooks cannot serve (several batches are summed, or gradients travel in half precision) they
go as arrays.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from farandole.engine.overlap import OverlapTrial
from farandole.keras.averaging import Averaging, Batch
from farandole.torch.operations import buffer_of, view_of
from farandole.torch.reducer import GradientReducer
from farandole.transport.reduction import HALF_TYPES, STORAGE, Array


class TorchBackend:
    """See keras.averaging.Backend."""

    def combine(self, averaging: Averaging, batch: Batch) -> list[Any] | None:
        """Return gradients combined over all workers."""
        with torch.no_grad():
            if averaging.wire is None and averaging.passes == 1:
                return _by_hooks(averaging, batch)
            reduced = averaging.reduce(batch, [_array_of(gradient) for gradient in batch.gradients])
            if reduced is None:
                return None
            return [
                None if array is None else _tensor_of(array, variable.value)
                for variable, array in zip(batch.variables, reduced, strict=True)
            ]

    def apply(
        self, averaging: Averaging, batch: Batch, update: Callable[[list[Any]], None]
    ) -> None:
        """Combine, and update unless more batches are to be summed first."""
        combined = self.combine(averaging, batch)
        if combined is not None:
            with torch.no_grad():
                update(combined)

    def end_step(self, averaging: Averaging, gradients: Sequence[Any]) -> None:
        """Leave the script if all do so at this step."""
        averaging.context.stop_if_asked()


def _by_hooks(averaging: Averaging, batch: Batch) -> list[Any]:
    averaging.begin()
    parameters = [variable.value for variable in batch.variables]
    reducer = averaging.mover
    if reducer is None:
        now = averaging.context
        assert averaging.engine is not None
        # Backward goes from the last layer to the first.
        averaging.mover = reducer = GradientReducer(
            averaging.engine,
            batch.names,
            parameters,
            averaging.how,
            1,
            OverlapTrial(now.world.overlap, spare_cores=now.spare_cores),
            order=range(len(parameters) - 1, -1, -1),
            meeting=averaging.meeting,
            scaled=averaging.scaled,
        )
    assert isinstance(reducer, GradientReducer)
    for place in batch.wanted:
        # A loop of the user's own may have computed them by torch.autograd.grad.
        if parameters[place].grad is not batch.gradients[place]:
            parameters[place].grad = batch.gradients[place]
    reducer.synchronize()
    averaging.note_update()
    averaging.context.count_step()
    return [parameter.grad for parameter in parameters]


def _array_of(gradient: Any) -> Array | None:
    if gradient is None:
        return None
    plain = gradient.detach()
    dense = (plain.to_dense() if plain.is_sparse else plain).cpu().contiguous()
    buffer = buffer_of(dense)
    if buffer.dtype in HALF_TYPES:
        # NumPy has no bfloat16, and sums of halves are to be exact anyway.
        wide: Array = dense.float().numpy()
        return wide
    array: Array = buffer.data.reshape(tuple(dense.shape))
    assert array.dtype == STORAGE[buffer.dtype]
    return array


def _tensor_of(array: Array, like: torch.Tensor) -> torch.Tensor:
    return view_of(array, array.dtype.name).to(device=like.device, dtype=like.dtype)


BACKEND = TorchBackend()
