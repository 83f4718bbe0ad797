"""join(): uneven data, in named operations and in training."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

import farandole.torch as hvd
from farandole.errors import CollectiveError
from tests.torch.checks import Check, Checks, Ranks, on, raises
from tests.torch.training import batch, mlp, same_everywhere, sgd, small_buckets, squares, train

TYPES = (
    *(torch.float16, torch.bfloat16, torch.float32, torch.float64),
    *(torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64),
)
checks = Checks()


def joined(expected: int | None = None) -> int:
    """Join, and check that all ranks are told of the same rank."""
    last = hvd.join()
    assert hvd.allgather_object(last) == [last] * hvd.size()
    if expected is not None:
        assert last == expected
    return last


@checks
def check_all_at_once() -> None:
    assert 0 <= joined() < hvd.size()
    assert 0 <= joined() < hvd.size()
    # Any device will do.
    assert hvd.join(3) == hvd.join(device=0) or hvd.size() > 1


@checks
def check_allreduce_goes_on_with_zeros() -> None:
    size = hvd.size()
    for first in (0, 1):
        for dtype in TYPES:
            for length in (3, 40_000):
                for known in (False, True):
                    name = f"{dtype}.{length}"
                    mine = torch.full((length,), 4, dtype=dtype)
                    if known:
                        hvd.allreduce(mine, op=hvd.Sum, name=name)
                    if hvd.rank() == first:
                        last = hvd.join()
                    else:
                        handles = [
                            hvd.allreduce_async(mine, op=hvd.Sum, name=name),
                            hvd.allreduce_async(mine, op=hvd.Max, name=f"{name}.max"),
                        ]
                        total, most = map(hvd.synchronize, handles)
                        assert set(total.tolist()) == {4 * (size - 1)}
                        assert set(most.tolist()) == {4}
                        last = hvd.join()
                    assert last != first
                    # The same name, now from all.
                    total = hvd.allreduce(mine, op=hvd.Sum, name=name)
                    assert set(total.tolist()) == {4 * size}


@checks
def check_averages_are_over_all() -> None:
    if hvd.rank() == hvd.size() - 1:
        hvd.join()
    else:
        for _ in range(3):
            mean = hvd.allreduce(torch.ones(5, dtype=torch.float64), name="mean")
            assert set(mean.tolist()) == {(hvd.size() - 1) / hvd.size()}
        one, two = hvd.grouped_allreduce([torch.ones(2), torch.ones(70_000)], op=hvd.Sum)
        assert one.tolist() == [hvd.size() - 1] * 2
        assert set(two.tolist()) == {hvd.size() - 1.0}
        assert hvd.allreduce(torch.full((2,), 3.0), op=hvd.Min).tolist() == [3.0, 3.0]
        assert (
            hvd.allreduce(torch.full((2,), 3.0), op=hvd.Product).tolist()
            == [3.0 ** (hvd.size() - 1)] * 2
        )
        if hvd.size() == 2:
            assert hvd.allreduce(torch.ones(3), op=hvd.Adasum).tolist() == [1.0] * 3
        hvd.join()
    hvd.barrier()


@checks
def check_products_of_scaled_integers() -> None:
    if hvd.rank() == 0:
        hvd.join()
    else:
        ten = torch.full((3,), 10, dtype=torch.int32)
        for _ in range(2):
            product = hvd.allreduce(ten, op=hvd.Product, prescale_factor=0.3, name="scaled")
            assert product.tolist() == [3 ** (hvd.size() - 1)] * 3
            with raises(CollectiveError, "scaled by 2 first, but rank 0 called join()", "int32"):
                hvd.allreduce(ten, op=hvd.Product, prescale_factor=2.0, name="doubled")
            with raises(CollectiveError, "rank 0 called join()"):
                hvd.grouped_allreduce([ten, ten], op=hvd.Product, prescale_factor=2.0)
        hvd.join()
    # With all ranks there is nothing to replace.
    two = torch.full((1,), 2, dtype=torch.int32)
    doubled = hvd.allreduce(two, op=hvd.Product, prescale_factor=2.0, name="doubled")
    assert doubled.item() == 4 ** hvd.size()


@checks
def check_ranks_join_one_by_one() -> None:
    """Rank r has r batches more than rank 0."""
    for number in range(hvd.rank()):
        total = hvd.allreduce(torch.ones(4), op=hvd.Sum, name=f"n{number % 3}")
        assert total.tolist() == [hvd.size() - 1 - number] * 4
    joined(hvd.size() - 1)


@checks
def check_other_operations_raise() -> None:
    if hvd.rank() == 1:
        hvd.join()
    else:
        x = torch.ones(hvd.size())
        for call in (
            lambda: hvd.allgather(x, name="a"),
            lambda: hvd.broadcast(x, 0, name="a"),
            lambda: hvd.alltoall(x, name="a"),
            lambda: hvd.reducescatter(x, name="a"),
            lambda: hvd.grouped_allgather([x], name="a"),
            lambda: hvd.allgather_object(1),
            hvd.barrier,
        ):
            with raises(CollectiveError, "needs all ranks, but rank 1 called join()"):
                call()
            # The library stays usable.
            total = hvd.allreduce(torch.ones(1), op=hvd.Sum, name="after")
            assert total.item() == hvd.size() - 1
        hvd.join()
    assert hvd.allgather(torch.ones(1), name="a").tolist() == [1.0] * hvd.size()


@checks
def check_errors_among_those_who_are_left() -> None:
    if hvd.size() == 2:
        return
    if hvd.rank() == 0:
        hvd.join()
    else:
        for _ in range(2):
            with raises(CollectiveError, "rank 1: allreduce of float32[1]"):
                hvd.allreduce(torch.ones(hvd.rank()), name="differ")
        hvd.join()
    hvd.barrier()


@checks
def check_operations_under_way_are_not_absent() -> None:
    """A rank joins while its own operations are on their way, known names and new ones."""
    for _ in range(3):
        x = torch.full((4,), float(hvd.rank() + 1))
        # More than go one by one.
        names = [f"under{i}" for i in range(30)]
        if hvd.rank() == 0:
            handles = [hvd.allreduce_async(x, op=hvd.Sum, name=name) for name in names]
            hvd.join()
        else:
            alone = hvd.allreduce(torch.ones(1), op=hvd.Sum, name="alone").item()
            assert alone == hvd.size() - 1
            handles = [hvd.allreduce_async(x, op=hvd.Sum, name=name) for name in names[::-1]]
            for handle in handles:
                hvd.synchronize(handle)
            handles = []
            hvd.join()
        total = sum(range(1, hvd.size() + 1))
        for handle in handles:
            assert hvd.synchronize(handle).tolist() == [float(total)] * 4


def uneven(make: Any, steps_of: Any, loss_of: Any, model: nn.Module | None = None) -> nn.Module:
    """Train as often as each rank likes, then join and take the weights of the last one."""
    model = model or mlp()
    optimizer = make(model)
    most = max(steps_of(rank) for rank in range(hvd.size()))
    for step in range(steps_of(hvd.rank())):
        optimizer.zero_grad()
        loss_of(step)(model, hvd.rank()).backward()
        optimizer.synchronize()
        present = [rank for rank in range(hvd.size()) if steps_of(rank) > step]
        for name, value in expected(model, loss_of(step), present).items():
            found = dict(model.named_parameters())[name].grad
            assert found is not None
            assert torch.allclose(found.to_dense(), value, rtol=1e-4, atol=1e-6), (step, name)
        with optimizer.skip_synchronize():
            optimizer.step()
    last = joined()
    assert steps_of(last) == most
    hvd.broadcast_parameters(model.state_dict(), root_rank=last)
    hvd.broadcast_optimizer_state(optimizer, root_rank=last)
    same_everywhere(model)
    # All together again; a loss may have thawed something on those who have gone on.
    loss_of(most)(model, hvd.rank())
    train(model, optimizer, range(most, most + 3), loss_of)
    return model


def expected(model: nn.Module, loss: Any, present: list[int]) -> dict[str, torch.Tensor]:
    """What this rank computes for all that are present; their weights are the same."""
    total: dict[str, torch.Tensor] = {}
    for rank in present:
        value = loss(model, rank)
        parameters = {name: p for name, p in model.named_parameters() if p.requires_grad}
        found = torch.autograd.grad(value, list(parameters.values()), allow_unused=True)
        for name, gradient in zip(parameters, found, strict=True):
            if gradient is not None:
                total[name] = total.get(name, 0) + gradient.to_dense() / hvd.size()
    return total


@checks
def check_training_on_uneven_data() -> None:
    # Some have no data at all, some join after the buckets were laid out.
    for steps_of in (
        lambda rank: 2 + rank,
        lambda rank: 5 - rank,
        lambda rank: 3 * (rank > 0),
        lambda rank: 1 + 2 * (rank == 0),
    ):
        uneven(sgd, steps_of, squares)
        with small_buckets():
            uneven(sgd, steps_of, squares)


@checks
def check_twice_in_one_training() -> None:
    model = mlp()
    optimizer = sgd(model)
    for _ in range(2):
        for step in range(2 + hvd.rank()):
            optimizer.zero_grad()
            squares(step)(model, hvd.rank()).backward()
            optimizer.step()
        hvd.broadcast_parameters(model.state_dict(), root_rank=joined(hvd.size() - 1))


class Thawing(nn.Module):
    """A sparse embedding, and a layer that is used from the third step on."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.words = nn.Embedding(9, 6, sparse=True)
        self.first, self.later = nn.Linear(6, 6), nn.Linear(6, 6)

    def forward(self, x: torch.Tensor, *, thawed: bool) -> torch.Tensor:
        out: torch.Tensor = self.first(self.words(x))
        return self.later(out) if thawed else out


@checks
def check_plans_that_change_while_some_have_joined() -> None:
    def loss_of(step: int) -> Any:
        words = torch.tensor([step % 9, (3 * step + 1) % 9])

        def loss(model: nn.Module, rank: int) -> torch.Tensor:
            model.get_parameter("later.weight").requires_grad_(step > 2)
            model.get_parameter("later.bias").requires_grad_(step > 2)
            out: torch.Tensor = model((words + rank) % 9, thawed=step > 2)
            return (out * batch(rank, step, 2, 6)).sum()

        return loss

    def make(model: nn.Module) -> Any:
        plain = torch.optim.SGD(model.parameters(), lr=0.05)
        return hvd.DistributedOptimizer(plain, model.named_parameters())

    # Rank 0 joins before the layer thaws, the others after it.
    uneven(make, lambda rank: 2 if rank == 0 else 6, loss_of, Thawing())


ranks = on((2, "shm"), (3, "shm"), (4, "shm"), (3, "gloo"), (3, "hierarchical"))


@pytest.mark.ranks
@checks.each()
def test_on_all_ranks(ranks: Ranks, check: Check) -> None:
    ranks.run(check)
