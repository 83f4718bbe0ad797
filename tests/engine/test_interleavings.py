"""Random interleavings of buckets, named operations and process groups, in each rank's own order.

Whatever the order and the pauses, nothing hangs and no sum is wrong. A failing round says its seed.
"""

from __future__ import annotations

import random
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import numpy as np
import pytest

from farandole.engine.buckets import FULL, REPLAN, open_buckets
from farandole.engine.engine import Engine
from farandole.engine.handle import Handle
from farandole.engine.loop import process_loop
from farandole.testing import FakeWorld, Member, Nursery
from farandole.transport.reduction import Reduction
from tests.engine.ranks import Array, close_engine, open_engine, summing

BUCKETS = [(40_000, "float32"), (1_000, "float32"), (300_000, "float32")]
SMALL, LARGE = (1, 10, 1000), (9_000, 30_000, 200_000)
LONGEST_PAUSE_S = 1e-3

WORLDS = [("shm", 2), ("shm", 3), ("shm", 4), ("gloo", 2), ("gloo", 3)]


@dataclass(frozen=True, slots=True)
class Task:
    """Something that every rank submits in a round, at a time of its own choice."""

    submit: Callable[[], Handle]
    check: Callable[[Handle], bool]
    may_wait: bool
    """Whether a rank may go on to the next round before it waits for this."""
    what: str


def named_tasks(member: Member, common: random.Random, number: int) -> list[Task]:
    """Named operations; a name's shape changes now and then."""
    engine: Engine = member.state["engine"]
    unit = member.size * (member.size + 1) // 2
    tasks = []
    # Names of even and odd rounds differ, since a handle may be kept for one more round.
    for name in common.sample(range(12), common.randint(1, 8)):
        count = common.choice(SMALL if common.random() < 0.7 else LARGE)
        dtype = common.choice(["float32", "float32", "int64"])
        factor = common.randint(1, 100)
        data = np.full(count, (member.rank + 1) * factor, dtype)

        def submit(name: int = name, data: Array = data) -> Handle:
            return engine.submit(f"named.{number % 2}.{name}", summing(data))

        def check(_: Handle, data: Array = data, wanted: int = unit * factor) -> bool:
            return bool((data == wanted).all())

        tasks.append(Task(submit, check, True, f"named {name}, {count} of {dtype}"))
    return tasks


def queued_tasks(member: Member, common: random.Random, number: int) -> list[Task]:
    """Some operations that queue under one name; all alike, as each rank has its own order."""
    engine: Engine = member.state["engine"]
    unit = member.size * (member.size + 1) // 2
    count, factor = common.choice([3, 3, 3, 40, 9_000]), common.randint(1, 100)
    tasks = []
    for _ in range(common.randint(0, 4)):
        data = np.full(count, (member.rank + 1) * factor, np.float32)

        def submit(data: Array = data) -> Handle:
            return engine.submit(f"queued.{number % 2}", summing(data), queues=True)

        def check(_: Handle, data: Array = data) -> bool:
            return bool((data == unit * factor).all())

        tasks.append(Task(submit, check, True, f"queued, {count} of float32"))
    return tasks


def bucket_tasks(member: Member, common: random.Random, number: int) -> list[Task]:
    """Every bucket once; now and then a rank objects, and nothing is reduced.

    Notes are read unless all ranks are full.
    """
    unit = member.size * (member.size + 1) / 2
    tasks = []
    for bucket in range(len(BUCKETS)):
        how = Reduction(op=common.choice(["sum", "average"]))
        factor = common.randint(1, 100)
        said = [common.choice([0, FULL, FULL]) for _ in range(member.size)]
        if common.random() < 0.1:
            said[common.randrange(member.size)] = REPLAN

        def submit(
            bucket: int = bucket,
            how: Reduction = how,
            factor: int = factor,
            said: list[int] = said,
        ) -> Handle:
            buckets = member.state["buckets"]
            buckets.arrays[bucket][...] = (member.rank + 1) * factor
            note = np.full(4, member.rank, np.uint8)
            return buckets.submit(bucket, number + 1, how, said[member.rank], note)

        def check(
            handle: Handle,
            bucket: int = bucket,
            how: Reduction = how,
            factor: int = factor,
            said: list[int] = said,
        ) -> bool:
            wanted = unit * factor / (member.size if how.op == "average" else 1)
            if REPLAN in said:
                wanted = (member.rank + 1) * factor
            data = member.state["buckets"].arrays[bucket]
            right = np.allclose(data, wanted, rtol=1e-6, atol=0)
            # The bucket is this rank's again: writing into it now must not disturb a peer.
            data[...] = -1
            flags, notes = zip(*handle.result, strict=True)
            read = all(each & FULL for each in said) or [note.tolist() for note in notes] == [
                [rank] * 4 for rank in range(member.size)
            ]
            return right and read and list(flags) == said

        tasks.append(Task(submit, check, False, f"bucket {bucket}, {how.op}, flags {said}"))
    return tasks


def group_tasks(member: Member, common: random.Random, number: int) -> list[Task]:
    """Some all-reduces in each of two process groups, whose own order is the same on every rank."""
    import torch

    unit = member.size * (member.size + 1) / 2
    tasks = []
    for which, group in enumerate(member.state["groups"]):
        counts = [common.choice(SMALL + LARGE) for _ in range(common.randint(1, 3))]
        factor = common.randint(1, 100)
        tensors = [torch.full((count,), float((member.rank + 1) * factor)) for count in counts]

        def submit(group: Any = group, tensors: list[Any] = tensors) -> Handle:
            works = [group.allreduce([tensor]) for tensor in tensors]
            handle: Handle = works[-1]._handle
            return handle

        def check(_: Handle, tensors: list[Any] = tensors, wanted: float = unit * factor) -> bool:
            return all(bool((tensor == wanted).all()) for tensor in tensors)

        tasks.append(Task(submit, check, True, f"group {which}, {counts}"))
    return tasks


KINDS = (named_tasks, queued_tasks, bucket_tasks, group_tasks)


def play(member: Member, seed: int, rounds: int) -> list[str]:
    """Play some rounds; return what went wrong."""
    engine: Engine = member.state["engine"]
    own = random.Random(seed * 1000 + member.rank)
    wrong: list[str] = []
    kept: list[tuple[Task, Handle, int]] = []

    def finish(task: Task, handle: Handle, number: int) -> None:
        engine.wait(handle)
        if not task.check(handle):
            wrong.append(f"rank {member.rank}, seed {seed}, round {number}: {task.what}")

    for number in range(rounds):
        # What is common must be drawn alike on every rank.
        common = random.Random(f"{seed}.{number}")
        tasks = [task for kind in KINDS for task in kind(member, common, number)]
        own.shuffle(tasks)
        waiting = kept
        kept = []
        for task in tasks:
            pause(own)
            handle = task.submit()
            if own.random() < 0.2:
                handle.poll()
            if task.may_wait and own.random() < 0.3:
                kept.append((task, handle, number))
            else:
                waiting.append((task, handle, number))
        own.shuffle(waiting)
        for entry in waiting:
            pause(own)
            finish(*entry)
        if common.random() < 0.1:
            answers = engine.exchange(bytes([member.rank]) * common.randint(0, 3000))
            if [set(answer) - {rank} for rank, answer in enumerate(answers)] != [
                set()
            ] * member.size:
                wrong.append(f"rank {member.rank}, seed {seed}, round {number}: exchange")
    for entry in kept:
        finish(*entry)
    return wrong


def pause(own: random.Random) -> None:
    if own.random() < 0.3:
        time.sleep(own.random() * LONGEST_PAUSE_S)


def set_up(member: Member, transport: str, folder: str) -> None:
    from torch.distributed import FileStore

    from farandole.torch.process_group import ProcessGroup

    # The process's loop, as under hvd.init(): who waits for a group drives the engine, too.
    open_engine(member, transport, process_loop())
    engine = member.state["engine"]
    member.state["buckets"] = open_buckets(engine, "test", BUCKETS, note_bytes=4)
    member.state["groups"] = [
        ProcessGroup(
            FileStore(f"{folder}/{which}", member.size),
            member.rank,
            member.size,
            timedelta(seconds=60),
        )
        for which in range(2)
    ]


def tear_down(member: Member) -> None:
    for group in member.state.pop("groups"):
        group.shutdown()
    member.state.pop("buckets").close()
    close_engine(member)


def played(
    nursery: Nursery, transport: str, size: int, seed: int, rounds: int, timeout_s: float
) -> list[Any]:
    with tempfile.TemporaryDirectory() as folder, FakeWorld(size, nursery=nursery) as world:
        world.run(set_up, transport, folder)
        wrong = world.run(play, seed, rounds, timeout_s=timeout_s)
        world.run(tear_down)
    return [line for lines in wrong for line in lines]


@pytest.mark.ranks
@pytest.mark.parametrize(("transport", "size"), WORLDS)
def test_random_interleavings(nursery: Nursery, transport: str, size: int) -> None:
    assert played(nursery, transport, size, seed=size, rounds=20, timeout_s=60) == []


@pytest.mark.soak
@pytest.mark.timeout(1200)
@pytest.mark.parametrize(("transport", "size"), WORLDS)
def test_a_thousand_random_interleavings(nursery: Nursery, transport: str, size: int) -> None:
    seed = time.time_ns() % 1_000_000
    assert played(nursery, transport, size, seed, rounds=1000, timeout_s=1100) == [], seed
