"""Gradients through collective operations, against one process that has all ranks' inputs."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
import torch

import farandole.torch as hvd
from tests.torch.checks import Check, Checks, Ranks, on

checks = Checks()

Outputs = Sequence[torch.Tensor]


def numbers(seed: int, *shape: int) -> torch.Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def inputs(*shape: int) -> list[torch.Tensor]:
    """Every rank's input."""
    return [numbers(rank, *shape).requires_grad_() for rank in range(hvd.size())]


def one_process(
    everyone: Sequence[torch.Tensor], outputs: Sequence[Outputs], *, mean: bool = False
) -> torch.Tensor:
    """The gradient of this rank's input where each rank's loss is a sum with weights of its own."""
    loss = sum(
        (out * weights_of(rank, number, out)).sum()
        for rank, outs in enumerate(outputs)
        for number, out in enumerate(outs)
    )
    assert isinstance(loss, torch.Tensor)
    (found,) = torch.autograd.grad(
        loss, [everyone[hvd.rank()]], allow_unused=True, retain_graph=True
    )
    if found is None:
        found = torch.zeros_like(everyone[hvd.rank()])
    return found / hvd.size() if mean else found


def weights_of(rank: int, number: int, like: torch.Tensor) -> torch.Tensor:
    return numbers(100 * rank + number + 7, *like.shape)


def here(mine: torch.Tensor, function: Callable[[torch.Tensor], Outputs]) -> torch.Tensor:
    """The gradient that this rank finds."""
    mine = mine.detach().clone().requires_grad_()
    outputs = function(mine)
    weighted = [
        (out * weights_of(hvd.rank(), number, out)).sum() for number, out in enumerate(outputs)
    ]
    sum(weighted).backward()  # type: ignore[union-attr]
    assert mine.grad is not None
    return mine.grad


def close(actual: torch.Tensor, expected: torch.Tensor) -> None:
    assert torch.allclose(actual, expected, rtol=1e-10, atol=1e-12), (actual, expected)


@checks
def check_allreduce() -> None:
    everyone = inputs(5)
    stacked = torch.stack(everyone)
    for op, combined in (
        (hvd.Sum, stacked.sum(0)),
        (hvd.Average, stacked.mean(0)),
        (hvd.Min, stacked.amin(0)),
        (hvd.Max, stacked.amax(0)),
        (hvd.Product, stacked.prod(0)),
    ):
        for before, after in ((1.0, 1.0), (2.0, 0.5)):
            power = hvd.size() if op == hvd.Product else 1
            scaled = combined * before**power * after
            expected = one_process(everyone, [[scaled]] * hvd.size())
            for name in (None, f"x{op}"):
                found = here(
                    everyone[hvd.rank()],
                    lambda x, op=op, name=name, before=before, after=after: [
                        hvd.allreduce(
                            x,
                            op=op,
                            name=name,
                            prescale_factor=before,
                            postscale_factor=after,
                        )
                    ],
                )
                close(found, expected)


@checks
def check_grouped_allreduce() -> None:
    everyone = inputs(5)
    total = torch.stack(everyone).sum(0)
    expected = one_process(everyone, [[total, total * 3]] * hvd.size())
    close(
        here(
            everyone[hvd.rank()], lambda x: hvd.grouped_allreduce([x, x * 3], op=hvd.Sum, name="g")
        ),
        expected,
    )
    # One result after the other.
    tensors = [torch.ones(3, requires_grad=True) for _ in range(3)]
    for result in hvd.grouped_allreduce(tensors, op=hvd.Sum):
        result.backward(torch.ones(3))
    assert [tensor.grad.tolist() for tensor in tensors] == [[hvd.size()] * 3] * 3
    # Only one of the results is used, on one rank.
    x = torch.ones(2, requires_grad=True)
    results = hvd.grouped_allreduce([x, x * 2], op=hvd.Sum)
    (results[0].sum() if hvd.rank() == 0 else results[1].sum()).backward()
    assert x.grad is not None
    assert x.grad.tolist() == [1.0 + 2.0 * (hvd.size() - 1)] * 2


@checks
def check_allgather() -> None:
    rows = [rank + 1 for rank in range(hvd.size())]
    everyone = [numbers(r, rows[r], 2).requires_grad_() for r in range(hvd.size())]
    # Averaged over ranks, as Horovod does it.
    expected = one_process(everyone, [[torch.cat(everyone)]] * hvd.size(), mean=True)
    for name in (None, "gathered"):
        found = here(everyone[hvd.rank()], lambda x, name=name: [hvd.allgather(x, name=name)])
        close(found, expected)
    close(here(everyone[hvd.rank()], lambda x: hvd.grouped_allgather([x])), expected)


@checks
def check_broadcast() -> None:
    for root in range(hvd.size()):
        everyone = inputs(3)
        expected = one_process(everyone, [[everyone[root]]] * hvd.size(), mean=True)
        found = here(everyone[hvd.rank()], lambda x, root=root: [hvd.broadcast(x, root)])
        close(found, expected)


@checks
def check_reducescatter() -> None:
    size = hvd.size()
    everyone = inputs(2 * size + 1, 2)
    shares = [2 * r + min(r, 1) for r in range(size + 1)]
    mean = torch.stack(everyone).mean(0)
    parts = [[mean[shares[r] : shares[r + 1]]] for r in range(size)]
    # Horovod's: all gradients gathered, for a sum times the number of ranks.
    expected = one_process(everyone, parts) * size
    found = here(everyone[hvd.rank()], lambda x: [hvd.reducescatter(x, op=hvd.Average)])
    close(found, expected)
    found = here(everyone[hvd.rank()], lambda x: [hvd.reducescatter(x, op=hvd.Sum, name="sum")])
    close(found, expected * size)
    found = here(
        everyone[hvd.rank()],
        lambda x: hvd.grouped_reducescatter([x], op=hvd.Average, prescale_factor=2.0),
    )
    close(found, expected * 2.0)
    stacked = torch.stack(everyone)
    for op, combined in (
        (hvd.Min, stacked.amin(0)),
        (hvd.Max, stacked.amax(0) * 3.0),
        (hvd.Product, stacked.prod(0)),
    ):
        parts = [[combined[shares[r] : shares[r + 1]]] for r in range(size)]
        after = 3.0 if op == hvd.Max else 1.0
        found = here(
            everyone[hvd.rank()],
            lambda x, op=op, after=after: [hvd.reducescatter(x, op=op, postscale_factor=after)],
        )
        close(found, one_process(everyone, parts))


@checks
def check_alltoall() -> None:
    size = hvd.size()
    everyone = inputs(2 * size, 2)
    received = [[torch.cat([each[2 * r : 2 * r + 2] for each in everyone])] for r in range(size)]
    expected = one_process(everyone, received)
    close(here(everyone[hvd.rank()], lambda x: [hvd.alltoall(x)]), expected)
    splits = torch.tensor([2] * size, dtype=torch.int32)
    close(here(everyone[hvd.rank()], lambda x: [hvd.alltoall(x, splits, "s")[0]]), expected)
    # What went nowhere has no gradient.
    received = [[torch.stack([each[r] for each in everyone])] for r in range(size)]
    expected = one_process(everyone, received)
    close(here(everyone[hvd.rank()], lambda x: [hvd.alltoall(x, [1] * size)[0]]), expected)


@checks
def check_compression_is_no_obstacle() -> None:
    x = torch.full((3,), 1 / 3, requires_grad=True)
    hvd.allreduce(x, op=hvd.Sum, compression=hvd.Compression.fp16).sum().backward()
    assert x.grad is not None
    assert x.grad.dtype == torch.float32
    assert x.grad.tolist() == [float(hvd.size())] * 3


@checks
def check_gradients_of_gradients() -> None:
    x = torch.full((2,), float(hvd.rank() + 1), requires_grad=True)
    cubes = hvd.allreduce(x**3, op=hvd.Sum, name="cubes")
    (first,) = torch.autograd.grad(cubes.sum(), x, create_graph=True)
    (second,) = torch.autograd.grad(first.sum(), x)
    # Each rank's loss counts every rank's cubes: n times in the first, n^2 in the second.
    assert second.tolist() == [6.0 * (hvd.rank() + 1) * hvd.size()] * 2


@checks
def check_nothing_is_kept_where_no_gradient_is_wanted() -> None:
    x = torch.ones(2, requires_grad=True)
    with torch.no_grad():
        assert not hvd.allreduce(x).requires_grad
        assert not hvd.allgather(x).requires_grad
    assert not hvd.allreduce(torch.ones(2)).requires_grad
    assert hvd.allreduce(x).requires_grad


@checks
def check_gradients_in_a_process_set() -> None:
    hvd.shutdown()
    hvd.init(process_sets="dynamic")
    some = hvd.add_process_set([0, hvd.size() - 1]) if hvd.size() > 2 else hvd.global_process_set
    if some.included():
        x = torch.ones(2, requires_grad=True)
        hvd.allreduce(x, op=hvd.Sum, process_set=some).sum().backward()
        assert x.grad is not None
        assert x.grad.tolist() == [2.0, 2.0]
        x.grad = None
        hvd.broadcast(x, hvd.size() - 1, process_set=some).sum().backward()
        assert x.grad is not None
        assert x.grad.tolist() == [float(hvd.rank() == hvd.size() - 1)] * 2
    hvd.barrier()


ranks = on((2, "shm"), (3, "shm"), (4, "shm"))


@pytest.mark.ranks
@checks.each()
def test_on_all_ranks(ranks: Ranks, check: Check) -> None:
    ranks.run(check)
