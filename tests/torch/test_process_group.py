"""The torch.distributed backend, under DDP and beside named operations, with real workers."""

from __future__ import annotations

from typing import Any

import pytest

import farandole

pytestmark = pytest.mark.ranks


def _meeting(folder: str, name: str) -> dict[str, Any]:
    """Where a group meets that another one follows, whose port might still be this one's."""
    import os

    rank, size = (int(os.environ[variable]) for variable in ("RANK", "WORLD_SIZE"))
    return {"init_method": f"file://{folder}/{name}", "rank": rank, "world_size": size}


def _train(backend: str, folder: str) -> dict[str, Any]:
    """Train by DDP in its three ways; return what each rank ends with."""
    import torch
    import torch.distributed as dist
    from torch import nn
    from torch.nn.parallel import DistributedDataParallel

    import farandole.torch  # noqa: F401 (makes the backend known)
    from farandole.transport.gloo import let_gloo_settle

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.Linear(12, 700), nn.Linear(700, 3)
            self.sometimes = nn.Linear(12, 3)

        def forward(self, x: torch.Tensor, both: bool) -> torch.Tensor:
            y = self.second(torch.tanh(self.first(x)))
            return y + self.sometimes(x) if both else y

    dist.init_process_group(backend, **_meeting(folder, backend))
    rank = dist.get_rank()
    weights: dict[str, Any] = {"backend": dist.get_backend()}
    for way in ("plain", "find_unused_parameters", "static_graph"):
        torch.manual_seed(rank)  # DDP itself broadcasts rank 0's weights
        model = DistributedDataParallel(Model(), **({way: True} if way != "plain" else {}))
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        data = torch.Generator().manual_seed(rank)
        for step in range(5):
            both = way != "find_unused_parameters" or step % 2 == rank % 2
            optimizer.zero_grad()
            model(torch.randn(4, 12, generator=data), both).square().mean().backward()
            optimizer.step()
        weights[way] = torch.cat([p.detach().flatten() for p in model.parameters()]).numpy()
    with model.join():
        for _ in range(2 + rank):
            model(torch.ones(4, 12), True).sum().backward()
    weights["join"] = "done"
    let_gloo_settle()
    dist.destroy_process_group()
    return weights


def _train_by_both(folder: str) -> dict[str, dict[str, Any]]:
    return {name: _train(name, folder) for name in ("gloo", "farandole")}


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[dict[str, Any]]]:
    ranks = farandole.run(_train_by_both, (str(tmp_path_factory.mktemp("groups")),), np=2)
    return {name: [ended[name] for ended in ranks] for name in ("gloo", "farandole")}


@pytest.mark.parametrize("way", ["plain", "find_unused_parameters", "static_graph"])
def test_ddp_gives_what_it_gives_with_gloo(
    trained: dict[str, list[dict[str, Any]]], way: str
) -> None:
    expected = trained["gloo"][0][way].tobytes()
    # Two ranks: a + b is b + a, so that the bits must agree with Gloo's.
    assert [ended[way].tobytes() for ended in trained["farandole"]] == [expected, expected]


def test_join_takes_uneven_inputs(trained: dict[str, list[dict[str, Any]]]) -> None:
    assert [ended["join"] for ended in trained["farandole"]] == ["done", "done"]
    assert trained["farandole"][0]["backend"] == "farandole"


def _use_everything(folder: str) -> dict[str, Any]:
    import torch
    import torch.distributed as dist

    import farandole.torch as hvd
    from farandole.errors import UsageError

    hvd.init()
    found: dict[str, Any] = {"mixed": "no error"}
    try:
        dist.init_process_group("cpu:farandole,cuda:gloo", **_meeting(folder, "mixed"))
    except UsageError as error:
        found["mixed"] = str(error)
    dist.init_process_group("farandole")
    rank, size = dist.get_rank(), dist.get_world_size()
    for op in ("SUM", "MIN", "MAX", "PRODUCT", "BAND"):
        x = torch.tensor([rank + 1, 6])
        dist.all_reduce(x, getattr(dist.ReduceOp, op))
        found[op] = x.tolist()
    transposed = torch.arange(6.0).reshape(2, 3).t()
    dist.all_reduce(transposed)
    found["not contiguous"] = transposed.tolist()
    parts = [torch.zeros(2) for _ in range(size)]
    dist.all_gather(parts, torch.full((2,), float(rank)))
    found["all_gather"] = [part.tolist() for part in parts]
    x = torch.full((300_000,), float(rank))
    dist.broadcast(x, 1)
    found["broadcast"] = x.unique().tolist()
    x = torch.ones(3)
    dist.reduce(x, 0)
    found["reduce at the root"] = x.tolist() if rank == 0 else None
    if rank == 0:
        dist.send(torch.tensor([7]), 1)
    elif rank == 1:
        received = torch.tensor([0])
        dist.recv(received, 0)
        found["recv"] = received.item()
    objects: list[Any] = [None] * size
    dist.all_gather_object(objects, {"rank": rank})
    found["objects"] = objects
    work = dist.all_reduce(torch.ones(4), async_op=True)
    # Rank 0 asks for the other lane's operation first, rank 1 last: neither may block the other.
    handle = hvd.allreduce_async(torch.ones(5), name="between", op=hvd.Sum)
    if rank == 0:
        found["between"] = hvd.synchronize(handle).tolist()
        work.wait()
    else:
        work.wait()
        found["between"] = hvd.synchronize(handle).tolist()
    pair = dist.new_group([0, 1])
    if rank < 2:
        x = torch.ones(2)
        dist.all_reduce(x, group=pair)
        found["pair"] = x.tolist()
    dist.barrier()
    dist.destroy_process_group()
    dist.init_process_group("farandole")
    dist.barrier()
    dist.destroy_process_group()
    return found


@pytest.fixture(scope="module")
def used(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    return farandole.run(_use_everything, (str(tmp_path_factory.mktemp("mixed")),), np=3)


@pytest.mark.parametrize(
    ("what", "expected"),
    [
        ("SUM", [6, 18]),
        ("MIN", [1, 6]),
        ("MAX", [3, 6]),
        ("PRODUCT", [6, 216]),
        ("BAND", [0, 6]),
        ("not contiguous", [[0.0, 9.0], [3.0, 12.0], [6.0, 15.0]]),
        ("all_gather", [[0.0, 0.0], [1.0, 1.0], [2.0, 2.0]]),
        ("broadcast", [1.0]),
        ("objects", [{"rank": 0}, {"rank": 1}, {"rank": 2}]),
        ("between", [3.0] * 5),
    ],
)
def test_values_on_every_rank(used: list[dict[str, Any]], what: str, expected: Any) -> None:
    assert [found[what] for found in used] == [expected] * 3


def test_what_the_backend_lacks_goes_to_gloo(used: list[dict[str, Any]]) -> None:
    assert used[0]["reduce at the root"] == [3.0, 3.0, 3.0]
    assert used[1]["recv"] == 7


def test_a_group_of_some_ranks(used: list[dict[str, Any]]) -> None:
    assert used[0]["pair"] == used[1]["pair"] == [2.0, 2.0]


def test_a_mixed_device_string_is_refused(used: list[dict[str, Any]]) -> None:
    for found in used:
        assert "'farandole' cannot be combined with gloo in one group" in found["mixed"]


def test_without_ordered_stores_the_backend_is_gloo(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from datetime import timedelta

    import torch
    import torch.distributed as dist

    from farandole.torch import process_group

    monkeypatch.setattr(process_group.platform, "machine", lambda: "aarch64")
    group = process_group._create(dist.HashStore(), 0, 1, timedelta(seconds=10))
    assert isinstance(group, dist.distributed_c10d.ProcessGroupGloo)
    value = torch.ones(2)
    group.allreduce([value]).wait()
    assert value.tolist() == [1, 1]
    assert "uses Gloo here" in capsys.readouterr().err
