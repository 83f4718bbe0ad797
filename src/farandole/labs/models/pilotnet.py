"""NVIDIA's PilotNet, which steers by a camera's image, in Keras."""

from __future__ import annotations

from typing import Any

import keras
from keras import layers

PARAMETERS = 252_219
SIZE = (66, 200)
"""Height and width of an image."""


def pilotnet() -> Any:
    """Return the network of Bojarski et al. (2016), for images in bytes.

    It takes 66x200x3 with values of 0 to 255, and gives the steering: its loss is "mse".
    """
    return keras.Sequential(
        [
            keras.Input((*SIZE, 3)),
            # Part of the network in the paper, too: normalisation that is not learned.
            layers.Rescaling(1 / 127.5, offset=-1.0),
            layers.Conv2D(24, 5, strides=2, activation="elu"),
            layers.Conv2D(36, 5, strides=2, activation="elu"),
            layers.Conv2D(48, 5, strides=2, activation="elu"),
            layers.Conv2D(64, 3, activation="elu"),
            layers.Conv2D(64, 3, activation="elu"),
            layers.Flatten(),
            layers.Dense(100, activation="elu"),
            layers.Dense(50, activation="elu"),
            layers.Dense(10, activation="elu"),
            # Begins as a car that drives straight ahead: most do, most of the time. With weights
            # drawn at random it begins far off, and learns a small drive by heart on the way back.
            layers.Dense(1, kernel_initializer="zeros"),
        ]
    )
