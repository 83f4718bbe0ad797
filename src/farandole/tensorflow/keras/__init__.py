"""farandole.keras, for programs that use tf.keras: horovod.tensorflow.keras has this place."""

from __future__ import annotations

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
