"""farandole.keras where programs with tf.keras look for it."""

from __future__ import annotations

import farandole.keras
import farandole.tensorflow.keras as hvd
import farandole.tensorflow.keras.callbacks as callbacks


def check_it_is_farandole_keras() -> None:
    missing = [name for name in farandole.keras.__all__ if not hasattr(hvd, name)]
    assert missing == [], missing
    assert hvd.DistributedOptimizer is farandole.keras.DistributedOptimizer
    assert hvd.__all__ == farandole.keras.__all__


def check_callbacks() -> None:
    ours = farandole.keras.callbacks
    assert callbacks.__all__ == ours.__all__
    for name in ours.__all__:
        assert getattr(callbacks, name) is getattr(ours, name) is getattr(hvd.callbacks, name)
