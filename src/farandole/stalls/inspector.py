"""What happens while a rank waits for long: peers' failures are looked for, and stalls.

The time of a stall is counted from when this rank first saw itself waiting. Of the ranks that wait
for an operation the lowest reports it, once.
"""

from __future__ import annotations

import contextlib
import math
import os
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from farandole.errors import PeerDiedError, StallError
from farandole.stalls import stack
from farandole.stalls.pages import (
    Forwarder,
    Key,
    Pages,
    RankStatus,
    Stall,
    deadlock,
    deadlock_report,
    stall_report,
    stalls,
    unchanged,
)
from farandole.transport.hosts import Hosts, hosts_of
from farandole.transport.protocol import Exchange
from farandole.transport.shm.segment import SegmentError
from farandole.world.board import Board
from farandole.world.environment import StallTimes, World, read_stall_times
from farandole.world.generations import GenerationBoard
from farandole.world.rendezvous import BoardRendezvous, Rendezvous

if TYPE_CHECKING:
    from farandole.engine.engine import Engine

# Peers in step answer within microseconds; a look every so often costs nothing then.
_EVERY_S = 0.1
# A deadlock is one only if everybody has looked again and nothing has changed. What other hosts say
# is here a little later.
_SURE_LOOKS = 3
_SURE_S, _SURE_ABROAD_S = 0.5, 1.5


def _say(text: str) -> None:
    sys.stderr.write(f"farandole: {text}\n")
    sys.stderr.flush()


class Inspector:
    """Looks for stalls."""

    def __init__(
        self,
        rank: int,
        size: int,
        times: StallTimes,
        pages: Pages | None,
        *,
        clock: Callable[[], float] = time.monotonic,
        say: Callable[[str], None] = _say,
    ) -> None:
        """Begin with nothing to follow.

        Args:
            rank: This rank.
            size: The number of all ranks.
            times: When to speak up.
            pages: Those that are seen from this host; None where there are none.
            clock: Tells seconds.
            say: Shows a report.
        """
        self._rank, self._size, self._times, self._pages = rank, size, times, pages
        self._clock, self._say = clock, say
        self._followed: dict[tuple[int, ...], Engine] = {}
        self._lock = threading.Lock()
        self._due_s = math.inf
        self._blocked = False
        self._since_s: dict[Key, float] = {}
        self._reported: set[Key] = set()
        self._suspicion: tuple[float, Mapping[int, RankStatus]] | None = None

    def follow(self, engine: Engine) -> None:
        """Look after the operations of an engine from now on."""
        self._followed[engine.ranks] = engine

    def forget(self, engine: Engine) -> None:
        """Look after them no longer."""
        self._followed.pop(engine.ranks, None)

    def look(self, *, blocked: bool) -> None:
        """Look around, if the last look was long enough ago.

        Args:
            blocked: Whether the caller waits for something that nothing else can come before; the
                progress thread, which looks often, does not.

        Raises:
            StallError: The time is up; only to a caller that is blocked.
        """
        if self._blocked and not blocked:
            return  # who is blocked looks more often, and can end it
        now_s = self._clock()
        if blocked and not self._blocked:
            self._blocked = True
            self._due_s = now_s + _EVERY_S
        elif self._due_s == math.inf:
            self._due_s = now_s + _EVERY_S
        if now_s < self._due_s or not self._lock.acquire(blocking=False):
            return
        try:
            self._due_s = now_s + _EVERY_S
            self._look(now_s, blocked)
        finally:
            self._lock.release()

    def leave(self) -> None:
        """Say that the caller waits no longer."""
        if self._blocked:
            self._blocked = False
            self._due_s = math.inf
            with self._lock:
                if self._pages is not None and self._since_s:
                    self._pages.publish((), blocked=False)
                self._since_s.clear()

    def close(self) -> None:
        """Let go of everything."""
        with self._lock:
            self._followed.clear()
            pages, self._pages = self._pages, None
            if pages is not None:
                pages.close()

    def _look(self, now_s: float, blocked: bool) -> None:
        known: dict[Key, Sequence[int]] = {}
        waiting: list[Key] = []
        for members, engine in list(self._followed.items()):
            for name, missing in engine.waiting().items():
                key = Key(members, name)
                waiting.append(key)
                if missing is not None:
                    known[key] = [members[place] for place in missing]
        self._since_s = {key: self._since_s.get(key, now_s) for key in waiting}
        self._reported &= self._since_s.keys()
        said = self._exchange(waiting)
        found = stalls(self._rank, said, known)
        self._find_deadlock(now_s, said)
        self._report(now_s, found)
        if blocked:
            self._end(now_s, found)

    def _exchange(self, waiting: Sequence[Key]) -> dict[int, RankStatus]:
        mine = RankStatus(waiting=frozenset(waiting), blocked=self._blocked)
        if self._pages is None:
            return {self._rank: mine}
        self._pages.publish(waiting, blocked=self._blocked)
        return {self._rank: mine, **self._pages.read()}

    def _find_deadlock(self, now_s: float, said: Mapping[int, RankStatus]) -> None:
        found = deadlock(self._size, said)
        if not found or self._times.warning_s == math.inf:
            self._suspicion = None
            return
        if self._suspicion is None or not unchanged(self._suspicion[1], said, looks=0):
            self._suspicion = (now_s, said)
            return
        since_s, before = self._suspicion
        sure_s = _SURE_ABROAD_S if self._pages is not None and self._pages.abroad else _SURE_S
        keys = {stall.key for stall in found}
        if (
            now_s - since_s >= sure_s
            and unchanged(before, said, looks=_SURE_LOOKS)
            and not keys & self._reported
        ):
            # Every rank finds it, and rank 0 says so.
            self._reported |= self._since_s.keys()
            if self._rank == 0:
                self._say(deadlock_report(found, self._stacks(range(self._size))))

    def _report(self, now_s: float, found: Sequence[Stall]) -> None:
        mine = [
            stall
            for stall in found
            if stall.waiting[0] == self._rank and stall.key not in self._reported
        ]
        waited_s = max((now_s - self._since_s[stall.key] for stall in mine), default=0.0)
        if mine and waited_s >= self._times.warning_s:
            self._reported |= {stall.key for stall in mine}
            self._say(stall_report(mine, waited_s, self._stacks_of(mine)))

    def _end(self, now_s: float, found: Sequence[Stall]) -> None:
        waited_s = max((now_s - self._since_s[stall.key] for stall in found), default=0.0)
        if found and waited_s >= self._times.shutdown_s:
            text = stall_report(found, waited_s, self._stacks_of(found))
            raise StallError(
                f"{text}\nThis was the end after --stall-shutdown.", culprit=found[0].missing[0]
            )

    def _stacks_of(self, found: Sequence[Stall]) -> dict[int, Sequence[str]]:
        return self._stacks(sorted({rank for stall in found for rank in stall.missing}))

    def _stacks(self, ranks: Iterable[int]) -> dict[int, Sequence[str]]:
        return {} if self._pages is None else self._pages.stacks(ranks)


# How often the launcher's board is read.
_FAILURES_EVERY_S = 0.05


class LongWait(Inspector):
    """Looks for failures of peers, too (what a worker's progress loop turns to)."""

    def __init__(
        self,
        world: World,
        times: StallTimes,
        pages: Pages | None,
        failures: FirstFailure | None,
        forwarder: Forwarder | None,
    ) -> None:
        """Begin; `failures` is None without a launcher's board, `forwarder` on one host."""
        super().__init__(world.rank, world.size, times, pages)
        self._failures, self._forwarder = failures, forwarder
        self._failures_due_s = 0.0

    def look(self, *, blocked: bool) -> None:
        """Look for failures and stalls."""
        if blocked and self._failures is not None:
            now_s = time.monotonic()
            if now_s >= self._failures_due_s:
                self._failures_due_s = now_s + _FAILURES_EVERY_S
                self._failures.check()
        super().look(blocked=blocked)

    def explain(self, error: PeerDiedError) -> PeerDiedError:
        """Say why a peer is gone."""
        return error if self._failures is None else self._failures.explain(error)

    def close(self) -> None:
        """Let go of everything."""
        if self._forwarder is not None:
            self._forwarder.close()
        super().close()


def open_watch(world: World, rendezvous: Rendezvous, address: str) -> LongWait:
    """Get ready; all ranks of a job call this together, of which there are at least two.

    Args:
        world: this rank's place.
        rendezvous: of all ranks.
        address: where the others reach this rank.
    """
    times = read_stall_times(os.environ)
    hosts = _hosts(world, rendezvous.exchange)
    pages = forwarder = None
    # Without shared memory, as on macOS, only rank 0 knows who is missing.
    with contextlib.suppress(SegmentError):
        pages = Pages.open(hosts, world.rank, rendezvous.exchange, stack.offer())
        if pages.abroad:
            forwarder = Forwarder.open(pages, hosts, world.rank, rendezvous.exchange, address)
    failures = None
    if isinstance(rendezvous, BoardRendezvous):
        failures = FirstFailure(rendezvous.board, world.rank)
    return LongWait(world, times, pages, failures, forwarder)


def _hosts(world: World, exchange: Exchange) -> Hosts:
    if world.one_host:
        return hosts_of([world.hostname] * world.size)
    return hosts_of([name.decode() for name in exchange(world.hostname.encode())])


# What the launcher takes to notice an end, and to pass it on to another host.
_PATIENCE_S = 0.3
_POLL_S = 0.005


class FirstFailure:
    """Looks for the failure that all the others follow from."""

    def __init__(self, board: Board | GenerationBoard, rank: int) -> None:
        """Begin.

        Args:
            board: the launcher's.
            rank: this one.
        """
        self._board, self._rank = board, rank
        self._peers = [peer for peer in range(board.size) if peer != rank]

    def check(self) -> None:
        """Raise PeerDiedError if a peer has failed, also while its process takes time to end."""
        peer, text = self._noted()
        if text:
            raise PeerDiedError(f"{text} Rank {self._rank} was waiting for it.", culprit=peer)
        self._board.check()

    def explain(self, error: PeerDiedError) -> PeerDiedError:
        """Add to an error what the peer said itself, or how it ended."""
        deadline = time.monotonic() + _PATIENCE_S
        while True:
            peer, text = self._noted()
            if not text:
                peer, text = self._ended()
                peer = peer if error.culprit is None else error.culprit
            if text:
                if text not in str(error):
                    return PeerDiedError(f"{error} {text}", culprit=peer)
                error.culprit = peer
                return error
            if time.monotonic() > deadline:
                return error
            time.sleep(_POLL_S)

    def _noted(self) -> tuple[int | None, str]:
        """Return the first failure that is nobody else's consequence, and whose it is."""
        notes = [
            (note.time_ns, peer, note.text)
            for peer in self._peers
            if (note := self._board.failure(peer)) is not None and not note.secondary
        ]
        if not notes:
            return None, ""
        _, peer, text = min(notes)
        return peer, f"Rank {peer} failed: {text.rstrip('.')}."

    def _ended(self) -> tuple[int | None, str]:
        codes = {peer: self._board.exit_code(peer) for peer in self._peers}
        ended = [(peer, code) for peer, code in codes.items() if code is not None]
        return (None, "") if not ended else _how(ended)


def _how(ended: Sequence[tuple[int, int]]) -> tuple[int, str]:
    """Say whose end it was and how; one by a signal or with a code tells more than a good one."""
    peer, code = max(ended, key=lambda each: each[1] != 0)
    if code < 0:
        return peer, f"Rank {peer} was ended by signal {-code}."
    if code:
        return peer, f"Rank {peer} exited with code {code}."
    return peer, f"Rank {peer} has come to the end of its script."
