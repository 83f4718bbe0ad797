"""Operations of the eager board that come in quick succession: they go, and end, together.

Each alone costs some microseconds of NumPy's and of cache lines that another core has; many small
ones in neighbouring slots cost little more than one. An operation alone goes at once, and so do the
first of many. The next ones gather until somebody looks for a result, there are enough of them, or
the progress thread comes by. Peers notice nothing: what each has submitted is said of each.
"""

from __future__ import annotations

import threading
import time
from operator import gt
from typing import TYPE_CHECKING

from farandole.transport.shm.eager import EagerBoard, Kind, Place

if TYPE_CHECKING:
    from farandole.engine.named import Pending

# Operations of a loop that does nothing else follow each other within some 10 us.
_QUICK_S = 50e-6
# So many go at once: who submits a few, and then computes, does not depend on the thread.
_FIRST = 8
# Enough for the fixed costs not to count; their submission takes half a millisecond.
MOST = 128
_LARGEST_BYTES = 4096
"""Above this the copies themselves are what takes time."""
_SMALLEST = 4
_LOOKS = 3


class Burst:
    """Operations that were sent together, and mostly end together."""

    __slots__ = ("_board", "_looks", "_stretches", "_words", "members")

    def __init__(self, board: EagerBoard, members: list[Pending], places: list[Place]) -> None:
        """Begin with operations, at least one, and their places, to which nobody has sent them."""
        self._board, self._looks = board, 0
        turns = [each.turn for each in members]
        starts = [place.starts[turn & 1] for place, turn in zip(places, turns, strict=True)]
        if any(map(gt, starts, starts[1:])):
            order = sorted(range(len(starts)), key=starts.__getitem__)
            members, places = [members[i] for i in order], [places[i] for i in order]
            turns, starts = [turns[i] for i in order], [starts[i] for i in order]
        self.members = members
        self._words = board.words(places, turns)
        self._stretches = _stretches(starts, [place.kind for place in places])

    def send(self) -> bool:
        """Write and submit them all; return whether a peer took a detour in one of them."""
        for first, stop, kind, start in self._stretches:
            if kind.sends:
                sent = [each.operation for each in self.members[first:stop]]
                arrays = [each.source.data for each in sent]  # type: ignore[attr-defined]
                self._board.write(kind, start, arrays)
        slow = self._board.announce(self._words)
        if len(self.members) >= _SMALLEST:
            for each in self.members:
                each.burst = self
        else:
            self.dissolve()
        return slow

    def complete(self) -> bool:
        """Say whether all peers have submitted all of them, the same as this rank.

        Not asked often: where peers submit otherwise, members end one by one.
        """
        if not self.members:
            return False
        if self._board.complete(self._words):
            return True
        self._looks += 1
        if self._looks == _LOOKS:
            self.dissolve()
        return False

    def combine(self) -> None:
        """Put everybody's results where they belong."""
        for first, stop, kind, start in self._stretches:
            results = self._board.combine(kind, start, stop - first)
            for each, result in zip(self.members[first:stop], results, strict=True):
                each.operation.target.data[...] = result  # type: ignore[attr-defined]

    def dissolve(self) -> None:
        """Let go of the members; each is on its own if it has not ended."""
        self.members = []


class Bursts:
    """What has gathered on this rank and is not sent yet."""

    def __init__(self, board: EagerBoard | None) -> None:
        self._board = board
        self.unsent: list[Pending] = []
        self.sending = threading.Lock()
        """Held while what has gathered is sent."""
        self._in_a_row = 0
        self._last_s = 0.0

    def gathers(self, place: Place) -> bool:
        """Say whether an operation that is submitted now had better wait for others."""
        if place.kind.stride > _LARGEST_BYTES:
            return False
        if self.unsent:
            # Once some wait, the next wait with them.
            return True
        now_s = time.perf_counter()
        quick = now_s - self._last_s < _QUICK_S
        self._last_s = now_s
        self._in_a_row = self._in_a_row + 1 if quick else 0
        return self._in_a_row >= _FIRST

    def interrupt(self) -> None:
        """Hear that somebody looks for a result."""
        self._in_a_row = 0

    def send(self) -> bool:
        """Send what has gathered; return whether a peer took a detour in any of it."""
        assert self._board is not None
        with self.sending:
            # More may gather meanwhile, by another thread.
            gathered = self.unsent[:]
            # A peer may have sent some another way meanwhile, and this rank with it.
            places = [each.place for each in gathered if each.place is not None]
            ours = gathered
            if len(places) < len(gathered):
                ours = [each for each in gathered if each.place is not None]
            slow = bool(ours) and Burst(self._board, ours, places).send()
            del self.unsent[: len(gathered)]
        return slow


def _stretches(starts: list[int], kinds: list[Kind]) -> list[tuple[int, int, Kind, int]]:
    """Return what lies side by side and is of one kind, given slots in the order of `starts`.

    Each as its first member, the one behind its last, their kind, and where it starts.
    """
    found: list[tuple[int, int, Kind, int]] = []
    first = 0
    for here in range(1, len(starts) + 1):
        if (
            here == len(starts)
            or kinds[here] is not kinds[first]
            or starts[here] != starts[here - 1] + kinds[first].stride
        ):
            found.append((first, here, kinds[first], starts[first]))
            first = here
    return found
