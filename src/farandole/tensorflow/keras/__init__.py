"""farandole.keras, for programs that use tf.keras: horovod.tensorflow.keras has this place."""

from __future__ import annotations

from typing import TYPE_CHECKING

import keras as _keras

from farandole.errors import UsageError
from farandole.keras import *  # noqa: F403
from farandole.keras import __all__ as __all__

if _keras.backend.backend() != "tensorflow":
    raise UsageError(
        f"farandole.tensorflow.keras is for tf.keras, and Keras runs on "
        f"{_keras.backend.backend()} here. Set KERAS_BACKEND=tensorflow, or import "
        "farandole.keras, which works on every backend."
    )


if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        if name == "elastic":
            from importlib import import_module

            return import_module("farandole.tensorflow.keras.elastic")
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}", name=name)
