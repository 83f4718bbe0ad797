"""The networks have the sizes that the rows name."""

from __future__ import annotations

import pytest
import torch

from farandole.bench import models, plan


@pytest.mark.parametrize(
    ("name", "count"), [("mlp", 5_824_522), ("cnn", 1_199_882), ("resnet18", 11_173_962)]
)
def test_the_number_of_parameters(name: str, count: int) -> None:
    assert models.num_parameters(models.task(name).model) == count
    assert plan.PARAMETERS[name] == count


@pytest.mark.parametrize("name", plan.MODELS)
def test_a_batch_goes_through(name: str) -> None:
    task = models.task(name)
    outputs = task.model(torch.zeros(2, *task.sample_shape))
    assert outputs.shape == (2, task.num_classes)


def test_an_unknown_network_lists_the_known_ones() -> None:
    with pytest.raises(ValueError, match="'vgg': mlp, cnn, resnet18"):
        models.task("vgg")
