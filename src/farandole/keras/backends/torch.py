"""Keras on torch: gradients go into buckets by hooks while backward runs, as in farandole.torch.

Where hooks cannot serve (several batches are summed, or gradients travel in half precision) they
go as arrays.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from farandole.engine.overlap import OverlapTrial
from farandole.keras.averaging import Averaging
from farandole.torch.reducer import GradientReducer
from farandole.torch.tensors import buffer_of, view_of
from farandole.transport.reduction import HALF_TYPES, STORAGE, Array


class TorchBackend:
    """See keras.averaging.Backend."""

    def combine(
        self, averaging: Averaging, optimizer: Any, gradients: list[Any], variables: list[Any]
    ) -> list[Any]:
        """Return gradients combined over all workers; never asked for several batches at once."""
        local = averaging.is_local(variables)
        shared = [index for index, own in enumerate(local) if not own]
        if averaging.wire is None and averaging.passes == 1:
            combined = _by_hooks(
                averaging, [variables[i] for i in shared], [gradients[i] for i in shared]
            )
        else:
            arrays = [_array_of(gradients[i]) for i in shared]
            reduced = averaging.reduce([variables[i].path for i in shared], arrays)
            if reduced is None:
                return []
            combined = [
                None if array is None else _tensor_of(array, variables[i].value)
                for i, array in zip(shared, reduced, strict=True)
            ]
        results = [averaging.scale(gradient) for gradient in gradients]
        for index, gradient in zip(shared, combined, strict=True):
            results[index] = gradient
        return results

    def apply(
        self,
        averaging: Averaging,
        optimizer: Any,
        gradients: list[Any],
        variables: list[Any],
        update: Callable[[list[Any], list[Any]], None],
    ) -> None:
        """Combine, and update unless more batches are to be summed first."""
        with torch.no_grad():
            combined = self.combine(averaging, optimizer, gradients, variables)
            if combined:
                update(combined, variables)


def _by_hooks(averaging: Averaging, variables: list[Any], gradients: list[Any]) -> list[Any]:
    averaging.check()
    parameters = [variable.value for variable in variables]
    reducer = averaging.mover
    if reducer is None:
        now = averaging.context
        # Backward goes from the last layer to the first.
        averaging.mover = reducer = GradientReducer(
            now.engine,
            [variable.path for variable in variables],
            parameters,
            averaging.how,
            1,
            OverlapTrial(now.world.overlap, spare_cores=now.spare_cores),
            order=range(len(parameters) - 1, -1, -1),
            meeting=averaging.meeting,
        )
    assert isinstance(reducer, GradientReducer)
    for parameter, gradient in zip(parameters, gradients, strict=True):
        # A loop of the user's own may have computed them by torch.autograd.grad.
        if parameter.grad is not gradient:
            parameter.grad = gradient
    reducer.synchronize()
    averaging.note_update()
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
