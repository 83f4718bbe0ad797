"""Tensors as the engine sees them: memory without a copy, and clear refusals."""

from __future__ import annotations

import re

import numpy as np
import pytest
import torch

from farandole.errors import UsageError
from farandole.torch.operations import TYPE_NAMES, buffer_of, check, device_of, view_of
from farandole.transport.reduction import STORAGE


@pytest.mark.parametrize("dtype", TYPE_NAMES)
def test_a_buffer_is_the_tensors_own_memory(dtype: torch.dtype) -> None:
    tensor = torch.zeros(2, 3, dtype=dtype)
    buffer = buffer_of(tensor)
    assert buffer.dtype == TYPE_NAMES[dtype]
    assert buffer.data.shape == (6,)
    assert buffer.data.dtype == STORAGE[buffer.dtype]
    view_of(buffer.data, buffer.dtype)[4] = 1
    assert tensor.tolist() == [[0, 0, 0], [0, 1, 0]]


@pytest.mark.parametrize("shape", [(), (0,), (3, 0, 2)])
def test_buffers_of_empty_and_scalar_tensors(shape: tuple[int, ...]) -> None:
    tensor = torch.ones(shape)
    assert len(buffer_of(tensor)) == tensor.numel()


def test_a_buffer_of_a_parameter_has_no_history() -> None:
    parameter = torch.nn.Parameter(torch.ones(3))
    buffer_of(parameter).data[...] = 2
    assert parameter.tolist() == [2, 2, 2]
    assert parameter.requires_grad


def test_a_view_of_a_tensor_is_itself() -> None:
    tensor = torch.ones(3)
    assert view_of(tensor, "float32") is tensor
    assert view_of(np.ones(3, np.float32), "float32").dtype == torch.float32


def test_devices_are_named_by_kind() -> None:
    assert device_of(torch.ones(1)) == "cpu"
    assert device_of(torch.ones(1, device="meta")) == "meta"


@pytest.mark.parametrize(
    ("tensor", "said"),
    [
        ([1.0], "A torch.Tensor is required, not list."),
        (torch.ones(2, device="meta"), "on device 'meta' cannot be sent: only cpu and cuda can"),
        (torch.eye(2).to_sparse(), "layout torch.sparse_coo cannot be sent"),
        (torch.ones(2).to(torch.float8_e4m3fn), "type torch.float8_e4m3fn cannot be sent"),
        (torch.ones(2, 3).t(), "Tensor is required to be contiguous."),
        (torch.ones(1, 2, 3, 3).to(memory_format=torch.channels_last), "to be contiguous"),
    ],
)
def test_what_cannot_be_sent_is_said_in_one_line(tensor: torch.Tensor, said: str) -> None:
    with pytest.raises(UsageError, match=re.escape(said)) as caught:
        check(tensor)
    assert isinstance(caught.value, ValueError)
    assert "\n" not in str(caught.value)
