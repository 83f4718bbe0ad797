"""Windows that are handed on: from a host's ranks to its leader, to the other hosts, and back.

A collective is cut into windows. Of each of them

    put     every rank of the host puts its part into shared memory,
    fold    some of them combine the parts, in the leader's memory,
    legs    the leader exchanges the outcome with the leaders of the other hosts,
    take    every rank takes what it needs from the leader's memory.

The stages of different windows run at once: while the leader has some on the way, the others
prepare the next ones. Words in shared memory, one of each kind per rank, carry the number of the
last window that a stage has done. Legs start in one order on all leaders, whatever arrives when.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from farandole.transport.protocol import Buffer, Steps, Transport
from farandole.transport.reduction import Array, Reduction, fold
from farandole.transport.shm.segment import LINE_BYTES, Fabric

REGION = "relay"
LEADER = 0
"""Its number among the ranks of its host."""
AT_ONCE = 3
"""Legs on the way at once: one fills the link, the next is there when it ends, a third gives time
to notice that."""

_WORDS = ("ready", "folded", "arrived", "read")

Stage = Callable[[int, int], None]
"""Do something with a window: its place in the collective, and its number over all of them."""
Leg = Callable[[int, int], Steps]


@dataclass(frozen=True, slots=True, kw_only=True)
class Pipeline:
    """What a collective does with its windows."""

    windows: int
    put: Stage | None = None
    """None where the parts lie in shared memory from the start."""
    fold: Stage | None = None
    legs: Sequence[Leg]
    take: Stage
    lasting: bool = False
    """Whether the leader's memory becomes the user's again: it waits for all to have taken."""


class Relay:
    """Runs one course after the other, in the same order on every rank."""

    NBYTES = len(_WORDS) * LINE_BYTES

    def __init__(self, fabric: Fabric, slots: int) -> None:
        """Begin.

        Args:
            fabric: of the ranks of this host.
            slots: how many windows can be between put and take.
        """
        self._rank, self._slots = fabric.rank, slots
        self._ready, self._folded, self._arrived, self._read = (
            [fabric.words(r, REGION, kind * LINE_BYTES, 1) for r in range(fabric.size)]
            for kind in range(len(_WORDS))
        )
        self.folders = folders_of(fabric.size)
        """Who combines the parts."""
        self._last = 0
        """Number of the last window begun, counted over all courses."""
        self._latest: _Run | None = None
        self._under_way = 0
        """Legs, of all courses."""

    def run(self, course: Pipeline) -> Steps:
        """Take all windows through all stages.

        A course may begin before the one before it has ended; each of its stages then waits for
        that stage of the other.
        """
        first = self._last + 1
        self._last += course.windows
        self._latest = run = _Run(self, course, first, self._latest)
        progress = True
        try:
            while not run.done:
                moved = run.put() | run.fold() | run.cross() | run.take()
                if not moved:
                    yield progress
                progress = moved
        finally:
            if self._latest is run:
                self._latest = None


class _Run:
    """One course under way on one rank."""

    def __init__(self, relay: Relay, course: Pipeline, first: int, before: _Run | None) -> None:
        self._relay, self._course, self._first = relay, course, first
        self._before = None if before is None or before.done else before
        rank = relay._rank
        self._leads = rank == LEADER
        self._folds = course.fold is not None and rank in relay.folders
        self._my_ready, self._my_folded = relay._ready[rank], relay._folded[rank]
        self._my_read = relay._read[rank]
        self._arrived = relay._arrived[LEADER]
        # How many windows each stage has done.
        self.put_done = self.fold_done = self.home = self.take_done = 0
        self._starts = order_of_legs(course.windows, len(course.legs))
        self._next = next(self._starts, None)
        self._under_way: list[tuple[int, Steps]] = []
        self._legs_done = [0] * course.windows

    @property
    def done(self) -> bool:
        """Whether nothing is left for this rank to do, or to wait for."""
        if self.take_done < self._course.windows:
            return False
        # Nothing of it is asked for any more.
        self._before = None
        return not (self._course.lasting and self._leads) or self._all_have(
            self._relay._read, self._first + self._course.windows - 1
        )

    def put(self) -> bool:
        """Put a window into shared memory if there is room."""
        windows, before = self._course.windows, self._before
        if self.put_done == windows or (before and before.put_done < before._course.windows):
            return False
        if self._course.put is None:
            self._my_ready[0] = self._first + windows - 1
            self.put_done = windows
            return True
        number = self._first + self.put_done
        if not self._all_have(self._relay._read, number - self._relay._slots):
            return False
        self._course.put(self.put_done, number)
        self._my_ready[0] = number
        self.put_done += 1
        return True

    def fold(self) -> bool:
        """Fold my share of a window if all have put it there."""
        before = self._before
        if not self._folds or self.fold_done == self._course.windows:
            return False
        if before and before._folds and before.fold_done < before._course.windows:
            return False
        number = self._first + self.fold_done
        if not self._all_have(self._relay._ready, number):
            return False
        assert self._course.fold is not None
        self._course.fold(self.fold_done, number)
        self._my_folded[0] = number
        self.fold_done += 1
        return True

    def cross(self) -> bool:
        """Start legs, advance those under way, and say what has come home."""
        if not self._leads:
            return False
        moved = self._start_leg()
        for leg in list(self._under_way):
            window, steps = leg
            try:
                moved |= next(steps)
            except StopIteration:
                self._under_way.remove(leg)
                self._relay._under_way -= 1
                self._legs_done[window] += 1
                moved = True
        before = self._before
        if before and before.home < before._course.windows:
            return moved
        while self.home < self._course.windows and self._legs_done[self.home] == len(
            self._course.legs
        ):
            self._arrived[0] = self._first + self.home
            self.home += 1
            moved = True
        return moved

    def take(self) -> bool:
        """Take a window that has come home."""
        number, before = self._first + self.take_done, self._before
        if self.take_done == self._course.windows or self._arrived[0] < number:
            return False
        if before and before.take_done < before._course.windows:
            return False
        self._course.take(self.take_done, number)
        self._my_read[0] = number
        self.take_done += 1
        return True

    def _start_leg(self) -> bool:
        before = self._before
        if self._next is None or self._relay._under_way >= AT_ONCE:
            return False
        if before and before._next is not None:
            return False
        window, leg = self._next
        number = self._first + window
        if leg:
            ready = self._legs_done[window] == leg
        elif self._course.fold is None:
            ready = self._all_have(self._relay._ready, number)
        else:
            ready = all(self._relay._folded[r][0] >= number for r in self._relay.folders)
        if ready:
            self._under_way.append((window, self._course.legs[leg](window, number)))
            self._relay._under_way += 1
            self._next = next(self._starts, None)
        return ready

    @staticmethod
    def _all_have(words: Sequence[memoryview], number: int) -> bool:
        for word in words:  # noqa: SIM110 (a generator would take twice as long)
            if word[0] < number:
                return False
        return True


def folders_of(size: int) -> range:
    """Return who folds among the ranks of a host: the leader has enough to do, unless alone."""
    return range(1, size) if size > 1 else range(1)


def order_of_legs(windows: int, legs: int) -> Iterator[tuple[int, int]]:
    """Return (window, leg) in the order in which all leaders start them.

    A later leg of a window comes one window after its earlier one, so that the link has something
    to carry while the leader works on what has arrived.
    """
    for turn in range(windows + legs - 1):
        for leg in range(legs):
            if 0 <= turn - leg < windows:
                yield turn - leg, leg


Outcome = Callable[[int, int], Array]
"""Return a window in the leader's memory, a whole number of shares long: it is combined there."""


class Crossing:
    """A leader's way to the other leaders, and memory for what comes from there."""

    def __init__(self, between: Transport) -> None:
        self.transport = between
        self.host, self.hosts = between.rank, between.size
        self._free: list[Array] = []

    def combining(self, dtype: str, how: Reduction, outcome: Outcome) -> Sequence[Leg]:
        """Return the legs that combine the outcomes of all hosts, in all of them."""
        if self.hosts == 2:
            return [lambda window, number: self._swap(outcome(window, number), dtype, how)]
        shares: dict[int, Array] = {}

        def scatter(window: int, number: int) -> Steps:
            mine = outcome(window, number)
            each = len(mine) // self.hosts
            received, share = self.borrow(len(mine), mine), self.borrow(each, mine)
            counts = [[each] * self.hosts] * self.hosts
            yield from self.transport.alltoall(Buffer(mine, dtype), Buffer(received, dtype), counts)
            parts = [received[h * each : (h + 1) * each] for h in range(self.hosts)]
            fold(parts, [share], dtype, how)
            shares[window] = share
            self.give_back(received)

        def gather(window: int, number: int) -> Steps:
            mine, share = outcome(window, number), shares.pop(window)
            each = len(mine) // self.hosts
            yield from self.transport.allgather(
                Buffer(share, dtype), Buffer(mine, dtype), [each] * self.hosts
            )
            self.give_back(share)

        return [scatter, gather]

    def borrow(self, count: int, like: Array) -> Array:
        """Lend memory for so many elements; fresh memory would be paid for page by page."""
        nbytes = count * like.itemsize
        for place, memory in enumerate(self._free):
            if memory.nbytes >= nbytes:
                return self._free.pop(place)[:nbytes].view(like.dtype)
        # In the place of one that was too small: there are never more than are lent at once.
        del self._free[:1]
        return np.empty(nbytes, np.uint8).view(like.dtype)

    def give_back(self, memory: Array) -> None:
        """Take memory back."""
        # A view of a view has the first one's owner for its base.
        self._free.append(memory if memory.base is None else memory.base)

    def _swap(self, mine: Array, dtype: str, how: Reduction) -> Steps:
        theirs = self.borrow(len(mine), mine)
        whole = len(mine)
        yield from self.transport.alltoall(
            Buffer(mine, dtype), Buffer(theirs, dtype), [[0, whole], [whole, 0]]
        )
        fold([mine, theirs] if self.host == 0 else [theirs, mine], [mine], dtype, how)
        self.give_back(theirs)


def padded(count: int, hosts: int) -> int:
    """Return how many elements a window takes that every host can have an equal share of."""
    return count if hosts == 2 else -(-count // hosts) * hosts
