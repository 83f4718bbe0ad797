"""EfficientNet-Lite0 in Keras, from images in bytes to features, with any weights.

Batch normalisation is part of the weights: in inference mode it is a factor and a summand for each
channel, and those are folded into the convolution before it. Transfer learning keeps it in that
mode anyway, frozen or fine-tuned, and workers then have no statistics that could drift apart.
"""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
from keras import ops
from numpy.typing import NDArray

from farandole.labs.models.lite0_layout import EPSILON, FEATURES, Layer, layout

# Bytes become numbers of about -1 to 1, as those the weights were trained with.
_MIDDLE, _SCALE = 127.0, 128.0
# How much of random weights is not what it was: neighbours of a pixel, and blocks that add to
# their input. With more, 49 random layers leave nothing of an image but noise.
_MIXED, _QUIET = 0.1, 0.1


class Convolution(keras.layers.Layer):  # type: ignore[misc]
    """A convolution with its summand and ReLU6, padded as TensorFlow does for "same".

    On torch in one call that keeps the channels last in memory. Keras's own layer copies an image
    twice there for each convolution, and goes over it once more for the summand.
    """

    def __init__(self, layer: Layer, **options: Any) -> None:
        super().__init__(name=layer.weights.strip("_").replace(".", ""), **options)
        self.layer = layer

    def build(self, input_shape: Any) -> None:
        """Make room for the weights."""
        self.kernel = self.add_weight(shape=self.layer.shape, initializer="zeros", name="kernel")
        self.bias = self.add_weight(shape=self.layer.shape[:1], initializer="zeros", name="bias")

    def call(self, inputs: Any) -> Any:
        """Convolve images with channels last, and cut off below 0 and above 6."""
        return self.convolve(inputs, active=self.layer.active)

    def convolve(self, inputs: Any, *, active: bool) -> Any:
        """Convolve images with channels last."""
        if keras.backend.backend() == "torch":
            return self._convolve_torch(inputs, active=active)
        kernel = ops.transpose(self.kernel, (2, 3, 1, 0))
        step = self.layer.stride
        if self.layer.depthwise:
            kernel = ops.swapaxes(kernel, 2, 3)
            outputs = ops.depthwise_conv(inputs, kernel, step, "same", "channels_last")
        else:
            outputs = ops.conv(inputs, kernel, step, "same", "channels_last")
        outputs = outputs + self.bias
        return ops.relu6(outputs) if active else outputs

    def draw(self, images: Any, *, quiet: bool) -> None:
        """Draw weights at random, and scale them by what they make of these images.

        Args:
            images: what comes into this convolution.
            quiet: make little of them, where what comes in is added to what comes out.
        """
        shape = self.layer.shape
        kernel = keras.initializers.RandomNormal(stddev=np.prod(shape[1:]) ** -0.5)(shape)
        if self.layer.depthwise:
            # Mostly as they are: a few layers that mix neighbours at random leave noise. Where an
            # image is halved, the mean: five times one pixel of four would leave very few.
            side = self.layer.kernel
            plain = np.zeros(shape, np.float32)
            if self.layer.stride > 1:
                plain[:] = side**-2
            else:
                plain[:, :, side // 2, side // 2] = 1.0
            kernel = _MIXED * kernel + plain
        self.kernel.assign(kernel)
        self.bias.assign(ops.zeros(shape[:1]))
        outputs = ops.stop_gradient(self.convolve(images, active=False))
        mean, variance = ops.moments(outputs, axes=(0, 1, 2))
        if self.layer.active and self.layer.num_out != FEATURES:
            # Not shifted: what lies around 0 before every ReLU6 grows apart from layer to layer.
            mean, variance = 0.0 * mean, variance + mean**2
        factor = ops.rsqrt(variance + EPSILON) * (_QUIET if quiet else 1.0)
        self.kernel.assign(kernel * ops.reshape(factor, (-1, 1, 1, 1)))
        self.bias.assign(-mean * factor)

    def compute_output_shape(self, input_shape: Any) -> tuple[int | None, ...]:
        """Say what comes out, without convolving."""
        sides = (None if n is None else -(-n // self.layer.stride) for n in input_shape[1:3])
        return (input_shape[0], *sides, self.layer.num_out)

    def _convolve_torch(self, inputs: Any, *, active: bool) -> Any:
        from torch.nn import functional

        layer, kernel, bias = self.layer, self.kernel.value, self.bias.value
        if layer.kernel == 1:
            # The same, and some percent faster on the way back.
            outputs = functional.linear(inputs, kernel.flatten(1), bias)
            return functional.relu6(outputs) if active else outputs
        images = inputs.permute(0, 3, 1, 2)
        down, right = (_padding(length, layer) for length in images.shape[2:])
        padding = (down[0], right[0])
        if down[0] != down[1] or right[0] != right[1]:
            images, padding = functional.pad(images, (*right, *down)), (0, 0)
        groups = layer.num_in if layer.depthwise else 1
        outputs = functional.conv2d(images, kernel, bias, layer.stride, padding, groups=groups)
        if active:
            # Not in place: torch would make a copy and copy that back.
            outputs = functional.relu6(outputs)
        return outputs.permute(0, 2, 3, 1)


def _padding(length: int, layer: Layer) -> tuple[int, int]:
    """Return how many pixels are missing before and after a side."""
    missing = (-(-length // layer.stride) - 1) * layer.stride + layer.kernel - length
    return max(missing, 0) // 2, max(missing, 0) - max(missing, 0) // 2


def lite0(image_size: int, *, sample: NDArray[np.uint8] | None = None) -> Any:
    """Return EfficientNet-Lite0 up to its features, a 32nd of the image's size and 1,280 deep.

    Args:
        image_size: pixels of a side.
        sample: draw weights at random, of a scale such that what convolutions make of these images
            is of a size of 1 in every channel. Without, weights are 0, and to be set by
            `weights.load`.
    """
    inputs = keras.Input((image_size, image_size, 3))
    scale = keras.layers.Rescaling(1 / _SCALE, offset=-_MIDDLE / _SCALE)
    outputs, seen = scale(inputs), None if sample is None else scale(sample)
    for block in layout():
        first, first_seen = outputs, seen
        for layer in block.layers:
            convolution = Convolution(layer)
            outputs = convolution(outputs)
            if seen is not None:
                convolution.draw(seen, quiet=block.residual and layer is block.layers[-1])
                seen = ops.stop_gradient(convolution(seen))
        if block.residual:
            outputs = keras.layers.Add()([outputs, first])
            seen = None if seen is None else seen + first_seen
    return keras.Model(inputs, outputs, name="efficientnet_lite0")
