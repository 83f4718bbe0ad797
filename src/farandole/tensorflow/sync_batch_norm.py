"""Batch normalisation over the batches of all workers together."""

from __future__ import annotations

from typing import Any

import keras
import tensorflow as tf

from farandole.engine import context
from farandole.engine.arguments import Sum
from farandole.errors import UsageError
from farandole.tensorflow.callback import as_written
from farandole.tensorflow.collectives import allreduce


@keras.saving.register_keras_serializable(package="farandole")
class SyncBatchNormalization(keras.layers.BatchNormalization):  # type: ignore[misc]
    """BatchNormalization as one worker would do it that sees the batches of all.

    Workers' batches may differ in size. In training there is one small exchange on the way forward
    and one on the way back; otherwise it is a BatchNormalization.

    Args:
        fused: Horovod's; only False.
        kwargs: those of keras.layers.BatchNormalization.
    """

    def __init__(self, fused: bool = False, **kwargs: Any) -> None:
        if fused:
            raise UsageError("SyncBatchNormalization cannot be fused. Leave fused out.")
        if keras.backend.backend() != "tensorflow":
            raise UsageError(
                "SyncBatchNormalization needs Keras's TensorFlow backend, and Keras runs on "
                f"{keras.backend.backend()} here. Set KERAS_BACKEND=tensorflow."
            )
        super().__init__(**kwargs)

    @as_written
    def _moments(self, inputs: Any, mask: Any) -> tuple[Any, Any]:
        """Return mean and variance over the batches of all workers (Keras calls this)."""
        if context.size() == 1:
            return super()._moments(inputs, mask)  # type: ignore[no-any-return]
        count, mean, around = self._own_moments(inputs, mask)
        # One row for each worker: sums of squares around each one's own mean lose no digits, and
        # adding zeros to a row changes nothing.
        mine = tf.one_hot(context.rank(), context.size(), dtype=inputs.dtype)
        rows = allreduce(mine[:, None, None] * tf.stack([count, mean, around])[None], op=Sum)
        counts, means, arounds = tf.unstack(rows, axis=1)
        # What Keras adds so that a mask without any True divides by more than zero.
        little = 0.0 if mask is None else keras.backend.epsilon()
        total = tf.reduce_sum(counts, 0) + tf.cast(little, inputs.dtype)
        together = tf.reduce_sum(counts * means, 0) / total
        apart = counts * tf.square(means - together)
        return together, tf.reduce_sum(arounds + apart, 0) / total

    def _own_moments(self, inputs: Any, mask: Any) -> tuple[Any, Any, Any]:
        """Return number, mean and sum of squares around it of this worker's values."""
        channels = inputs.shape[self.axis]
        if mask is None:
            number = tf.size(inputs, tf.int64) // channels
            count = tf.fill([channels], tf.cast(number, inputs.dtype))
            valid = None
        else:
            valid = tf.broadcast_to(tf.cast(mask, tf.bool)[..., None], tf.shape(inputs))
            count = self._sum(tf.cast(valid, inputs.dtype), channels)
        mean = tf.math.divide_no_nan(self._sum(_where(valid, inputs), channels), count)
        shape = [1] * len(inputs.shape)
        shape[self.axis] = channels
        # Moving the mean a little does not change the sum of squares around it: no gradient.
        centre = tf.reshape(tf.stop_gradient(mean), shape)
        around = self._sum(tf.square(_where(valid, inputs - centre)), channels)
        return count, mean, around

    def _sum(self, values: Any, channels: int) -> Any:
        return tf.reshape(tf.reduce_sum(values, self._reduction_axes), [channels])


def _where(valid: Any, values: Any) -> Any:
    return values if valid is None else tf.where(valid, values, tf.zeros_like(values))


if not hasattr(keras.layers.BatchNormalization, "_moments"):
    raise UsageError(
        f"Keras {keras.__version__} computes BatchNormalization in another way than the versions "
        "that SyncBatchNormalization knows. Use keras 3.5 to 3.15."
    )
