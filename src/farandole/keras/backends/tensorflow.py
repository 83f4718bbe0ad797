"""Keras on TensorFlow: one callback per step takes all gradients.

One per variable would block TensorFlow's threads in an order that differs from rank to rank, and
with few of them that is a deadlock.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from farandole.errors import UsageError
from farandole.keras.averaging import Averaging, Batch
from farandole.tensorflow.callback import call, end_step
from farandole.transport.reduction import Array


class TensorFlowBackend:
    """See keras.averaging.Backend."""

    def combine(self, averaging: Averaging, batch: Batch) -> list[Any] | None:
        """Return gradients combined over all workers; never asked to sum several batches."""
        _, combined = _call(averaging, batch)
        return combined

    def apply(
        self, averaging: Averaging, batch: Batch, update: Callable[[list[Any]], None]
    ) -> None:
        """Combine, and update unless more batches are to be summed first."""
        complete, combined = _call(averaging, batch)
        if averaging.passes == 1:
            update(combined)
            return

        def go() -> tf.Tensor:
            update(combined)
            return tf.constant(True)

        tf.cond(complete, go, lambda: tf.constant(False))

    def end_step(self, averaging: Averaging, gradients: Sequence[Any]) -> None:
        """Leave the script if all do so at this step; out of a tf.function when it has run."""
        end_step()


def _call(averaging: Averaging, batch: Batch) -> tuple[tf.Tensor, list[Any]]:
    """Return whether there is something to apply, and the combined gradients."""
    mine = [place for place, gradient in enumerate(batch.gradients) if gradient is not None]
    # While this is traced; for the first time in the first step, on every rank.
    coming = sorted(batch.wanted & (averaging.agree(batch) | frozenset(mine)))
    specs = batch.specs

    def callback(*arrays: Array) -> list[Any]:
        given: list[Array | None] = [None] * len(specs)
        for place, array in zip(mine, arrays, strict=True):
            given[place] = array
        reduced = averaging.reduce_inside(batch, given)
        if reduced is None:
            return [np.bool_(False), *(np.zeros(*specs[place]) for place in coming)]
        late = [p for p in batch.wanted.difference(coming) if reduced[p] is not None]
        if late:
            raise UsageError(
                f"Another rank has a gradient of variable {batch.names[late[0]]}, which this rank "
                "did not expect when its step was traced. Use all variables in the first step."
            )
        # Those that no rank has in this step count as zero: the graph expects them.
        results = [np.zeros(*specs[p]) if reduced[p] is None else reduced[p] for p in coming]
        return [np.bool_(True), *results]

    # Not borrowed, though it is the buckets' memory: they are written again when the next gradients
    # are there, and those wait for this update.
    complete, *results = call(
        callback,
        [tf.cast(tf.convert_to_tensor(batch.gradients[p]), specs[p][1]) for p in mine],
        [tf.TensorSpec([], tf.bool), *(tf.TensorSpec(*specs[place]) for place in coming)],
    )
    combined: list[Any] = [None] * len(specs)
    for place, result in zip(coming, results, strict=True):
        combined[place] = result
    return complete, combined


BACKEND = TensorFlowBackend()
