"""Training for tests: a model's gradients on several ranks, and what they ought to be."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial, wraps
from typing import Any

import torch
from torch import nn

import farandole.torch as hvd
from farandole.engine.buckets import make_plan
from farandole.torch import reducer

Loss = Callable[[nn.Module, int], torch.Tensor]
"""The loss of a model on a rank's share of the data; the number is that of the rank."""
Gradients = dict[str, torch.Tensor | None]
"""By the names of their parameters; None where there is none."""


def mlp() -> nn.Sequential:
    """Three layers, 6 numbers in and 2 out, the same whenever it is made."""
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Linear(6, 40), nn.Tanh(), nn.Linear(40, 30), nn.Tanh(), nn.Linear(30, 2)
    )


def sgd(model: nn.Module, **options: Any) -> Any:
    """A DistributedOptimizer with these options, around SGD with momentum."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    return hvd.DistributedOptimizer(optimizer, model.named_parameters(), **options)


def squares(step: int) -> Loss:
    """The loss of a step: the mean square of what a model makes of four times 6 numbers."""
    return lambda model, rank: model(batch(rank, step, 4, 6)).square().mean()


@contextmanager
def small_buckets() -> Iterator[None]:
    """Give nearly every gradient its own bucket, as large models do."""
    reducer.make_plan = partial(make_plan, bucket_bytes=64)
    try:
        yield
    finally:
        reducer.make_plan = make_plan


def in_large_and_small_buckets(check: Callable[..., None]) -> Callable[..., None]:
    """Run a check twice (a decorator): as it is, and with small buckets."""

    @wraps(check)
    def twice(*case: Any) -> None:
        check(*case)
        with small_buckets():
            check(*case)

    return twice


def gradients(model: nn.Module) -> Gradients:
    """Copies of a model's gradients, dense."""
    return {
        name: None if p.grad is None else p.grad.detach().to_dense().clone()
        for name, p in model.named_parameters()
    }


def expected_gradients(model: nn.Module, loss: Loss) -> Gradients:
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
    total: Gradients = {name: None for name, _ in model.named_parameters()}
    for theirs in hvd.allgather_object(mine):
        for name, gradient in theirs.items():
            so_far = total[name]
            total[name] = gradient if so_far is None else so_far + gradient
    return {name: None if t is None else t / hvd.size() for name, t in total.items()}


def backward(model: nn.Module, loss: Loss) -> torch.Tensor:
    """Compute this rank's gradients, if there are any; return its loss."""
    value = loss(model, hvd.rank())
    if value.requires_grad:
        value.backward()
    return value


@contextmanager
def checked_step(
    model: nn.Module, optimizer: Any, loss: Loss, *, reset: Callable[[], None] | None = None
) -> Iterator[Gradients]:
    """Take a step on the gradients that the body of the `with` computes.

    Fail unless they are the expected ones, and the weights the same on all ranks afterwards.

    Args:
        model: what is trained.
        optimizer: trains it.
        loss: whose averaged gradients are expected; the body gets them, and may change them.
        reset: called in place of the optimizer's `zero_grad`.
    """
    expected = expected_gradients(model, loss)
    (reset or optimizer.zero_grad)()
    yield expected
    optimizer.synchronize()
    close(gradients(model), expected)
    with optimizer.skip_synchronize():
        optimizer.step()
    same_everywhere(model)


def train_step(model: nn.Module, optimizer: Any, loss: Loss) -> None:
    """Take a step with one backward pass, and check it."""
    with checked_step(model, optimizer, loss):
        backward(model, loss)


def train(
    model: nn.Module,
    optimizer: Any,
    steps: Iterable[int] = range(4),
    loss_of: Callable[[int], Loss] = squares,
) -> None:
    """Take these steps, and check each."""
    for step in steps:
        train_step(model, optimizer, loss_of(step))


def close(actual: Gradients, expected: Gradients) -> None:
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
