"""The stall inspector: what it says, when, and to whom; then on real ranks."""

from __future__ import annotations

import contextlib
import io
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pytest

from farandole.errors import StallError
from farandole.stalls.inspector import Inspector
from farandole.stalls.pages import Key, RankStatus
from farandole.testing import FakeWorld, Member, Nursery
from farandole.world.environment import StallTimes

BOTH = (0, 1)


class Pages:
    """What the ranks of a host say, as a test has it."""

    def __init__(self) -> None:
        self.said: dict[int, RankStatus] = {0: RankStatus(), 1: RankStatus()}
        self.abroad: list[int] = []

    def publish(self, waiting: Sequence[Key], *, blocked: bool) -> None:
        before = self.said[0]
        changed = (before.waiting, before.blocked) != (frozenset(waiting), blocked)
        self.said[0] = RankStatus(
            waiting=frozenset(waiting),
            blocked=blocked,
            version=before.version + changed,
            looks=before.looks + 1,
        )

    def other(self, *names: str, blocked: bool) -> None:
        waiting = frozenset(Key(BOTH, name) for name in names)
        self.said[1] = RankStatus(
            waiting=waiting, blocked=blocked, version=self.said[1].version + 1
        )

    def read(self) -> dict[int, RankStatus]:
        # The other rank looks as often as this one does.
        one = self.said[1]
        self.said[1] = RankStatus(
            waiting=one.waiting, blocked=one.blocked, version=one.version, looks=one.looks + 1
        )
        return dict(self.said)

    def stacks(self, ranks: Sequence[int]) -> dict[int, list[str]]:
        return {}

    def close(self) -> None:
        self.said = {}


class Operations:
    """What this rank has submitted."""

    def __init__(self, ranks: tuple[int, ...] = BOTH) -> None:
        self.ranks = ranks
        self.names: dict[str, list[int] | None] = {}

    def waiting(self) -> Mapping[str, Sequence[int] | None]:
        return self.names


class Scene:
    """An inspector with its surroundings, and a clock that a test moves."""

    def __init__(self, *, warning_s: float = 60.0, shutdown_s: float = math.inf) -> None:
        self.now_s = 100.0
        self.said: list[str] = []
        self.pages = Pages()
        self.operations = Operations()
        pages: Any = self.pages
        self.inspector = Inspector(
            0,
            2,
            StallTimes(warning_s=warning_s, shutdown_s=shutdown_s),
            pages,
            clock=lambda: self.now_s,
            say=self.said.append,
        )
        self.inspector.follow(self.operations)

    def wait(self, seconds: float, *, blocked: bool = True) -> None:
        for _ in range(round(seconds / 0.05)):
            self.now_s += 0.05
            self.inspector.look(blocked=blocked)


def test_a_stall_is_reported_once_when_its_time_has_come() -> None:
    scene = Scene()
    scene.operations.names = {"a": None, "b": None}
    scene.wait(59)
    assert scene.said == []
    scene.wait(2)
    (text,) = scene.said
    assert "Missing ranks:\n1: [a, b]" in text
    scene.wait(200)
    assert len(scene.said) == 1


def test_the_same_name_may_stall_again() -> None:
    scene = Scene(warning_s=1.0)
    for _ in range(2):
        scene.operations.names = {"a": None}
        scene.wait(2)
        scene.inspector.leave()
        scene.operations.names = {}
        scene.wait(1)
        scene.inspector.leave()
    assert len(scene.said) == 2


def test_the_time_counts_anew_for_what_is_submitted_anew() -> None:
    scene = Scene(warning_s=1.0)
    for _ in range(10):
        scene.operations.names = {"a": None}
        scene.wait(0.8)
        scene.inspector.leave()
    assert scene.said == []


def test_only_the_lowest_rank_that_waits_reports() -> None:
    scene = Scene(warning_s=1.0)
    inspector = Inspector(
        1,
        3,
        StallTimes(warning_s=1.0),
        scene.pages,  # type: ignore[arg-type]
        clock=lambda: scene.now_s,
        say=scene.said.append,
    )
    operations = Operations((0, 1, 2))
    inspector.follow(operations)
    key = Key((0, 1, 2), "a")
    operations.names = {"a": None}
    waits = RankStatus(waiting=frozenset([key]))
    scene.pages.publish = lambda *_, **__: None  # type: ignore[method-assign]
    scene.pages.read = lambda: {0: waits, 1: waits, 2: RankStatus()}  # type: ignore[method-assign]
    for _ in range(40):
        scene.now_s += 0.1
        inspector.look(blocked=True)
    assert scene.said == []


def test_who_is_missing_may_be_known_for_certain() -> None:
    scene = Scene(warning_s=1.0)
    scene.pages.other("a", blocked=False)
    scene.operations.names = {"a": [1]}
    scene.wait(2)
    assert "1: [a]" in scene.said[0]


def test_it_ends_when_the_time_is_up_but_only_for_who_is_blocked() -> None:
    scene = Scene(warning_s=1.0, shutdown_s=3.0)
    scene.operations.names = {"a": None}
    scene.wait(5, blocked=False)
    assert len(scene.said) == 1
    with pytest.raises(StallError, match="rank 1 has not submitted a, for which rank 0 waited"):
        scene.wait(5)


def test_a_deadlock_is_named_at_once() -> None:
    scene = Scene()
    scene.operations.names = {"a": None}
    scene.pages.other("b", blocked=True)
    scene.wait(1.5)
    (text,) = scene.said
    assert "rank 0 waits for a, which rank 1 has not submitted" in text
    assert "rank 1 waits for b, which rank 0 has not submitted" in text
    scene.wait(100)
    assert len(scene.said) == 1, "and not once more as a stall"


def test_a_deadlock_with_another_host_takes_a_little_longer() -> None:
    scene = Scene()
    scene.pages.abroad = [1]
    scene.operations.names = {"a": None}
    scene.pages.other("b", blocked=True)
    scene.wait(1.5)
    assert scene.said == []
    scene.wait(0.5)
    assert len(scene.said) == 1


def test_no_deadlock_while_the_other_goes_on() -> None:
    scene = Scene()
    scene.operations.names = {"a": None}
    for turn in range(20):
        scene.pages.other(f"b{turn}", blocked=True)
        scene.wait(0.3)
    scene.pages.other("b", blocked=False)
    scene.wait(5)
    assert scene.said == []


def test_off_is_off() -> None:
    scene = Scene(warning_s=math.inf)
    scene.operations.names = {"a": None}
    scene.pages.other("b", blocked=True)
    scene.wait(100)
    assert scene.said == []


# On real ranks


def stand_aside(member: Member) -> None:
    member.exchange(b"")


def one_is_missing(member: Member, cached: bool) -> tuple[str, str]:
    """Rank 0 submits what rank 1 does not; return its error and what it said before."""
    import torch

    os.environ |= {"FARANDOLE_STALL_WARNING": "0.3", "FARANDOLE_STALL_SHUTDOWN": "0.8"}
    import farandole.torch as hvd

    hvd.init()
    if cached:
        for _ in range(2):
            hvd.allreduce(torch.ones(3), name="x")
    text, said = "", io.StringIO()
    if member.rank == 0:
        with contextlib.redirect_stderr(said):
            try:
                hvd.allreduce(torch.ones(3), name="x")
            except StallError as error:
                text = str(error)
    stand_aside(member)
    hvd.shutdown()
    return text, said.getvalue()


def one_trains_on(member: Member, steps: int) -> str:
    """Rank 0 takes one step more than rank 1; return its error."""
    import torch

    os.environ |= {"FARANDOLE_STALL_WARNING": "0.3", "FARANDOLE_STALL_SHUTDOWN": "0.8"}
    import farandole.torch as hvd

    hvd.init()
    model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Linear(2, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    optimizer = hvd.DistributedOptimizer(optimizer, model.named_parameters())
    text = ""
    with contextlib.redirect_stderr(io.StringIO()):
        try:
            for _ in range(steps + (member.rank == 0)):
                optimizer.zero_grad()
                model(torch.ones(1, 2)).sum().backward()
                optimizer.step()
        except StallError as error:
            text = str(error)
    stand_aside(member)
    hvd.shutdown()
    return text


def both_wait(member: Member) -> tuple[str, str]:
    """Each rank submits what the other does not; return its error and what it said before."""
    import torch

    os.environ |= {"FARANDOLE_STALL_WARNING": "", "FARANDOLE_STALL_SHUTDOWN": "2"}
    import farandole.torch as hvd

    hvd.init()
    text, said = "", io.StringIO()
    with contextlib.redirect_stderr(said):
        try:
            hvd.allreduce(torch.ones(3), name=f"only.{member.rank}")
        except StallError as error:
            text = str(error)
    stand_aside(member)
    hvd.shutdown()
    return text, said.getvalue()


@pytest.fixture(scope="module")
def world(nursery: Nursery) -> Iterator[FakeWorld]:
    with FakeWorld(2, nursery=nursery) as world:
        yield world


@pytest.mark.ranks
@pytest.mark.parametrize("cached", [False, True], ids=["new name", "cached name"])
def test_the_stack_of_the_missing_rank(world: FakeWorld, cached: bool) -> None:
    (error, said), _ = world.run(one_is_missing, cached)
    assert error.startswith("rank 1 has not submitted allreduce.x, for which rank 0 waited 1 s.")
    for text in (error, said):
        assert "Missing ranks:\n1: [allreduce.x]\n" in text
        assert " in stand_aside\n" in text
        assert " in one_is_missing\n" in text


@pytest.mark.ranks
def test_gradients_are_named_by_their_parameters(world: FakeWorld) -> None:
    error, _ = world.run(one_trains_on, 2)
    assert error.startswith("rank 1 has not submitted gradients of 0.weight, 0.bias and 2 more.")
    # Before the first step it is not known that they have the same ones.
    error, _ = world.run(one_trains_on, 0)
    assert error.startswith("rank 1 has not submitted optimizer.step.")


@pytest.mark.ranks
def test_two_ranks_that_wait_for_each_other(world: FakeWorld) -> None:
    (first, said), (second, other) = world.run(both_wait)
    assert "rank 0 waits for allreduce.only.0, which rank 1 has not submitted" in said
    assert "rank 1 waits for allreduce.only.1, which rank 0 has not submitted" in said
    assert said.count(" in both_wait\n") == 2, "of both ranks"
    assert other == "", "once is enough"
    assert "waiting.py" not in said
    assert "rank 1 has not submitted allreduce.only.0" in first
    assert "rank 0 has not submitted allreduce.only.1" in second
