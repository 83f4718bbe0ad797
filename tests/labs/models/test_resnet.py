"""ResNet-18 is the lab's."""

from __future__ import annotations

import torch

from farandole.labs.models import resnet


def test_the_number_of_trainable_parameters() -> None:
    model = resnet.resnet18()
    counts = [parameter.numel() for parameter in model.parameters() if parameter.requires_grad]
    assert sum(counts) == resnet.PARAMETERS == 11_173_962
    assert model.eval()(torch.zeros(1, 3, 32, 32)).shape == (1, 10)
