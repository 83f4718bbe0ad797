"""What happens while a rank waits for long: peers' failures are looked for, and stalls."""

from __future__ import annotations

import contextlib
import os
import time

from farandole.engine.first_failure import FirstFailure
from farandole.engine.loop import Group
from farandole.engine.stalls import stack
from farandole.engine.stalls.inspector import Inspector
from farandole.engine.stalls.pages import Pages
from farandole.errors import PeerDiedError
from farandole.transport.hosts import hosts_of
from farandole.transport.protocol import Exchange
from farandole.transport.shm.segment import SegmentError
from farandole.world.rendezvous import BoardRendezvous, Rendezvous
from farandole.world.stall_times import read_stall_times
from farandole.world.world import World

_EVERY_S = 0.05


class LongWait:
    """What a worker's progress loop turns to (a Watch, see engine.loop)."""

    def __init__(self, inspector: Inspector, failures: FirstFailure | None) -> None:
        self._inspector, self._failures = inspector, failures
        self._due_s = 0.0

    def look(self, *, blocked: bool) -> None:
        """Look for failures and stalls."""
        if blocked and self._failures is not None:
            now_s = time.monotonic()
            if now_s >= self._due_s:
                self._due_s = now_s + _EVERY_S
                self._failures.check()
        self._inspector.look(blocked=blocked)

    def leave(self) -> None:
        """Hear that nobody is blocked any more."""
        self._inspector.leave()

    def explain(self, error: PeerDiedError) -> PeerDiedError:
        """Say why a peer is gone."""
        return error if self._failures is None else self._failures.explain(error)

    def follow(self, group: Group) -> None:
        """Look after the operations of a group of ranks."""
        self._inspector.follow(group)

    def forget(self, group: Group) -> None:
        """Look after them no longer."""
        self._inspector.forget(group)

    def close(self) -> None:
        """Let go of everything."""
        self._inspector.close()


def open_watch(world: World, rendezvous: Rendezvous) -> LongWait:
    """Get ready; all ranks of a job call this together, of which there are at least two."""
    times = read_stall_times(os.environ)
    ranks = _of_this_host(world, rendezvous.exchange)
    pages = None
    # Without shared memory, as on macOS, only rank 0 knows who is missing.
    with contextlib.suppress(SegmentError):
        pages = Pages.open(ranks, world.rank, rendezvous.exchange, stack.offer())
    inspector = Inspector(world.rank, world.size, times, pages)
    failures = None
    if isinstance(rendezvous, BoardRendezvous):
        failures = FirstFailure(rendezvous.board, world.rank)
    return LongWait(inspector, failures)


def _of_this_host(world: World, exchange: Exchange) -> tuple[int, ...]:
    if world.one_host:
        return tuple(range(world.size))
    names = [name.decode() for name in exchange(world.hostname.encode())]
    hosts = hosts_of(names)
    return hosts.ranks[hosts.of(world.rank)]
