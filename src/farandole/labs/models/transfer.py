"""Transfer learning: EfficientNet-Lite0 with a new dense head, frozen or fine-tuned."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
from keras import layers
from numpy.typing import NDArray

from farandole.labs.models import weights
from farandole.labs.models.efficientnet_lite import lite0

_DROPOUT = 0.2
# How many times faster than a base that is fine-tuned the new head learns: one has next to nothing
# to learn, the other everything. Adam takes steps of the same size everywhere, so that features
# this much larger are the same as a rate this much larger for the head.
_FASTER = 30.0
# Enough for the scale of random weights, and done in a second.
_SAMPLE = 32


def classifier(images: NDArray[np.uint8], *, num_classes: int, chosen: str, finetune: bool) -> Any:
    """Return a network that takes images in bytes and gives the probability of each class.

    Its loss is "sparse_categorical_crossentropy".

    Args:
        images: to train on; they tell the size, and the first ones the scale of random weights.
        num_classes: outputs of the head.
        chosen: weights, by `weights.choose`.
        finetune: whether the base is trained, too, and not the head alone.

    Raises:
        DataError: a file of weights cannot be read, or is of another network.
        MissingExtraError: pretrained weights are not installed.
    """
    random = chosen == weights.NONE
    base = lite0(images.shape[1], sample=images[:_SAMPLE] if random else None)
    if not random:
        weights.load(base, chosen)
    base.trainable = finetune
    return keras.Sequential(
        [
            keras.Input(images.shape[1:]),
            base,
            layers.GlobalAveragePooling2D(),
            layers.Rescaling(_FASTER if finetune else 1.0),
            layers.Dropout(_DROPOUT),
            # Begins without an opinion: a random one would be carried back into the base first.
            layers.Dense(num_classes, activation="softmax", kernel_initializer="zeros"),
        ]
    )
