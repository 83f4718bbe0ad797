"""How the leaders of hosts combine what each of them holds: the legs of a relay between hosts.

Two hosts swap what they have, and both fold it. More of them send each its share, fold that, and
pass the result on. Either way a host sends 2 (n - 1) / n times what it holds, and all hosts fold in
the same order, so that all get the same bits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from farandole.transport.hierarchical.relay import Leg
from farandole.transport.protocol import Buffer, Steps, Transport
from farandole.transport.reduction import Array, Reduction, fold

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
