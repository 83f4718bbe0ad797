"""Keras on JAX: gradients in one compiled function, the update in another, and we in between.

A callback inside of one compiled step takes twice as long; it is the way for programs that compile
a step of their own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jax.experimental import io_callback

from farandole.errors import UsageError
from farandole.keras.averaging import Averaging
from farandole.transport.reduction import Array


class JaxBackend:
    """See keras.averaging.Backend."""

    def combine(
        self, averaging: Averaging, optimizer: Any, gradients: list[Any], variables: list[Any]
    ) -> list[Any]:
        """Return gradients combined over all workers, also while a step is being compiled."""
        local = averaging.is_local(variables)
        shared = [index for index, own in enumerate(local) if not own]
        names = [variables[index].path for index in shared]
        given = [gradients[index] for index in shared]
        if any(isinstance(gradient, jax.core.Tracer) for gradient in given):
            combined = _compiled(averaging, names, given)
        else:
            reduced = averaging.reduce(names, [_array_of(gradient) for gradient in given])
            if reduced is None:
                return []
            # Copies: what a program does with them later is not known here.
            combined = [None if array is None else jax.numpy.array(array) for array in reduced]
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
        combined = self.combine(averaging, optimizer, gradients, variables)
        if combined:
            update(combined, variables)


def split_step(model: Any, averaging: Averaging) -> Callable[[Any, Any], Any]:
    """Return Keras's training step for JAX, in two compiled functions with the engine between."""
    from keras.src.trainers.data_adapters import data_adapter_utils

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
    names = [variable.path for variable in model.trainable_variables]

    def step(state: Any, data: Any) -> Any:
        trainable, non_trainable, optimizer, metrics = state
        gradients, logs, non_trainable, metrics = compute(
            trainable, non_trainable, metrics, optimizer, data
        )
        local = averaging.is_local(model.trainable_variables)
        shared = [index for index, own in enumerate(local) if not own]
        reduced = averaging.reduce(
            [names[index] for index in shared], [_array_of(gradients[index]) for index in shared]
        )
        if reduced is not None:
            combined = [
                averaging.scale(g) if own else g for g, own in zip(gradients, local, strict=True)
            ]
            for index, array in zip(shared, reduced, strict=True):
                combined[index] = array
            # They alias the buckets, which are written again when the next gradients are there:
            # those wait for this update.
            trainable, optimizer = update(trainable, optimizer, combined)
        return logs, (trainable, non_trainable, optimizer, metrics)

    return step


def _compiled(averaging: Averaging, names: list[str], gradients: list[Any]) -> list[Any]:
    if averaging.passes > 1:
        raise UsageError(
            f"backward_passes_per_step={averaging.passes} does not work inside of a compiled step "
            "of your own: use fit with the model's own train_step, or "
            "gradient_accumulation_steps of the Keras optimizer."
        )
    specs = [None if g is None else (g.shape, g.dtype.name) for g in gradients]
    present = sorted(averaging.prepare(names, specs))
    mine = [position for position, spec in enumerate(specs) if spec is not None]

    def callback(*arrays: Any) -> list[Array]:
        given: list[Array | None] = [None] * len(names)
        for position, array in zip(mine, arrays, strict=True):
            given[position] = np.asarray(array)
        reduced = averaging.reduce_inside(names, given)
        assert reduced is not None
        return [np.array(reduced[position]) for position in present]

    shapes = [jax.ShapeDtypeStruct(gradients[p].shape, gradients[p].dtype) for p in present]
    results = io_callback(callback, shapes, *(gradients[p] for p in mine), ordered=True)
    combined: list[Any] = [None] * len(names)
    for position, result in zip(present, results, strict=True):
        combined[position] = result
    return combined


def _array_of(gradient: Any) -> Array | None:
    return None if gradient is None else np.asarray(gradient)


BACKEND = JaxBackend()
