"""Training for tests: a model's gradients on several ranks, and what they ought to be."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import nn

import farandole.torch as hvd
from farandole.engine.plan import make_plan
from farandole.torch import reducer

Loss = Callable[[nn.Module, int], torch.Tensor]
"""The loss of a model on a rank's share of the data; the number is that of the rank."""


@contextmanager
def small_buckets() -> Iterator[None]:
    """Give nearly every gradient its own bucket, as large models do."""
    reducer.make_plan = partial(make_plan, bucket_bytes=64)
    try:
        yield
    finally:
        reducer.make_plan = make_plan


def gradients(model: nn.Module) -> dict[str, torch.Tensor | None]:
    """Copies of a model's gradients, dense."""
    return {
        name: None if p.grad is None else p.grad.detach().to_dense().clone()
        for name, p in model.named_parameters()
    }


def expected_gradients(model: nn.Module, loss: Loss) -> dict[str, torch.Tensor | None]:
    """The average over all ranks of what each of them computes for itself.

    A gradient that a rank does not have counts as zero there; one that nobody has is None.
    """
    trainable = {name: p for name, p in model.named_parameters() if p.requires_grad}
    value, mine = loss(model, hvd.rank()), {}
    if value.requires_grad:
        found = torch.autograd.grad(value, list(trainable.values()), allow_unused=True)
        mine = {
            name: gradient.to_dense()
            for name, gradient in zip(trainable, found, strict=True)
            if gradient is not None
        }
    total: dict[str, torch.Tensor | None] = {name: None for name, _ in model.named_parameters()}
    for theirs in hvd.allgather_object(mine):
        for name, gradient in theirs.items():
            so_far = total[name]
            total[name] = gradient if so_far is None else so_far + gradient
    return {name: None if t is None else t / hvd.size() for name, t in total.items()}


def train_step(model: nn.Module, optimizer: Any, loss: Loss) -> None:
    """Take a step; fail unless the gradients are the average and the weights the same after it."""
    expected = expected_gradients(model, loss)
    optimizer.zero_grad()
    value = loss(model, hvd.rank())
    if value.requires_grad:
        value.backward()
    optimizer.synchronize()
    close(gradients(model), expected)
    with optimizer.skip_synchronize():
        optimizer.step()
    same_everywhere(model)


def close(actual: dict[str, torch.Tensor | None], expected: dict[str, torch.Tensor | None]) -> None:
    """Fail unless all gradients agree, but for rounding."""
    assert actual.keys() == expected.keys()
    for name, value in expected.items():
        got = actual[name]
        if value is None:
            assert got is None, f"{name} should have no gradient, has {got}"
        else:
            assert got is not None, f"{name} has no gradient"
            assert torch.allclose(got, value, rtol=1e-5, atol=1e-7), (
                f"{name} is off by {(got - value).abs().max()}"
            )


def same_everywhere(model: nn.Module) -> None:
    """Fail unless the weights are bit for bit the same on all ranks."""
    flat = torch.cat([p.detach().reshape(-1).double() for p in model.parameters()])
    everyone = hvd.allgather(flat[None])
    assert all(torch.equal(row, everyone[0]) for row in everyone), "weights differ between ranks"


def batch(rank: int, step: int, *shape: int) -> torch.Tensor:
    """Data that depends on rank and step only."""
    generator = torch.Generator().manual_seed(1000 * step + rank)
    return torch.randn(*shape, generator=generator)
