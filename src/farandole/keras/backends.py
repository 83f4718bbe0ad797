"""Keras's backends, each with its own way from gradients to the engine and back.

On torch, gradients go into buckets by hooks while backward runs, as in farandole.torch; where hooks
cannot serve (several batches are summed, or gradients travel in half precision) they go as arrays.

On TensorFlow one callback per step takes all gradients. One per variable would block TensorFlow's
threads in an order that differs from rank to rank, and with few of them that is a deadlock.

On JAX gradients come from one compiled function, the update is in another, and we are in between. A
callback inside of one compiled step takes twice as long; it is the way for programs that compile a
step of their own.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from farandole.elastic import generation
from farandole.engine.clean_stop import StopTraining
from farandole.errors import MissingExtraError, UsageError
from farandole.transport.reduction import HALF_TYPES, STORAGE, Array

if TYPE_CHECKING:
    from farandole.keras.optimizer import Averaging, Batch

_EXTRAS = ("torch", "tensorflow", "jax")


def check_keras() -> None:
    """Import Keras, once.

    Raises:
        MissingExtraError: Keras or its backend is not installed, or it is Keras 2.
    """
    try:
        import keras
    except ImportError as error:
        raise missing(error.name) from error
    version = getattr(keras, "__version__", "0")
    if int(version.partition(".")[0]) < 3:
        raise MissingExtraError(
            f"farandole.keras needs Keras 3, and Keras {version} is installed. Use "
            "pip install 'keras>=3.5'; programs for Keras 2 mostly run as they are."
        )


def missing(module: str | None) -> MissingExtraError:
    """Return the error for a module that Keras could not import."""
    chosen = os.environ.get("KERAS_BACKEND")
    package = (module or "keras").partition(".")[0]
    if package == "keras":
        return MissingExtraError(
            "farandole.keras needs Keras, which is not installed: "
            "pip install 'farandole[keras,torch]' (or tensorflow or jax in the place of torch)."
        )
    extra = "jax" if package == "jaxlib" else package
    why = f"KERAS_BACKEND={chosen}" if chosen else "Keras's default backend"
    others = [name for name in _EXTRAS if name != extra]
    return MissingExtraError(
        f"{why} needs {package}, which is not installed: pip install 'farandole[keras,{extra}]', "
        f"or choose another backend by KERAS_BACKEND={others[0]} or {others[1]}."
    )


def backend_name() -> str:
    """Return "torch", "tensorflow" or "jax"."""
    import keras

    return str(keras.backend.backend())


class Backend:
    """How the gradients of one of Keras's backends reach the engine and come back."""

    def combine(self, averaging: Averaging, batch: Batch) -> list[Any] | None:
        """Return gradients combined over all workers; None for those that no worker has.

        The whole is None while more batches are to be summed first.
        """
        raise NotImplementedError

    def apply(
        self, averaging: Averaging, batch: Batch, update: Callable[[list[Any]], None]
    ) -> None:
        """Combine gradients, and call `update` with them when it is time for it."""
        combined = self.combine(averaging, batch)
        if combined is not None:
            update(combined)

    def end_step(self, averaging: Averaging, gradients: Sequence[Any]) -> None:
        """Raise StopTraining if all leave at this step; in a compiled one, when it has run.

        The gradients tell whether it is being compiled.
        """
        averaging.context.stop_if_asked()


@cache
def current() -> Backend:
    """Return the backend that Keras runs on."""
    name = backend_name()
    if name not in _BACKENDS:
        raise UsageError(
            f"Keras runs on the backend {name!r}, which does not train. Choose one of "
            f"{', '.join(_BACKENDS)} by KERAS_BACKEND."
        )
    return _BACKENDS[name]()


class TorchBackend(Backend):
    """See Backend."""

    def combine(self, averaging: Averaging, batch: Batch) -> list[Any] | None:
        """Return gradients combined over all workers."""
        import torch

        with torch.no_grad():
            if averaging.wire is None and averaging.passes == 1:
                return _by_hooks(averaging, batch)
            reduced = averaging.reduce(batch, [_torch_array(each) for each in batch.gradients])
            if reduced is None:
                return None
            return [
                None if array is None else _torch_tensor(array, variable.value)
                for variable, array in zip(batch.variables, reduced, strict=True)
            ]

    def apply(
        self, averaging: Averaging, batch: Batch, update: Callable[[list[Any]], None]
    ) -> None:
        """Combine, and update unless more batches are to be summed first."""
        import torch

        with torch.no_grad():
            super().apply(averaging, batch, update)


def _by_hooks(averaging: Averaging, batch: Batch) -> list[Any]:
    from farandole.engine.bucket_step import OverlapTrial
    from farandole.torch.reducer import GradientReducer

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


def _torch_array(gradient: Any) -> Array | None:
    from farandole.torch.operations import buffer_of

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


def _torch_tensor(array: Array, like: Any) -> Any:
    from farandole.torch.operations import view_of

    return view_of(array, array.dtype.name).to(device=like.device, dtype=like.dtype)


class TensorFlowBackend(Backend):
    """See Backend."""

    def combine(self, averaging: Averaging, batch: Batch) -> list[Any] | None:
        """Return gradients combined over all workers; never asked to sum several batches."""
        _, combined = _tensorflow_call(averaging, batch)
        return combined

    def apply(
        self, averaging: Averaging, batch: Batch, update: Callable[[list[Any]], None]
    ) -> None:
        """Combine, and update unless more batches are to be summed first."""
        import tensorflow as tf

        complete, combined = _tensorflow_call(averaging, batch)
        if averaging.passes == 1:
            update(combined)
            return

        def go() -> Any:
            update(combined)
            return tf.constant(True)

        tf.cond(complete, go, lambda: tf.constant(False))

    def end_step(self, averaging: Averaging, gradients: Sequence[Any]) -> None:
        """Leave the script if all do so at this step; out of a tf.function when it has run."""
        from farandole.tensorflow.callback import end_step

        end_step()


def _tensorflow_call(averaging: Averaging, batch: Batch) -> tuple[Any, list[Any]]:
    """Return whether there is something to apply, and the combined gradients."""
    import tensorflow as tf

    from farandole.tensorflow.callback import call

    mine = [place for place, gradient in enumerate(batch.gradients) if gradient is not None]
    # While this is traced; for the first time in the first step, on every rank. In elastic runs new
    # workers trace what the others have traced before, and are in the middle of: nobody to ask.
    others = frozenset[int]() if generation.is_elastic() else averaging.agree(batch)
    coming = sorted(batch.wanted & (others | frozenset(mine)))
    specs = batch.specs

    def callback(*arrays: Array) -> list[Any]:
        reduced = averaging.reduce_inside(batch, batch.spread(mine, arrays))
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
    return complete, batch.spread(coming, results)


class JaxBackend(Backend):
    """See Backend."""

    def combine(self, averaging: Averaging, batch: Batch) -> list[Any] | None:
        """Return gradients combined over all workers, also while a step is being compiled."""
        import jax

        if _traced(batch.gradients):
            return _jax_callback(averaging, batch)
        reduced = averaging.reduce(batch, _jax_arrays(batch))
        if reduced is None:
            return None
        # Copies: what a program does with them later is not known here.
        return [None if array is None else jax.numpy.array(array) for array in reduced]

    def end_step(self, averaging: Averaging, gradients: Sequence[Any]) -> None:
        """Leave the script if all do so at this step; `leaving` does for compiled ones."""
        if not averaging.left_behind and not _traced(gradients):
            averaging.context.stop_if_asked()


_BACKENDS: dict[str, Callable[[], Backend]] = {
    "torch": TorchBackend,
    "tensorflow": TensorFlowBackend,
    "jax": JaxBackend,
}


def split_step(model: Any, averaging: Averaging) -> Callable[[Any, Any], Any]:
    """Return Keras's training step for JAX, in two compiled functions with the engine between."""
    import jax
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
        reduced = averaging.reduce(given.batch, _jax_arrays(given.batch))
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
    import jax

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


def _jax_callback(averaging: Averaging, batch: Batch) -> list[Any]:
    """Combine inside of a step that a program compiles itself."""
    import jax
    from jax.experimental import io_callback

    if averaging.passes > 1:
        raise UsageError(
            f"backward_passes_per_step={averaging.passes} does not work inside of a compiled step "
            "of your own: use fit with the model's own train_step, or "
            "gradient_accumulation_steps of the Keras optimizer."
        )
    mine = [place for place, gradient in enumerate(batch.gradients) if gradient is not None]
    specs = batch.specs

    def callback(*arrays: Any) -> list[Array]:
        reduced = averaging.reduce_inside(batch, batch.spread(mine, map(np.asarray, arrays)))
        assert reduced is not None
        return [np.array(reduced[place]) for place in mine]

    struct: Any = jax.ShapeDtypeStruct
    shapes = [struct(*specs[place]) for place in mine]
    results = io_callback(callback, shapes, *(batch.gradients[p] for p in mine), ordered=True)
    return batch.spread(mine, results)


def _traced(gradients: Sequence[Any]) -> bool:
    """Say whether gradients are only names of what will be computed: a step is being compiled."""
    import jax

    return any(isinstance(gradient, jax.core.Tracer) for gradient in gradients)


def _jax_arrays(batch: Batch) -> list[Array | None]:
    return [None if each is None else np.asarray(each) for each in batch.gradients]
