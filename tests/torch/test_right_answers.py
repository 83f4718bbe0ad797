"""N workers at batch b end up where one worker at batch N b does, on any transport."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from functools import cache, partial
from typing import Any

import pytest
import torch
from torch import nn

import farandole.torch as hvd
from farandole.testing import Nursery
from tests.torch.checks import Ranks

STEPS = 20
# Divisible by 1 to 4 ranks times 1 or 2 backward passes.
GLOBAL_BATCH = 24
OPTIMIZERS = {
    "sgd": (torch.optim.SGD, {"lr": 0.05}),
    "momentum": (torch.optim.SGD, {"lr": 0.02, "momentum": 0.9}),
    "adam": (torch.optim.Adam, {"lr": 0.01}),
}
DTYPES = {"float32": torch.float32, "float64": torch.float64}


def make_model(dtype: torch.dtype) -> nn.Module:
    """A model in which no gradient comes near zero.

    Adam divides a gradient by its own size: where it nearly vanishes, rounding noise decides which
    way a whole step goes, on one worker as on many. Inputs, weights and slopes of softplus are
    positive here and the targets out of reach, so that every gradient keeps its sign and size.
    """
    generator = torch.Generator().manual_seed(1)
    model = nn.Sequential(
        nn.Linear(8, 16), nn.Softplus(), nn.Linear(16, 16), nn.Softplus(), nn.Linear(16, 3)
    )
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(0.1 + 0.2 * torch.rand(parameter.shape, generator=generator))
    return model.to(dtype)


@cache
def data(step: int, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(step)
    x = 0.5 + torch.rand(GLOBAL_BATCH, 8, generator=generator)
    y = -5 - torch.rand(GLOBAL_BATCH, 3, generator=generator)
    return x.to(dtype), y.to(dtype)


def train(name: str, passes: int, dtype: torch.dtype, *, distributed: bool) -> nn.Module:
    """Train; every rank on its share of each batch, or one process on all of it."""
    model = make_model(dtype)
    kind, options = OPTIMIZERS[name]
    optimizer: Any = kind(model.parameters(), **options)
    rank, size = 0, 1
    if distributed:
        rank, size = hvd.rank(), hvd.size()
        optimizer = hvd.DistributedOptimizer(
            optimizer, model.named_parameters(), backward_passes_per_step=passes
        )
    share = GLOBAL_BATCH // size // passes
    for step in range(STEPS):
        x, y = data(step, dtype)
        optimizer.zero_grad()
        for number in range(passes):
            start = (rank * passes + number) * share
            piece = slice(start, start + share)
            loss = (model(x[piece]) - y[piece]).square().mean() / passes
            loss.backward()
        optimizer.step()
    return model


def flat(model: nn.Module) -> torch.Tensor:
    return torch.cat([p.detach().reshape(-1) for p in model.parameters()])


def compare(name: str, passes: int, dtype: torch.dtype) -> str:
    weights = flat(train(name, passes, dtype, distributed=True))
    assert torch.isfinite(weights).all()
    # That the others have the same weights the test sees by what is returned.
    if hvd.rank() == 0:
        alone = flat(train(name, 1, dtype, distributed=False))
        assert (alone - flat(make_model(dtype))).norm() > 0.1, "the model did not learn anything"
        if dtype == torch.float64:
            assert (weights - alone).abs().max() <= 1e-10, (weights - alone).abs().max()
        else:
            error = (weights - alone).norm() / alone.norm()
            assert error <= 1e-6, error
    return hashlib.sha256(weights.numpy().tobytes()).hexdigest()


@pytest.fixture(scope="module", params=[1, 2, 3, 4])
def worlds(request: pytest.FixtureRequest, nursery: Nursery) -> Iterator[list[Ranks]]:
    size = request.param
    with Ranks(nursery, size, "gloo") as gloo:
        if size == 1:
            yield [gloo]
        else:
            with Ranks(nursery, size, "shm") as shm:
                yield [shm, gloo]


@pytest.mark.ranks
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("passes", [1, 2])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_as_one_worker_with_the_whole_batch(
    worlds: list[Ranks], name: str, passes: int, dtype: str
) -> None:
    check = partial(compare, name, passes, DTYPES[dtype])
    digests = [digest for ranks in worlds for digest in ranks.run(check)]
    assert len(set(digests)) == 1, f"weights differ between ranks or transports: {digests}"
