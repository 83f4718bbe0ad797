"""The classic CNN for MNIST, in Keras."""

from __future__ import annotations

from typing import Any

import keras
from keras import layers

PARAMETERS = 1_199_882


def mnist_cnn() -> Any:
    """Return the two-convolution network of Keras's first examples, for images in bytes.

    It takes 28x28x1 with values of 0 to 255, and gives the probability of each digit: its loss is
    "sparse_categorical_crossentropy".
    """
    return keras.Sequential(
        [
            keras.Input((28, 28, 1)),
            layers.Rescaling(1 / 255),
            layers.Conv2D(32, 3, activation="relu"),
            layers.Conv2D(64, 3, activation="relu"),
            layers.MaxPooling2D(2),
            layers.Dropout(0.25),
            layers.Flatten(),
            layers.Dense(128, activation="relu"),
            layers.Dropout(0.5),
            layers.Dense(10, activation="softmax"),
        ]
    )
