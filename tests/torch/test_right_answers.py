"""N workers at batch b end up where one worker at batch N b does, on any transport."""

from __future__ import annotations

import hashlib
import itertools
from functools import cache
from typing import Any

import pytest
import torch
from torch import nn

import farandole.torch as hvd
from tests.torch.checks import Checks, Outcomes

STEPS = 20
# Divisible by 1 to 4 ranks times 1 or 2 backward passes.
GLOBAL_BATCH = 24
OPTIMIZERS = {
    "sgd": (torch.optim.SGD, {"lr": 0.05}),
    "momentum": (torch.optim.SGD, {"lr": 0.02, "momentum": 0.9}),
    "adam": (torch.optim.Adam, {"lr": 0.01}),
}
DTYPES = {"float32": torch.float32, "float64": torch.float64}
CASES = list(itertools.product(OPTIMIZERS, (1, 2), DTYPES))

checks = Checks()


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


@checks
def check_start() -> None:
    hvd.init()
    # Ranks begin with different weights if nobody sees to it.
    torch.manual_seed(hvd.rank())
    model = nn.Linear(3, 3)
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    assert all(torch.equal(row, model.weight) for row in hvd.allgather(model.weight.detach()[None]))


def compare(name: str, passes: int, dtype: torch.dtype) -> str:
    weights = flat(train(name, passes, dtype, distributed=True))
    alone = flat(train(name, 1, dtype, distributed=False))
    assert torch.isfinite(weights).all()
    assert (alone - flat(make_model(dtype))).norm() > 0.1, "the model did not learn anything"
    if dtype == torch.float64:
        assert (weights - alone).abs().max() <= 1e-10, (weights - alone).abs().max()
    else:
        error = (weights - alone).norm() / alone.norm()
        assert error <= 1e-6, error
    return hashlib.sha256(weights.numpy().tobytes()).hexdigest()


def case_name(name: str, passes: int, dtype: str) -> str:
    return f"check_{name}_{passes}_{dtype}"


for _name, _passes, _dtype in CASES:

    def _case(name: str = _name, passes: int = _passes, dtype: str = _dtype) -> str:
        return compare(name, passes, DTYPES[dtype])

    _case.__name__ = case_name(_name, _passes, _dtype)
    globals()[_case.__name__] = checks(_case)


@cache
def launched(np: int, transport: str) -> Outcomes:
    return checks.launch(np, transport=transport)


@pytest.mark.ranks
@pytest.mark.parametrize("case", CASES, ids=lambda case: "-".join(map(str, case)))
@pytest.mark.parametrize("np", [1, 2, 3, 4])
def test_as_one_worker_with_the_whole_batch(np: int, case: tuple[str, int, str]) -> None:
    by_shm = launched(np, "auto" if np == 1 else "shm").values(case_name(*case))
    assert len(set(by_shm)) == 1, "weights differ between ranks"
    if np > 1:
        by_gloo = launched(np, "gloo").values(case_name(*case))
        assert set(by_gloo) == set(by_shm), "shm and gloo do not agree to the bit"
