"""Batches are made ahead, each once, whatever asks for them."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from farandole.keras.data import Place, Prefetcher, following

DEADLINE_S = 20


class Making:
    """Makes batches and remembers which, and in which thread."""

    def __init__(self) -> None:
        self.made: list[Place] = []
        self.threads: set[int] = set()
        self.third = threading.Event()

    def __call__(self, epoch: int, step: int) -> str:
        self.threads.add(threading.get_ident())
        self.made.append((epoch, step))
        if len(self.made) == 3:
            self.third.set()
        if step == 13:
            raise OSError("no such batch")
        return f"{epoch}/{step}"


@pytest.fixture
def making() -> Making:
    return Making()


@pytest.fixture
def ahead(making: Making) -> Iterator[Prefetcher]:
    batches = Prefetcher(making, steps=4)
    yield batches
    batches.close()


def test_epochs_follow_each_other(ahead: Prefetcher, making: Making) -> None:
    places = [divmod(number, 4) for number in range(11)]
    assert [ahead.take(*place) for place in places] == [f"{e}/{s}" for e, s in places]
    ahead.close()
    # Two more are on their way, in the same order.
    assert making.made[:11] == places
    assert len(making.made) <= 13
    assert making.threads.isdisjoint({threading.get_ident()})


def test_the_next_ones_are_made_without_being_asked_for(ahead: Prefetcher, making: Making) -> None:
    ahead.take(0, 3)
    assert making.third.wait(DEADLINE_S)
    assert making.made == [(0, 3), (1, 0), (1, 1)]


def test_a_look_at_the_first_batch_costs_nothing(ahead: Prefetcher, making: Making) -> None:
    assert [ahead.take(0, 0), ahead.take(0, 0), ahead.take(0, 1)] == ["0/0", "0/0", "0/1"]
    ahead.close()
    assert sorted(set(making.made)) == sorted(making.made)


def test_leaps_are_followed(ahead: Prefetcher) -> None:
    assert [ahead.take(0, 1), ahead.take(5, 2), ahead.take(2, 0)] == ["0/1", "5/2", "2/0"]


def test_an_error_comes_where_the_batch_is_asked_for(making: Making) -> None:
    ahead = Prefetcher(making, steps=20)
    assert ahead.take(0, 12) == "0/12"
    with pytest.raises(OSError, match="no such batch"):
        ahead.take(0, 13)
    assert ahead.take(0, 14) == "0/14"
    ahead.close()


def test_what_follows() -> None:
    assert following((2, 1), 3, 2) == [(2, 1), (2, 2), (3, 0)]
    assert following((0, 0), 1, 2) == [(0, 0), (1, 0), (2, 0)]
