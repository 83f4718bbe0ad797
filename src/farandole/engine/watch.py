"""What happens while a rank waits for long: peers' failures are looked for, and stalls."""

from __future__ import annotations

import contextlib
import os
import time

from farandole.engine.first_failure import FirstFailure
from farandole.engine.loop import Group
from farandole.engine.stalls import stack
from farandole.engine.stalls.courier import Courier
from farandole.engine.stalls.inspector import Inspector
from farandole.engine.stalls.pages import Pages
from farandole.errors import PeerDiedError
from farandole.transport.hosts import Hosts, hosts_of
from farandole.transport.protocol import Exchange
from farandole.transport.shm.segment import SegmentError
from farandole.world.rendezvous import BoardRendezvous, Rendezvous
from farandole.world.stall_times import read_stall_times
from farandole.world.world import World

_EVERY_S = 0.05


class LongWait:
    """What a worker's progress loop turns to (a Watch, see engine.loop)."""

    def __init__(
        self, inspector: Inspector, failures: FirstFailure | None, courier: Courier | None
    ) -> None:
        self._inspector, self._failures, self._courier = inspector, failures, courier
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
        if self._courier is not None:
            self._courier.close()
        self._inspector.close()


def open_watch(world: World, rendezvous: Rendezvous, address: str) -> LongWait:
    """Get ready; all ranks of a job call this together, of which there are at least two.

    Args:
        world: this rank's place.
        rendezvous: of all ranks.
        address: where the others reach this rank.
    """
    times = read_stall_times(os.environ)
    hosts = _hosts(world, rendezvous.exchange)
    pages = courier = None
    # Without shared memory, as on macOS, only rank 0 knows who is missing.
    with contextlib.suppress(SegmentError):
        pages = Pages.open(hosts, world.rank, rendezvous.exchange, stack.offer())
        if pages.abroad:
            courier = Courier.open(pages, hosts, world.rank, rendezvous.exchange, address)
    inspector = Inspector(world.rank, world.size, times, pages)
    failures = None
    if isinstance(rendezvous, BoardRendezvous):
        failures = FirstFailure(rendezvous.board, world.rank)
    return LongWait(inspector, failures, courier)


def _hosts(world: World, exchange: Exchange) -> Hosts:
    if world.one_host:
        return hosts_of([world.hostname] * world.size)
    return hosts_of([name.decode() for name in exchange(world.hostname.encode())])
