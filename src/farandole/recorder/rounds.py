"""Which updates end a step, where a script has several optimizers; pure.

A step is one round. It ends with each update of the leading optimizer: the first that was seen, or
one that makes two updates while the leader makes none. So a GAN's two optimizers, or one optimizer
per parameter, make one step per batch; where a critic is trained five times as often, its updates
are the steps; and training that goes on with a new optimizer is followed.
"""

from __future__ import annotations


class Rounds:
    """Follows who makes updates."""

    def __init__(self) -> None:
        self._leader: int | None = None
        self._others: set[int] = set()

    def ended_by(self, optimizer: int) -> bool:
        """Take note of an update; return whether it ended a step."""
        if self._leader is None or optimizer in self._others:
            self._leader = optimizer
        if optimizer == self._leader:
            self._others.clear()
            return True
        self._others.add(optimizer)
        return False
