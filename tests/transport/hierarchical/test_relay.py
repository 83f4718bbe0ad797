"""Windows through the stages of a relay, on a host with one rank: what starts when."""

from __future__ import annotations

from itertools import pairwise

import pytest

from farandole.transport.hierarchical.relay import (
    AT_ONCE,
    REGION,
    Pipeline,
    Relay,
    folders_of,
    order_of_legs,
)
from farandole.transport.hierarchical.slots import share_of
from farandole.transport.protocol import Steps
from farandole.transport.shm.segment import Fabric


def test_legs_start_in_one_order() -> None:
    assert list(order_of_legs(3, 1)) == [(0, 0), (1, 0), (2, 0)]
    assert list(order_of_legs(3, 2)) == [(0, 0), (1, 0), (0, 1), (2, 0), (1, 1), (2, 1)]
    assert list(order_of_legs(0, 2)) == []


def alone() -> Relay:
    """A relay of one rank; its memory goes with it, which a fixture would keep."""
    fabric = Fabric.open(0, 1, lambda mine: [mine], {REGION: Relay.NBYTES})
    relay = Relay(fabric, slots=4)
    fabric.close()
    return relay


class Journal:
    """Notes what happens, and lets legs arrive when it is told."""

    def __init__(self) -> None:
        self.said: list[str] = []
        self.under_way: set[int] = set()
        self.arrived: set[int] = set()
        self.most = 0

    def course(self, windows: int) -> Pipeline:
        return Pipeline(
            windows=windows,
            put=lambda window, _: self.said.append(f"put {window}"),
            fold=lambda window, _: self.said.append(f"fold {window}"),
            legs=[self.leg],
            take=lambda window, _: self.said.append(f"take {window}"),
        )

    def leg(self, window: int, number: int) -> Steps:
        self.said.append(f"leg {window}")
        self.under_way.add(window)
        self.most = max(self.most, len(self.under_way))
        while window not in self.arrived:
            yield False
        self.under_way.remove(window)


def test_what_arrives_out_of_order_is_taken_in_order() -> None:
    relay = alone()
    journal = Journal()
    steps = relay.run(journal.course(6))
    for _ in range(20):
        next(steps)
    assert journal.under_way == set(range(AT_ONCE))
    assert "put 3" in journal.said, "four slots are filled while legs are on the way"
    assert "put 4" not in journal.said, "a slot is free only when its window was taken"
    journal.arrived |= {1, 2}
    next(steps)
    assert not any(line.startswith("take") for line in journal.said)
    journal.arrived |= set(range(6))
    for _ in steps:
        pass
    takes = [line for line in journal.said if line.startswith("take")]
    assert takes == [f"take {window}" for window in range(6)]
    legs = [line for line in journal.said if line.startswith("leg")]
    assert legs == [f"leg {window}" for window in range(6)]
    assert journal.most == AT_ONCE


def test_windows_are_counted_over_all_courses() -> None:
    relay = alone()
    for _ in range(3):
        journal = Journal()
        journal.arrived |= set(range(5))
        for _ in relay.run(journal.course(5)):
            pass
        assert journal.said[-1] == "take 4"


def test_a_course_begins_while_the_one_before_is_on_its_way() -> None:
    relay, first, second = alone(), Journal(), Journal()
    both = [relay.run(first.course(3)), relay.run(second.course(2))]
    for _ in range(10):
        for steps in both:
            next(steps)
    assert first.under_way == {0, 1, 2}
    assert "put 0" in second.said, "one slot was left"
    assert second.under_way == set(), "not more legs than at once"
    first.arrived |= {0}
    second.arrived |= {0, 1}
    for _ in range(10):
        for steps in both:
            next(steps)
    assert "leg 0" in second.said, "its leg is on the way, and has arrived"
    assert "take 0" not in second.said, "but is not taken before all of the first"
    first.arrived |= {1, 2}
    for steps in both:
        for _ in steps:
            pass
    assert first.said[-1] == "take 2"
    assert second.said[-1] == "take 1"


def test_a_failing_leg_fails_the_course() -> None:
    relay = alone()

    def leg(window: int, number: int) -> Steps:
        yield True
        raise RuntimeError("the link is gone")

    course = Pipeline(windows=1, legs=[leg], take=lambda window, number: None)
    with pytest.raises(RuntimeError, match="the link is gone"):
        for _ in relay.run(course):
            pass


@pytest.mark.parametrize("size", [1, 2, 3, 4])
@pytest.mark.parametrize("length", [0, 1, 64, 1000])
def test_shares_are_the_whole_and_the_leader_has_none(size: int, length: int) -> None:
    shares = [share_of(folders_of(size), rank, length) for rank in range(size)]
    assert sum(high - low for low, high in shares) == length
    covered = sorted((low, high) for low, high in shares if low < high)
    assert all(first[1] == second[0] for first, second in pairwise(covered))
    if size > 1:
        assert shares[0] == (0, 0)
