"""Training over fake hosts: hvd.init() finds them, and gradients are averaged over all."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest

from farandole.testing import FakeWorld, Member, Nursery
from farandole.transport.choose import open_transport
from farandole.transport.shm.segment import Segment, SegmentError
from farandole.world.environment import read_world

pytestmark = pytest.mark.ranks


@pytest.fixture(scope="module")
def world(nursery: Nursery) -> Iterator[FakeWorld]:
    # The last host has one rank only.
    with FakeWorld(5, per_host=2, nursery=nursery) as world:
        yield world


def batch(rank: int, step: int) -> Any:
    import torch

    generator = torch.Generator().manual_seed(100 * step + rank)
    return torch.randn(8, 600, generator=generator)


def model() -> Any:
    import torch

    torch.manual_seed(1)
    return torch.nn.Sequential(
        torch.nn.Linear(600, 900), torch.nn.Tanh(), torch.nn.Linear(900, 3)
    ).double()


def train(member: Member) -> tuple[str, Any]:
    """Train some steps; return the transport and the weights."""
    import torch

    import farandole.torch as hvd
    from farandole.engine.context import current

    hvd.init()
    net = model()
    if member.rank:
        with torch.no_grad():
            next(net.parameters()).zero_()
    hvd.broadcast_parameters(net.state_dict(), root_rank=0)
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(net.parameters(), lr=0.1), named_parameters=net.named_parameters()
    )
    for step in range(4):
        optimizer.zero_grad()
        net(batch(member.rank, step).double()).square().mean().backward()
        optimizer.step()
    name = current().engine.transport.name
    weights = [p.detach().numpy().copy() for p in net.parameters()]
    hvd.shutdown()
    return name, weights


def test_training_is_that_of_one_worker_with_all_batches(world: FakeWorld) -> None:
    import numpy as np
    import torch

    found = world.run(train)
    assert {name for name, _ in found} == {"hierarchical"}
    net = model()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for step in range(4):
        optimizer.zero_grad()
        losses = [net(batch(rank, step).double()).square().mean() for rank in range(world.size)]
        (sum(losses) / world.size).backward()  # type: ignore[union-attr]
        optimizer.step()
    for index, parameter in enumerate(net.parameters()):
        for _, weights in found:
            assert weights[index].tobytes() == found[0][1][index].tobytes()
        assert np.allclose(found[0][1][index], parameter.detach().numpy(), rtol=1e-12, atol=1e-14)


def test_where_the_network_is_reached_is_said(world: FakeWorld) -> None:
    def opened(member: Member) -> Any:
        found = open_transport(read_world(os.environ), member.exchange)
        found.transport.close()
        return found.transport.name, found.address, found.remark

    (name, address, remark), *_ = world.run(opened)
    assert (name, address) == ("hierarchical", "127.0.0.1")
    assert remark == (
        "5 workers on 3 hosts: shared memory inside of each, gloo between them; the network is "
        "reached by lo (127.0.0.1)."
    )


def test_one_host_without_shared_memory_sends_all_to_gloo(nursery: Nursery) -> None:
    def refuse(*_: Any) -> Segment:
        raise SegmentError("none here.")

    def opened(member: Member) -> Any:
        if member.rank == 2:
            Segment.create = refuse  # type: ignore[method-assign]
        found = open_transport(read_world(os.environ), member.exchange)
        found.transport.close()
        return found.transport.name, found.remark

    with FakeWorld(3, per_host=2, nursery=nursery) as world:
        for name, remark in world.run(opened):
            assert name == "gloo"
            assert remark.startswith("Rank 2: none here. 3 workers on 2 hosts: gloo between all")
