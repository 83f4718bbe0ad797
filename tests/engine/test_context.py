"""init() and shutdown(), again and again, leave nothing behind."""

from __future__ import annotations

import atexit
import gc
import os
import pickle
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import farandole.torch as hvd
from farandole.engine import arrays, context
from farandole.errors import ForkedProcessError, MismatchError, NotInitializedError
from farandole.testing import FakeWorld, Member, Nursery
from farandole.transport.protocol import LOOPBACK


def test_nothing_works_before_init() -> None:
    assert not hvd.is_initialized()
    with pytest.raises(NotInitializedError, match=r"hvd\.init\(\)"):
        hvd.rank()
    hvd.shutdown()


def test_one_worker_by_itself() -> None:
    hvd.init()
    hvd.init()
    try:
        assert (hvd.rank(), hvd.size(), hvd.local_rank(), hvd.local_size()) == (0, 1, 0, 1)
        assert (hvd.cross_rank(), hvd.cross_size()) == (0, 1)
    finally:
        hvd.shutdown()
    assert not hvd.is_initialized()


def train_a_little(member: Member) -> None:
    """Everything that opens something: operations, the progress thread, gradient buckets."""
    import torch

    hvd.init()
    assert (hvd.rank(), hvd.size()) == (member.rank, member.size)
    for _ in range(2):
        assert hvd.allreduce(torch.ones(3), op=hvd.Sum, name="x").tolist() == [member.size] * 3
    handle = hvd.allreduce_async(torch.ones(3), name="y")
    hvd.synchronize(handle)
    model = torch.nn.Linear(100, 10)
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1))
    for _ in range(2):
        model(torch.ones(2, 100)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    hvd.shutdown()


def train_on_two_hosts(member: Member) -> None:
    """The same with what connects hosts: wires, Gloo, the forwarder's thread."""
    host, local = divmod(member.rank, 2)
    os.environ |= {
        "FARANDOLE_LOCAL_RANK": str(local),
        "FARANDOLE_LOCAL_SIZE": "2",
        "FARANDOLE_CROSS_RANK": str(host),
        "FARANDOLE_CROSS_SIZE": "2",
        "FARANDOLE_HOSTNAME": f"h{host}",
        "FARANDOLE_ADDRESS": LOOPBACK,
    }
    train_a_little(member)


def open_and_forget(member: Member) -> None:
    """One rank leaves operations behind; the next round counts unnamed ones alike all the same."""
    import torch

    hvd.init()
    if member.rank == 0:
        hvd.allreduce_async(torch.ones(3))
        hvd.allreduce_async(torch.ones(100_000), name="forgotten")
    member.exchange(b"")
    hvd.shutdown()
    hvd.init()
    assert hvd.allreduce(torch.ones(3), op=hvd.Sum).tolist() == [member.size] * 3
    hvd.shutdown()


def threads() -> int:
    """Count the kernel's; one that has come to its end is there for a moment still."""
    counts = []
    for _ in range(10):
        counts.append(len(os.listdir("/proc/self/task")))  # noqa: PTH208 - no paths are needed
        time.sleep(0.02)
    return min(counts)


def belongings() -> dict[str, int]:
    maps = Path("/proc/self/maps").read_text().splitlines()
    return {
        "threads": threads(),
        "descriptors": len(os.listdir("/proc/self/fd")),  # noqa: PTH208
        "python threads": threading.active_count(),
        "mappings": sum("memfd:farandole" in line for line in maps),
    }


def rounds(member: Member, count: int, one: Callable[[Member], None]) -> Any:
    # The first ones open what stays: the board, gloo's static tables, torch's pools.
    for _ in range(3):
        one(member)
    # Nothing may wait for Python to look for cycles.
    gc.disable()
    try:
        before = belongings()
        for _ in range(count):
            one(member)
        return before, belongings()
    finally:
        gc.enable()


@pytest.mark.ranks
@pytest.mark.parametrize(
    ("transport", "count"),
    [
        # What leaks once a round shows after a few of them.
        ("shm", 10),
        ("gloo", 5),
        pytest.param("shm", 100, marks=pytest.mark.soak),
        pytest.param("gloo", 100, marks=pytest.mark.soak),
    ],
)
def test_rounds_of_init_and_shutdown_leak_nothing(
    nursery: Nursery, transport: str, count: int
) -> None:
    with FakeWorld(2, transport=transport, nursery=nursery) as world:
        for before, after in world.run(rounds, count, train_a_little, timeout_s=100):
            assert after == before


@pytest.mark.ranks
@pytest.mark.parametrize("count", [5, pytest.param(100, marks=pytest.mark.soak)])
def test_rounds_on_two_hosts_leak_nothing(nursery: Nursery, count: int) -> None:
    with FakeWorld(4, nursery=nursery) as world:
        for before, after in world.run(rounds, count, train_on_two_hosts, timeout_s=100):
            assert after == before


@pytest.mark.ranks
def test_forgotten_operations_do_not_disturb_the_next_round(nursery: Nursery) -> None:
    with FakeWorld(2, nursery=nursery) as world:
        for before, after in world.run(rounds, 5, open_and_forget):
            assert after == before


def init_with(member: Member, variables: dict[str, str], sets: list[list[int]]) -> str:
    """Begin with other settings than rank 0; return what is said about it."""
    if member.rank == 1:
        os.environ |= variables
    try:
        hvd.init(process_sets=sets if member.rank == 1 else None)
    except MismatchError as error:
        return str(error)
    hvd.shutdown()
    return ""


@pytest.mark.ranks
@pytest.mark.parametrize(
    ("variables", "sets", "said"),
    [
        (
            {"FARANDOLE_TRANSPORT": "gloo"},
            [],
            "their FARANDOLE_TRANSPORT: ranks 0, 2: auto; rank 1: gloo",
        ),
        (
            {"HOROVOD_DYNAMIC_PROCESS_SETS": "1"},
            [],
            "their HOROVOD_DYNAMIC_PROCESS_SETS: ranks 0, 2: False; rank 1: True",
        ),
        ({"FARANDOLE_LOCAL_SIZE": "2"}, [], "(one or several): ranks 0, 2: one; rank 1: several"),
        ({}, [[0, 1]], "process sets of init(): ranks 0, 2: []; rank 1: [[0, 1]]"),
    ],
    ids=["transport", "dynamic_sets", "hosts", "sets"],
)
def test_ranks_that_begin_differently_are_told(
    nursery: Nursery, variables: dict[str, str], sets: list[list[int]], said: str
) -> None:
    with FakeWorld(3, nursery=nursery) as world:
        words = world.run(init_with, variables, sets)
    assert said in words[0]
    assert words == [words[0]] * 3


def bound_to(member: Member, processors: list[int]) -> tuple[bool, bool]:
    """Begin, bound to one processor or to all that are given; say what the rank makes of it."""
    bound = {processors[member.rank % len(processors)]} if processors else os.sched_getaffinity(0)
    os.sched_setaffinity(0, bound)
    hvd.init()
    try:
        return context.current().engine.loop.crowded, context.current().spare_cores
    finally:
        hvd.shutdown()


@pytest.mark.ranks
@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="two ranks need a processor each")
def test_cores_are_those_of_all_ranks_of_the_host(nursery: Nursery) -> None:
    first, second, *rest = sorted(os.sched_getaffinity(0))
    with FakeWorld(2, nursery=nursery) as world:
        # As under `mpirun --bind-to core`: each has one, and together they have enough.
        assert world.run(bound_to, [first, second]) == [(False, False)] * 2
    with FakeWorld(2, nursery=nursery) as world:
        assert world.run(bound_to, [first]) == [(True, False)] * 2
    with FakeWorld(2, nursery=nursery) as world:
        assert world.run(bound_to, []) == [(False, bool(rest))] * 2


def in_forked_child(act: Callable[[], Any]) -> Any:
    """Return what a function gives in a forked child, which then ends as Python ends."""
    readable, writable = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.write(writable, pickle.dumps(act()))
            atexit._run_exitfuncs()
        finally:
            os._exit(0)
    os.close(writable)
    with os.fdopen(readable, "rb") as answer:
        found = pickle.load(answer)
    os.waitpid(pid, 0)
    return found


def refusal(act: Callable[[], Any]) -> str:
    """Return the error that a function raises for being called in a forked process."""
    try:
        act()
    except ForkedProcessError as error:
        return str(error)
    return "it was not refused"


def operations_in_a_forked_child(member: Member) -> dict[str, str]:
    """Try everything there is in a forked child; meanwhile and afterwards the parents go on."""
    import numpy as np
    import torch

    hvd.init(process_sets="dynamic")
    one = torch.ones(1)
    model = torch.nn.Linear(4, 2)
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.1), model.named_parameters()
    )

    def step(*, synchronize: bool = True) -> None:
        optimizer.zero_grad(set_to_none=False)
        model(torch.full((3, 4), 1.0 + hvd.rank())).sum().backward()
        if synchronize:
            optimizer.synchronize()

    def spoil() -> None:
        model.weight.grad.fill_(1e9)
        step(synchronize=False)

    for _ in range(3):
        hvd.allreduce(one, name="x")
        step()
    handle = hvd.allreduce_async(one, name="open")
    operations = {
        "allreduce": lambda: hvd.allreduce(one, name="x"),
        "allreduce without a name": lambda: hvd.allreduce(one),
        "allreduce_": lambda: hvd.allreduce_(one, name="x"),
        "allreduce_async": lambda: hvd.allreduce_async(one, name="x"),
        "grouped_allreduce": lambda: hvd.grouped_allreduce([one, one], name="g"),
        "allgather": lambda: hvd.allgather(one),
        "broadcast": lambda: hvd.broadcast(one, 0),
        "alltoall": lambda: hvd.alltoall(torch.ones(2)),
        "reducescatter": lambda: hvd.reducescatter(torch.ones(2)),
        "barrier": hvd.barrier,
        "join": hvd.join,
        "synchronize": lambda: hvd.synchronize(handle),
        "poll": lambda: hvd.poll(handle),
        "broadcast_object": lambda: hvd.broadcast_object({"a": 1}),
        "allgather_object": lambda: hvd.allgather_object(1),
        "broadcast_parameters": lambda: hvd.broadcast_parameters(model.state_dict(), 0),
        "add_process_set": lambda: hvd.add_process_set([0]),
        "arrays of keras": lambda: arrays.allreduce(np.ones(1, np.float32)),
        "init": hvd.init,
        "a wrapped optimizer": lambda: hvd.DistributedOptimizer(
            torch.optim.SGD(torch.nn.Linear(1, 1).parameters(), lr=1.0)
        ),
        "optimizer.step": optimizer.step,
        "backward": spoil,
    }

    def child() -> dict[str, Any]:
        said = {name: refusal(act) for name, act in operations.items()}
        place = hvd.rank(), hvd.size(), hvd.local_rank(), hvd.local_size(), hvd.is_initialized()
        hvd.shutdown()
        return said | {"place": place}

    averaged = model.weight.grad.clone()
    found = in_forked_child(child)
    assert found.pop("place") == (member.rank, 2, member.rank, 2, True)
    assert torch.equal(model.weight.grad, averaged), "the child wrote to its parent's gradients"
    assert hvd.synchronize(handle).item() == 1.0
    for turn in range(3):
        assert hvd.allreduce(one * (100**member.rank), name="x", op=hvd.Sum).item() == 101.0
        assert hvd.allgather_object(turn) == [turn, turn]
        step()
        assert model.weight.grad.unique().tolist() == [4.5]
    return found


@pytest.mark.ranks
@pytest.mark.parametrize("transport", ["shm", "gloo"])
def test_operations_are_refused_in_a_forked_child(nursery: Nursery, transport: str) -> None:
    with FakeWorld(2, transport=transport, nursery=nursery) as world:
        for rank, said in enumerate(world.run(operations_in_a_forked_child)):
            for name, words in said.items():
                assert f"was forked from rank {rank} (process {world.pids[rank]})" in words, name
                assert "\n" not in words


def load_by_forked_workers(member: Member) -> tuple[list[str], list[float]]:
    import torch

    class Data(torch.utils.data.Dataset[Any]):
        def __len__(self) -> int:
            return 2

        def __getitem__(self, index: int) -> str:
            return refusal(lambda: hvd.allreduce(torch.ones(1), name="sum"))

    hvd.init()
    mine = torch.tensor([1.0 + 99 * member.rank])
    sums = [hvd.allreduce(mine, name="sum", op=hvd.Sum).item() for _ in range(2)]
    loader = torch.utils.data.DataLoader(
        Data(), batch_size=None, num_workers=1, multiprocessing_context="fork"
    )
    said = list(loader)
    return said, [*sums, *(hvd.allreduce(mine, name="sum", op=hvd.Sum).item() for _ in range(3))]


@pytest.mark.ranks
def test_a_loader_that_calls_an_operation_does_not_spoil_the_next_ones(nursery: Nursery) -> None:
    with FakeWorld(2, nursery=nursery) as world:
        for said, sums in world.run(load_by_forked_workers):
            assert all("DataLoader" in words for words in said)
            assert sums == [101.0] * 5


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_forked_child_may_begin_where_its_parent_has_ended() -> None:
    hvd.init()
    hvd.shutdown()

    def child() -> int:
        hvd.init()
        return hvd.size()

    assert in_forked_child(child) == 1


@pytest.mark.ranks
def test_a_forked_child_does_not_act_for_its_parent(nursery: Nursery) -> None:
    def fork(member: Member) -> Any:
        import torch

        hvd.init()
        hvd.allreduce(torch.ones(1), name="x")
        pid = os.fork()
        if pid == 0:
            hvd.shutdown()
            os._exit(0)
        os.waitpid(pid, 0)
        return hvd.allreduce(torch.ones(1), name="x", op=hvd.Sum).item()

    with FakeWorld(2, nursery=nursery) as world:
        assert world.run(fork) == [2.0, 2.0]


def test_the_context_is_gone_after_shutdown() -> None:
    hvd.init()
    hvd.shutdown()
    with pytest.raises(NotInitializedError):
        context.current()
