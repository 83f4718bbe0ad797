"""The small network has its size and batch normalisation."""

from __future__ import annotations

import torch
from torch import nn

from farandole.labs.models.small import PARAMETERS, small_cnn


def test_the_number_of_parameters() -> None:
    model = small_cnn()
    # Kernels of 3x3 without biases, two numbers per normalised channel, 96 channels of 4x4 to 10.
    expected = 9 * (3 * 24 + 24 * 48 + 48 * 96) + 2 * (24 + 48 + 96) + 10 * (96 * 16 + 1)
    assert sum(parameter.numel() for parameter in model.parameters()) == expected == PARAMETERS


def test_it_normalises_and_tells_classes() -> None:
    model = small_cnn()
    assert sum(isinstance(layer, nn.BatchNorm2d) for layer in model) == 3
    assert model(torch.zeros(2, 3, 32, 32)).shape == (2, 10)
