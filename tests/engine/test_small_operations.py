"""Many small operations at once: of all kinds, in any order, with what can go wrong with one."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from farandole.engine.handle import Handle
from farandole.engine.named import DuplicateNameError
from farandole.errors import CollectiveError, MismatchError
from farandole.testing import FakeWorld, Member, Nursery
from farandole.transport.reduction import Reduction
from tests.engine.ranks import (
    Array,
    broadcasting,
    close_engine,
    in_step,
    ones,
    open_engine,
    summing,
    total,
)

MANY = 40


@pytest.fixture(scope="module", params=[2, 3], ids=lambda size: f"shm{size}")
def world(request: pytest.FixtureRequest, nursery: Nursery) -> Iterator[FakeWorld]:
    with FakeWorld(request.param, nursery=nursery) as world:
        world.run(open_engine, "shm")
        yield world
        world.run(close_engine)


def known(member: Member, prefix: str, count: int = MANY) -> list[str]:
    """Names of sums of four numbers that are agreed on."""
    names = [f"{prefix}.{number}" for number in range(count)]
    for name in names:
        total(member, name)
    in_step(member)
    return names


def submitted(member: Member, names: list[str]) -> list[tuple[Array, Handle]]:
    engine, found = member.state["engine"], []
    for name in names:
        data = ones(4, member.rank + 1)
        found.append((data, engine.submit(name, summing(data))))
    return found


def right(member: Member, submitted: list[tuple[Array, Handle]]) -> bool:
    for _, handle in submitted:
        member.state["engine"].wait(handle)
    unit = member.size * (member.size + 1) / 2
    return all(data.tolist() == [unit] * 4 for data, _ in submitted)


def task(member: Member, number: int, factor: int) -> tuple[Any, Array, float]:
    """An operation, its data, and what these become; what it is follows from its number."""
    same, ranks = random.Random(number), range(1, member.size + 1)
    count = same.choice([0, 1, 16, 33, 256, 1000, 3000])
    data = np.full(count, (member.rank + 1) * factor, same.choice(["f4", "f8", "i2", "i4", "i8"]))
    if same.random() < 0.2:
        root = same.randrange(member.size)
        return broadcasting(data, root), data, (root + 1) * factor
    op = same.choice(["sum", "min", "max", "product"])
    prescale = same.choice([1.0, 1.0, 2.0])
    values = [rank * factor * prescale for rank in ranks]
    results = {"sum": sum, "min": min, "max": max, "product": math.prod}
    return summing(data, Reduction(op=op, prescale=prescale)), data, results[op](values)


@pytest.mark.ranks
def test_all_kinds_in_any_order(world: FakeWorld) -> None:
    def play(member: Member) -> list[str]:
        engine, own, wrong = member.state["engine"], random.Random(member.rank), []
        for turn in range(6):
            order = list(range(200))
            # Alike at first, then opposite, then anyhow; not all names in every turn, so that
            # some are in even turns while others are in odd ones.
            order = [number for number in order if random.Random(f"{turn}.{number}").random() < 0.9]
            if turn == 2 and member.rank % 2:
                order.reverse()
            elif turn > 2:
                own.shuffle(order)
            tasks = {number: task(member, number, 1 + turn % 2) for number in order}
            handles = {n: engine.submit(f"kinds.{n}", tasks[n][0]) for n in order}
            if turn > 3:
                own.shuffle(order)
            for number in order:
                if own.random() < 0.1:
                    handles[number].poll()
                engine.wait(handles[number])
                _, data, wanted = tasks[number]
                if not (data == wanted).all():
                    wrong.append(f"turn {turn}, number {number}: {data[:3]}, not {wanted}")
        return wrong

    assert world.run(play) == [[]] * world.size


@pytest.mark.ranks
def test_what_is_submitted_goes_though_nobody_waits(world: FakeWorld) -> None:
    def submit(member: Member) -> bool:
        names = known(member, "gone")
        if member.rank == 1:
            mine = submitted(member, names)
            # Until the others have what they wait for, without the engine.
            in_step(member)
            return right(member, mine)
        fine = right(member, submitted(member, names[::-1]))
        in_step(member)
        return fine

    assert world.run(submit) == [True] * world.size


@pytest.mark.ranks
def test_a_mismatch_is_that_of_one_operation(world: FakeWorld) -> None:
    def mismatch(member: Member) -> list[str]:
        engine, said = member.state["engine"], []
        for cached in (False, True):
            names = known(member, f"differ.{cached}")
            if cached:
                total(member, names[20], 5)
                in_step(member)
            mine = submitted(member, names[:20])
            odd = engine.submit(names[20], summing(ones(5 if member.rank == 1 else 4)))
            mine += submitted(member, names[21:])
            try:
                engine.wait(odd)
            except MismatchError as error:
                said.append(str(error))
            said.append(str(right(member, mine)))
            said.append(str(total(member, names[20])))
        return said

    unit = world.size * (world.size + 1) / 2
    for texts in world.run(mismatch):
        assert texts[1:3] == texts[4:] == ["True", str(unit)]
        for text, name in ((texts[0], "differ.False.20"), (texts[3], "differ.True.20")):
            assert repr(name) in text
            assert "rank 1: allreduce of float32[5], sum" in text


@pytest.mark.ranks
def test_a_name_that_is_under_way_cannot_be_submitted_again(world: FakeWorld) -> None:
    def twice(member: Member) -> tuple[bool, bool]:
        names, refused = known(member, "twice"), False
        if member.rank == 0:
            mine = submitted(member, names)
            try:
                submitted(member, names[-1:])
            except DuplicateNameError as error:
                refused = repr(names[-1]) in str(error)
            in_step(member)
        else:
            in_step(member)
            mine = submitted(member, names)
        return refused, right(member, mine)

    assert world.run(twice) == [(True, True)] + [(False, True)] * (world.size - 1)


@pytest.mark.ranks
def test_others_are_missing_and_not_this_rank(world: FakeWorld) -> None:
    def look(member: Member) -> tuple[set[int], bool]:
        names = known(member, "missing")
        missing: set[int] = set()
        if member.rank == 0:
            mine = submitted(member, names)
            waiting = member.state["engine"].waiting()
            missing = {rank for name in names for rank in waiting[name]}
            in_step(member)
        else:
            in_step(member)
            mine = submitted(member, names)
        return missing, right(member, mine)

    others = set(range(1, world.size))
    assert world.run(look) == [(others, True)] + [(set(), True)] * (world.size - 1)


@pytest.mark.ranks
def test_who_leaves_has_sent_what_it_submitted(world: FakeWorld) -> None:
    def leave(member: Member) -> bool:
        names = known(member, "left")
        mine = submitted(member, names)
        if member.rank == 1:
            close_engine(member)
            in_step(member)
            # Its own are lost to it, unless they had ended before.
            ended = [handle.check() for _, handle in mine]
            errors = [handle.error for _, handle in mine if handle.error is not None]
            fine = all(ended) and all(isinstance(error, CollectiveError) for error in errors)
        else:
            in_step(member)
            fine = right(member, mine)
            close_engine(member)
        open_engine(member, "shm")
        return fine

    assert world.run(leave) == [True] * world.size
