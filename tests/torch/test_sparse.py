"""Sparse gradients, alone and in the company of dense ones."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import pytest
import torch
from torch import nn

import farandole.torch as hvd
from farandole.engine import context
from farandole.torch.by_name import reduce_sparse
from farandole.transport.reduction import Reduction
from tests.torch.checks import Check, Checks, Ranks, on, raises
from tests.torch.training import batch, same_everywhere, small_buckets, train_step

checks = Checks()


class Words(nn.Module):
    """Two embeddings and a dense layer; a step may use only some of them."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.words = nn.Embedding(20, 5, sparse=True)
        self.more = nn.Embedding(9, 5, sparse=True)
        self.dense = nn.Linear(5, 2)
        self.tail = nn.Linear(2, 2)

    def forward(self, x: torch.Tensor, use: str = "words more dense") -> torch.Tensor:
        total = self.dense(batch(0, 0, 4, 5)) if "dense" in use else torch.zeros(4, 2)
        for name in ("words", "more"):
            if name in use:
                embedding = getattr(self, name)
                total = total + embedding(x % embedding.num_embeddings).sum(1)[:, :2]
        return self.tail(total).square().mean()


def words(rank: int, step: int) -> torch.Tensor:
    """Some of which repeat, and most of which the ranks do not share."""
    return torch.randint(20, (4, 3), generator=torch.Generator().manual_seed(100 * step + rank))


def plain_sgd(model: nn.Module, **options: Any) -> Any:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    return hvd.DistributedOptimizer(optimizer, model.named_parameters(), **options)


def run(use: Any, steps: int = 6, prepare: Any = None) -> Words:
    """Train with large buckets and with small ones; `use` says what a rank uses in a step."""
    for buckets in (nullcontext, small_buckets):
        with buckets():
            model = Words()
            optimizer = plain_sgd(model)
            for step in range(steps):
                if prepare:
                    prepare(model, step)
                train_step(
                    model,
                    optimizer,
                    lambda model, rank, step=step: model(words(rank, step), use(rank, step)),
                )
    return model


@checks
def check_sparse_gradients_stay_sparse() -> None:
    model = run(lambda rank, step: "words more dense")
    for parameter in (model.words.weight, model.more.weight):
        assert parameter.grad.is_sparse
        assert parameter.grad.is_coalesced()
    assert not model.dense.weight.grad.is_sparse


@checks
def check_missing_on_some_ranks() -> None:
    def use(rank: int, step: int) -> str:
        return "words more" if rank == step % 2 else "dense"

    run(use)
    run(lambda rank, step: "words dense" if rank == 0 else "dense")
    run(lambda rank, step: "words dense" if rank != 0 else "dense")


@checks
def check_missing_on_all_ranks() -> None:
    run(lambda rank, step: "dense" if step in (0, 3) else "words dense")
    run(lambda rank, step: "words" if step % 2 else "more")


@checks
def check_first_used_later() -> None:
    run(lambda rank, step: "dense" if step < 3 else "words more dense")
    run(lambda rank, step: "dense" if step < 3 + rank else "words more dense")


@checks
def check_turning_dense_later() -> None:
    def turn(model: Words, step: int) -> None:
        model.words.sparse = step < 3

    run(lambda rank, step: "words more dense", prepare=turn)


@checks
def check_turning_dense_on_one_rank_first() -> None:
    for first in (0, 1):

        def turn(model: Words, step: int, first: int = first) -> None:
            model.words.sparse = step < (2 if hvd.rank() == first else 4)

        run(lambda rank, step: "words more dense", prepare=turn)


@checks
def check_turning_sparse_later() -> None:
    def turn(model: Words, step: int) -> None:
        model.words.sparse = model.more.sparse = step >= 3

    run(lambda rank, step: "words more dense", prepare=turn)


@checks
def check_turning_sparse_on_one_rank_first() -> None:
    for first in (0, 1):

        def turn(model: Words, step: int, first: int = first) -> None:
            model.words.sparse = step >= (2 if hvd.rank() == first else 4)

        run(lambda rank, step: "words more dense", prepare=turn)


@checks
def check_several_passes_and_sums() -> None:
    model = Words()
    optimizer = plain_sgd(model, backward_passes_per_step=2, op=hvd.Sum)
    for step in range(4):
        total = torch.zeros_like(model.words.weight)
        for rank in range(hvd.size()):
            for number in range(2):
                loss = model(words(rank, 10 * step + number))
                total += torch.autograd.grad(loss, [model.words.weight])[0].to_dense()
        optimizer.zero_grad()
        for number in range(2):
            model(words(hvd.rank(), 10 * step + number)).backward()
        optimizer.synchronize()
        assert torch.allclose(model.words.weight.grad.to_dense(), total, atol=1e-6)
        with optimizer.skip_synchronize():
            optimizer.step()
    same_everywhere(model)


@checks
def check_sparse_adam() -> None:
    for as_dense in (False, True):
        model = nn.Embedding(20, 5, sparse=True)
        hvd.broadcast_parameters(model.state_dict(), 0)
        optimizer = hvd.DistributedOptimizer(
            torch.optim.SparseAdam(model.parameters(), lr=0.1),
            model.named_parameters(),
            sparse_as_dense=as_dense,
        )
        for step in range(4):
            optimizer.zero_grad()
            # In the first step nobody has a gradient.
            if step:
                model(words(hvd.rank(), step)).square().mean().backward()
            optimizer.step()
        same_everywhere(model)


@checks
def check_sparse_adam_on_a_rank_that_never_has_the_gradient() -> None:
    def loss_of(since: int, step: int) -> Any:
        def loss(model: nn.Module, rank: int) -> torch.Tensor:
            used = [0, 1] if rank == 0 and step >= since else [0]
            found = [model.get_submodule(str(i))(words(rank, step)).square() for i in used]
            return torch.stack([each.mean() for each in found]).sum()

        return loss

    for buckets in (nullcontext, small_buckets):
        # In the first step they meet anyway; later they go by buckets.
        for since in (0, 2):
            with buckets():
                model = nn.ModuleList(nn.Embedding(20, 5, sparse=True) for _ in range(2))
                hvd.broadcast_parameters(model.state_dict(), 0)
                optimizer = hvd.DistributedOptimizer(
                    torch.optim.SparseAdam(model.parameters(), lr=0.1),
                    model.named_parameters(),
                    sparse_as_dense=True,
                )
                for step in range(5):
                    train_step(model, optimizer, loss_of(since, step))
                assert model.get_parameter("1.weight").grad.is_sparse


@checks
def check_ops_that_sparse_gradients_do_not_know() -> None:
    model = Words()
    optimizer = plain_sgd(model, op=hvd.Max)
    model(words(hvd.rank(), 0)).backward()
    with raises(ValueError, "words.weight", "sparse", "max"):
        optimizer.step()


def test_factors_count() -> None:
    hvd.init()
    try:
        parameter = nn.Parameter(torch.zeros(4, 2))
        parameter.grad = torch.eye(4)[:, :2].to_sparse(1)
        how = Reduction(op="sum", prescale=3.0, postscale=0.5)
        reduce_sparse(context.current().engine, "x", parameter, how)
        assert torch.equal(parameter.grad.to_dense(), 1.5 * torch.eye(4)[:, :2])
    finally:
        hvd.shutdown()


ranks = on((2, "shm"), (3, "shm"), (2, "gloo"))


@pytest.mark.ranks
@checks.each()
def test_on_all_ranks(ranks: Ranks, check: Check) -> None:
    ranks.run(check)
