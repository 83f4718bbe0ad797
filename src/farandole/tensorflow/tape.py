"""DistributedGradientTape: gradients that are combined over all workers."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Any

import tensorflow as tf

from farandole.engine.arguments import Average, gradient_reduction
from farandole.errors import UsageError
from farandole.tensorflow.callback import as_written, end_step
from farandole.tensorflow.compression import compressor_of
from farandole.tensorflow.gradients import Way, combine


@as_written
def DistributedGradientTape(  # noqa: N802 (Horovod's name)
    gradtape: Any,
    device_dense: str = "",
    device_sparse: str = "",
    compression: Any = None,
    sparse_as_dense: bool = False,
    op: int = Average,
    gradient_predivide_factor: float = 1.0,
    num_groups: int = 0,
    groups: Any = None,
    process_set: Any = None,
    scale_local_gradients: bool = True,
) -> Any:
    """Wrap a tape so that its `gradient` combines gradients over all workers.

    Args:
        gradtape: a tf.GradientTape, before, during or after its recording.
        compression: hvd.Compression.none, fp16 or bf16, or a class with compress and decompress.
        sparse_as_dense: send tf.IndexedSlices as dense tensors.
        op: Average (default), Sum, Min, Max or Product.
        gradient_predivide_factor: splits the division of an average in two: gradients are divided
            by it before the sum, and by size / factor after.
        process_set: the workers that train together; one that is not among them trains alone.
        scale_local_gradients: divide gradients of local sources by the number of workers.
        device_dense: Horovod's, without effect, as are device_sparse, num_groups and groups:
            all gradients of a step go through buckets by one callback.

    Returns:
        A tape; besides a tf.GradientTape's methods it has `register_local_source(source)`, which
        leaves a variable's gradient to each worker.

    Example:
        with tf.GradientTape() as tape:
            loss = loss_of(model(x), y)
        tape = hvd.DistributedGradientTape(tape)
        optimizer.apply(tape.gradient(loss, model.trainable_variables), model.trainable_variables)
    """
    if isinstance(gradtape, _DistributedTape):
        raise UsageError("This tape is a DistributedGradientTape already; wrap it only once.")
    if not isinstance(gradtape, tf.GradientTape):
        raise UsageError(
            f"DistributedGradientTape takes a tf.GradientTape, not a {type(gradtape).__name__}."
        )
    way = Way(
        how=gradient_reduction(op, gradient_predivide_factor),
        compressor=compressor_of(compression),
        sparse_as_dense=sparse_as_dense,
        process_set=process_set,
    )
    way.workers()  # What is wrong with the set is better said here than out of a graph.
    return _DistributedTape(gradtape, way, scale_local_gradients)


@as_written
def PartialDistributedGradientTape(  # noqa: N802 (Horovod's name)
    gradtape: Any,
    device_dense: str = "",
    device_sparse: str = "",
    compression: Any = None,
    sparse_as_dense: bool = False,
    op: int = Average,
    gradient_predivide_factor: float = 1.0,
    num_groups: int = 0,
    groups: Any = None,
    process_set: Any = None,
    local_layers: Any = None,
    scale_local_gradients: bool = True,
) -> Any:
    """Wrap a tape like DistributedGradientTape, but leave some layers to each worker.

    Args:
        local_layers: a layer or a list of layers, built, whose gradients are not combined.
        gradtape: this and all others are those of DistributedGradientTape.
    """
    layers = [] if local_layers is None else local_layers
    layers = list(layers) if isinstance(layers, Sequence) else [layers]
    strangers = [each for each in layers if not hasattr(each, "trainable_variables")]
    if strangers:
        raise UsageError(
            f"local_layers has a {type(strangers[0]).__name__} where a Keras layer should be."
        )
    tape = DistributedGradientTape(
        gradtape,
        compression=compression,
        sparse_as_dense=sparse_as_dense,
        op=op,
        gradient_predivide_factor=gradient_predivide_factor,
        process_set=process_set,
        scale_local_gradients=scale_local_gradients,
    )
    for layer in layers:
        for variable in layer.trainable_variables:
            tape.register_local_source(variable)
    return tape


class _DistributedTape(tf.GradientTape):  # type: ignore[misc]
    """A tape around another, which records."""

    def __init__(self, tape: Any, way: Way, scale_local: bool) -> None:
        # Not the base class's: everything that it would keep is in the tape inside.
        self._inner, self._way, self._scale_local = tape, way, scale_local
        self._local: list[Any] = []

    def register_local_source(self, source: Any) -> None:
        """Leave the gradient of a variable to each worker."""
        self._local.append(source)

    @as_written
    def gradient(
        self,
        target: Any,
        sources: Any,
        output_gradients: Any = None,
        unconnected_gradients: Any = tf.UnconnectedGradients.NONE,
    ) -> Any:
        """Return gradients, combined over all workers, in the structure of the sources."""
        found = self._inner.gradient(target, sources, output_gradients, unconnected_gradients)
        flat, of = tf.nest.flatten(found), tf.nest.flatten(sources)
        local = {_identity(source) for source in self._local}
        is_local = [_identity(source) in local for source in of]
        shared = [index for index, own in enumerate(is_local) if not own]
        combined = iter(combine([flat[i] for i in shared], [of[i] for i in shared], self._way))
        results = [
            self._scaled(gradient) if own else next(combined)
            for gradient, own in zip(flat, is_local, strict=True)
        ]
        end_step()
        return tf.nest.pack_sequence_as(sources, results)

    def __enter__(self) -> _DistributedTape:
        self._inner.__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._inner.__exit__(kind, error, trace)

    def watch(self, tensor: Any) -> None:
        """Record what happens to a tensor."""
        self._inner.watch(tensor)

    def watched_variables(self) -> Any:
        """Return the variables whose use was recorded."""
        return self._inner.watched_variables()

    def stop_recording(self) -> AbstractContextManager[None]:
        """Record nothing within this context."""
        paused: AbstractContextManager[None] = self._inner.stop_recording()
        return paused

    def reset(self) -> None:
        """Forget what was recorded."""
        self._inner.reset()

    def jacobian(self, *arguments: Any, **options: Any) -> Any:
        """Return this worker's own Jacobian: it is not combined."""
        return self._inner.jacobian(*arguments, **options)

    def batch_jacobian(self, *arguments: Any, **options: Any) -> Any:
        """Return this worker's own batch of Jacobians: they are not combined."""
        return self._inner.batch_jacobian(*arguments, **options)

    def _scaled(self, gradient: Any) -> Any:
        """Return a local source's gradient as it is applied."""
        if gradient is None or not self._scale_local:
            return gradient
        size = self._way.workers()
        if isinstance(gradient, tf.IndexedSlices):
            values = gradient.values / size
            return tf.IndexedSlices(values, gradient.indices, gradient.dense_shape)
        return gradient / size


def _identity(source: Any) -> int:
    """Return what a Keras variable and the TensorFlow variable inside of it share."""
    return id(source if isinstance(source, tf.Variable) else getattr(source, "_value", source))


def DistributedOptimizer(  # noqa: N802 (Horovod's name)
    optimizer: Any,
    name: str | None = None,
    use_locking: bool = False,
    device_dense: str = "",
    device_sparse: str = "",
    compression: Any = None,
    sparse_as_dense: bool = False,
    backward_passes_per_step: int = 1,
    op: int = Average,
    gradient_predivide_factor: float = 1.0,
    average_aggregated_gradients: bool = False,
    num_groups: int = 0,
    groups: Any = None,
    process_set: Any = None,
    scale_local_gradients: bool = True,
) -> Any:
    """Wrap a Keras optimizer so that gradients are combined over all workers before each update.

    It is farandole.keras's, with Horovod's order of arguments; see there. `use_locking` is
    TensorFlow 1's and has no effect.

    Raises:
        UsageError: an optimizer of TensorFlow 1, or one that is wrapped already.
    """
    if isinstance(optimizer, tf.compat.v1.train.Optimizer):
        raise UsageError(
            f"{type(optimizer).__name__} is an optimizer of TensorFlow 1. Use one of "
            "tf.keras.optimizers, or hvd.DistributedGradientTape around your tape."
        )
    from farandole.keras import optimizer as keras_optimizer

    return keras_optimizer.DistributedOptimizer(
        optimizer,
        name,
        compression=compression,
        sparse_as_dense=sparse_as_dense,
        gradient_predivide_factor=gradient_predivide_factor,
        op=op,
        backward_passes_per_step=backward_passes_per_step,
        average_aggregated_gradients=average_aggregated_gradients,
        process_set=process_set,
        scale_local_gradients=scale_local_gradients,
    )
