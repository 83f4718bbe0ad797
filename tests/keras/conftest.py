"""Keras in the tests' own process: on torch, which is there anyway."""

from __future__ import annotations

import os

# Keras's default is TensorFlow, which takes seconds to import and does not survive a fork.
os.environ.setdefault("KERAS_BACKEND", "torch")
