"""Letting the recorder into Keras, once it has been imported."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from farandole.recorder.keras.feed import Feed, follow_jax, follow_tensorflow, follow_torch
from farandole.recorder.keras.fit import Fits, follow
from farandole.recorder.keras.trained import Trained
from farandole.recorder.keras.updates import Updates
from farandole.recorder.loaders import Loaders


def install(loaders: Loaders) -> None:
    """Follow Keras in this process; Keras 2, and backends that do not train, are let be."""
    keras: Any = sys.modules["keras"]
    if int(str(getattr(keras, "__version__", "0")).partition(".")[0]) < 3:
        return
    backend = str(keras.backend.backend())
    if backend not in ("torch", "tensorflow", "jax"):
        return
    feed, trained = Feed(), Trained(backend)
    fits = Fits(trained, feed)
    updates = Updates(trained, fits, feed, loaders)
    follow(keras.callbacks.CallbackList, fits, feed)
    updates.follow_batches(keras.Model)
    from keras.src.optimizers.base_optimizer import BaseOptimizer

    if backend == "torch":
        from keras.src.backend.torch.trainer import TorchEpochIterator

        follow_torch(TorchEpochIterator, feed, loaders)
        updates.follow_optimizers(BaseOptimizer, _torch_traces)
    elif backend == "jax":
        from keras.src.backend.jax.trainer import JAXEpochIterator

        follow_jax(JAXEpochIterator, feed)
        updates.follow_optimizers(BaseOptimizer, _jax_traces)
    else:
        import tensorflow as tf
        from keras.src.backend.tensorflow.trainer import TFEpochIterator

        follow_tensorflow(TFEpochIterator, feed)
        updates.follow_functions(type(tf.function(lambda: None)))
        updates.follow_optimizers(BaseOptimizer, _tensorflow_traces)


def _torch_traces(gradients: Sequence[Any]) -> bool:
    import torch

    return torch.compiler.is_compiling()


def _jax_traces(gradients: Sequence[Any]) -> bool:
    import jax

    return any(isinstance(gradient, jax.core.Tracer) for gradient in gradients)


def _tensorflow_traces(gradients: Sequence[Any]) -> bool:
    import tensorflow as tf

    return not tf.executing_eagerly()
