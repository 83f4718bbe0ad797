"""What happens while a rank waits for long: peers' failures are looked for, and stalls."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Sequence

from farandole.engine.loop import Group
from farandole.errors import PeerDiedError
from farandole.stalls import stack
from farandole.stalls.forwarder import Forwarder
from farandole.stalls.inspector import Inspector
from farandole.stalls.pages import Pages
from farandole.transport.hosts import Hosts, hosts_of
from farandole.transport.protocol import Exchange
from farandole.transport.shm.segment import SegmentError
from farandole.world.board import Board
from farandole.world.environment import World, read_stall_times
from farandole.world.generations import GenerationBoard
from farandole.world.rendezvous import BoardRendezvous, Rendezvous

_EVERY_S = 0.05


class LongWait:
    """What a worker's progress loop turns to (a Watch, see engine.loop)."""

    def __init__(
        self, inspector: Inspector, failures: FirstFailure | None, forwarder: Forwarder | None
    ) -> None:
        self._inspector, self._failures, self._courier = inspector, failures, forwarder
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
    pages = forwarder = None
    # Without shared memory, as on macOS, only rank 0 knows who is missing.
    with contextlib.suppress(SegmentError):
        pages = Pages.open(hosts, world.rank, rendezvous.exchange, stack.offer())
        if pages.abroad:
            forwarder = Forwarder.open(pages, hosts, world.rank, rendezvous.exchange, address)
    inspector = Inspector(world.rank, world.size, times, pages)
    failures = None
    if isinstance(rendezvous, BoardRendezvous):
        failures = FirstFailure(rendezvous.board, world.rank)
    return LongWait(inspector, failures, forwarder)


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
