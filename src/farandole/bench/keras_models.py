"""The networks of the training rows in Keras: the same layers and sizes as those in `models.py`.

The workers of the limit load this file by its path, because they may not import farandole: it
imports keras and nothing else.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import keras


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """A network with the shape of its synthetic data."""

    model: Any
    """A `keras.Model`, built."""
    batch: int
    sample_shape: tuple[int, ...]
    num_classes: int


def mlp() -> Any:
    """Return the 784-2048-2048-10 perceptron: 5,824,522 parameters, little arithmetic on each."""
    return keras.Sequential(
        [
            keras.Input((784,)),
            keras.layers.Dense(2048, activation="relu"),
            keras.layers.Dense(2048, activation="relu"),
            keras.layers.Dense(10),
        ]
    )


def cnn() -> Any:
    """Return the two-convolution network of many first tutorials: 1,199,882 parameters."""
    return keras.Sequential(
        [
            # Channels last on every backend, because that is what Keras does unless told.
            keras.Input((28, 28, 1)),
            keras.layers.Conv2D(32, 3, activation="relu"),
            keras.layers.Conv2D(64, 3, activation="relu"),
            keras.layers.MaxPooling2D(2),
            keras.layers.Flatten(),
            keras.layers.Dense(128, activation="relu"),
            keras.layers.Dense(10),
        ]
    )


def task(name: str) -> Task:
    """Return the named network with the batch that its row fixes: mlp or cnn."""
    if name == "mlp":
        return Task(model=mlp(), batch=32, sample_shape=(784,), num_classes=10)
    if name == "cnn":
        return Task(model=cnn(), batch=128, sample_shape=(28, 28, 1), num_classes=10)
    raise ValueError(f"no benchmark network for Keras is called {name!r}: mlp, cnn")
