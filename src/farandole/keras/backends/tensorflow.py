"""Keras on TensorFlow: one callback per step takes all gradients.

One per variable would block TensorFlow's threads in an order that differs from rank to rank, and
with few of them that is a deadlock.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from farandole.keras.averaging import Averaging
from farandole.transport.reduction import Array


class TensorFlowBackend:
    """See keras.averaging.Backend."""

    def combine(
        self, averaging: Averaging, optimizer: Any, gradients: list[Any], variables: list[Any]
    ) -> list[Any]:
        """Return gradients combined over all workers."""
        _, combined = _call(averaging, gradients, variables)
        return combined

    def apply(
        self,
        averaging: Averaging,
        optimizer: Any,
        gradients: list[Any],
        variables: list[Any],
        update: Callable[[list[Any], list[Any]], None],
    ) -> None:
        """Combine, and update unless more batches are to be summed first."""
        complete, combined = _call(averaging, gradients, variables)
        if averaging.passes == 1:
            update(combined, variables)
            return

        def go() -> tf.Tensor:
            # Traced inside of a branch, where the pause around this call still holds.
            update(combined, variables)
            return tf.constant(True)

        tf.cond(complete, go, lambda: tf.constant(False))


def _call(averaging: Averaging, gradients: list[Any], variables: list[Any]) -> Any:
    """Return whether there is something to apply, and the combined gradients."""
    local = averaging.is_local(variables)
    shared = [index for index, own in enumerate(local) if not own]
    dense = [None if g is None else tf.convert_to_tensor(g) for g in gradients]
    names = [variables[index].path for index in shared]
    specs = [
        None if dense[index] is None else (tuple(variables[index].shape), dense[index].dtype.name)
        for index in shared
    ]
    # While tracing, and so in the first step on every rank.
    present = sorted(averaging.prepare(names, specs))
    mine = [position for position, spec in enumerate(specs) if spec is not None]
    types = [
        dense[shared[p]].dtype if specs[p] is not None else variables[shared[p]].dtype
        for p in present
    ]

    def callback(*arrays: Array) -> list[Any]:
        given: list[Array | None] = [None] * len(shared)
        for position, array in zip(mine, arrays, strict=True):
            given[position] = array
        reduced = averaging.reduce_inside(names, given)
        if reduced is None:
            return [np.bool_(False), *(_zeros(variables[shared[p]], given[p]) for p in present)]
        # Those that no rank has in this step count as zero: the graph expects them.
        results = [
            _zeros(variables[shared[p]], given[p]) if reduced[p] is None else reduced[p]
            for p in present
        ]
        return [np.bool_(True), *results]

    outputs = tf.numpy_function(
        callback, [dense[shared[p]] for p in mine], [tf.bool, *types], name="farandole_gradients"
    )
    complete, *results = outputs if isinstance(outputs, list | tuple) else [outputs]
    combined = [averaging.scale(g) if own else None for g, own in zip(dense, local, strict=True)]
    for position, result in zip(present, results, strict=True):
        index = shared[position]
        result.set_shape(variables[index].shape)
        combined[index] = result
    return complete, combined


def _zeros(variable: Any, like: Array | None) -> Array:
    dtype = variable.dtype if like is None else like.dtype
    return np.zeros(tuple(variable.shape), dtype)


BACKEND = TensorFlowBackend()
