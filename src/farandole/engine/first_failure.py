"""Why a peer is gone: what it wrote on the launcher's board before it went."""

from __future__ import annotations

import time
from collections.abc import Sequence

from farandole.errors import PeerDiedError
from farandole.world.board import Board

# What the launcher takes to notice an end, and to pass it on to another host.
_PATIENCE_S = 0.3
_POLL_S = 0.005


class FirstFailure:
    """Looks for the failure that all the others follow from."""

    def __init__(self, board: Board, rank: int) -> None:
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
