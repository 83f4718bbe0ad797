"""Keras in the tests' own process: on torch, which is there anyway."""

from __future__ import annotations

import os
import sys

# Keras's default is TensorFlow, which takes seconds to import and does not survive a fork.
os.environ.setdefault("KERAS_BACKEND", "torch")
# What else it imports where it is installed takes as long as Keras itself.
_UNUSED = [n for n in ("IPython", "jax", "pandas", "sklearn") if n not in sys.modules]
sys.modules |= dict.fromkeys(_UNUSED)  # type: ignore[arg-type]
try:
    import keras  # noqa: F401
finally:
    for name in _UNUSED:
        del sys.modules[name]
