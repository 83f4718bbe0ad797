"""Adasum over ranks, against its definition."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch
from torch import nn

import farandole.torch as hvd
from tests.torch.checks import Check, Checks, Ranks, on, raises
from tests.torch.training import batch, mlp, same_everywhere

checks = Checks()
TOLERANCES = {
    torch.float64: 1e-12,
    torch.float32: 1e-6,
    torch.float16: 2e-3,
    torch.bfloat16: 2e-2,
}


def adasum(vectors: Sequence[torch.Tensor]) -> torch.Tensor:
    """The definition: a tree of pairs, neighbours first."""
    if len(vectors) == 1:
        return vectors[0]
    half = 2 if len(vectors) > 2 else 1
    a, b = adasum(vectors[:half]), adasum(vectors[half:])
    dot, square_a, square_b = ((a * b).sum(), (a * a).sum(), (b * b).sum())
    return (1 - dot / (2 * square_a)) * a + (1 - dot / (2 * square_b)) * b


def everyone(dtype: torch.dtype, *shape: int) -> list[torch.Tensor]:
    return [(batch(rank, 0, *shape) + 0.3).to(dtype) for rank in range(hvd.size())]


@checks
def check_allreduce() -> None:
    for dtype, tolerance in TOLERANCES.items():
        for shape in ((1,), (5, 3), (70_001,)):
            vectors = everyone(dtype, *shape)
            expected = adasum([vector.double() for vector in vectors])
            for name in (None, f"{dtype}.{shape}"):
                found = hvd.allreduce(vectors[hvd.rank()], op=hvd.Adasum, name=name)
                assert found.dtype == dtype
                assert torch.allclose(found.double(), expected, rtol=tolerance, atol=tolerance)
            in_place = vectors[hvd.rank()].clone()
            hvd.allreduce_(in_place, op=hvd.Adasum)
            assert torch.equal(in_place, found)


@checks
def check_tensors_of_a_group_have_directions_of_their_own() -> None:
    one, two = everyone(torch.float64, 7), everyone(torch.float64, 4)
    rank = hvd.rank()
    found = hvd.grouped_allreduce([one[rank], two[rank]], op=hvd.Adasum)
    for actual, vectors in zip(found, (one, two), strict=True):
        assert torch.allclose(actual, adasum(vectors), rtol=1e-12)
    scaled = hvd.allreduce(one[rank], op=hvd.Adasum, prescale_factor=2.0, postscale_factor=3.0)
    assert torch.allclose(scaled, 6 * adasum(one), rtol=1e-12)


@checks
def check_the_optimizer_combines_what_steps_have_changed() -> None:
    for kind, options in ((torch.optim.SGD, {"momentum": 0.9}), (torch.optim.Adam, {})):
        model = mlp()
        twins = [mlp() for _ in range(hvd.size())]
        optimizer = hvd.DistributedOptimizer(
            kind(model.parameters(), lr=0.1, **options),
            model.named_parameters(),
            op=hvd.Adasum,
        )
        plain = [kind(twin.parameters(), lr=0.1, **options) for twin in twins]
        for step in range(3):
            optimizer.zero_grad()
            model(batch(hvd.rank(), step, 4, 6)).square().mean().backward()
            optimizer.step()
            one_process(twins, plain, step)
            for mine, theirs in zip(model.parameters(), twins[0].parameters(), strict=True):
                assert torch.allclose(mine, theirs, rtol=1e-4, atol=1e-6)
        same_everywhere(model)


def one_process(
    twins: Sequence[nn.Module], optimizers: Sequence[torch.optim.Optimizer], step: int
) -> None:
    """Take the step of every rank, and combine the changes."""
    before = [parameter.detach().clone() for parameter in twins[0].parameters()]
    for rank, (twin, optimizer) in enumerate(zip(twins, optimizers, strict=True)):
        optimizer.zero_grad()
        twin(batch(rank, step, 4, 6)).square().mean().backward()
        optimizer.step()
    with torch.no_grad():
        for start, *parameters in zip(before, *(t.parameters() for t in twins), strict=True):
            changes = [parameter.double() - start.double() for parameter in parameters]
            together = (start.double() + adasum(changes)).float()
            for parameter in parameters:
                parameter.copy_(together)


@checks
def check_what_the_optimizer_does_otherwise() -> None:
    model = mlp()
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.1),
        compression=hvd.Compression.fp16,
        op=hvd.Adasum,
        backward_passes_per_step=2,
    )
    for _ in range(2):
        model(batch(hvd.rank(), 0, 4, 6)).square().mean().backward()
    optimizer.synchronize()
    with raises(AssertionError, "nothing to skip"), optimizer.skip_synchronize():
        pass
    # Gradients stay each worker's own.
    mine = next(iter(model.parameters())).grad
    assert mine is not None
    assert not torch.equal(*hvd.allgather(mine[None].contiguous())[:2])

    def closure() -> torch.Tensor:
        return model(batch(hvd.rank(), 1, 4, 6)).square().mean()

    assert optimizer.step(closure) is not None
    optimizer.zero_grad()
    same_everywhere(model)
    with raises(ValueError, "gradient_predivide_factor"):
        hvd.DistributedOptimizer(
            torch.optim.SGD(model.parameters(), lr=0.1),
            op=hvd.Adasum,
            gradient_predivide_factor=2.0,
        )


ranks = on((2, "shm"), (3, "shm"), (4, "shm"), (3, "gloo"))


@pytest.mark.ranks
@checks.each()
def test_on_all_ranks(ranks: Ranks, check: Check) -> None:
    ranks.run(check)
