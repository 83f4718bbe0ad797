"""Sharded arrays as TensorFlow's fit likes them best. Imported on that backend only.

Keras would run a Python generator for each batch, which cost a small model's step more processor
time than arrays given to `fit` in trials by hand (on a loaded machine; no figure is claimed). One
call per batch was near these, and needs no copy of them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

# Numbers and truth values; texts and objects go the way that Keras has for them.
_KINDS = "fiub"


def batches_of(batch: Callable[[int], Any], steps: int, example: Any) -> Any | None:
    """Return a tf.data.Dataset of batches, or None where their types do not allow it.

    Args:
        batch: makes the batch of a step.
        steps: how many there are.
        example: a batch of any size, whose structure, types and shapes all others have.
    """
    if isinstance(example, np.ndarray):
        # A dataset's element is (x,) for Keras.
        return batches_of(lambda step: (batch(step),), steps, (example,))
    parts = tf.nest.flatten(example)
    if not all(isinstance(part, np.ndarray) and part.dtype.kind in _KINDS for part in parts):
        return None

    def load(step: Any) -> Any:
        types = [part.dtype for part in parts]
        loaded = tf.numpy_function(lambda s: tf.nest.flatten(batch(int(s))), [step], types)
        for tensor, part in zip(loaded, parts, strict=True):
            tensor.set_shape((None, *part.shape[1:]))
        return tf.nest.pack_sequence_as(example, loaded)

    return tf.data.Dataset.range(steps).map(load).prefetch(tf.data.AUTOTUNE)
