"""The networks have the sizes that the rows name."""

from __future__ import annotations

import pytest
import torch

from farandole.bench import models, plan, rows


@pytest.mark.parametrize(
    ("name", "count"), [("mlp", 5_824_522), ("cnn", 1_199_882), ("resnet18", 11_173_962)]
)
def test_the_number_of_parameters(name: str, count: int) -> None:
    assert models.num_parameters(models.task(name).model) == count
    assert plan.PARAMETERS[name] == count


@pytest.mark.parametrize("name", rows.MODELS)
def test_a_batch_goes_through(name: str) -> None:
    task = models.task(name)
    outputs = task.model(torch.zeros(2, *task.sample_shape))
    assert outputs.shape == (2, task.num_classes)


def test_the_small_network_takes_images_of_cifar() -> None:
    model = models.cnn(channels=3, side=32)
    assert model(torch.zeros(2, 3, 32, 32)).shape == (2, 10)
    # 3x3 kernels with biases, then 64 channels of 14x14 to 128 and 128 to 10.
    expected = 32 * 28 + 64 * (32 * 9 + 1) + 128 * (64 * 14 * 14 + 1) + 10 * 129
    assert models.num_parameters(model) == expected == 1_626_442


def test_an_unknown_network_lists_the_known_ones() -> None:
    with pytest.raises(ValueError, match="'vgg': mlp, cnn, resnet18"):
        models.task("vgg")
