"""Loading a model that was trained with a wrapped optimizer, and going on with it."""

from __future__ import annotations

from typing import Any

from farandole.errors import UsageError
from farandole.keras.collectives import Compression


def load_model(
    filepath: Any,
    custom_optimizers: Any = None,
    custom_objects: Any = None,
    compression: Any = Compression.none,
    legacy_opts: bool = False,
    **options: Any,
) -> Any:
    """Load a compiled model and wrap its optimizer, state included.

    A model that was saved with a wrapped optimizer is an ordinary Keras file; this is
    `keras.models.load_model` and then DistributedOptimizer.

    Args:
        filepath: what `model.save` wrote.
        custom_optimizers: optimizer classes of your own.
        custom_objects: other classes and functions of your own, by name.
        compression: as of DistributedOptimizer.
        legacy_opts: Horovod's, without effect.
        options: further arguments of DistributedOptimizer.
    """
    import keras

    from farandole.keras.optimizer import DistributedOptimizer
    from farandole.keras.trainer import remember

    known = {kind.__name__: kind for kind in custom_optimizers or ()}
    model = keras.models.load_model(filepath, custom_objects=known | dict(custom_objects or {}))
    if model.optimizer is None:
        raise UsageError(
            f"{filepath} holds a model that was not compiled: there is no optimizer to wrap. Use "
            "keras.models.load_model and compile it."
        )
    DistributedOptimizer(model.optimizer, compression=compression, **options)
    # It was compiled while it was loaded, before its optimizer was wrapped.
    model.train_function = None
    if keras.backend.backend() == "tensorflow":
        model.jit_compile = False
    remember(model)
    return model
