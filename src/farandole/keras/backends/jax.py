"""Keras on JAX: gradients in one compiled function, the update in another, and we in between.

A callback inside of one compiled step takes twice as long; it is the way for programs that compile
a step of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from jax.experimental import io_callback

from farandole.engine.clean_stop import StopTraining
from farandole.errors import UsageError
from farandole.keras.averaging import Averaging, Batch
from farandole.transport.reduction import Array


class JaxBackend:
    """See keras.averaging.Backend."""

    def combine(self, averaging: Averaging, batch: Batch) -> list[Any] | None:
        """Return gradients combined over all workers, also while a step is being compiled."""
        if _traced(batch.gradients):
            return _compiled(averaging, batch)
        reduced = averaging.reduce(batch, [_array_of(gradient) for gradient in batch.gradients])
        if reduced is None:
            return None
        # Copies: what a program does with them later is not known here.
        return [None if array is None else jax.numpy.array(array) for array in reduced]

    def apply(
        self, averaging: Averaging, batch: Batch, update: Callable[[list[Any]], None]
    ) -> None:
        """Combine, and update unless more batches are to be summed first."""
        combined = self.combine(averaging, batch)
        if combined is not None:
            update(combined)

    def end_step(self, averaging: Averaging, gradients: Sequence[Any]) -> None:
        """Leave the script if all do so at this step; `leaving` does for compiled ones."""
        if not averaging.left_behind and not _traced(gradients):
            averaging.context.stop_if_asked()


def split_step(model: Any, averaging: Averaging) -> Callable[[Any, Any], Any]:
    """Return Keras's training step for JAX, in two compiled functions with the engine between."""
    from keras.src.trainers.data_adapters import data_adapter_utils

    from farandole.keras.optimizer import Step

    def compute(
        trainable: list[Any],
        non_trainable: list[Any],
        metrics: list[Any],
        optimizer: list[Any],
        data: Any,
    ) -> Any:
        x, y, sample_weight = data_adapter_utils.unpack_x_y_sample_weight(data)
        gradient = jax.value_and_grad(model.compute_loss_and_updates, has_aux=True)
        (_, aux), gradients = gradient(
            trainable,
            non_trainable,
            metrics,
            x,
            y,
            sample_weight,
            training=True,
            optimizer_variables=optimizer,
        )
        loss, y_pred, non_trainable, metrics = aux
        logs, metrics = model._update_metrics_variables(metrics, loss, x, y, y_pred, sample_weight)
        return gradients, logs, non_trainable, metrics

    def update(trainable: list[Any], optimizer: list[Any], gradients: list[Any]) -> Any:
        with averaging.pausing():
            return model.optimizer.stateless_apply(optimizer, gradients, trainable)

    if model.jit_compile and not model.run_eagerly:
        # Gradients are not given away: their memory is ours.
        compute = jax.jit(compute, donate_argnums=(1, 2))
        update = jax.jit(update, donate_argnums=(0, 1))

    def step(state: Any, data: Any) -> Any:
        trainable, non_trainable, optimizer, metrics = state
        gradients, logs, non_trainable, metrics = compute(
            trainable, non_trainable, metrics, optimizer, data
        )
        given = Step(model.optimizer, averaging, gradients, model.trainable_variables)
        arrays = [_array_of(gradient) for gradient in given.batch.gradients]
        reduced = averaging.reduce(given.batch, arrays)
        if reduced is not None:
            # They alias the buckets, which are written again when the next gradients are there:
            # those wait for this update.
            trainable, optimizer = update(trainable, optimizer, given.results(reduced))
        return logs, (trainable, non_trainable, optimizer, metrics)

    return step


def leaving(
    model: Any, averaging: Averaging, function: Callable[[Any, Any], Any]
) -> Callable[[Any, Any], Any]:
    """Return Keras's train_function for JAX with a clean stop behind each execution."""
    if averaging.context.clean_stop is None:
        return function
    wait: Any = jax.block_until_ready  # it has no types

    def train_function(state: Any, data: Any) -> Any:
        averaging.left_behind = True
        try:
            logs, state = function(state, data)
        finally:
            averaging.left_behind = False
        if averaging.size > 1:
            # Calls return before they are done. A callback inside of the step has to count it, on
            # all workers, before anybody can tell whether it was the last.
            wait(logs)
        try:
            averaging.context.stop_if_asked()
        except StopTraining:
            _give_back(model, state)
            raise
        return logs, state

    return train_function


def _give_back(model: Any, state: Any) -> None:
    """Put a fit's state into the model's variables, which it had taken it from."""
    names = ("trainable", "non_trainable", "optimizer", "metrics")
    model._jax_state = {
        f"{name}_variables": values for name, values in zip(names, state, strict=True)
    }
    model._jax_state_synced = False
    model.jax_state_sync()


def _compiled(averaging: Averaging, batch: Batch) -> list[Any]:
    if averaging.passes > 1:
        raise UsageError(
            f"backward_passes_per_step={averaging.passes} does not work inside of a compiled step "
            "of your own: use fit with the model's own train_step, or "
            "gradient_accumulation_steps of the Keras optimizer."
        )
    mine = [place for place, gradient in enumerate(batch.gradients) if gradient is not None]
    specs = batch.specs

    def callback(*arrays: Any) -> list[Array]:
        given: list[Array | None] = [None] * len(specs)
        for place, array in zip(mine, arrays, strict=True):
            given[place] = np.asarray(array)
        reduced = averaging.reduce_inside(batch, given)
        assert reduced is not None
        return [np.array(reduced[place]) for place in mine]

    shapes = [_struct(*specs[place]) for place in mine]
    results = io_callback(callback, shapes, *(batch.gradients[p] for p in mine), ordered=True)
    combined: list[Any] = [None] * len(specs)
    for place, result in zip(mine, results, strict=True):
        combined[place] = result
    return combined


def _traced(gradients: Sequence[Any]) -> bool:
    """Say whether gradients are only names of what will be computed: a step is being compiled."""
    return any(isinstance(gradient, jax.core.Tracer) for gradient in gradients)


def _struct(shape: Sequence[int], dtype: str) -> Any:
    struct: Any = jax.ShapeDtypeStruct
    return struct(shape, dtype)


def _array_of(gradient: Any) -> Array | None:
    return None if gradient is None else np.asarray(gradient)


BACKEND = JaxBackend()
