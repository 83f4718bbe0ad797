"""DDP's gradients: who squares which, and how a tensor is squared; launches are in test_noise."""

from __future__ import annotations

import pytest
import torch

from farandole.recorder.ddp import buckets_of, share_of, squared


@pytest.mark.parametrize("size", [1, 2, 3, 5])
@pytest.mark.parametrize("counts", [[10] * 12, [1000, 1, 1, 1], [1, 5, 200, 7, 300, 90], [3]])
def test_every_parameter_is_one_ranks_to_square(counts: list[int], size: int) -> None:
    parameters = [torch.nn.Parameter(torch.zeros(count)) for count in counts]
    shares = [share_of(parameters, rank, size) for rank in range(size)]
    everyone = [id(parameter) for share in shares for parameter in share]
    assert sorted(everyone) == sorted(map(id, parameters))
    if counts == [10] * 12 and size != 5:
        assert [len(share) for share in shares] == [12 // size] * size


def test_buckets_are_filled_from_the_last_parameter_on() -> None:
    parameters = [torch.nn.Parameter(torch.zeros(count)) for count in (10, 30, 20, 5)]
    places, sizes = buckets_of(parameters, 100)
    # 20 and 80 bytes are a full one, then 120, then what is left.
    assert sizes == [100, 120, 40]
    assert [places[id(parameter)] for parameter in parameters] == [2, 1, 0, 0]


@pytest.mark.parametrize("most_bytes", [25 << 20, -1])
def test_ddps_first_bucket_is_small(most_bytes: int) -> None:
    parameters = [torch.nn.Parameter(torch.zeros(1 << 18)) for _ in range(3)]
    assert buckets_of(parameters, most_bytes)[1] == [1 << 20, 2 << 20]
    assert buckets_of(parameters, 2 << 20)[1] == [2 << 20, 1 << 20]


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
