"""Which convolutions EfficientNet-Lite0 has, and what PyTorch's network calls them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

FEATURES = 1_280
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


@dataclass(frozen=True, slots=True, kw_only=True)
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

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """Of the kernel: outputs, inputs of each, height, width."""
        return self.num_out, 1 if self.depthwise else self.num_in, self.kernel, self.kernel


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """Convolutions one behind the other."""

    layers: tuple[Layer, ...]
    residual: bool = False
    """Whether what goes in is added to what comes out."""


def layout() -> Iterator[Block]:
    """Go through the network from the image to the features."""
    stem = Layer(weights="_conv_stem", norm="_bn0", kernel=3, stride=2, num_in=3, num_out=_STEM)
    yield Block(layers=(stem,))
    num_in, number = _STEM, 0
    for repeats, kernel, stride, expand, num_out in _STAGES:
        for repeat in range(repeats):
            step = stride if repeat == 0 else 1
            layers = _inverted(f"_blocks.{number}.", kernel, step, expand, num_in, num_out)
            yield Block(layers=layers, residual=step == 1 and num_in == num_out)
            num_in, number = num_out, number + 1
    head = Layer(weights="_conv_head", norm="_bn1", kernel=1, num_in=num_in, num_out=FEATURES)
    yield Block(layers=(head,))


def _inverted(
    name: str, kernel: int, stride: int, expand: int, num_in: int, num_out: int
) -> tuple[Layer, ...]:
    """Return an inverted bottleneck: expand, convolve each channel, project."""
    wide = num_in * expand
    layers = (
        Layer(
            weights=f"{name}_expand_conv", norm=f"{name}_bn0", kernel=1, num_in=num_in, num_out=wide
        ),
        Layer(
            weights=f"{name}_depthwise_conv",
            norm=f"{name}_bn1",
            kernel=kernel,
            stride=stride,
            num_in=wide,
            num_out=wide,
            depthwise=True,
        ),
        Layer(
            weights=f"{name}_project_conv",
            norm=f"{name}_bn2",
            kernel=1,
            num_in=wide,
            num_out=num_out,
            active=False,
        ),
    )
    return layers if expand > 1 else layers[1:]
