"""Weights that are the same in every process."""

from __future__ import annotations

import random


def seed_weights(number: int) -> None:
    """Let the weights that Keras makes next come from this number.

    keras.utils.set_random_seed imports TensorFlow on every backend, which takes seconds.
    """
    random.seed(number)
