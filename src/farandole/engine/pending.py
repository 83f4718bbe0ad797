"""What the submitter of a named operation holds: one that is under way, or waits for its turn."""

from __future__ import annotations

from typing import TYPE_CHECKING

from farandole.engine.handle import Handle
from farandole.engine.operations import Operation
from farandole.transport.shm.eager import Place

if TYPE_CHECKING:
    from farandole.engine.bursts import Burst
    from farandole.engine.named import NamedLane


class Pending(Handle):
    """A submitted operation that has not ended, and what its submitter holds."""

    __slots__ = ("_lane", "burst", "name", "operation", "place", "turn")

    burst: Burst | None
    """What it was sent with, if that was more than itself."""

    def __init__(
        self,
        lane: NamedLane,
        name: str,
        operation: Operation,
        place: Place | None = None,
        turn: int = 0,
    ) -> None:
        """Begin; `place` is its place on the eager board, None when the coordinator has it."""
        # Handle's own __init__ written out: a call less for every operation.
        self.done = self._polled = False
        self.error = self.result = self.value = self.burst = None
        self._lane, self.name, self.operation = lane, name, operation
        self.place, self.turn = place, turn

    def check(self) -> bool:
        """Return whether it is done; on the eager board whoever asks completes it."""
        return self.done or self._lane.complete(self)


class Queued(Handle):
    """An operation that is submitted when the one before it under its name has ended."""

    __slots__ = ("begun", "operation")

    def __init__(self, operation: Operation) -> None:
        super().__init__()
        self.operation = operation
        self.begun: Handle | None = None

    def check(self) -> bool:
        """Return whether it is done; what is not begun is for the progress loop to begin."""
        if not self.done and self.begun is not None and self.begun.check():
            self.result, self.error, self.done = self.begun.result, self.begun.error, True
        return self.done
