"""DDP's gradients: who squares which, and how a tensor is squared; launches are in test_noise."""

from __future__ import annotations

import pytest
import torch

from farandole.recorder.ddp_noise import share_of, squared


@pytest.mark.parametrize("size", [1, 2, 3, 5])
@pytest.mark.parametrize("counts", [[10] * 12, [1000, 1, 1, 1], [1, 5, 200, 7, 300, 90], [3]])
def test_every_parameter_is_one_ranks_to_square(counts: list[int], size: int) -> None:
    parameters = [torch.nn.Parameter(torch.zeros(count)) for count in counts]
    shares = [share_of(parameters, rank, size) for rank in range(size)]
    everyone = [id(parameter) for share in shares for parameter in share]
    assert sorted(everyone) == sorted(map(id, parameters))
    if counts == [10] * 12 and size != 5:
        assert [len(share) for share in shares] == [12 // size] * size


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("layout", ["plain", "channels last", "transposed"])
def test_tensors_as_backward_leaves_them(dtype: torch.dtype, layout: str) -> None:
    torch.manual_seed(0)
    gradient = torch.randn(4, 3, 5, 2).to(dtype)
    if layout == "channels last":
        gradient = gradient.to(memory_format=torch.channels_last)
    elif layout == "transposed":
        gradient = gradient.transpose(1, 2)
    found = squared(gradient)
    assert isinstance(found, float)
    assert found == pytest.approx(float(gradient.double().square().sum()), rel=1e-5)
