"""All-reduces that were described before: found by tensor, never for memory it has lost."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable

import pytest
import torch

from farandole.engine.arguments import Sum, reduction_of
from farandole.engine.operations import Allreduce
from farandole.torch.collectives import OperationCache
from farandole.torch.operations import allreduce_operation

_ARGUMENTS = (None, Sum, 1.0, 1.0)


def _keep(remembered: OperationCache, tensor: torch.Tensor) -> Allreduce:
    made = allreduce_operation(tensor, tensor, reduction_of(*_ARGUMENTS))
    return remembered.keep(tensor, _ARGUMENTS, made)


def test_the_same_tensor_finds_its_operation() -> None:
    remembered, tensor = OperationCache(), torch.arange(4.0)
    kept = _keep(remembered, tensor)
    assert remembered.find(tensor, _ARGUMENTS) is kept
    kept.target.data[...] = 7.0
    assert tensor.tolist() == [7.0] * 4


def test_an_equal_tensor_or_other_arguments_find_nothing() -> None:
    remembered, tensor = OperationCache(), torch.zeros(4)
    _keep(remembered, tensor)
    assert remembered.find(torch.zeros(4), _ARGUMENTS) is None
    assert remembered.find(tensor, (None, Sum, 2.0, 1.0)) is None


@pytest.mark.parametrize(
    "change",
    [
        lambda x: setattr(x, "data", torch.zeros(3, 3)),
        lambda x: x.set_(torch.zeros(3, 3)),
        lambda x: x.resize_(9),
        lambda x: x.resize_(2, 3),
        lambda x: x.t_(),
    ],
    ids=["data", "set_", "resize_", "shrink", "t_"],
)
def test_a_tensor_that_was_changed_in_place_finds_nothing(
    change: Callable[[torch.Tensor], object],
) -> None:
    remembered, tensor = OperationCache(), torch.arange(9.0).reshape(3, 3).clone()
    _keep(remembered, tensor)
    change(tensor)
    assert remembered.find(tensor, _ARGUMENTS) is None


def test_an_entry_goes_with_its_tensor() -> None:
    remembered, tensor = OperationCache(), torch.zeros(4)
    _keep(remembered, tensor)
    gone = weakref.ref(tensor)
    del tensor
    gc.collect()
    assert gone() is None
    assert not remembered._entries


@pytest.mark.parametrize("count", [0, 1_000_000], ids=["empty", "large"])
def test_what_does_not_go_by_the_eager_board_is_not_kept(count: int) -> None:
    remembered, tensor = OperationCache(), torch.zeros(count)
    _keep(remembered, tensor)
    assert remembered.find(tensor, _ARGUMENTS) is None
