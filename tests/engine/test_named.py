"""Named operations between real ranks: any order, mismatches, duplicates, and both ways of
agreeing, through the coordinator and by the eager board."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from farandole.engine.named import DuplicateNameError
from farandole.errors import MismatchError
from farandole.testing import FakeWorld, Member, Nursery
from tests.engine.ranks import (
    broadcasting,
    close_engine,
    in_step,
    ones,
    open_engine,
    summing,
    total,
)

pytestmark = pytest.mark.ranks


@pytest.fixture(
    scope="module", params=[("shm", 2), ("shm", 3), ("gloo", 2)], ids=lambda p: f"{p[0]}{p[1]}"
)
def world(request: pytest.FixtureRequest, nursery: Nursery) -> Iterator[FakeWorld]:
    name, size = request.param
    with FakeWorld(size, nursery=nursery) as world:
        world.run(open_engine, name)
        yield world
        world.run(close_engine)


def everywhere(world: FakeWorld, value: object) -> list[object]:
    return [value] * world.size


def sum_of_ranks(world: FakeWorld) -> float:
    return world.size * (world.size + 1) / 2


@pytest.mark.parametrize("count", [0, 1, 4, 9000, 300_000])
def test_an_operation_again_and_again(world: FakeWorld, count: int) -> None:
    """The first turn goes through the coordinator, the others by the eager board if small."""

    def repeat(member: Member) -> list[Any]:
        sums = []
        for _ in range(6):
            data = ones(count, member.rank + 1)
            member.state["engine"].run(f"again.{count}", summing(data))
            sums.append(sorted(set(data.tolist())))
        return sums

    wanted = [sum_of_ranks(world)] if count else []
    assert world.run(repeat) == everywhere(world, [wanted] * 6)


def test_opposite_orders_of_200_names(world: FakeWorld) -> None:
    def submit(member: Member) -> int:
        engine, right = member.state["engine"], 0
        for _ in range(3):
            names = list(range(200))
            if member.rank % 2:
                names.reverse()
            data = {name: ones(10, (member.rank + 1) * (name + 1)) for name in names}
            handles = [engine.submit(f"orders.{name}", summing(data[name])) for name in names]
            for handle in handles:
                engine.wait(handle)
            unit = member.size * (member.size + 1) / 2
            right += sum(bool((data[name] == unit * (name + 1)).all()) for name in names)
        return right

    assert world.run(submit) == everywhere(world, 600)


def test_operations_that_queue_under_one_name(world: FakeWorld) -> None:
    """Ranks that submit alike need not wait alike."""

    def submit(member: Member) -> list[float]:
        engine, sums = member.state["engine"], []
        for turn in range(4):
            data = [ones(3, (member.rank + 1) * (number + 1)) for number in range(5)]
            if (member.rank + turn) % 2:
                for each in data:
                    engine.run("queue", summing(each), queues=True)
            else:
                handles = [engine.submit("queue", summing(each), queues=True) for each in data]
                for handle in reversed(handles):
                    engine.wait(handle)
            sums += [float(each[0]) for each in data]
        return sums

    unit = sum_of_ranks(world)
    wanted = [unit * (number + 1) for _ in range(4) for number in range(5)]
    assert world.run(submit) == everywhere(world, wanted)


def test_what_queues_is_begun_while_its_rank_waits_for_something_else(world: FakeWorld) -> None:
    def submit(member: Member) -> float:
        engine = member.state["engine"]
        data = [ones(3) for _ in range(3)]
        handles = [engine.submit("queue.behind", summing(each), queues=True) for each in data]
        if member.rank:
            engine.wait(handles[2])
        total(member, "queue.other")
        for handle in handles:
            engine.wait(handle)
        return float(data[2][0])

    assert world.run(submit) == everywhere(world, float(world.size))


def test_broadcasts_from_every_root(world: FakeWorld) -> None:
    def broadcast(member: Member) -> list[float]:
        got = []
        for turn in range(3):
            for root in range(member.size):
                data = ones(5, 10 * member.rank + turn)
                member.state["engine"].run(f"broadcast.{root}", broadcasting(data, root))
                got.append(float(data[0]))
        return got

    wanted = [10.0 * root + turn for turn in range(3) for root in range(world.size)]
    assert world.run(broadcast) == everywhere(world, wanted)


def submit_and_catch(member: Member, name: str, count: int) -> str:
    """Submit a sum; return the message of the mismatch, or the sum."""
    data = ones(count)
    try:
        member.state["engine"].run(name, summing(data))
    except MismatchError as error:
        return str(error)
    return str(data.sum())


def test_different_shapes_under_a_new_name(world: FakeWorld) -> None:
    def mismatch(member: Member) -> tuple[str, float]:
        text = submit_and_catch(member, "differ.new", 3 + (member.rank == 1))
        return text, total(member, "differ.new")

    check_mismatch(world, world.run(mismatch))


def test_different_shapes_that_were_both_agreed_on_before(world: FakeWorld) -> None:
    def mismatch(member: Member) -> tuple[str, float]:
        for count in (3, 4, 3, 4):
            submit_and_catch(member, "differ.cached", count)
        text = submit_and_catch(member, "differ.cached", 3 + (member.rank == 1))
        return text, total(member, "differ.cached")

    check_mismatch(world, world.run(mismatch))


@pytest.mark.parametrize("late", ["the cached one", "the new one"])
def test_one_shape_agreed_on_before_and_one_new(world: FakeWorld, late: str) -> None:
    def mismatch(member: Member) -> tuple[str, float]:
        for _ in range(2):
            submit_and_catch(member, f"differ.{late}", 3)
        new = member.rank == 1
        if new == (late == "the new one"):
            # Meanwhile this rank drives the engine, and sees what its peers do.
            member.state["engine"].loop.wait(after(0.05))
        text = submit_and_catch(member, f"differ.{late}", 4 if new else 3)
        return text, total(member, f"differ.{late}")

    check_mismatch(world, world.run(mismatch))


@pytest.mark.parametrize("slow_rank", [0, 1])
def test_a_detour_is_seen_by_who_comes_later(world: FakeWorld, slow_rank: int) -> None:
    """A rank with a new shape goes to the coordinator; its peer has long looked at that before it
    submits the old one by the eager board, and must not wait there."""

    def mismatch(member: Member) -> tuple[str, float]:
        engine = member.state["engine"]
        name = f"detour.{slow_rank}"
        for _ in range(2):
            submit_and_catch(member, name, 3)
        in_step(member)
        if member.rank == slow_rank:
            handle = engine.submit(name, summing(ones(4)))
            in_step(member)
        else:
            in_step(member)
            engine.loop.wait(after(0.02))
            handle = engine.submit(name, summing(ones(3)))
        try:
            engine.wait(handle)
            text = ""
        except MismatchError as error:
            text = str(error)
        return text, total(member, name)

    answers = world.run(mismatch)
    assert all("ranks submitted different things" in text for text, _ in answers)
    assert [value for _, value in answers] == everywhere(world, sum_of_ranks(world))


def test_a_detour_is_followed_although_nobody_polls(world: FakeWorld) -> None:
    """Rank 1 submits a small operation by the eager board and forgets about it; a peer sends the
    same name through the coordinator."""

    def forget(member: Member) -> tuple[str, float]:
        engine = member.state["engine"]
        for _ in range(2):
            submit_and_catch(member, "forgotten", 3)
        in_step(member)
        if member.rank == 1:
            handle = engine.submit("forgotten", summing(ones(3)))
            in_step(member)
            deadline = time.monotonic() + 10
            while not handle.done and time.monotonic() < deadline:
                time.sleep(0.001)
            text = str(handle.error)
        else:
            in_step(member)
            text = submit_and_catch(member, "forgotten", 4 if member.rank == 0 else 3)
        in_step(member)
        return text, total(member, "forgotten")

    check_mismatch(world, world.run(forget), odd=0, counts=(4, 3))


def test_different_types_and_reductions(world: FakeWorld) -> None:
    def mismatch(member: Member) -> str:
        data = ones(3).astype(np.float64 if member.rank == 0 else np.float32)
        try:
            member.state["engine"].run("types", summing(data))
        except MismatchError as error:
            return str(error)
        return ""

    for text in world.run(mismatch):
        assert "rank 0: allreduce of float64[3], sum" in text
        assert "allreduce of float32[3], sum" in text


def test_a_name_that_is_under_way_cannot_be_submitted_again(world: FakeWorld) -> None:
    def twice(member: Member, cached: bool) -> tuple[bool, float]:
        engine, name = member.state["engine"], f"twice.{cached}"
        if cached:
            total(member, name)
        refused = False
        in_step(member)
        if member.rank == 0:
            data = ones(4, 1.0)
            handle = engine.submit(name, summing(data))
            # The others wait: this cannot have ended.
            try:
                engine.submit(name, summing(ones(4)))
            except ValueError as error:
                refused = isinstance(error, DuplicateNameError) and name in str(error)
            in_step(member)
            engine.wait(handle)
            value = float(data[0])
        else:
            in_step(member)
            value = total(member, name)
        return refused, value

    for cached in (False, True):
        answers = world.run(twice, cached)
        assert [refused for refused, _ in answers] == [True] + [False] * (world.size - 1)
        assert [value for _, value in answers] == everywhere(world, sum_of_ranks(world))


def test_poll_is_false_at_least_once(world: FakeWorld) -> None:
    def poll(member: Member) -> list[tuple[bool, bool]]:
        engine, seen = member.state["engine"], []
        for _ in range(3):
            handle = engine.submit("poll", summing(ones(4)))
            in_step(member)
            time.sleep(0.01)
            first = handle.poll()
            deadline = time.monotonic() + 10
            while not handle.poll() and time.monotonic() < deadline:
                time.sleep(0.0005)
            seen.append((first, handle.done))
            engine.wait(handle)
        return seen

    assert world.run(poll) == everywhere(world, [(False, True)] * 3)


def test_operations_end_while_nobody_waits(world: FakeWorld) -> None:
    """Large ones need the progress thread, since both sides have to work on them."""

    def work(member: Member) -> bool:
        engine, data = member.state["engine"], ones(500_000)
        handle = engine.submit("unattended", summing(data))
        deadline = time.monotonic() + 20
        while not handle.done and time.monotonic() < deadline:
            time.sleep(0.002)
        engine.wait(handle)
        return bool((data == member.size).all())

    assert world.run(work) == everywhere(world, True)


def test_the_progress_thread_goes_to_sleep(world: FakeWorld) -> None:
    def cpu_time(member: Member) -> float:
        total(member, "sleepy")
        time.sleep(0.3)
        before = time.process_time()
        time.sleep(0.3)
        return time.process_time() - before

    assert max(world.run(cpu_time)) < 0.05


def test_two_threads_submit(world: FakeWorld) -> None:
    """A loader's thread and the training thread, each with names of its own."""

    def both(member: Member) -> list[int]:
        right = [0, 0]

        def work(which: int) -> None:
            for turn in range(50):
                if (
                    total(member, f"threads.{which}.{turn % 5}")
                    == member.size * (member.size + 1) / 2
                ):
                    right[which] += 1

        thread = threading.Thread(target=work, args=(1,))
        thread.start()
        work(0)
        thread.join()
        return right

    assert world.run(both) == everywhere(world, [50, 50])


def test_variants_and_sizes_in_random_orders(world: FakeWorld) -> None:
    """The same name with ever other shapes, small and large: fast, slow, fast again."""

    def vary(member: Member) -> int:
        same, right = random.Random(5), 0
        for _ in range(150):
            name, count = same.choice("abc"), same.choice([1, 2, 500, 9000, 20_000])
            right += total(member, f"vary.{name}", count) == member.size * (member.size + 1) / 2
        return right

    assert world.run(vary) == everywhere(world, 150)


def after(seconds: float) -> Any:
    """A condition that becomes true after some time."""
    deadline = time.monotonic() + seconds
    return lambda: time.monotonic() > deadline


def check_mismatch(
    world: FakeWorld, answers: list[Any], odd: int = 1, counts: tuple[int, int] = (4, 3)
) -> None:
    """Every rank got an error that names both sides, and could go on."""
    for text, value in answers:
        assert f"rank {odd}: allreduce of float32[{counts[0]}], sum" in text
        assert f"allreduce of float32[{counts[1]}], sum" in text
        assert value == sum_of_ranks(world)


def test_the_last_to_join_is_so_though_the_coordinator_hears_it_first(nursery: Nursery) -> None:
    """Buckets in shared memory go on without messages: rank 0 may not have read the others'."""

    def join_after_higher_ranks(member: Member) -> object:
        engine, handle = member.state["engine"], None
        for rank in reversed(range(member.size)):
            if rank == member.rank:
                handle = engine.join()
            member.exchange(b"")
        return engine.wait(handle)

    with FakeWorld(3, nursery=nursery) as world:
        world.run(open_engine, "shm")
        assert world.run(join_after_higher_ranks) == [0, 0, 0]
        world.run(close_engine)
