"""The networks of the faces lab, in Keras: three of keras.applications, and a small one."""

from __future__ import annotations

from typing import Any

import keras
from keras import layers

from farandole.errors import UsageError

SMALLEST = {"resnet50": 32, "inceptionv3": 75, "vgg16": 32, "small": 32}
"""By name of the network: the side of the smallest image that it takes, in pixels."""
VGG16_PARAMETERS = 138_357_544
"""At 224 pixels and 1000 classes. Nine in ten lie in its dense layers, whose size follows the
image's: with 75 pixels and nine classes there are 39,925,577."""

_APPLICATIONS = {
    "resnet50": keras.applications.ResNet50,
    "inceptionv3": keras.applications.InceptionV3,
    "vgg16": keras.applications.VGG16,
}


def application(name: str, *, size: int, classes: int) -> Any:
    """Return a network with random weights, for square images in bytes.

    It takes size x size x 3 with values of 0 to 255, and gives the probability of each class: its
    loss is "sparse_categorical_crossentropy". The three of keras.applications are whole, with the
    dense layers at their ends; "small" is for runs whose accuracy counts.

    Raises:
        UsageError: There is no such network, or it does not take images as small as these.
    """
    if name not in SMALLEST:
        raise UsageError(f"there is no network {name!r}. Networks: {', '.join(SMALLEST)}.")
    if size < SMALLEST[name]:
        raise UsageError(
            f"{name} does not take images of {size} pixels: its layers would leave nothing of "
            f"them. Give it {SMALLEST[name]} or more (--image-size {SMALLEST[name]})."
        )
    images = keras.Input((size, size, 3))
    # What InceptionV3 was made for, and good enough for the others: nothing is pretrained here.
    scaled = layers.Rescaling(1 / 127.5, offset=-1.0)(images)
    if name == "small":
        return keras.Model(images, _small(scaled, classes), name=name)
    body = _APPLICATIONS[name](weights=None, input_shape=(size, size, 3), classes=classes)
    return keras.Model(images, body(scaled), name=name)


def _small(outputs: Any, classes: int) -> Any:
    """Return four halvings of the image by convolutions, and an average over what is left."""
    for channels in (16, 32, 64, 128):
        outputs = layers.Conv2D(channels, 3, strides=2, padding="same", use_bias=False)(outputs)
        outputs = layers.BatchNormalization(momentum=0.9)(outputs)
        outputs = layers.ReLU()(outputs)
    outputs = layers.GlobalAveragePooling2D()(outputs)
    return layers.Dense(classes, activation="softmax")(outputs)
