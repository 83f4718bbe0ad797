"""The progress loop: whoever waits advances all; the thread comes and goes."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pytest

from farandole.engine.handle import Handle
from farandole.engine.loop import Loop
from farandole.errors import PeerDiedError
from tests.conftest import eventually


class Counting:
    """A lane that ends after some steps."""

    def __init__(
        self, steps: int, check: Callable[[], None] = lambda: None, *, pressing: bool = True
    ) -> None:
        self.left, self.pressing = steps, pressing
        self.handle = Handle()
        self._check = check

    @property
    def busy(self) -> bool:
        return not self.handle.done

    def advance(self) -> bool:
        self.left -= 1
        if self.left == 0:
            self.handle.finish("done")
        return self.left >= 0

    def check_peers(self) -> None:
        self._check()


def threads() -> list[str]:
    return [t.name for t in threading.enumerate() if t.name.startswith("farandole")]


def dead() -> None:
    raise PeerDiedError("rank 1")


def test_waiting_for_one_lane_advances_the_others() -> None:
    loop, one, other = Loop(), Counting(5), Counting(3)
    loop.add(one)
    loop.add(other)
    assert loop.result(one.handle) == "done"
    assert other.handle.done


def test_the_thread_advances_what_nobody_waits_for_and_ends_with_the_last_lane() -> None:
    loop, lane = Loop(), Counting(20)
    loop.add(lane)
    loop.nobody_waits()
    eventually(lambda: lane.handle.done)
    assert threads() == ["farandole-progress"]
    loop.remove(lane)
    assert threads() == []


def test_the_thread_also_advances_what_is_not_pressing() -> None:
    loop, lane = Loop(), Counting(3, pressing=False)
    loop.add(lane)
    loop.nobody_waits()
    eventually(lambda: loop.awake)
    eventually(lambda: lane.handle.done)
    eventually(lambda: not loop.awake)
    later = Counting(3, pressing=False)
    loop.add(later)
    loop.nobody_waits()
    eventually(lambda: later.handle.done)
    for each in (lane, later):
        loop.remove(each)
    assert threads() == []


def test_it_starts_again() -> None:
    loop = Loop()
    for _ in range(3):
        lane = Counting(5)
        loop.add(lane)
        loop.nobody_waits()
        eventually(lambda lane=lane: lane.handle.done)
        loop.remove(lane)
        assert threads() == []


def test_a_dead_peer_ends_the_wait() -> None:
    loop, lane = Loop(), Counting(1_000_000_000, dead)
    lane.advance = lambda: False  # type: ignore[method-assign]
    loop.add(lane)
    with pytest.raises(PeerDiedError, match="rank 1"):
        loop.result(lane.handle)


def test_nobody_looks_for_peers_while_another_thread_advances() -> None:
    """Both read the same sockets."""
    loop, inside, together = Loop(), threading.Event(), []
    release = threading.Event()

    def advance() -> bool:
        if threading.current_thread() is other:
            inside.set()
            release.wait(30)
            inside.clear()
        return False

    lane = Counting(0, lambda: together.append(inside.is_set()))
    lane.advance = advance  # type: ignore[method-assign]
    loop.add(lane)
    other = threading.Thread(target=loop.advance)
    other.start()
    assert inside.wait(30)
    waits = threading.Thread(target=loop.result, args=(lane.handle,))
    waits.start()
    time.sleep(0.1)  # it looks for peers every few milliseconds
    release.set()
    other.join()
    eventually(lambda: bool(together))
    lane.handle.finish()
    waits.join()
    assert not any(together)


def test_a_peer_that_left_after_its_part_is_not_missed() -> None:
    """It goes between our last look at the data and our look at its process."""
    left = []

    def leaves() -> None:
        left.append(True)
        if not lane.handle.done:
            raise PeerDiedError("rank 1")

    loop, lane = Loop(), Counting(0, leaves)

    def advance() -> bool:
        if left and not lane.handle.done:
            lane.handle.finish("done")
            return True
        return False

    lane.advance = advance  # type: ignore[method-assign]
    loop.add(lane)
    assert loop.result(lane.handle) == "done"


def test_a_peer_that_is_needed_by_nothing_under_way_may_be_dead() -> None:
    loop, idle, lane = Loop(), Counting(1, dead), Counting(1)
    loop.add(idle)
    idle.advance()
    slow = iter(range(400))
    lane.advance = lambda: (
        next(slow, None) is None
        and (  # type: ignore[method-assign]
            lane.handle.finish("done") or True
        )
    )
    loop.add(lane)
    assert loop.result(lane.handle) == "done"


def test_the_error_of_an_operation_is_raised_where_it_is_waited_for() -> None:
    loop, handle = Loop(), Handle()
    handle.fail(ValueError("x"))
    with pytest.raises(ValueError, match="x"):
        loop.result(handle)


def test_who_polls_hears_of_a_dead_peer() -> None:
    loop, never = Loop(), Counting(-1, dead)
    loop.add(never)

    def polled() -> bool:
        try:
            return loop.poll(never.handle)
        except PeerDiedError:
            return True

    eventually(polled)
    assert not never.handle.done


def test_polling_helps_on() -> None:
    loop, lane = Loop(), Counting(3)
    loop.add(lane)
    assert not loop.poll(lane.handle)
    eventually(lambda: loop.poll(lane.handle))
