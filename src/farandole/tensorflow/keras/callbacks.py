"""The callbacks of farandole.keras, where Horovod has them for tf.keras."""

from __future__ import annotations

from farandole.keras.callbacks import *  # noqa: F403
from farandole.keras.callbacks import __all__ as __all__
