"""start_timeline and stop_timeline, and HOROVOD_TIMELINE, on real ranks."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from farandole.engine import context, tracing
from farandole.errors import NotInitializedError
from farandole.testing import FakeWorld, Member, Nursery


@pytest.fixture(scope="module")
def world(nursery: Nursery) -> Iterator[FakeWorld]:
    with FakeWorld(2, nursery=nursery) as world:
        yield world


def some_operations(member: Member) -> None:
    """One new name, one cached name, one large tensor, one optimizer."""
    import torch

    import farandole.torch as hvd

    for _ in range(3):
        hvd.allreduce(torch.ones(3), name="small")
        # More than go one by one.
        handles = [hvd.allreduce_async_(torch.ones(3), name=f"many.{i}") for i in range(30)]
        for handle in handles:
            hvd.synchronize(handle)
    hvd.broadcast(torch.ones(100_000), 0, name="large")
    model = torch.nn.Linear(3, 2)
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), 0.1), model.named_parameters()
    )
    for _ in range(3):
        optimizer.zero_grad()
        model(torch.ones(4, 3)).sum().backward()
        optimizer.step()


def dynamic(member: Member, path: str, mark_cycles: bool) -> str:
    import farandole.torch as hvd

    os.environ["HOROVOD_TIMELINE"] = "DYNAMIC"
    hvd.init()
    hvd.start_timeline(path, mark_cycles=mark_cycles)
    some_operations(member)
    hvd.stop_timeline()
    text = Path(path).read_text() if member.rank == 0 else ""
    hvd.stop_timeline()
    some_operations(member)
    hvd.shutdown()
    return text


def static(member: Member, path: str) -> str:
    import torch

    import farandole.torch as hvd

    os.environ["HOROVOD_TIMELINE"] = path
    hvd.init()
    refused = ""
    hvd.allreduce(torch.ones(3), name="first")
    # Horovod's users read it while it is being written.
    assert "allreduce.first" in Path(path).read_text()
    assert "NEGOTIATE_ALLREDUCE" in Path(path).read_text()
    try:
        hvd.start_timeline(path + ".other")
    except ValueError as error:
        refused = str(error)
    some_operations(member)
    hvd.shutdown()
    return refused


def tracks(path: Path) -> dict[tuple[int, str], list[dict[str, Any]]]:
    """The slices of a trace by rank and track, in the order of time."""
    found: dict[tuple[int, str], list[dict[str, Any]]] = {}
    events = json.loads(path.read_text())
    for event in sorted((e for e in events if e["ph"] == "X"), key=lambda e: e["ts"]):
        found.setdefault((event["pid"] - 1, event["cat"]), []).append(event)
    return found


@pytest.mark.ranks
def test_a_timeline_of_both_ranks(world: FakeWorld, tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    at_once, _ = world.run(dynamic, str(path), True)
    # What Horovod's own users look for, as soon as rank 0 has stopped.
    for word in ("allreduce.small", "NEGOTIATE_ALLREDUCE", '"ALLREDUCE"', "CYCLE_START"):
        assert word in at_once
    assert json.loads(at_once)[0]["args"]["start_time_since_epoch_in_micros"] > 0
    found = tracks(path)
    for rank in (0, 1):
        names = [event["name"] for event in found[rank, "allreduce.small"]]
        assert names == ["NEGOTIATE_ALLREDUCE", "ALLREDUCE"] * 3
        for number in range(30):
            names = [event["name"] for event in found[rank, f"allreduce.many.{number}"]]
            assert names == ["NEGOTIATE_ALLREDUCE", "ALLREDUCE"] * 3
        names = [event["name"] for event in found[rank, "broadcast.large"]]
        assert names == ["NEGOTIATE_BROADCAST", "BROADCAST"]
        assert any("bucket" in track for who, track in found if who == rank)
    # Nothing was agreed on before both had submitted it.
    for first, second in zip(found[0, "broadcast.large"], found[1, "broadcast.large"], strict=True):
        latest = max(first["ts"], second["ts"])
        assert latest <= min(first["ts"] + first["dur"], second["ts"] + second["dur"])


@pytest.mark.ranks
def test_horovods_variable(world: FakeWorld, tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    for refused in world.run(static, str(path)):
        assert "HOROVOD_TIMELINE=DYNAMIC" in refused
    found = tracks(path)
    assert {rank for rank, track in found if track == "allreduce.small"} == {0, 1}
    assert "CYCLE_START" not in path.read_text()
    assert [file.name for file in tmp_path.iterdir()] == ["t.json"]


def test_before_init(tmp_path: Path) -> None:
    with pytest.raises(NotInitializedError, match=r"use hvd\.init"):
        tracing.start_timeline(tmp_path / "t.json")
    with pytest.raises(NotInitializedError, match=r"use hvd\.init"):
        tracing.stop_timeline()


def test_a_folder_that_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HOROVOD_TIMELINE", raising=False)
    context.init()
    try:
        with pytest.raises(ValueError, match=r"cannot be written to .*Name a file in a folder"):
            tracing.start_timeline(tmp_path / "none" / "t.json")
        assert tracing.tracer is None
    finally:
        context.shutdown()
