"""The networks that the training rows time, in PyTorch."""

from __future__ import annotations

import torch
from torch import nn

from .measure import Task


def mlp() -> nn.Module:
    """Return the 784-2048-2048-10 perceptron: 5,824,522 parameters, little arithmetic on each."""
    hidden = nn.Linear(784, 2048), nn.ReLU(), nn.Linear(2048, 2048), nn.ReLU()
    return nn.Sequential(*hidden, nn.Linear(2048, 10))


def cnn(channels: int = 1, side: int = 28) -> nn.Module:
    """Return the two-convolution network of many first tutorials.

    It has 1,199,882 parameters for 28x28 in grey, 1,626,442 for 32x32 in colour.
    """
    # Each convolution takes 2 pixels off a side, and the pooling halves it.
    pooled = (side - 4) // 2
    return nn.Sequential(
        *(nn.Conv2d(channels, 32, 3), nn.ReLU(), nn.Conv2d(32, 64, 3), nn.ReLU()),
        *(nn.MaxPool2d(2), nn.Flatten(), nn.Linear(64 * pooled * pooled, 128), nn.ReLU()),
        nn.Linear(128, 10),
    )


class ResidualBlock(nn.Module):
    """Two 3x3 convolutions around which the input is added again."""

    def __init__(self, num_in: int, num_out: int, stride: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            *(_conv(num_in, num_out, 3, stride), nn.BatchNorm2d(num_out), nn.ReLU()),
            *(_conv(num_out, num_out, 3), nn.BatchNorm2d(num_out)),
        )
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or num_in != num_out:
            self.shortcut = nn.Sequential(
                _conv(num_in, num_out, 1, stride), nn.BatchNorm2d(num_out)
            )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.body(x) + self.shortcut(x))


def _conv(num_in: int, num_out: int, kernel: int, stride: int = 1) -> nn.Module:
    return nn.Conv2d(num_in, num_out, kernel, stride=stride, padding=kernel // 2, bias=False)


def resnet18() -> nn.Module:
    """Return ResNet-18 with the 3x3 stem for 32x32 images: 11,173,962 parameters."""
    layers: list[nn.Module] = [_conv(3, 64, 3), nn.BatchNorm2d(64), nn.ReLU()]
    num_in = 64
    for num_out, stride in ((64, 1), (128, 2), (256, 2), (512, 2)):
        layers += [ResidualBlock(num_in, num_out, stride), ResidualBlock(num_out, num_out, 1)]
        num_in = num_out
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 10))


def wide() -> nn.Module:
    """Return 100 million parameters with little to compute: 1000 to 1000, a hundred times."""
    return nn.Sequential(*(nn.Linear(1000, 1000, bias=False) for _ in range(100)))


def task(name: str) -> Task:
    """Return the named network with the batch that its row fixes: mlp, cnn or resnet18."""
    if name == "mlp":
        return Task(mlp(), batch=32, sample_shape=(784,))
    if name == "cnn":
        return Task(cnn(), batch=128, sample_shape=(1, 28, 28))
    return Task(resnet18(), batch=32, sample_shape=(3, 32, 32))
