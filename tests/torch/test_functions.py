"""Broadcasting models, optimizers and objects."""

from __future__ import annotations

import datetime
import threading
from argparse import Namespace
from collections import OrderedDict
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import farandole.torch as hvd
from farandole.errors import CollectiveError, FarandoleError
from tests.torch.checks import Check, Checks, Ranks, on, raises

checks = Checks()


def model_of(seed: int) -> nn.Module:
    """A model with every kind of thing that a state_dict holds."""
    torch.manual_seed(seed)
    model = nn.Sequential(
        nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(4, 2, dtype=torch.float64)
    )
    model.register_buffer("scalar", torch.tensor(float(seed)))
    model.register_buffer("flags", torch.tensor([seed % 2 == 0, True]))
    model.register_buffer("nothing", None)
    model[1].num_batches_tracked += seed
    return model


def same(first: dict[str, torch.Tensor], second: dict[str, torch.Tensor]) -> bool:
    return first.keys() == second.keys() and all(
        torch.equal(first[name], second[name]) for name in first
    )


@checks
def check_broadcast_parameters_of_a_state_dict() -> None:
    for root in range(hvd.size()):
        model = model_of(hvd.rank())
        hvd.broadcast_parameters(model.state_dict(), root_rank=root)
        assert same(model.state_dict(), model_of(root).state_dict())
        assert model[1].num_batches_tracked.item() == root


@checks
def check_broadcast_parameters_of_named_parameters() -> None:
    model = model_of(hvd.rank())
    hvd.broadcast_parameters(model.named_parameters(), 1)
    expected = model_of(1)
    assert same(dict(model.named_parameters()), dict(expected.named_parameters()))
    # Buffers were not among them.
    assert model.scalar.item() == hvd.rank()


@checks
def check_broadcast_parameters_of_lists() -> None:
    tensors = [torch.full((3,), hvd.rank()), torch.tensor(hvd.rank())]
    hvd.broadcast_parameters(list(enumerate_names(tensors)), 1)
    assert [t.tolist() for t in tensors] == [[1, 1, 1], 1]
    tensors = [torch.full((3,), hvd.rank()), torch.tensor(hvd.rank())]
    hvd.broadcast_parameters(tensors, 0)
    assert [t.tolist() for t in tensors] == [[0, 0, 0], 0]


def enumerate_names(tensors: list[torch.Tensor]) -> list[tuple[str, torch.Tensor]]:
    return [(f"p{i}", tensor) for i, tensor in enumerate(tensors)]


@checks
def check_broadcast_parameters_of_channels_last() -> None:
    weight = torch.arange(36.0).view(2, 2, 3, 3) * (hvd.rank() + 1)
    weight = weight.to(memory_format=torch.channels_last)
    hvd.broadcast_parameters({"weight": weight}, 0)
    assert weight.is_contiguous(memory_format=torch.channels_last)
    assert torch.equal(weight, torch.arange(36.0).view(2, 2, 3, 3))
    # Every rank may lay it out in its own way.
    weight = torch.arange(36.0).view(2, 2, 3, 3) * (hvd.rank() + 1)
    if hvd.rank():
        weight = weight.to(memory_format=torch.channels_last)
    hvd.broadcast_parameters({"weight": weight}, 0)
    assert torch.equal(weight, torch.arange(36.0).view(2, 2, 3, 3))


@checks
def check_broadcast_parameters_of_views_and_frozen_parameters() -> None:
    whole = torch.full((4, 4), float(hvd.rank()))
    frozen = nn.Parameter(torch.full((2,), float(hvd.rank())), requires_grad=False)
    hvd.broadcast_parameters({"columns": whole[:, 1:3], "frozen": frozen}, 1)
    assert whole[:, 1:3].unique().tolist() == [1.0]
    assert whole[:, 0].unique().tolist() == [float(hvd.rank())]
    assert frozen.tolist() == [1.0, 1.0]


@checks
def check_broadcast_parameters_of_anything_else() -> None:
    for params in (5, "model", torch.ones(3), nn.Linear(1, 1)):
        with raises(ValueError, type(params).__name__, "state_dict()"):
            hvd.broadcast_parameters(params, 0)
    with raises(ValueError, "list", "named_parameters()"):
        hvd.broadcast_parameters([["weight", torch.ones(3)]], 0)
    with raises(ValueError, "root_rank=99"):
        hvd.broadcast_parameters({"weight": torch.ones(3)}, 99)


def trained(kind: type[torch.optim.Optimizer], steps: int, **options: object) -> tuple:
    model = nn.Linear(3, 2)
    optimizer = kind(model.parameters(), **options)
    for step in range(steps):
        optimizer.zero_grad()
        (model(torch.ones(2, 3)).sum() * (step + 1)).backward()
        optimizer.step()
    return model, optimizer


@checks
def check_broadcast_optimizer_state() -> None:
    torch.manual_seed(hvd.rank())
    for wrap in (False, True):
        for kind, options in (
            (torch.optim.SGD, {"momentum": 0.9}),
            (torch.optim.Adam, {"betas": (0.8, 0.9)}),
            (torch.optim.AdamW, {"amsgrad": True}),
        ):
            _, optimizer = trained(kind, 1 + hvd.rank(), lr=0.1 * (hvd.rank() + 1), **options)
            if wrap:
                optimizer = hvd.DistributedOptimizer(optimizer)
            hvd.broadcast_optimizer_state(optimizer, root_rank=1)
            everyone = hvd.allgather_object(optimizer.state_dict())
            assert optimizer.param_groups[0]["lr"] == 0.2
            for other in everyone:
                assert other["param_groups"] == everyone[0]["param_groups"]
                for number, state in everyone[1]["state"].items():
                    for name, value in state.items():
                        theirs = other["state"][number][name]
                        assert torch.equal(torch.as_tensor(theirs), torch.as_tensor(value))
            if kind is torch.optim.Adam:
                assert optimizer.state_dict()["state"][0]["step"] == 2


@checks
def check_optimizer_state_that_only_the_root_has() -> None:
    for root_steps, others_steps in ((3, 0), (0, 3)):
        steps = root_steps if hvd.rank() == 0 else others_steps
        model, optimizer = trained(torch.optim.Adam, steps, lr=0.1)
        hvd.broadcast_optimizer_state(optimizer, root_rank=0)
        assert len(optimizer.state) == (2 if root_steps else 0)
        hvd.broadcast_parameters(model.state_dict(), 0)
        optimizer = hvd.DistributedOptimizer(optimizer, model.named_parameters())
        for _ in range(2):
            optimizer.zero_grad()
            model(torch.ones(2, 3)).sum().backward()
            optimizer.step()
        weights = hvd.allgather(model.weight.detach().view(1, -1))
        assert all(torch.equal(row, weights[0]) for row in weights)


@checks
def check_a_new_optimizer_begins_with_zeros() -> None:
    """As Horovod leaves them, which makes a state by a step on zeros."""
    for kind in (torch.optim.SGD, torch.optim.Adam):
        model = nn.Linear(3, 2)
        model.index = nn.Parameter(torch.tensor([1, 3]), requires_grad=False)
        before = model.weight.detach().clone()
        optimizer = kind(model.parameters(), lr=0.1, weight_decay=0.1)
        optimizer = hvd.DistributedOptimizer(optimizer, model.named_parameters())
        hvd.broadcast_optimizer_state(optimizer, root_rank=0)
        gradient = model.weight.grad
        assert torch.equal(hvd.broadcast(gradient, root_rank=0), torch.zeros(2, 3))
        assert model.index.grad is None
        assert torch.equal(model.weight, before)
        optimizer.zero_grad()
        assert model.weight.grad is None
    sparse = nn.Embedding(4, 2, sparse=True)
    hvd.broadcast_optimizer_state(torch.optim.SparseAdam(sparse.parameters()), root_rank=0)
    assert sparse.weight.grad is None


@checks
def check_the_state_of_every_optimizer_of_torch() -> None:
    kinds = [
        kind
        for kind in torch.optim.Optimizer.__subclasses__()
        if kind.__module__.startswith("torch.optim")
        and kind not in (torch.optim.LBFGS, torch.optim.SparseAdam)
    ]
    assert len(kinds) > 10
    for kind in sorted(kinds, key=lambda kind: kind.__name__):
        torch.manual_seed(hvd.rank())
        # One of them takes matrices only.
        model = nn.Linear(3, 2, bias=False)
        optimizer = kind(model.parameters(), lr=0.1 * (hvd.rank() + 1))
        optimizer = hvd.DistributedOptimizer(optimizer, model.named_parameters())
        model(torch.ones(2, 3)).sum().backward()
        optimizer.step()
        hvd.broadcast_parameters(model.state_dict(), root_rank=1)
        hvd.broadcast_optimizer_state(optimizer, root_rank=1)
        assert optimizer.param_groups[0]["lr"] == 0.2
        optimizer.zero_grad()
        model(torch.ones(2, 3) * hvd.rank()).sum().backward()
        optimizer.step()
        weights = hvd.allgather(model.weight.detach()[None])
        assert all(torch.equal(row, weights[0]) for row in weights), kind


@checks
def check_optimizers_whose_state_cannot_be_broadcast() -> None:
    optimizer = torch.optim.LBFGS(nn.Linear(2, 1).parameters())
    with raises(ValueError, "LBFGS"):
        hvd.broadcast_optimizer_state(optimizer, 0)


PLAIN = {
    "numbers": [0, -1, 2**70, 1.5, float("inf"), 1j, True, None],
    "text": ("héllo\n", b"\x00\xff", ""),
    "nested": OrderedDict(b=[{"a": (1, (2,))}], a=Namespace(x=1)),
    "things": [Path("/a b"), datetime.date(2020, 2, 29), torch.Size([1, 2])],
    "scalars": [np.float32(1.5), np.int64(-3)],
}


class Thing:
    """Not plain: it needs pickle, and its class is found by name on every rank."""

    def __init__(self, value: int) -> None:
        self.value = value


@checks
def check_broadcast_object() -> None:
    for root in range(hvd.size()):
        obj = PLAIN if hvd.rank() == root else None
        assert hvd.broadcast_object(obj, root_rank=root) == PLAIN
    got = hvd.broadcast_object([torch.arange(3), np.arange(2.0)] if hvd.rank() == 0 else None)
    assert got[0].tolist() == [0, 1, 2]
    assert got[1].tolist() == [0.0, 1.0]
    assert hvd.broadcast_object(hvd.rank(), 1, "named") == 1
    assert len(hvd.broadcast_object(b"x" * 3_000_000 if hvd.rank() == 1 else b"", 1)) == 3_000_000


@checks
def check_allgather_object() -> None:
    assert hvd.allgather_object(hvd.rank()) == list(range(hvd.size()))
    got = hvd.allgather_object({"rank": hvd.rank(), "x": "x" * hvd.rank() * 100_000}, name="own")
    assert [len(said["x"]) for said in got] == [rank * 100_000 for rank in range(hvd.size())]
    assert hvd.allgather_object(None) == [None] * hvd.size()


@checks
def check_objects_that_need_pickle_on_one_host() -> None:
    thing = hvd.broadcast_object(Thing(7) if hvd.rank() == 0 else None)
    assert isinstance(thing, Thing)
    assert thing.value == 7
    assert [thing.value for thing in hvd.allgather_object(Thing(hvd.rank()))] == list(
        range(hvd.size())
    )


@checks
def check_objects_that_cannot_travel() -> None:
    # The root alone knows; the others must not wait for it.
    obj = threading.Lock() if hvd.rank() == 0 else None
    kind = ValueError if hvd.rank() == 0 else CollectiveError
    with raises(kind, "lock", "" if hvd.rank() == 0 else "Rank 0"):
        hvd.broadcast_object(obj)
    with raises(kind, "lock"):
        hvd.allgather_object(obj)
    assert hvd.broadcast_object(hvd.rank()) == 0


@checks
def check_unknown_roots_of_objects() -> None:
    for root in (-1, hvd.size()):
        with raises(FarandoleError, f"root_rank={root}"):
            hvd.broadcast_object(1, root)
        with raises(FarandoleError, f"root_rank={root}"):
            hvd.broadcast_optimizer_state(torch.optim.SGD([torch.ones(1)], lr=1), root)


ranks = on((2, "shm"), (3, "shm"), (2, "gloo"))


@pytest.mark.ranks
@checks.each()
def test_on_all_ranks(ranks: Ranks, check: Check) -> None:
    ranks.run(check)


def test_alone() -> None:
    hvd.init()
    model = model_of(1)
    hvd.broadcast_parameters(model.state_dict(), 0)
    assert same(model.state_dict(), model_of(1).state_dict())
    assert hvd.broadcast_object(PLAIN) is PLAIN
    assert hvd.allgather_object(PLAIN) == [PLAIN]
    _, optimizer = trained(torch.optim.Adam, 2, lr=0.1)
    hvd.broadcast_optimizer_state(optimizer, 0)
    assert optimizer.state_dict()["state"][0]["step"] == 2
    hvd.shutdown()
