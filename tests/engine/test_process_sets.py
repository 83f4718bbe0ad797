"""Process sets: made, used apart from each other, and removed."""

from __future__ import annotations

import contextlib
import os
import resource

import pytest
import torch

import farandole.torch as hvd
from farandole.engine.process_sets import _place_in
from farandole.errors import CollectiveError, MismatchError, StartError, UsageError
from farandole.testing import Member, Nursery
from farandole.world.environment import World
from tests.conftest import eventually
from tests.torch.checks import Check, Checks, Ranks, on, raises, world_of

checks = Checks()


def place_of(rank: int, hostname: str) -> World:
    return World(
        rank=rank,
        size=5,
        local_rank=0,
        local_size=2,
        cross_rank=0,
        cross_size=2,
        source="farandole",
        hostname=hostname,
    )


def test_a_place_in_a_set_over_hosts() -> None:
    ranks, hosts = [0, 2, 3, 4], ["a", "b", "b", "c"]
    places = [
        _place_in(place_of(rank, host), ranks, hosts)
        for rank, host in zip(ranks, hosts, strict=True)
    ]
    assert [place.rank for place in places] == [0, 1, 2, 3]
    assert {place.size for place in places} == {4}
    assert [(p.local_rank, p.local_size) for p in places] == [(0, 1), (0, 2), (1, 2), (0, 1)]
    assert [(p.cross_rank, p.cross_size) for p in places] == [(0, 3), (1, 3), (0, 1), (2, 3)]


def test_what_is_no_set() -> None:
    for wrong in (3, [0, "1"], [True]):
        with pytest.raises(UsageError, match="ProcessSet"):
            hvd.ProcessSet(wrong)  # type: ignore[arg-type]
    unused = hvd.ProcessSet([2, 0])
    assert str(unused) == "ProcessSet(process_set_id=None, ranks=[0, 2], mpi_comm=None)"
    assert (unused.size(), unused.rank(), unused.included()) == (None, None, None)


def again(process_sets: object = "dynamic") -> None:
    """Begin anew with these sets."""
    hvd.shutdown()
    hvd.init(process_sets=process_sets)  # type: ignore[arg-type]


def halves() -> tuple[list[int], list[int]]:
    """Even and odd ranks; the second is one rank alone on 2 and 3 ranks."""
    ranks = range(hvd.size())
    return list(ranks[::2]), list(ranks[1::2])


@checks
def check_static_sets() -> None:
    even, odd = map(hvd.ProcessSet, halves())
    again([even, odd])
    mine, other = (even, odd) if hvd.rank() % 2 == 0 else (odd, even)
    assert (even.process_set_id, odd.process_set_id) == (1, 2)
    assert (mine.included(), other.included()) == (True, False)
    assert (mine.rank(), other.rank()) == (hvd.rank() // 2, -1)
    assert [even.size(), odd.size()] == [len(ranks) for ranks in halves()]
    assert str(even) == f"ProcessSet(process_set_id=1, ranks={halves()[0]}, mpi_comm=None)"
    assert hvd.global_process_set.size() == hvd.size()
    assert hvd.global_process_set.ranks == list(range(hvd.size()))
    for _ in range(2):
        total = hvd.allreduce(torch.tensor([hvd.rank()]), op=hvd.Sum, process_set=mine)
        assert total.item() == sum(mine.ranks)
    with raises(ValueError, f"Rank {hvd.rank()} is not in process set"):
        hvd.allreduce(torch.ones(2), process_set=other)
    with raises(ValueError, "HOROVOD_DYNAMIC_PROCESS_SETS=1"):
        hvd.add_process_set([0])
    with raises(ValueError, "HOROVOD_DYNAMIC_PROCESS_SETS=1"):
        hvd.remove_process_set(even)
    assert hvd.remove_process_set(hvd.global_process_set) is False
    assert hvd.remove_process_set(hvd.ProcessSet([0])) is False
    # A second init finds those that are there, by their ranks.
    same = hvd.ProcessSet(halves()[0])
    hvd.init(process_sets=[same])
    assert same.process_set_id == 1
    with raises(ValueError, "init() was called again"):
        hvd.init(process_sets=[hvd.ProcessSet([hvd.size() - 1, 0, 17])])
    ranks = halves()[0]
    hvd.shutdown()
    # It may be given to the next init().
    assert (even.process_set_id, even.included(), even.ranks) == (None, None, ranks)
    hvd.init()


@checks
def check_sets_that_cannot_be() -> None:
    again()
    size = hvd.size()
    for ranks in ([], [0, 0], [-1], [size]):
        with raises(ValueError, "cannot be", f"from 0 to {size - 1}"):
            hvd.add_process_set(ranks)
    with raises(ValueError, "already"):
        hvd.add_process_set(range(size))
    first = hvd.add_process_set([0])
    with raises(ValueError, "already"):
        hvd.add_process_set([0])
    with raises(MismatchError, "rank 0: [0, 1]", "add different process sets"):
        hvd.add_process_set([0, 1] if hvd.rank() == 0 else [1])
    assert hvd.remove_process_set(first)
    with raises(ValueError, "is not in use"):
        hvd.barrier(process_set=first)
    hvd.shutdown()
    for wrong in ([[0], [0]], "static", [list(range(size))]):
        with raises(ValueError):
            hvd.init(process_sets=wrong)  # type: ignore[arg-type]
        assert not hvd.is_initialized()
    with raises(ValueError, "init(comm=[0])", "process_sets"):
        hvd.init([0] if size > 1 else [1])
    hvd.init(list(range(size)))


@checks
def check_dynamic_sets() -> None:
    again()
    from farandole.torch.mpi_ops import _basics

    everyone = list(range(hvd.size()))
    even, odd = (hvd.add_process_set(ranks) for ranks in halves())
    assert _basics._get_process_set_ids_and_ranks() == {0: everyone, 1: even.ranks, 2: odd.ranks}
    assert hvd.remove_process_set(even)
    assert (even.process_set_id, even.ranks, even.size()) == (None, halves()[0], None)
    assert not hvd.remove_process_set(even)
    # The object knows its ranks, and may come back.
    assert hvd.add_process_set(even) is even
    if even.included():
        ones = hvd.allreduce(torch.ones(1), op=hvd.Sum, process_set=even)
        assert ones.item() == even.size() == len(halves()[0])
    assert hvd.remove_process_set(even)
    assert not hvd.remove_process_set(hvd.global_process_set)
    # Numbers are used again.
    ranks = [hvd.size() - 1, 0] if hvd.size() > 3 else [0]
    last = hvd.add_process_set(hvd.ProcessSet(ranks))
    assert (last.process_set_id, last.ranks) == (1, sorted(ranks))
    assert _basics._process_set_size(2) == odd.size()
    assert _basics._process_set_rank(2) == odd.rank()
    with raises(ValueError, "no process set 7"):
        _basics._process_set_size(7)
    again()
    assert _basics._get_process_set_ids_and_ranks() == {0: everyone}


@checks
def check_every_operation_in_sets() -> None:
    again()
    chosen = [hvd.add_process_set(ranks) for ranks in halves()]
    mine = chosen[hvd.rank() % 2]
    ranks, count = mine.ranks or [], mine.size() or 0
    x = torch.tensor([float(hvd.rank() + 1)])
    values = [float(rank + 1) for rank in ranks]
    for _ in range(2):
        assert hvd.allreduce(x, process_set=mine).item() == sum(values) / count
        assert hvd.allreduce_(x.clone(), op=hvd.Max, process_set=mine).item() == max(values)
        for begin in (hvd.allreduce_async, hvd.allreduce_async_):
            handle = begin(x.clone(), op=hvd.Sum, process_set=mine)
            assert hvd.synchronize(handle).item() == sum(values)
        assert hvd.allgather(x, process_set=mine).tolist() == values
        handle = hvd.allgather_async(x, process_set=mine)
        assert hvd.synchronize(handle).tolist() == values
        # Roots are given by their rank among all workers.
        root = ranks[-1]
        assert hvd.broadcast(x, root, process_set=mine).item() == root + 1
        assert hvd.broadcast_(x.clone(), root, process_set=mine).item() == root + 1
        for begin in (hvd.broadcast_async, hvd.broadcast_async_):
            assert hvd.synchronize(begin(x.clone(), root, process_set=mine)).item() == root + 1
        got = hvd.alltoall(x.repeat(count), process_set=mine)
        assert got.tolist() == values
        splits = torch.tensor([1] * count, dtype=torch.int32)
        rows, received = hvd.alltoall(x.repeat(count), splits, process_set=mine)
        assert (rows.tolist(), received.tolist()) == (values, [1] * count)
        scattered = hvd.reducescatter(x.repeat(count), op=hvd.Sum, process_set=mine)
        assert scattered.tolist() == [sum(values)]
        one, two = hvd.grouped_allreduce([x, x * 2], op=hvd.Sum, process_set=mine)
        assert (one.item(), two.item()) == (sum(values), 2 * sum(values))
        assert hvd.grouped_allgather([x], process_set=mine)[0].tolist() == values
        hvd.barrier(process_set=mine)
        assert hvd.allgather_object(hvd.rank(), process_set=mine) == ranks
        assert hvd.broadcast_object(hvd.rank(), root, process_set=mine) == root
    outside = next(rank for rank in range(hvd.size()) if rank not in ranks)
    with raises(ValueError, f"root_rank={outside} is not in the process set", str(ranks)):
        hvd.broadcast(x, outside, process_set=mine)
    model = torch.nn.Linear(2, 1)
    hvd.broadcast_parameters(model.state_dict(), ranks[0], process_set=mine)
    weights = hvd.allgather(model.weight.detach(), process_set=mine)
    assert all(torch.equal(row, weights[0]) for row in weights)


@checks
def check_sets_do_not_wait_for_each_other() -> None:
    """Ranks outside are busy with something that waits for the ranks inside."""
    again()
    some = hvd.add_process_set(list(range(hvd.size() - 1)))
    token = torch.ones(1)
    if some.included():
        for number in range(20):
            hvd.barrier(process_set=some)
            total = hvd.allreduce(token, op=hvd.Sum, name=f"x{number}", process_set=some)
            assert total.item() == some.size()
    # Only now do they come to what the rank outside has been waiting in.
    assert hvd.allreduce(token, op=hvd.Sum, name="all").item() == hvd.size()


@checks
def check_errors_in_a_set_leave_all_usable() -> None:
    again()
    some = hvd.add_process_set(list(range(1, hvd.size()))) if hvd.size() > 2 else None
    if some is not None and some.included():
        for _ in range(2):
            with raises(MismatchError, "rank 1: ", f"rank{'s' if hvd.size() > 3 else ''} 2"):
                width = 3 if hvd.rank() == 1 else 4
                hvd.allreduce(torch.ones(width), name="x", process_set=some)
            assert hvd.allreduce(torch.ones(3), name="x", process_set=some).tolist() == [1.0] * 3
    hvd.barrier()


@checks
def check_unnamed_operations_count_by_set() -> None:
    again()
    some = hvd.add_process_set([0])
    held = [hvd.allreduce_async(torch.ones(2), process_set=some)] if some.included() else []
    # Rank 0 has one more open, but not here.
    assert hvd.allreduce(torch.ones(2), op=hvd.Sum).tolist() == [hvd.size()] * 2
    for handle in held:
        hvd.synchronize(handle)


@checks
def check_training_in_sets() -> None:
    again()
    chosen = [hvd.add_process_set(ranks) for ranks in halves()]
    mine, other = (chosen[i] for i in (hvd.rank() % 2, 1 - hvd.rank() % 2))
    torch.manual_seed(0)
    model = torch.nn.Linear(3, 2)
    plain = torch.optim.SGD(model.parameters(), lr=0.1)
    optimizer = hvd.DistributedOptimizer(plain, model.named_parameters(), process_set=mine)
    for step in range(3):
        optimizer.zero_grad()
        model(torch.full((1, 3), float(hvd.rank() + step))).sum().backward()
        optimizer.synchronize()
        average = sum(rank + step for rank in mine.ranks or []) / (mine.size() or 1)
        assert model.weight.grad.tolist() == [[average] * 3] * 2
        with optimizer.skip_synchronize():
            optimizer.step()
    # Who is not in the set trains alone.
    lonely = torch.nn.Linear(3, 2)
    alone = hvd.DistributedOptimizer(
        torch.optim.SGD(lonely.parameters(), lr=0.1), process_set=other
    )
    lonely(torch.full((1, 3), float(hvd.rank()))).sum().backward()
    alone.step()
    assert lonely.weight.grad.tolist() == [[float(hvd.rank())] * 3] * 2


@checks
def check_batch_norm_in_sets() -> None:
    again()
    mine = [hvd.add_process_set(ranks) for ranks in halves()][hvd.rank() % 2]
    layer = hvd.SyncBatchNorm(2, process_set=mine)
    batches = [torch.arange(8.0).reshape(4, 2) * (rank + 1) for rank in mine.ranks or []]
    whole = torch.nn.BatchNorm1d(2)(torch.cat(batches))
    start = 4 * (mine.rank() or 0)
    assert torch.allclose(layer(batches[mine.rank() or 0]), whole[start : start + 4], atol=1e-6)


@checks
def check_rounds_with_sets_leak_nothing() -> None:
    import gc
    import os

    def belongings() -> tuple[int, int]:
        gc.collect()
        return len(os.listdir("/proc/self/fd")), len(os.listdir("/proc/self/task"))  # noqa: PTH208

    def once() -> None:
        again()
        mine = [hvd.add_process_set(ranks) for ranks in halves()][hvd.rank() % 2]
        hvd.allreduce(torch.ones(3), process_set=mine)
        if hvd.rank() == 0:
            hvd.allreduce_async(torch.ones(3), process_set=mine)
        hvd.barrier()

    for _ in range(2):
        once()
    before = belongings()
    for _ in range(3):
        once()
    # Gloo's threads and sockets go a moment after their group.
    eventually(lambda: all(now <= then for now, then in zip(belongings(), before, strict=True)))
    again(None)


def leave_a_set(member: Member) -> str:
    """The last rank leaves while the others wait for it in a set without rank 0."""
    hvd.init(process_sets="dynamic")
    some = hvd.add_process_set([1, 2])
    member.exchange(b"")
    if member.rank == 2:
        hvd.shutdown()
    elif member.rank == 1:
        try:
            hvd.barrier(process_set=some)
        except CollectiveError as error:
            return str(error)
    return ""


@pytest.mark.ranks
@pytest.mark.parametrize("transport", ["shm", "gloo", "hierarchical"])
def test_who_left_a_set_is_named_as_users_know_it(nursery: Nursery, transport: str) -> None:
    with world_of(3, transport, nursery) as world:
        said = world.run(leave_a_set)[1].lower()
        assert "rank 2" in said
        assert "rank 0" not in said


def run_out_of_descriptors(member: Member) -> list[str]:
    """Make sets of ranks 1 and 2 while rank 2 can open no more files, and once it can again."""
    hvd.init(process_sets="dynamic")
    said: list[str] = []
    files = []
    if member.rank == 2:
        resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))
        with contextlib.suppress(OSError):
            while True:
                files.append(os.dup(0))
    try:
        hvd.add_process_set([1, 2])
    except StartError as error:
        said.append(str(error))
    for file in files:
        os.close(file)
    some = hvd.add_process_set([1, 2])
    if some.included():
        said.append(str(hvd.allreduce(torch.ones(1), op=hvd.Sum, process_set=some).item()))
    return said


@pytest.mark.ranks
@pytest.mark.parametrize("transport", ["shm", "gloo", "hierarchical"])
def test_a_rank_without_descriptors_is_named_on_all_ranks(nursery: Nursery, transport: str) -> None:
    with world_of(3, transport, nursery) as world:
        outside, *members = world.run(run_out_of_descriptors)
    assert outside[0].startswith("Rank 2 is out of file descriptors (ulimit -n ")
    assert members == [[outside[0], "2.0"]] * 2


def start_without_descriptors(member: Member) -> str:
    if member.rank == 1:
        used = len(os.listdir("/proc/self/fd"))  # noqa: PTH208
        resource.setrlimit(resource.RLIMIT_NOFILE, (used + 2, used + 2))
    try:
        hvd.init()
    except StartError as error:
        return str(error)
    return "started"


@pytest.mark.ranks
@pytest.mark.parametrize("transport", ["shm", "gloo", "hierarchical"])
def test_a_job_without_descriptors_does_not_start(nursery: Nursery, transport: str) -> None:
    with world_of(3, transport, nursery) as world:
        said = world.run(start_without_descriptors)
    assert said[0].startswith("Rank 1 is out of file descriptors (ulimit -n ")
    assert len(set(said)) == 1


# On two hosts, of three ranks and two, the set of even ranks is on both, that of odd ones too.
ranks = on((2, "shm"), (3, "shm"), (4, "shm"), (3, "gloo"), (5, "hierarchical"))


@pytest.mark.ranks
@checks.each()
def test_on_all_ranks(ranks: Ranks, check: Check) -> None:
    ranks.run(check)
