"""Averaging gradients: whatever a model does, every rank gets the average."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import farandole.torch as hvd
from farandole.errors import UnfitError
from farandole.recorder import noise
from tests.torch.checks import Check, Checks, Ranks, on, raises
from tests.torch.training import (
    Loss,
    backward,
    batch,
    checked_step,
    expected_gradients,
    in_large_and_small_buckets,
    mlp,
    same_everywhere,
    sgd,
    small_buckets,
    squares,
    train,
)

checks = Checks()


@checks
@in_large_and_small_buckets
def check_plain_steps() -> None:
    model = mlp()
    train(model, sgd(model), range(5))


@checks
def check_nothing_is_squared_where_nothing_is_recorded() -> None:
    model = mlp()
    kept = noise.squared_norm
    noise.squared_norm = lambda *_: pytest.fail("nobody will read this")
    try:
        train(model, sgd(model), range(2 * noise.PERIOD))
    finally:
        noise.squared_norm = kept


def steps_alone_lead_to_the_same(
    make: Callable[..., Any], make_plain: Callable[..., Any], *, steps: int, **tolerance: float
) -> None:
    """Train by `step()` alone, and beside it a model that is given the averages to step on."""
    model, other = mlp(), mlp()
    optimizer = hvd.DistributedOptimizer(make(model.parameters()), model.named_parameters())
    plain = make_plain(other.parameters())
    for step in range(steps):
        expected = expected_gradients(other, squares(step))
        for name, parameter in other.named_parameters():
            parameter.grad = expected[name]
        plain.step()
        optimizer.zero_grad()
        backward(model, squares(step))
        optimizer.step()
        for mine, theirs in zip(model.parameters(), other.parameters(), strict=True):
            assert torch.allclose(mine, theirs, **tolerance)
    same_everywhere(model)


@checks
@in_large_and_small_buckets
def check_step_synchronizes_by_itself() -> None:
    make = partial(torch.optim.SGD, lr=0.1, momentum=0.9)
    steps_alone_lead_to_the_same(make, make, steps=4, rtol=1e-5, atol=1e-7)


@checks.of(
    **{
        f"{kind.__name__}_{way}_{wanted}": partial(kind, lr=0.01, **{way: wanted})
        for kind in (torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW)
        for way, wanted in (("foreach", True), ("fused", True), ("foreach", False))
    }
)
def check_foreach_and_fused_optimizers(make: partial[torch.optim.Optimizer]) -> None:
    make_plain = partial(make.func, lr=0.01)
    steps_alone_lead_to_the_same(make, make_plain, steps=3, rtol=1e-3, atol=1e-5)


def reset_by_hand(model: nn.Module, _: Any) -> None:
    for parameter in model.parameters():
        parameter.grad = None


@checks.of(
    model=lambda model, _: model.zero_grad(),
    model_to_zero=lambda model, _: model.zero_grad(set_to_none=False),
    by_hand=reset_by_hand,
    optimizer=lambda _, optimizer: optimizer.zero_grad(),
    optimizer_to_none=lambda _, optimizer: optimizer.zero_grad(set_to_none=True),
    optimizer_to_zero=lambda _, optimizer: optimizer.zero_grad(set_to_none=False),
    optimizer_to_zero_by_position=lambda _, optimizer: optimizer.zero_grad(False),
)
@in_large_and_small_buckets
def check_all_ways_to_reset_gradients(reset: Callable[[nn.Module, Any], None]) -> None:
    model = mlp()
    optimizer = sgd(model)
    for step in range(4):
        loss = squares(step)
        with checked_step(model, optimizer, loss, reset=partial(reset, model, optimizer)):
            backward(model, loss)


@checks
@in_large_and_small_buckets
def check_gradients_that_are_not_reset_add_up() -> None:
    model = mlp()
    optimizer = sgd(model)
    total = {name: torch.zeros_like(p) for name, p in model.named_parameters()}
    for step in range(4):
        loss = squares(step)
        with checked_step(model, optimizer, loss, reset=lambda: None) as expected:
            backward(model, loss)
            total = {name: total[name] + gradient for name, gradient in expected.items()}
            expected.update(total)


@checks
@in_large_and_small_buckets
def check_sum_instead_of_average() -> None:
    model = mlp()
    optimizer = sgd(model, op=hvd.Sum)
    for step in range(3):
        with checked_step(model, optimizer, squares(step)) as expected:
            backward(model, squares(step))
            expected.update({name: g * hvd.size() for name, g in expected.items()})


@checks
@in_large_and_small_buckets
def check_the_number_of_passes_may_change() -> None:
    def sum_of(passes: int) -> Loss:
        return lambda model, rank: sum(squares(i)(model, rank) for i in range(passes))

    model = mlp()
    optimizer = sgd(model)
    for passes in (1, 1, 2, 2, 1, 1):
        optimizer.set_backward_passes_per_step(passes)
        with checked_step(model, optimizer, sum_of(passes)):
            for i in range(passes):
                backward(model, squares(i))


@checks.of(in_the_first_step=0, in_a_later_step=2)
def check_one_backward_pass_too_many(early_steps: int) -> None:
    with small_buckets():
        model = mlp()
        optimizer = sgd(model)
        train(model, optimizer, range(early_steps))
        optimizer.zero_grad()
        backward(model, squares(0))
        with raises(AssertionError, "more than 1 time(s)", "backward_passes_per_step"):
            backward(model, squares(0))
        sent = raises(UnfitError, "'4.", "was changed after it was sent")
        with sent if early_steps else nullcontext():
            optimizer.synchronize()


@checks
@in_large_and_small_buckets
def check_channels_last() -> None:
    def loss_of(step: int) -> Loss:
        def loss(model: nn.Module, rank: int) -> torch.Tensor:
            images = batch(rank, step, 2, 3, 8, 8).to(memory_format=torch.channels_last)
            return model(images).square().mean()

        return loss

    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 4, 3, groups=2), nn.Conv2d(4, 2, 1)
    ).to(memory_format=torch.channels_last)
    train(model, sgd(model), loss_of=loss_of)
    assert model[0].weight.is_contiguous(memory_format=torch.channels_last)
    assert model[0].weight.grad.stride() == model[0].weight.stride()


class Mixed(nn.Module):
    """Layers of different types, and a parameter without a dimension."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.single = nn.Linear(6, 5)
        self.wide = nn.Linear(5, 4, dtype=torch.float64)
        self.again = nn.Linear(4, 3)
        self.scale = nn.Parameter(torch.tensor(1.5))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.wide(self.single(x).double())
        return self.again(x.float()) * self.scale


@checks
@in_large_and_small_buckets
def check_mixed_types_in_one_model() -> None:
    model = Mixed()
    train(model, sgd(model))


@checks
def check_bfloat16_gradients_round_once() -> None:
    torch.manual_seed(0)
    model = nn.Linear(6, 3).bfloat16()
    optimizer = sgd(model)
    for step in range(3):
        optimizer.zero_grad()
        model(batch(hvd.rank(), step, 4, 6).bfloat16()).square().mean().backward()
        everyone = hvd.allgather(model.weight.grad.float()[None])
        optimizer.synchronize()
        total = everyone[0]
        for row in everyone[1:]:
            total = total + row
        assert torch.equal(model.weight.grad, (total / hvd.size()).bfloat16())
        with optimizer.skip_synchronize():
            optimizer.step()
    same_everywhere(model)


@checks
@in_large_and_small_buckets
def check_tied_weights() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 6), nn.Tanh(), nn.Linear(6, 6), nn.Linear(6, 2))
    model[2].weight = model[0].weight
    train(model, sgd(model))


class Shared(nn.Module):
    """One weight, used outside of a checkpoint and twice in it."""

    def __init__(self, reentrant: bool) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.shared, self.last = nn.Linear(6, 6), nn.Linear(6, 6), nn.Linear(6, 2)
        self.reentrant = reentrant
        self.plain = False

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.shared(self.first(x)).tanh()
        for _ in range(2):
            x = self.block(x) if self.plain else self._checkpointed(x)
        return self.last(self.shared(x))

    def block(self, x: torch.Tensor) -> torch.Tensor:
        return self.shared(self.shared(x).tanh())

    def _checkpointed(self, x: torch.Tensor) -> torch.Tensor:
        return checkpoint(self.block, x, use_reentrant=self.reentrant)


@checks.of(plain=False, reentrant=True)
@in_large_and_small_buckets
def check_shared_weights_under_checkpointing(reentrant: bool) -> None:
    model = Shared(reentrant)
    optimizer = sgd(model)
    for step in range(5):
        # autograd.grad, which says what to expect, cannot go through a reentrant checkpoint.
        model.plain = True
        with checked_step(model, optimizer, squares(step)):
            model.plain = False
            backward(model, squares(step))


@in_large_and_small_buckets
def check_compiled_models() -> None:
    model = mlp()
    compiled = torch.compile(model, backend="aot_eager")
    optimizer = sgd(model)
    for step in range(3):
        with checked_step(model, optimizer, squares(step)):
            backward(compiled, squares(step))


@checks
@in_large_and_small_buckets
def check_backward_that_keeps_a_graph() -> None:
    model = mlp()
    optimizer = sgd(model)
    inputs = list(model.parameters())
    for step in range(4):
        with checked_step(model, optimizer, squares(step)):
            loss = squares(step)(model, hvd.rank())
            with torch.autograd.graph.save_on_cpu():
                torch.autograd.backward(loss, retain_graph=True, inputs=inputs)
        assert all(not p.grad.requires_grad for p in inputs)


@checks
@in_large_and_small_buckets
def check_gradients_with_a_history_of_their_own() -> None:
    model = mlp()
    optimizer = sgd(model)
    for step in range(4):
        with checked_step(model, optimizer, squares(step)), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch warns of a cycle that keeps memory
            squares(step)(model, hvd.rank()).backward(create_graph=True)


ranks = on((2, "shm"), (3, "shm"), (2, "gloo"))
# Each rank imports torch.compile's machinery for it, which takes seconds.
pair = on((2, "shm"))


@pytest.mark.ranks
@checks.each()
def test_on_all_ranks(ranks: Ranks, check: Check) -> None:
    ranks.run(check)


@pytest.mark.ranks
def test_compiled_models(pair: Ranks) -> None:
    pair.run(check_compiled_models)
