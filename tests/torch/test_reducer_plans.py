"""Averaging gradients when others come than were planned: missing, late, thawed, unlike."""

from __future__ import annotations

from collections.abc import Callable
from unittest.mock import patch

import pytest
import torch
from torch import nn

import farandole.torch as hvd
from farandole.errors import MismatchError
from farandole.torch import reducer
from tests.torch.checks import Check, Checks, Ranks, on, raises
from tests.torch.training import (
    Loss,
    backward,
    batch,
    checked_step,
    in_large_and_small_buckets,
    mlp,
    same_everywhere,
    sgd,
    small_buckets,
    squares,
    train,
)

checks = Checks()


class Branches(nn.Module):
    """Layers of which a step uses only some."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.ModuleList(nn.Linear(6, 6) for _ in range(4))

    def forward(self, x: torch.Tensor, used: list[int]) -> torch.Tensor:
        return sum(self.layers[i](x).square().mean() for i in used) + 0 * x.sum()


def branches(step: int, used: list[int]) -> Loss:
    """The loss of a step that uses these layers of `Branches`."""
    return lambda model, rank: model(batch(rank, step, 4, 6), used)


@checks
@in_large_and_small_buckets
def check_gradients_missing_on_some_ranks_or_all() -> None:
    # Layer 0 is used by all, 1 by rank 0, 2 by the last rank, 3 by nobody; in the end by all.
    def loss_of(step: int) -> Loss:
        used = [0] + [1] * (hvd.rank() == 0) + [2] * (hvd.rank() == hvd.size() - 1)
        if step == 3:
            used = [3]
        elif step % 2:
            used = used[1:]
        return branches(step, used)

    model = Branches()
    train(model, sgd(model), range(6), loss_of)


@checks
@in_large_and_small_buckets
def check_a_rank_without_any_gradient() -> None:
    def loss_of(step: int) -> Loss:
        idle = (step + 1) % hvd.size()
        return lambda model, rank: torch.zeros(()) if rank == idle else squares(step)(model, rank)

    model = mlp()
    train(model, sgd(model), range(5), loss_of)


@checks
@in_large_and_small_buckets
def check_a_step_without_any_backward() -> None:
    model = mlp()
    optimizer = sgd(model)
    for step in range(4):
        optimizer.zero_grad()
        if step % 2:
            backward(model, squares(step))
        before = [p.clone() for p in model.parameters()]
        optimizer.step()
        moved = any(not torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))
        assert moved == bool(step % 2)
        if step % 2 == 0:
            assert all(p.grad is None for p in model.parameters())
    same_everywhere(model)


@checks
@in_large_and_small_buckets
def check_ranks_that_go_backward_in_different_orders() -> None:
    model = Branches()
    optimizer = sgd(model)
    for step in range(4):
        with checked_step(model, optimizer, branches(step, [0, 1, 2, 3])):
            order = [0, 1, 2, 3] if (hvd.rank() + step) % 2 else [3, 2, 1, 0]
            for layer in order:
                backward(model, branches(step, [layer]))


@checks
@in_large_and_small_buckets
def check_several_backward_passes_per_step() -> None:
    # The layers 1 and 2 take part in some of the passes only.
    uses = [[0, 1, 3], [0, 3], [0, 2, 3]]

    def passes(step: int) -> list[Loss]:
        return [branches(10 * step + i, used) for i, used in enumerate(uses)]

    def total(step: int) -> Loss:
        return lambda model, rank: sum(loss(model, rank) for loss in passes(step))

    model = Branches()
    optimizer = sgd(model, backward_passes_per_step=3)
    for step in range(4):
        with checked_step(model, optimizer, total(step)):
            for loss in passes(step):
                backward(model, loss)


@checks
def check_a_gradient_taken_away_before_synchronize_counts_as_missing() -> None:
    model = mlp()
    optimizer = sgd(model)
    for step in range(3):
        with checked_step(model, optimizer, squares(step)) as expected:
            loss = squares(step)(model, hvd.rank())
            mine = torch.autograd.grad(loss, [model[0].weight], retain_graph=True)[0]
            loss.backward()
            if hvd.rank() == 0:
                model[0].weight.grad = None
            expected["0.weight"] -= hvd.broadcast(mine, 0) / hvd.size()


@checks
@in_large_and_small_buckets
def check_frozen_and_thawed_layers() -> None:
    model = mlp()
    model[2].requires_grad_(False)
    optimizer = sgd(model)
    frozen = model[2].weight.clone()
    train(model, optimizer, range(3))
    assert torch.equal(model[2].weight, frozen)
    model[2].requires_grad_(True)
    train(model, optimizer, range(3, 6))
    model[0].requires_grad_(False)
    optimizer.zero_grad()
    train(model, optimizer, range(6, 8))
    model[0].requires_grad_(True)
    train(model, optimizer, range(8, 10))
    assert not torch.equal(model[2].weight, frozen)


@checks.of(rank_0=0, the_last_rank=-1)
@in_large_and_small_buckets
def check_a_layer_thawed_on_one_rank_first(first: int) -> None:
    model = mlp()
    model[0].requires_grad_(False)
    optimizer = sgd(model)
    thaw = 2 if hvd.rank() == first % hvd.size() else 5
    train(model, optimizer, range(thaw))
    model[0].requires_grad_(True)
    train(model, optimizer, range(thaw, 8))


@checks
def check_a_layer_thawed_on_one_rank_only_is_planned_once() -> None:
    """On the last rank: the plan must suit all ranks, not only the one whose order it takes."""
    model = mlp()
    model[0].requires_grad_(False)
    optimizer = sgd(model)
    with patch.object(reducer, "make_plan", wraps=reducer.make_plan) as plans:
        train(model, optimizer, range(2))
        assert plans.call_count == 1
        model[0].requires_grad_(hvd.rank() == hvd.size() - 1)
        train(model, optimizer, range(2, 6))
        assert plans.call_count == 2


@checks
def check_everything_frozen() -> None:
    model = mlp().requires_grad_(False)
    optimizer = sgd(model)
    train(model, optimizer, range(2))
    model[4].requires_grad_(True)
    train(model, optimizer, range(2, 4))


@checks
@in_large_and_small_buckets
def check_parameters_added_later() -> None:
    model = mlp()
    model[0].requires_grad_(False)
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD([*model[2].parameters(), *model[4].parameters()], lr=0.1),
        model.named_parameters(),
    )
    train(model, optimizer, range(3))
    model[0].requires_grad_(True)
    optimizer.add_param_group({"params": model[0].parameters(), "lr": 0.01})
    train(model, optimizer, range(3, 6))


@checks.of(
    shapes=(
        lambda first: nn.Linear(6, 2 if first else 3),
        ["'weight'", "float32[2, 6]", "float32[3, 6]"],
    ),
    types=(
        lambda first: nn.Linear(6, 2, dtype=torch.float32 if first else torch.float64),
        ["float64[2, 6]"],
    ),
    numbers=(
        lambda first: nn.Linear(6, 2, bias=first),
        ["rank 0 has 2 parameters", "has 1"],
    ),
    names=(
        lambda first: nn.Sequential(nn.Linear(6, 2)) if first else nn.Linear(6, 2),
        ["'0.weight'", "'weight'"],
    ),
)
def check_models_that_differ(case: tuple[Callable[[bool], nn.Module], list[str]]) -> None:
    make, words = case
    model = make(hvd.rank() == 0)
    optimizer = sgd(model)
    model(torch.ones(4, 6, dtype=next(model.parameters()).dtype)).sum().backward()
    with raises(MismatchError, "rank 0", *words):
        optimizer.step()
    model = mlp()
    train(model, sgd(model), range(3))


@checks
def check_a_state_loaded_between_backward_and_step() -> None:
    model = mlp()
    optimizer = sgd(model)
    train(model, optimizer, range(3))
    backward(model, squares(0))
    optimizer.load_state_dict(optimizer.state_dict())
    train(model, optimizer, range(3))


@checks
def check_a_state_loaded_when_buckets_are_on_their_way() -> None:
    """They cannot be taken back, and that is said."""
    with small_buckets():
        model = mlp()
        optimizer = sgd(model)
        train(model, optimizer, range(1))
        optimizer.zero_grad()
        backward(model, squares(0))
        optimizer.load_state_dict(optimizer.state_dict())
        with raises(AssertionError, "zero_grad()"):
            optimizer.zero_grad()
        optimizer.step()
        train(model, optimizer, range(1, 2))


ranks = on((2, "shm"), (3, "shm"), (2, "gloo"))


@pytest.mark.ranks
@checks.each()
def test_on_all_ranks(ranks: Ranks, check: Check) -> None:
    ranks.run(check)
