"""Messages of an agent to the head, never more on the way than the head's kernel has room for.

A head may be slow: its reader is `less`, or somebody pressed Ctrl-Z. What is sent then must not
fill the connection: to a kernel, a peer that takes nothing is like one that is cut off. So the head
says how much it has taken in, and the rest waits here.
"""

from __future__ import annotations

from collections import deque

from farandole.launch import control
from farandole.world.channel import Connection

ROOM_BYTES = 64 * 1024
"""On the way at once, besides the last message."""
RECEIVE_BYTES = 1024 * 1024
"""What the head asks its kernel for; it gets a part of that, which is several times the room."""
TELL_BYTES = 16 * 1024
"""How much the head takes in before it says so."""


class Outbox:
    """What an agent has to say, in order."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._waiting: deque[bytes] = deque()
        self._sent_bytes = self._heard_bytes = 0
        self.backlog_bytes = 0
        """What waits here."""

    def send(self, message: control.Message) -> None:
        """Send a message when its turn has come."""
        data = control.encode(message)
        self._waiting.append(data)
        self.backlog_bytes += len(data)
        self.advance()

    def heard(self, total_bytes: int) -> None:
        """Take note of how much the head has taken in, of all that was ever sent."""
        self._heard_bytes = total_bytes
        self.advance()

    def advance(self) -> None:
        """Send what there is room for."""
        while self._waiting and self._sent_bytes - self._heard_bytes < ROOM_BYTES:
            data = self._waiting.popleft()
            self.backlog_bytes -= len(data)
            self._sent_bytes += len(data)
            self._connection.send(data)

    @property
    def empty(self) -> bool:
        """Say whether all has been handed to the kernel."""
        return not self._waiting and not self._connection.backed_up
