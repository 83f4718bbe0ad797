"""How gradients travel: precision, groups, sparse ones as dense, divided before they are added."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

import farandole.torch as hvd
from farandole.errors import UsageError
from farandole.torch.compression import SendOptions, compressor_of, groups_of
from tests.torch.checks import Check, Checks, Ranks, on, raises
from tests.torch.training import (
    batch,
    expected_gradients,
    in_large_and_small_buckets,
    mlp,
    same_everywhere,
    sgd,
    squares,
    train,
)

checks = Checks()


def test_groups_by_number_and_by_list() -> None:
    model = mlp()
    parameters = list(model.parameters())
    assert groups_of(parameters, None) == groups_of(parameters, 0) == {}
    assert list(groups_of(parameters, 2).values()) == [0, 0, 0, 1, 1, 1]
    assert list(groups_of(parameters, 99).values()) == [0, 1, 2, 3, 4, 5]
    chosen = [[parameters[5], parameters[0]], [parameters[2]]]
    assert groups_of(parameters, chosen) == {5: 0, 0: 0, 2: 1}
    elsewhere = torch.ones(2)
    assert groups_of(parameters, [[elsewhere, parameters[1]]]) == {1: 0}


@pytest.mark.parametrize(
    ("groups", "words"),
    [
        (-1, "0 or more"),
        ("two", "a number, or a list"),
        ([1, 2], "list of lists"),
        ([["weight"]], "'weight', which is no tensor"),
    ],
)
def test_groups_that_cannot_be(groups: Any, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        groups_of(list(mlp().parameters()), groups)


def test_a_parameter_is_in_one_group() -> None:
    parameters = list(mlp().parameters())
    with pytest.raises(UsageError, match="stands twice"):
        groups_of(parameters, [[parameters[0]], [parameters[0]]])


def test_compressors() -> None:
    assert compressor_of(None) is compressor_of(hvd.Compression.none) is None
    with pytest.raises(UsageError, match="is no compression"):
        compressor_of(2)
    halves = SendOptions(compressor=hvd.Compression.bf16)
    assert halves.sent_as(torch.ones(1)) == torch.bfloat16
    assert halves.sent_as(torch.ones(1, dtype=torch.int32)) == torch.int32
    assert halves.in_buckets


class Rounded:
    """A compressor of the user's: whole numbers."""

    @staticmethod
    def compress(tensor: torch.Tensor) -> tuple[torch.Tensor, torch.dtype]:
        return (tensor * 1000).round().to(torch.int32), tensor.dtype

    @staticmethod
    def decompress(tensor: torch.Tensor, ctx: torch.dtype) -> torch.Tensor:
        return tensor.to(ctx) / 1000


@checks
@in_large_and_small_buckets
def check_precision() -> None:
    for compression, digits in (
        (hvd.Compression.fp16, 1e-3),
        (hvd.Compression.bf16, 1e-2),
        (Rounded, 5e-3),
    ):
        model = mlp()
        optimizer = sgd(model, compression=compression)
        for step in range(4):
            wanted = expected_gradients(model, squares(step))
            optimizer.zero_grad()
            squares(step)(model, hvd.rank()).backward()
            optimizer.synchronize()
            for name, parameter in model.named_parameters():
                gradient, value = parameter.grad, wanted[name]
                assert gradient is not None
                assert value is not None
                assert gradient.dtype == torch.float32
                assert torch.allclose(gradient, value, rtol=digits, atol=digits)
                if hasattr(compression, "wire"):
                    # Nothing but what that precision knows comes out.
                    assert torch.equal(gradient, gradient.to(compression.wire).float())
            with optimizer.skip_synchronize():
                optimizer.step()
        same_everywhere(model)


@checks
def check_precision_when_gradients_are_missing() -> None:
    model = nn.ModuleList([nn.Linear(3, 3), nn.Linear(3, 3)])
    optimizer = sgd(model, compression=hvd.Compression.fp16)
    hvd.broadcast_parameters(model.state_dict(), 0)
    for step in range(4):
        optimizer.zero_grad()
        used = model[0] if hvd.rank() == 0 and step % 2 else model[1]
        used(torch.ones(1, 3)).sum().backward()
        optimizer.synchronize()
        others = hvd.size() - 1 if step % 2 else hvd.size()
        gradient = model[1].weight.grad
        assert gradient is not None
        assert torch.allclose(gradient, torch.full((3, 3), others / hvd.size()), rtol=1e-3)
        with optimizer.skip_synchronize():
            optimizer.step()
    same_everywhere(model)


@checks
def check_groups() -> None:
    for number in (1, 2, 6):
        train_in(mlp(), lambda model, number=number: sgd(model, groups=number))
    model = mlp()
    parameters = list(model.parameters())
    train_in(model, lambda model: sgd(model, groups=[parameters[:2], parameters[4:]]))
    # Horovod leaves the factor out here.
    train_in(mlp(), lambda model: sgd(model, groups=2, gradient_predivide_factor=2.0))


def train_in(model: nn.Module, make: Any) -> None:
    train(model, make(model))


@checks
def check_groups_with_gradients_that_one_rank_misses() -> None:
    """Horovod stalls here."""
    model = nn.ModuleList([nn.Linear(3, 3), nn.Linear(3, 3)])
    hvd.broadcast_parameters(model.state_dict(), 0)
    optimizer = sgd(model, groups=1)
    for step in range(4):
        optimizer.zero_grad()
        out = model[1](torch.ones(1, 3)).sum()
        if hvd.rank() == 0 or step == 0:
            out = out + model[0](torch.ones(1, 3)).sum()
        out.backward()
        optimizer.step()
        same_everywhere(model)


@checks
def check_predivided_averages() -> None:
    train_in(mlp(), lambda model: sgd(model, gradient_predivide_factor=float(hvd.size())))
    # In half precision a sum may overflow where a divided one does not.
    model = nn.Linear(1, 1, bias=False).half()
    for factor, overflows in ((1.0, False), (4.0, False)):
        optimizer = sgd(model, gradient_predivide_factor=factor)
        optimizer.zero_grad()
        model(torch.full((1, 1), 40_000.0).half()).sum().backward()
        optimizer.synchronize()
        assert model.weight.grad is not None
        assert torch.isinf(model.weight.grad).any().item() == overflows


@checks
def check_sparse_as_dense() -> None:
    torch.manual_seed(0)
    model = nn.Embedding(7, 2, sparse=True)
    plain = torch.optim.SGD(model.parameters(), lr=0.1)
    optimizer = hvd.DistributedOptimizer(plain, model.named_parameters(), sparse_as_dense=True)
    for step in range(4):
        optimizer.zero_grad()
        model(torch.tensor([hvd.rank(), (step + 1) % 7])).sum().backward()
        optimizer.synchronize()
        gradient = model.weight.grad
        assert gradient is not None
        # Sparse again, for optimizers that take nothing else.
        assert gradient.is_sparse
        assert gradient.sparse_dim() == 1
        wanted = torch.zeros(7, 2)
        for rank in range(hvd.size()):
            wanted[rank] += 1 / hvd.size()
            wanted[(step + 1) % 7] += 1 / hvd.size()
        assert torch.allclose(gradient.to_dense(), wanted)
        with optimizer.skip_synchronize():
            optimizer.step()
    same_everywhere(model)


@checks
def check_sparse_gradients_are_divided_before_too() -> None:
    model = nn.Embedding(7, 2, sparse=True)
    plain = torch.optim.SGD(model.parameters(), lr=0.1)
    optimizer = hvd.DistributedOptimizer(
        plain, model.named_parameters(), gradient_predivide_factor=2.0
    )
    for _ in range(2):
        optimizer.zero_grad()
        model(torch.tensor([3])).sum().backward()
        optimizer.synchronize()
        assert model.weight.grad is not None
        assert torch.allclose(model.weight.grad.to_dense()[3], torch.ones(2))
        with optimizer.skip_synchronize():
            optimizer.step()


@checks
def check_sparse_allreduce() -> None:
    def of(rank: int) -> torch.Tensor:
        indices = torch.tensor([[0, rank + 1, 0], [1, 0, 1]])
        return torch.sparse_coo_tensor(indices, batch(rank, 0, 3), (6, 2), check_invariants=False)

    dense = [of(rank).to_dense() for rank in range(hvd.size())]
    for name in ("a", "b"):
        total = hvd.sparse_allreduce_async(of(hvd.rank()), name=f"{name}.sum", op=hvd.Sum)
        mean = hvd.sparse_allreduce_async(of(hvd.rank()), f"{name}.mean", hvd.Average)
        # In any order.
        assert torch.allclose(mean().to_dense(), sum(dense) / hvd.size())
        result = total()
        assert result.is_sparse
        assert torch.allclose(result.to_dense(), sum(dense))
    with raises(ValueError, "averaged or summed"):
        hvd.sparse_allreduce_async(of(0), "x", hvd.Max)
    with raises(ValueError, "dense tensor"):
        hvd.sparse_allreduce_async(torch.ones(2), "x", hvd.Sum)


ranks = on((2, "shm"), (3, "shm"), (4, "shm"), (2, "gloo"))


@pytest.mark.ranks
@checks.each()
def test_on_all_ranks(ranks: Ranks, check: Check) -> None:
    ranks.run(check)
